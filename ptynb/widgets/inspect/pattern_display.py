"""Patterns as pictures: centred, on a linear, logarithmic or power scale, sent when the browser has drawn the last."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ptynb.data import images
from ptynb.data.scan import Scan
from ptynb.data.snapshot import Array, Picture
from ptynb.widgets.viewer.viewer import Viewer

SCALES = ("log", "linear", "gamma")
MASKED, FOUND = (230, 159, 0), (86, 180, 233)
"""Orange and sky blue: told apart, and from greys, without colour vision too."""


def is_shifted(scan: Scan) -> bool:
    """Whether the scan's patterns have their zero frequency at index 0."""
    return scan.is_far_field and not scan.centred


def centred(scan: Scan, field: Array) -> Array:
    """A field (y, x) in the order of the patterns, with the zero frequency in the middle."""
    return np.fft.fftshift(field) if is_shifted(scan) else field


def pattern_of(scan: Scan, index: int) -> Array:
    """A pattern (y, x), centred, as stored but for bad pixels and numbers that are not finite, which are 0."""
    counts = scan.frames.read(index, index + 1)[0].astype(np.float64)
    good = np.isfinite(counts) if scan.mask is None else np.isfinite(counts) & scan.mask
    return centred(scan, np.where(good, counts, 0))


def scaled(counts: Array, scale: str, exponent: float) -> Array:
    """Counts as they are shown; negative ones are 0 but on the linear scale."""
    if scale == "linear":
        return counts
    return np.log10(np.maximum(counts, 0) + 1) if scale == "log" else np.maximum(counts, 0) ** exponent


def unit_of(scale: str, exponent: float, unit: str = "counts") -> str:
    """What the numbers of a scale are."""
    return {"linear": unit, "log": f"log10(1 + {unit})", "gamma": f"({unit})^{exponent:g}"}[scale]


def pattern_picture(counts: Array, name: str, title: str, scale: str, exponent: float, unit: str = "counts") -> Picture:
    """The picture of a pattern, from 0, or the least of its counts, to the brightest."""
    values = scaled(counts, scale, exponent)
    low, high = min(0.0, float(values.min())), float(values.max())
    limits = (low, high if high > low else low + 1.0)
    shown = unit_of(scale, exponent, unit)
    return images.picture(values, name, title, limits=limits, unit=shown, colours="magma")


def mask_picture(counts: Array, good: Array, found: Array | None, name: str, title: str) -> Picture:
    """The logarithm of a pattern (y, x) in greys, masked pixels orange, those found and not masked yet blue."""
    values = scaled(counts, "log", 1.0)
    values = values / max(float(values[good].max(initial=0)), 1e-9)
    colours = images.coloured(values, (0.0, 1.0))
    if found is not None:
        colours[found & good] = FOUND
    colours[~good] = MASKED
    height, width = good.shape
    return Picture(name, title, images.png(colours), (height, width))


def show(viewer: Viewer, pictures: Sequence[Picture]) -> None:
    """Shows pictures once the browser has drawn the earlier ones; waits a second at most."""
    while not viewer.ready:
        time.sleep(0.005)
    viewer.show(pictures)
