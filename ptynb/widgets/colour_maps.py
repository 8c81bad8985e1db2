"""Colour maps as look-up tables, taken from matplotlib's."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps

from ptynb.data.engine_records import Array
from ptynb.exceptions import InvalidValueError

COLOURS = ("gray", "viridis", "cividis", "magma", "PuOr", "twilight")
"""Maps to choose from: perceptually uniform; PuOr diverges, for differences, twilight is cyclic, for phases."""
CYCLIC = ("twilight", "twilight_shifted")
"""Cyclic maps, for which the browser does not change the contrast."""


def look_up_table(name: str) -> Array:
    """Return the table (256, 3) uint8 of a matplotlib colour map. Raises ValueError for an unknown name."""
    if name not in colormaps:
        raise InvalidValueError(
            f"There is no colour map {name!r}; expected one of matplotlib, such as 'gray' or 'viridis'.",
            code="argument.invalid-value",
        )
    return (colormaps[name](np.arange(256) / 255.0)[:, :3] * 255).round().astype(np.uint8)
