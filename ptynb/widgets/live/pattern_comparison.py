"""The measured diffraction pattern of a position, and the modelled one of the current state."""

from __future__ import annotations

import numpy as np

from ptynb.data import images
from ptynb.data.engine_records import Array, PatternPair, Picture


def pictures_of(pair: PatternPair, logarithmic: bool) -> tuple[Picture, Picture]:
    """Return pictures of both patterns with the limits of the measured one."""
    measured, modelled = (_scaled(counts, pair.mask, logarithmic) for counts in (pair.measured, pair.modelled))
    limits = (0.0, max(float(measured.max()), 1e-6))
    unit = "log10(1 + counts)" if logarithmic else "counts"

    def picture(values: Array, name: str) -> Picture:
        title = f"pattern {pair.index}, {name}"
        return images.picture(values, name, title, limits=limits, unit=unit, colours="magma")

    return picture(measured, "measured"), picture(modelled, "modelled")


def pattern_words(pair: PatternPair) -> str:
    """Return the counts of both patterns and how well they agree, in words."""
    return (
        f"{pair.measured.sum():,.0f} counts measured, {pair.modelled[pair.mask].sum():,.0f} modelled, "
        f"R-factor {pair.r_factor:.4f}, epoch {pair.epoch}"
    )


def _scaled(counts: Array, mask: Array, logarithmic: bool) -> Array:
    unmasked = np.where(mask, counts, 0.0).clip(0)
    return np.log10(1 + unmasked) if logarithmic else unmasked
