"""Simulated scans and probes, by plain numpy and apart from the reconstruction's own model."""
