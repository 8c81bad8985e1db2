"""Commands of `ptynb` in files of their own."""
