"""Figures for screens and papers."""
