"""The components of the forward model, in the order of the beam path."""
