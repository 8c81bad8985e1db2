"""Masks made by hand: brush strokes, discs, and a history to go back in. True is where the detector works."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError

Mask = NDArray[np.bool_]
MOST_STEPS = 100


def painted(mask: ArrayLike, path: ArrayLike, radius: float, good: bool = False) -> Mask:
    """The mask (y, x) after a brush stroke: pixels whose centres lie within `radius` of the path become `good`.

    path: (point, yx) in pixels, joined by straight lines; one point makes a disc. Points may lie outside.
    radius: [pixels]; 0.5 marks the pixels under the path.

    Raises ValueError for a path of another shape, numbers that are not finite, or a radius that is not positive.
    """
    out = np.array(mask, dtype=bool)
    points = np.asarray(path, dtype=np.float64)
    if (
        out.ndim != 2
        or points.ndim != 2
        or points.shape[1:] != (2,)
        or not len(points)
        or not np.isfinite(points).all()
    ):
        raise InvalidValueError(
            f"The stroke has shape {points.shape} on a mask of {out.shape}; expected finite (point, yx) on (y, x).",
            code="array.shape-mismatch",
        )
    if not (np.isfinite(radius) and radius > 0):
        raise InvalidValueError(
            f"The brush has radius {radius!r}; expected a positive number of pixels.", code="argument.invalid-value"
        )
    ends = points[1:] if len(points) > 1 else points
    for start, end in zip(points[: len(ends)], ends, strict=True):
        _stroke(out, start, end, radius, good)
    return out


def _stroke(mask: Mask, start: NDArray[np.float64], end: NDArray[np.float64], radius: float, good: bool) -> None:
    """Sets the pixels within `radius` of a line; only those of the rectangle around it are looked at."""
    low = np.maximum(np.floor(np.minimum(start, end) - radius), 0).astype(int)
    high = np.minimum(np.ceil(np.maximum(start, end) + radius) + 1, mask.shape).astype(int)
    if (high <= low).any():
        return
    y, x = np.mgrid[low[0] : high[0], low[1] : high[1]].astype(np.float64) - start[:, None, None]
    along = end - start
    length = float(along @ along)
    part = np.clip((y * along[0] + x * along[1]) / length, 0, 1) if length else 0.0
    near = np.hypot(y - part * along[0], x - part * along[1]) <= radius
    mask[low[0] : high[0], low[1] : high[1]][near] = good


def with_mask(scan: Scan, mask: ArrayLike | None) -> Scan:
    """The scan with this mask (y, x) in the place of its own, in the order of its patterns; None: all pixels are good.

    `ptynb.preparation.mask_pixels` adds to the mask instead. Raises ScanError if it does not fit or leaves no pixel.
    """
    return dataclasses.replace(scan, mask=None if mask is None else np.asarray(mask).astype(bool))


class MaskHistory:
    """A mask that changes, and what it was before each change."""

    def __init__(self, mask: Mask) -> None:
        self._masks = [mask.copy()]

    @property
    def mask(self) -> Mask:
        """As it is now; a copy."""
        return self._masks[-1].copy()

    @property
    def changed(self) -> bool:
        """Whether there is anything to undo."""
        return len(self._masks) > 1

    def change(self, mask: Mask) -> bool:
        """Keeps a new one, of the same shape, and says whether it is another; the oldest of many are forgotten."""
        assert mask.shape == self._masks[-1].shape
        another = not np.array_equal(mask, self._masks[-1])
        if another:
            self._masks = [*self._masks[-MOST_STEPS:], mask.copy()]
        return another

    def undo(self) -> None:
        """Back to the one before; nothing happens at the first."""
        if self.changed:
            self._masks.pop()
