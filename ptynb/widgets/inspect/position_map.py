"""The map of the positions: a picture in which each pixel shows the value of the nearest pattern.

It works for rasters, spirals and random positions, and for any number of patterns.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.spatial import cKDTree

from ptynb.analysis import Survey, bright_radius
from ptynb.data import images
from ptynb.data.engine_records import Array, Picture
from ptynb.data.scan import Scan

SIDE = 384
"""Longer side of the map [pixels]."""
KINDS = ("counts", "bright field", "dark field", "brightest", "centre of mass", "centre of mass y", "centre of mass x")
FIELDS = ("bright field", "dark field")
"""Kinds with a radius."""
NAME = "map"


class PositionMap:
    """A picture of the positions of a scan, y down as in the object's array."""

    def __init__(self, scan: Scan) -> None:
        self._positions = scan.positions
        self._tree = cKDTree(scan.positions)
        self._usual = _usual_distance(self._tree, scan.positions)
        margin = self._usual / 2
        low, high = scan.positions.min(0) - margin, scan.positions.max(0) + margin
        self._low, self._spacing = low, float((high - low).max()) / SIDE
        self.shape = tuple(max(1, int(np.ceil(side))) for side in ((high - low) / self._spacing).tolist())
        pixel = scan.pixel_size
        self.pixel_size = None if pixel is None else (pixel[0] * self._spacing, pixel[1] * self._spacing)
        """Size (y, x) of a pixel of the picture [m]; None: unknown."""
        self._nearest: tuple[int, Array] | None = None
        self.points: Array = (scan.positions - low) / self._spacing
        """Positions (pattern, yx) in pixels of the picture, from the outer corner of the first pixel."""

    def pattern_at(self, y: float, x: float) -> int:
        """Return the pattern nearest to a point of the picture."""
        return int(self._tree.query(self._low + np.array([y, x]) * self._spacing)[1])

    def image(self, values: Array, seen: Array) -> Array:
        """Return the picture (y, x) of values (pattern,), from surveyed patterns `seen` only; 0 where none is near."""
        nearest = self._nearest_of(seen)
        return np.where(nearest >= 0, np.nan_to_num(values)[nearest], 0)

    def picture(self, seen: Survey | None, kind: str, radius: float) -> Picture:
        """Return a virtual image; radius: of the bright field [detector pixels], 0: found in the mean pattern."""
        if seen is None:
            return self._picture(np.zeros(self.shape), "positions", (0.0, 1.0))
        values, unit = virtual(seen, kind, radius)
        limits = None if np.iscomplexobj(values) else images.limits_of(values[np.isfinite(values)], 0.5, 99.5)
        return self._picture(self.image(values, seen.covered), kind, limits, unit)

    def arrived(self, came: Array) -> Picture:
        """Return where patterns have come (pattern,) of a scan that is being measured."""
        image = self.image(came.astype(float), came) if came.any() else np.zeros(self.shape)
        return self._picture(image, "patterns that came", (0.0, 1.0), "(came)")

    def _picture(self, image: Array, title: str, limits: tuple[float, float] | None, unit: str = "") -> Picture:
        return images.picture(
            image, NAME, title, limits=limits, unit=unit, pixel_size=self.pixel_size, colours="viridis"
        )

    def _nearest_of(self, seen: Array) -> Array:
        """Return the nearest surveyed pattern of each pixel (y, x); -1 where all are far."""
        count = int(seen.sum())
        if self._nearest is None or self._nearest[0] != count:
            known = np.flatnonzero(seen)
            tree = self._tree if count == len(seen) else cKDTree(self._positions[known])
            usual = _usual_distance(tree, self._positions[known])
            axes = [
                low + (np.arange(side) + 0.5) * self._spacing for low, side in zip(self._low, self.shape, strict=True)
            ]
            pixels = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
            # Steps may differ in y and x, so the mean area of a pattern counts too; a larger gap stays empty.
            area = float(np.ptp(self._positions[known], axis=0).prod()) / len(known)
            reach = max(1.5 * usual, 2 * math.sqrt(area), self._spacing)
            distance, index = tree.query(pixels, distance_upper_bound=reach)
            nearest = np.where(np.isfinite(distance), known[np.minimum(index, len(known) - 1)], -1)
            self._nearest = (count, nearest)
        return self._nearest[1]


def virtual(seen: Survey, kind: str, radius: float) -> tuple[Array, str]:
    """Return a value for each pattern (pattern,), NaN if not surveyed, and its unit."""
    if kind in FIELDS:
        edge = radius or bright_radius(seen)
        return (seen.annulus(0, edge) if kind == "bright field" else seen.annulus(edge)), "counts"
    if kind == "brightest":
        return seen.brightest, "counts"
    if kind.startswith("centre of mass"):
        field = seen.moments - np.nanmean(seen.moments, axis=0) if np.isfinite(seen.moments).any() else seen.moments
        both = {"centre of mass y": field[:, 0], "centre of mass x": field[:, 1]}
        return both.get(kind, field[:, 1] + 1j * field[:, 0]), "detector pixels"
    return seen.sums, "counts"


def _usual_distance(tree: cKDTree, positions: Array) -> float:
    """Return the 90th percentile of the distance to the nearest neighbour; 1 for a single position."""
    if len(positions) < 2:
        return 1.0
    some = positions[:: max(1, len(positions) // 5000)]
    distance = float(np.percentile(tree.query(some, k=2)[0][:, 1], 90))
    return distance or max(float(np.ptp(positions, axis=0).max()), 1.0) / SIDE
