"""Plain records of measurements, geometry and results: no torch, no widgets."""

from ptynb.data import electrons as electrons
