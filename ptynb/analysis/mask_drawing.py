"""Drawing of masks: brush strokes, and an undo history. True marks working pixels."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError, check_positive

Mask = NDArray[np.bool_]
MOST_STEPS = 100


def painted(mask: ArrayLike, path: ArrayLike, radius: float, good: bool = False) -> Mask:
    """Return a mask after a brush stroke.

    Parameters
    ----------
    mask : array_like of bool
        Mask (y, x).
    path : array_like
        Points (point, yx) [pixels], connected by straight lines; one point gives a disc. Points may lie outside.
    radius : float
        Radius of the brush [pixels]; 0.5 marks the pixels under the path.
    good : bool, default False
        New value of the pixels whose centres lie within the radius of the path.

    Returns
    -------
    ndarray of bool
        The new mask (y, x).

    Raises
    ------
    InvalidValueError
        If the path has another shape or is not finite, or the radius is not positive.
    """
    out = np.array(mask, dtype=bool)
    points = np.asarray(path, dtype=np.float64)
    fits = out.ndim == points.ndim == 2 and points.shape[1] == 2 and len(points) > 0
    if not (fits and np.isfinite(points).all()):
        raise InvalidValueError(
            f"The path has shape {points.shape} and the mask {out.shape}; expected finite (point, yx) and (y, x).",
            code="array.shape-mismatch",
        )
    check_positive(radius, "radius", "pixels")
    ends = points[1:] if len(points) > 1 else points
    for start, end in zip(points[: len(ends)], ends, strict=True):
        _stroke(out, start, end, radius, good)
    return out


def _stroke(mask: Mask, start: NDArray[np.float64], end: NDArray[np.float64], radius: float, good: bool) -> None:
    """Set the pixels within `radius` of a line, in the rectangle around it."""
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
    """Replace the mask of a scan; `ptynb.preparation.mask_pixels` adds to it instead.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    mask : array_like or None
        Mask (y, x), True at working pixels, in the order of the patterns; None: no mask.

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    ScanError
        If the mask has another shape, or no working pixel (code "scan.mask-empty").
    """
    return dataclasses.replace(scan, mask=None if mask is None else np.asarray(mask).astype(bool))


class MaskHistory:
    """A mask (y, x) and its earlier versions, for undo."""

    def __init__(self, mask: Mask) -> None:
        self._masks = [mask.copy()]

    @property
    def mask(self) -> Mask:
        """Copy of the current mask."""
        return self._masks[-1].copy()

    @property
    def changed(self) -> bool:
        """Whether there is a change to undo."""
        return len(self._masks) > 1

    def change(self, mask: Mask) -> bool:
        """Store a new mask of the same shape and return whether it differs; the oldest of many versions are dropped."""
        assert mask.shape == self._masks[-1].shape
        differs = not np.array_equal(mask, self._masks[-1])
        if differs:
            self._masks = [*self._masks[-MOST_STEPS:], mask.copy()]
        return differs

    def undo(self) -> None:
        """Return to the previous mask, if there is one."""
        if self.changed:
            self._masks.pop()
