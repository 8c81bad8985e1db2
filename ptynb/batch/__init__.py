"""Runs without a notebook."""
