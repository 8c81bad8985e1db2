"""Functions on tensors for the physics, and thin modules over them. See `ptynb/conventions.md` for signs and units."""
