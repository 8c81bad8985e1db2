"""The bright-field disc: its centre and radius, and the calibration of the detector pixel size from them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from ptynb.data.geometry import Geometry
from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError, ScanError
from ptynb.preparation.center_of_mass import checked_mean, mean_pattern
from ptynb.preparation.recorded_steps import recorded
from ptynb.preparation.shared_transforms import Array, as_centred, far_field_geometry, middle_of, motion_in

RAYS = 360
SMALLEST_RADIUS = 2.0
"""Smallest radius of a disc [detector pixels]."""


@dataclass(frozen=True)
class Disc:
    """A disc on the detector.

    Parameters
    ----------
    centre : (float, float)
        Centre (y, x) [detector pixels from index n // 2].
    radius : float
        Radius [detector pixels].
    """

    centre: tuple[float, float]
    radius: float


def bright_field_disc(scan: Scan, mean: ArrayLike | None = None) -> Disc:
    """Find the disc of the undiffracted beam in the mean pattern, at half its height.

    The points of half height are interpolated along rays from the approximate centre, except for rays that meet bad
    pixels there, and a circle is fitted to them. Detector pixels are assumed to be square.

    Parameters
    ----------
    scan : Scan
        Far-field scan.
    mean : array_like, optional
        Mean pattern (y, x) of all or some patterns, in their pixel order; by default all patterns are read once.

    Returns
    -------
    Disc
        Centre and radius.


    Raises
    ------
    ScanError
        If there is no disc of at least 2 pixels radius inside the patterns (code
        "scan.no-bright-field-disc"), and for near-field scans and tilted geometries.
    InvalidValueError
        If the mean pattern has another shape (code "array.shape-mismatch").
    """
    far_field_geometry(scan, "a bright-field disc")
    known_mean = None if mean is None else checked_mean(scan, mean)
    scan = as_centred(scan)
    pattern = mean_pattern(scan) if known_mean is None else known_mean
    good = np.ones(scan.pattern_shape, bool) if scan.mask is None else scan.mask
    height, inside = _plateau(pattern, good)
    area = int(inside.sum())
    border = inside[0].any() or inside[-1].any() or inside[:, 0].any() or inside[:, -1].any()
    if math.sqrt(area / math.pi) < SMALLEST_RADIUS or border:
        raise ScanError(
            f"The mean pattern has {area} connected pixels above half its height{', up to its edge' if border else ''}"
            f"; expected a disc of at least {SMALLEST_RADIUS:.0f} pixels radius inside the pattern.",
            code="scan.no-bright-field-disc",
        )
    rough = np.argwhere(inside).mean(0)
    edge = _edge(pattern, good, height / 2, rough, math.sqrt(area / math.pi))
    if len(edge) < RAYS // 8:
        raise ScanError(
            f"The edge of the bright-field disc was found along {len(edge)} of {RAYS} rays; the others have bad pixels "
            f"or no edge. Expected at least {RAYS // 8}.",
            code="scan.no-bright-field-disc",
        )
    y, x, radius = _circle(edge)
    middle = middle_of(scan)
    return Disc((y - float(middle[0]), x - float(middle[1])), radius)


@recorded
def calibrate_from_disc(scan: Scan, convergence_angle: float, wavelength: float | None = None) -> Scan:
    """Calibrate the detector pixel size by the radius of the bright-field disc. Reads all patterns once.

    The distance is that of the geometry, or 1 m. Positions of a scan with a geometry are preserved in metres, and so
    are converted to the new object pixels; those of a scan without one are taken as object pixels.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    convergence_angle : float
        Semi-angle of the beam [rad].
    wavelength : float, optional
        Wavelength [m]; by default that of the geometry.

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    InvalidValueError
        If the angle or the wavelength is missing or not positive.
    ScanError
        If there is no disc, or the scan has an object guess, whose pixels would change their size.
    """
    if not (math.isfinite(convergence_angle) and 0 < convergence_angle < math.pi / 2):
        raise InvalidValueError(
            f"convergence_angle is {convergence_angle!r} rad; expected a value between 0 and π/2.",
            code="argument.invalid-value",
        )
    geometry = scan.geometry if isinstance(scan.geometry, Geometry) else None
    if wavelength is None and geometry is None:
        raise InvalidValueError(
            "The scan has no geometry with a wavelength; give wavelength=... [m].", code="argument.missing"
        )
    if geometry is not None and scan.object is not None:
        raise ScanError(
            "The scan has an object guess, and a calibration changes the object pixels; leave it out.",
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
    positions, motion = scan.positions, scan.motion
    if geometry is not None:
        ratio = np.array(geometry.object_pixel(scan.pattern_shape)) / calibrated.object_pixel(scan.pattern_shape)
        positions, motion = (positions + middle_of(scan)) * ratio - middle_of(scan), motion_in(scan, ratio)
    return dataclasses.replace(scan, geometry=calibrated, positions=positions, motion=motion)


def _plateau(mean: Array, good: NDArray[np.bool_]) -> tuple[float, NDArray[np.bool_]]:
    """Return the height of the disc, the median above half of it, and the largest connected area above that half."""
    # A median over 3 x 3 pixels prevents single bright pixels from determining the height.
    height = float(scipy.ndimage.median_filter(np.where(good, mean, 0), 3).max())
    for _ in range(4):
        above = good & (mean > height / 2)
        if not above.any():
            break
        height = float(np.median(mean[above]))
    labels, count = scipy.ndimage.label(good & (mean > height / 2))
    if not count:
        return height, np.zeros(mean.shape, bool)
    largest = 1 + int(np.bincount(labels.ravel())[1:].argmax())
    return height, scipy.ndimage.binary_fill_holes(labels == largest)


def _edge(mean: Array, good: NDArray[np.bool_], level: float, centre: Array, radius: float) -> NDArray[np.float64]:
    """Return the points (point, yx) where the mean pattern falls below `level` along rays from `centre`."""
    angles = np.arange(RAYS) * (2 * math.pi / RAYS)
    distances = np.arange(0.5 * radius, 1.5 * radius + 1, 0.125)
    directions = np.stack([np.sin(angles), np.cos(angles)])
    points = centre[:, None, None] + directions[:, :, None] * distances
    heights = scipy.ndimage.map_coordinates(np.where(good, mean, 0), points, order=1)
    bad = scipy.ndimage.map_coordinates((~good).astype(np.float64), points, order=1) > 1e-9
    falls = (heights[:, :-1] >= level) & (heights[:, 1:] < level)
    far = np.where(falls, np.abs(distances[:-1] - radius), np.inf)
    at = far.argmin(1)
    ray = np.arange(RAYS)
    usable = falls.any(1) & ~bad[ray, at] & ~bad[ray, at + 1]
    before, after = heights[ray, at][usable], heights[ray, at + 1][usable]
    part = (before - level) / (before - after)
    return centre + directions.T[usable] * (distances[at[usable]] + part * (distances[1] - distances[0]))[:, None]


def _circle(points: NDArray[np.float64]) -> tuple[float, float, float]:
    """Fit a circle by least squares, once more without outliers; return its centre (y, x) and radius."""
    used = np.ones(len(points), bool)
    for _ in range(2):
        equations = np.column_stack([2 * points[used], np.ones(int(used.sum()))])
        (y, x, power), *_ = np.linalg.lstsq(equations, (points[used] ** 2).sum(1), rcond=None)
        radius = math.sqrt(power + y**2 + x**2)
        residual = np.abs(np.hypot(*(points - (y, x)).T) - radius)
        used = residual <= max(3 * 1.4826 * float(np.median(residual)), 1e-3)
    return float(y), float(x), radius
