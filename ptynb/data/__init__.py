"""Plain records of measurements, geometry and results: no torch, no widgets."""
