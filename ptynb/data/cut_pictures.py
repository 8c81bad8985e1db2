"""Pictures of cuts through the slices of a thick object, along the beam, true to scale where that is legible.

In a cut (z, x) each slice is a band of equal pixel rows. The depth of an object is often a hundredth of its width, or a
multiple: z is then stretched or compressed by a round factor, which the picture's note states.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ptynb.data import images
from ptynb.data.images import Picture
from ptynb.data.record import Array

DEPTHS = 1 / 5, 1.5
"""Depth of a picture relative to its longer side between which z has the scale of x and y."""
UNITS = (("m", 1.0), ("mm", 1e-3), ("µm", 1e-6), ("nm", 1e-9), ("pm", 1e-12))


def stretch_of(depth: float, width: float) -> float:
    """Return the factor of z, 1, 2, 5, 10, ... or 1/2, 1/5, ..., by which depth and width [m] are legible together."""
    ratio, factor = depth / width, 1.0
    low, high = DEPTHS
    steps = [base * 10**power for power in range(9) for base in (1, 2, 5)]
    if ratio < low:
        factor = next((step for step in steps if step * ratio >= low), float(steps[-1]))
    elif ratio > high:
        factor = next((1 / step for step in steps if ratio / step <= high), 1 / steps[-1])
    return factor


def cut_pictures(
    name: str,
    xz: Array,
    yz: Array,
    *,
    at: tuple[int, int],
    pixel_size: tuple[float, float],
    distance: float,
    limits: tuple[float, float] | None,
    largest: float = 1.0,
    size: int = 1024,
    unit: str = "",
    colours: str = "gray",
) -> tuple[Picture, Picture]:
    """Return the pictures "`name` xz" (z down, x across) and "`name` yz" (y down, z across) of values (slice, x or y).

    at: row and column of the cuts, for the titles. pixel_size: (y, x) of the object [m]. distance: of two slices [m].
    limits: values of black and white; None: values are complex and become colours, of which `largest` is the brightest
    amplitude. size: longest side of the image [its pixels].
    """
    slices = len(xz)
    width = max(xz.shape[1] * pixel_size[1], yz.shape[1] * pixel_size[0])
    stretch = stretch_of(slices * distance, width)
    pictures = []
    for cut, values, pixel, fixed, transposed in (
        ("xz", xz, pixel_size[1], f"y {at[0]}", False),
        ("yz", yz, pixel_size[0], f"x {at[1]}", True),
    ):
        reduction = images.reduction_for((1, values.shape[1]), size)
        # Pixels of a band, a multiple of those that are one in the image.
        band = max(1, round(stretch * distance / pixel / reduction)) * reduction
        reduced = _along(values, reduction)
        shown: NDArray[np.uint8]
        if limits is None:
            shown = images.hues(np.angle(reduced), np.abs(reduced), largest)
        else:
            shown = images.levels(reduced, limits)
        shown = np.repeat(shown, band // reduction, axis=0)
        shape = (slices * band, values.shape[1])
        sizes, bands, axes = (distance / band, pixel), (band, 1), ("z", "x")
        if transposed:
            shown, shape = np.swapaxes(shown, 0, 1), (shape[1], shape[0])
            sizes, bands, axes = (sizes[1], sizes[0]), (1, band), ("y", "z")
        actual = band * pixel / distance
        scale = (
            ""
            if math.isclose(actual, 1, rel_tol=0.05)
            else f", z × {actual:.2g}"
            if actual < 100
            else f", z × {actual:.0f}"
        )
        pictures.append(
            Picture(
                f"{name} {cut}",
                f"{name}, {cut} at {fixed}",
                images.png(np.ascontiguousarray(shown)),
                shape,
                reduction,
                limits,
                unit,
                sizes,
                colours,
                f"{slices} slices, {length_text(distance)} apart{scale}",
                axes,
                bands,
            )
        )
    return pictures[0], pictures[1]


def length_text(length: float, digits: int = 3) -> str:
    """Return a length [m] in the unit that suits it, such as '2.5 nm'."""
    unit, size = next((one for one in UNITS if abs(length) >= 0.9999 * one[1]), UNITS[-1])
    return f"{length / size:.{digits}g} {unit}"


def _along(values: Array, reduction: int) -> Array:
    """Return means of `reduction` values along the last axis, without an incomplete block at its end."""
    if reduction == 1:
        return values
    count = values.shape[1] // reduction
    return values[:, : count * reduction].reshape(len(values), count, reduction).mean(2)
