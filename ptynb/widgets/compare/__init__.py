"""Results side by side in the notebook: `compare`."""
