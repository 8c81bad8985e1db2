"""The algorithms that take the parameters from one update to the next, and what they share between engines."""
