"""Simulated scans and probes, in plain numpy and independent of the reconstruction's model."""
