"""Studies of settings, and scaling tests, on the engines of a cluster."""
