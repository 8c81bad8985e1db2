"""Simulated scans and probes, in plain numpy and independent of the reconstruction's model."""

from ptynb.simulation import illumination as illumination
