"""The components of the forward model, in the order in which light meets them."""
