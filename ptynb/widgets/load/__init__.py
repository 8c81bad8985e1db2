"""Choosing a file, and what `load` needs to open it."""
