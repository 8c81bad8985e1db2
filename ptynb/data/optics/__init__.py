"""Wave optics of the beam in plain numpy: apertures, aberrations, and the probe of a lens."""
