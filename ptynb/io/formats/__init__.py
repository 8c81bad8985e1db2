"""Readers of other programs' files, one module per format."""
