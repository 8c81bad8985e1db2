"""A colour map: from dark blue through rose to light yellow."""

import numpy as np

ANCHORS = np.array([[0.05, 0.05, 0.2], [0.35, 0.2, 0.5], [0.8, 0.35, 0.5], [0.97, 0.7, 0.5], [1.0, 0.97, 0.8]])
"""Colours (place, rgb) at equal distances, of increasing lightness."""
DUSK = np.column_stack([np.interp(np.linspace(0, 4, 256), np.arange(5), one) for one in ANCHORS.T])
"""The map (256, 3), from 0 to 1."""
