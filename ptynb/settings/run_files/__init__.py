"""Files of runs without a notebook: their sections, and an example."""
