"""The bright-field disc: where it lies, how large it is, and what that says about the detector's pixels."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ptynb.data.geometry import Geometry
from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError, ScanError
from ptynb.preparation.carry_over import Array, as_centred, facing_geometry, middle_of
from ptynb.preparation.center_of_mass import mean_pattern

RAYS = 360
SMALLEST_RADIUS = 2.0
"""[detector pixels]"""


@dataclass(frozen=True)
class Disc:
    """A disc on the detector: centre (y, x) [detector pixels from index n // 2] and radius [detector pixels]."""

    centre: tuple[float, float]
    radius: float


def bright_field_disc(scan: Scan) -> Disc:
    """The disc of the undiffracted beam in the mean pattern, at half its height. Reads all patterns once.

    Along rays from the disc's rough centre the place of half height is interpolated; a circle is fitted to these. Rays
    that meet bad pixels there are left out. Detector pixels are taken as square.

    Raises ScanError if there is no disc of at least 2 pixels radius that lies inside the patterns, and for
    a near field or a tilted geometry.
    """
    if not scan.is_far_field:
        raise ScanError(
            "The scan is a near-field one, whose patterns show no bright-field disc.", code="scan.near-field"
        )
    facing_geometry(scan, "a bright-field disc")
    scan = as_centred(scan)
    mean = mean_pattern(scan)
    good = np.ones(scan.pattern_shape, bool) if scan.mask is None else scan.mask
    height, inside = _plateau(mean, good)
    area = int(inside.sum())
    border = inside[0].any() or inside[-1].any() or inside[:, 0].any() or inside[:, -1].any()
    if math.sqrt(area / math.pi) < SMALLEST_RADIUS or border:
        raise ScanError(
            f"The mean pattern has {area} connected pixels above half its height{', up to its edge' if border else ''}"
            f"; expected a disc of at least {SMALLEST_RADIUS:.0f} pixels radius inside the pattern.",
            code="scan.no-bright-field-disc",
        )
    rough = np.argwhere(inside).mean(0)
    edge = _edge(mean, good, height / 2, rough, math.sqrt(area / math.pi))
    if len(edge) < RAYS // 8:
        raise ScanError(
            f"The edge of the bright-field disc is seen along {len(edge)} of {RAYS} rays, the others meet bad pixels "
            f"or no edge; expected at least {RAYS // 8}.",
            code="scan.no-bright-field-disc",
        )
    y, x, radius = _circle(edge)
    middle = middle_of(scan)
    return Disc((y - float(middle[0]), x - float(middle[1])), radius)


def calibrate_from_disc(scan: Scan, convergence_angle: float, wavelength: float | None = None) -> Scan:
    """The scan with detector pixels that give the bright-field disc the radius `convergence_angle` [rad] (semi-angle).

    wavelength: [m], that of the scan's geometry unless given. The distance is that of the geometry, or 1 m.
    Positions of a scan with geometry stay where they are in metres, and so are given in the new object pixels; those
    of a scan without are in object pixels already. Reads all patterns once.

    Raises ValueError for an angle or a wavelength that is missing or not positive, and ScanError without a disc or with
    an object guess, whose pixels would change their size.
    """
    if not (math.isfinite(convergence_angle) and 0 < convergence_angle < math.pi / 2):
        raise InvalidValueError(
            f"The convergence angle is {convergence_angle!r} rad; expected one between 0 and π/2.",
            code="argument.invalid-value",
        )
    geometry = scan.geometry if isinstance(scan.geometry, Geometry) else None
    if wavelength is None and geometry is None:
        raise InvalidValueError(
            "The scan has no geometry that knows the wavelength; give wavelength=... [m].", code="argument.missing"
        )
    if geometry is not None and scan.object is not None:
        raise ScanError(
            "The scan has an object guess, whose pixels a calibration would change; leave it out.",
            code="scan.has-object-guess",
        )
    disc = bright_field_disc(scan)
    distance = 1.0 if geometry is None else geometry.distance
    size = convergence_angle / disc.radius * distance
    calibrated = Geometry(
        wavelength=wavelength if wavelength is not None else geometry.wavelength if geometry is not None else math.nan,
        distance=distance,
        detector_pixel=(size, size),
    )
    positions = scan.positions
    if geometry is not None:
        ratio = np.array(geometry.object_pixel(scan.pattern_shape)) / calibrated.object_pixel(scan.pattern_shape)
        positions = (positions + middle_of(scan)) * ratio - middle_of(scan)
    return dataclasses.replace(scan, geometry=calibrated, positions=positions)


def _plateau(mean: Array, good: NDArray[np.bool_]) -> tuple[float, NDArray[np.bool_]]:
    """Height of the disc, the median of what is above half of it, and the largest connected part above that half."""
    # A median over 3 x 3 pixels keeps single bright ones from setting the height.
    height = float(ndimage.median_filter(np.where(good, mean, 0), 3).max())
    for _ in range(4):
        above = good & (mean > height / 2)
        if not above.any():
            break
        height = float(np.median(mean[above]))
    labels, count = ndimage.label(good & (mean > height / 2))
    if not count:
        return height, np.zeros(mean.shape, bool)
    largest = 1 + int(np.bincount(labels.ravel())[1:].argmax())
    return height, ndimage.binary_fill_holes(labels == largest)


def _edge(mean: Array, good: NDArray[np.bool_], level: float, centre: Array, radius: float) -> NDArray[np.float64]:
    """Points (point, yx) where the mean pattern falls through `level` along rays from `centre`, nearest to `radius`."""
    angles = np.arange(RAYS) * (2 * math.pi / RAYS)
    distances = np.arange(0.5 * radius, 1.5 * radius + 1, 0.125)
    directions = np.stack([np.sin(angles), np.cos(angles)])
    places = centre[:, None, None] + directions[:, :, None] * distances
    heights = ndimage.map_coordinates(np.where(good, mean, 0), places, order=1)
    spoilt = ndimage.map_coordinates((~good).astype(np.float64), places, order=1) > 1e-9
    falls = (heights[:, :-1] >= level) & (heights[:, 1:] < level)
    far = np.where(falls, np.abs(distances[:-1] - radius), np.inf)
    at = far.argmin(1)
    ray = np.arange(RAYS)
    usable = falls.any(1) & ~spoilt[ray, at] & ~spoilt[ray, at + 1]
    before, after = heights[ray, at][usable], heights[ray, at + 1][usable]
    part = (before - level) / (before - after)
    return centre + directions.T[usable] * (distances[at[usable]] + part * (distances[1] - distances[0]))[:, None]


def _circle(points: NDArray[np.float64]) -> tuple[float, float, float]:
    """Centre (y, x) and radius of the circle through these points by least squares, outliers left out once."""
    kept = np.ones(len(points), bool)
    for _ in range(2):
        equations = np.column_stack([2 * points[kept], np.ones(int(kept.sum()))])
        (y, x, power), *_ = np.linalg.lstsq(equations, (points[kept] ** 2).sum(1), rcond=None)
        radius = math.sqrt(power + y**2 + x**2)
        residual = np.abs(np.hypot(*(points - (y, x)).T) - radius)
        kept = residual <= max(3 * 1.4826 * float(np.median(residual)), 1e-3)
    return float(y), float(x), radius
