"""The page of `ptynb watch`."""
