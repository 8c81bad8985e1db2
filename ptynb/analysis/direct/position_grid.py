"""A grid for pictures of a scan, and the values of patterns at scattered positions on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.spatial import ConvexHull, QhullError, cKDTree

from ptynb.exceptions import ScanError

Array = NDArray[np.float64]
NEIGHBOURS = 6
"""Number of patterns that a pixel is interpolated from, if positions are scattered."""
FARTHEST = 1.5
"""Largest distance of a pixel from the nearest position, in pixels."""
JITTER = 0.1
"""Largest root-mean-square distance of a raster's positions from its points, in steps."""
FEWEST = 4
"""Smallest number of pixels of a side."""


@dataclass(frozen=True, eq=False)
class PositionGrid:
    """A grid of equidistant pixels over positions.

    y, x: coordinates of rows and columns, in the unit of the positions. raster: whether the positions are such a grid,
    each pixel one pattern. inside: pixels (y, x) that have a position near. weights: csr_array (pixel, pattern) of the
    patterns at each pixel, 0 outside.
    """

    y: Array
    x: Array
    raster: bool
    inside: NDArray[np.bool_]
    weights: Any

    @property
    def step(self) -> tuple[float, float]:
        """Distance (y, x) of the pixels."""
        return float(self.y[1] - self.y[0]), float(self.x[1] - self.x[0])

    def picture(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values (pattern, ...) as pictures (y, x, ...), 0 outside."""
        on_grid = self.weights.astype(values.dtype) @ values.reshape(len(values), -1)
        return on_grid.reshape(len(self.y), len(self.x), *values.shape[1:])


def position_grid(places: Array, planned: Array | None = None) -> PositionGrid:
    """Return the grid of a raster along y and x, or one with about as many pixels as there are scattered positions.

    places: positions (pattern, yx). planned: those of the whole scan, of which `places` have come; the grid is that of
    all, and a pixel of a raster is outside until its pattern comes. Pixels of a scattered scan are means of the nearest
    patterns, weighted by the inverse fourth power of the distance.
    """
    whole = places if planned is None else planned
    y, x = (_raster_axis(whole[:, axis]) for axis in (0, 1))
    raster = y is not None and x is not None and 0.9 <= len(whole) / (len(y) * len(x)) <= 1
    if not raster:
        step = math.sqrt(_area(whole) / len(whole))
        low, high = whole.min(0), whole.max(0)
        y, x = (
            first + step * np.arange(max(FEWEST, 1 + math.floor((last - first) / step + 1e-6)))
            for first, last in zip(low, high, strict=True)
        )
    assert y is not None
    assert x is not None
    steps = np.array([y[1] - y[0], x[1] - x[0]])
    if raster and planned is not None:  # measured positions may differ from those of the plan
        at = (places - [y[0], x[0]]) / steps
        raster = math.sqrt(float(np.mean((at - np.rint(at)) ** 2))) <= JITTER
    pixels = np.stack(np.meshgrid(y, x, indexing="ij"), -1).reshape(-1, 2)
    count = 1 if raster else min(NEIGHBOURS, len(places))
    distance, nearest = cKDTree(places / steps).query(pixels / steps, k=count)
    distance, nearest = distance.reshape(len(pixels), count), nearest.reshape(len(pixels), count)
    inside = distance[:, 0] <= (FARTHEST if planned is None or not raster else 0.5)
    weights = 1 / (distance**2 + 1e-6) ** 2
    weights = np.where(inside[:, None], weights / weights.sum(1, keepdims=True), 0)
    rows = np.repeat(np.arange(len(pixels)), count)
    matrix = csr_array((weights.ravel(), (rows, nearest.ravel())), shape=(len(pixels), len(places)))
    return PositionGrid(y, x, raster, inside.reshape(len(y), len(x)), matrix)


def _raster_axis(values: Array) -> Array | None:
    """Return the coordinates of equidistant lines at which all values are; None if there are none."""
    ordered = np.sort(values)
    gaps = np.diff(ordered)
    if not len(gaps) or gaps.max() <= 0:
        return None
    lines = 1 + int((gaps > gaps.max() / 2).sum())
    if lines < FEWEST or lines > len(values) // 2:
        return None
    step = float(ordered[-1] - ordered[0]) / (lines - 1)
    at = np.rint((values - ordered[0]) / step)
    away = values - ordered[0] - at * step
    if math.sqrt(float(np.mean((away - away.mean()) ** 2))) > JITTER * step:
        return None
    return ordered[0] + float(away.mean()) + step * np.arange(lines)


def _area(places: Array) -> float:
    """Return the area of the convex hull of positions (pattern, yx); raise ScanError if they are on a line."""
    try:
        return float(ConvexHull(places).volume)
    except QhullError:
        raise ScanError(
            f"The {len(places)} positions are on a line; expected a scan of an area.", code="scan.too-few-patterns"
        ) from None
