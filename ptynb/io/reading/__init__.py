"""Shared by the readers of all formats: records, units, axes, searches, and checks of sizes."""
