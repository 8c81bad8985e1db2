"""Patterns as pictures: centred, on a linear, logarithmic or power scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ptynb.data import images
from ptynb.data.engine_records import Array, Picture
from ptynb.data.scan import Scan
from ptynb.polling import wait_until
from ptynb.widgets import elements
from ptynb.widgets.inspect.inspect_state import real
from ptynb.widgets.viewer.viewer import Viewer

SCALES = ("log", "linear", "gamma")
MASKED, FOUND = (230, 159, 0), (86, 180, 233)
"""Colours of masked and of detected bad pixels: orange and sky blue, distinguishable with colour blindness."""


def is_shifted(scan: Scan) -> bool:
    """Return whether the scan's patterns have their zero frequency at index 0."""
    return scan.is_far_field and not scan.centred


def centred(scan: Scan, field: Array) -> Array:
    """Return a field (y, x) in the order of the patterns, with the zero frequency in the middle."""
    return np.fft.fftshift(field) if is_shifted(scan) else field


def pattern_of(scan: Scan, index: int) -> Array:
    """Return a pattern (y, x), centred; bad pixels and values that are not finite are 0."""
    counts = scan.frames.read(index, index + 1)[0].astype(np.float64)
    good = np.isfinite(counts) if scan.mask is None else np.isfinite(counts) & scan.mask
    return centred(scan, np.where(good, counts, 0))


def scaled(counts: Array, scale: str, exponent: float) -> Array:
    """Return counts on a scale; negative ones are 0 except on the linear scale."""
    if scale == "linear":
        return counts
    return np.log10(np.maximum(counts, 0) + 1) if scale == "log" else np.maximum(counts, 0) ** exponent


def exponent_of(scale: elements.Dropdown) -> elements.BoundedFloatText:
    """Return a field for the exponent, which is shown while a power is chosen as the scale."""
    field = real("Exponent", 0.5, 0.05, 5.0, step=0.05)

    def follow(_: object = None) -> None:
        field.layout.display = None if scale.value == "gamma" else "none"

    scale.observe(follow, "value")
    follow()
    return field


def unit_of(scale: str, exponent: float, unit: str = "counts") -> str:
    """Return the unit of values on a scale."""
    return {"linear": unit, "log": f"log10(1 + {unit})", "gamma": f"({unit})^{exponent:g}"}[scale]


def pattern_picture(counts: Array, name: str, title: str, scale: str, exponent: float, unit: str = "counts") -> Picture:
    """Return the picture of a pattern, from 0 or its smallest value to its largest."""
    values = scaled(counts, scale, exponent)
    low, high = min(0.0, float(values.min())), float(values.max())
    limits = (low, high if high > low else low + 1.0)
    shown = unit_of(scale, exponent, unit)
    return images.picture(values, name, title, limits=limits, unit=shown, colours="magma")


def mask_picture(counts: Array, good: Array, found: Array | None, name: str, title: str) -> Picture:
    """Return the logarithm of a pattern (y, x) in greys; masked pixels are orange, bad ones not yet masked blue."""
    values = scaled(counts, "log", 1.0)
    values = values / max(float(values[good].max(initial=0)), 1e-9)
    colours = images.coloured(values, (0.0, 1.0))
    if found is not None:
        colours[found & good] = FOUND
    colours[~good] = MASKED
    height, width = good.shape
    return Picture(name, title, images.png(colours), (height, width))


def show(viewer: Viewer, pictures: Sequence[Picture]) -> None:
    """Show pictures after the browser has drawn the last ones; wait a second at most."""
    wait_until(lambda: viewer.ready, 1.0, 0.005)
    viewer.show(pictures)
