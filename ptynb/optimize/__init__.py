"""Algorithms that update the parameters, the order of patterns, and the communication of updates between engines."""
