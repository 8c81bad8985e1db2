"""The command `ptynb`."""
