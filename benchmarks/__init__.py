"""Packages for ptychography, measured on the same problems."""
