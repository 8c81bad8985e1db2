"""Known faults of a reconstruction: their measures, thresholds and remedies."""
