"""A page with the pictures that a run keeps in a folder."""
