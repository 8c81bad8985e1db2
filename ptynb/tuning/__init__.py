"""Studies: trials of settings on the engines of a cluster."""
