"""A reconstruction as the notebook's kernel holds it."""
