"""Rotation between scan and detector, from the centres of mass of the patterns, as in electron microscopy.

An object whose phase grows by g [rad] per pixel deflects the beam, and so shifts the centre of mass: to first order the
shift is the gradient of a potential, the phase smoothed by the probe. A gradient has no curl; if positions are rotated
relative to the detector, or mirrored, the field has an apparent curl.

With the derivatives J = ∂g/∂r and z = (J_yy + J_xx) + i (J_yx - J_xy), J_yx being ∂g_y/∂x, a rotation of the positions
by θ rotates z by -θ: its real part is the divergence, its imaginary part the curl. Σ Im(z exp(-iθ))² is smallest at
θ = ½ arg Σ z².

A rotation is only told if

- parts of the scan agree on it by more than chance. Of B parts, the sums s = Σ z² of a field without orientation have
  random phases. With each s divided by the root of its Σ|z|², Q = |Σ s|² / (B Σ|s|²) is 1 if all agree, and
  P(Q > q) = (1 - q)^(B - 1) for normally distributed s;
- curl is a small part of the field, and more would be left with y and x exchanged: a field that varies in one direction
  only, as by a drift from row to row, has no curl in either;
- absorption does not explain the field: where the probe has a curved wavefront, absorption shifts the centre of mass
  along a direction that depends on the wavefront. It does so by at most about the spread of the beam on the detector
  times the relative change of the counts. Of both only what neighbours have in common counts, which is not noise.

On 252 simulated scans of 4D-STEM (30 degrees, plain and transposed; 11 x 11 to 12 x 48 positions, 100 to 1e5 counts per
pattern, phases of 0.1 to 3 rad, in and out of focus, with descan, astigmatism and absorption) 127 rotations are told,
one of them wrong by more than 6 degrees; the smallest curl alone told 147, of which 8 were wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError, ScanError
from ptynb.preparation.center_of_mass import pattern_moments
from ptynb.preparation.recorded_steps import check_measured
from ptynb.preparation.scan_positions import rotate_positions, transpose_positions
from ptynb.preparation.selection import select
from ptynb.preparation.shared_transforms import far_field_geometry, known, pixel_of
from ptynb.settings.recipe import PrepareStep

Array = NDArray[np.float64]
FEWEST_PATTERNS = 96
"""Smallest number of patterns, of which there are 8 parts."""
MOST_PATTERNS = 40_000
"""Largest number of patterns that are used: triangulation takes 1.5 s, and 25 s for 200,000 on a raster."""
PER_PART, MOST_PARTS = 12, 16
"""Smallest number of patterns of a part of the scan, and largest number of parts."""
ORIENTING = 4096
"""Largest number of patterns from which `rotation_if_known` finds the rotation, those nearest to the centre."""
FALSE_ALARM = 1e-4
"""Probability that a field without orientation is taken for a rotated one."""
MOST_CURL = 0.35
"""Largest fraction of curl in the best orientation; for noise it is one half in any orientation."""
LEAST_DIFFERENCE = 0.1
"""Smallest difference to the fraction of curl with y and x exchanged."""
MOST_ABSORPTION = 0.7
"""Largest shift that absorption can cause, relative to the observed one.

It is at least 0.8 for simulated X-ray scans of absorbing objects, and at most 0.5 for electrons, and X-rays with phase
contrast alone.
"""
ENOUGH = 0.5
"""Smallest fraction of surveyed patterns: gradients require neighbours."""
UNKNOWN = ("scan.near-field", "scan.no-rotation", "scan.position-disconnected", "scan.tilted-geometry", "scan.live",
           "scan.too-few-patterns")  # fmt: skip
"""Codes of errors that say that a scan shows no rotation."""
LEAST_ANGLE, SIGNIFICANT = math.radians(2), 4.0
"""Rotation [rad], and in units of its standard deviation, below which positions are not worth a correction."""


class Moments(Protocol):
    """What `estimate_rotation` needs of a survey."""

    @property
    def sums(self) -> Array:
        """Sum (pattern,) of each pattern; NaN if it was not read."""

    @property
    def moments(self) -> Array:
        """Centre of mass (pattern, yx) [detector pixels from index n // 2]; NaN without counts."""

    @property
    def mean(self) -> Array:
        """Mean pattern (y, x), in the order of the patterns."""


@dataclass(frozen=True)
class ScanRotation:
    """Correction of the positions for which the field of the centres of mass has no curl.

    Parameters
    ----------
    angle : float
        Angle [rad] in (-π/2, π/2], from x towards y: clockwise as arrays are printed. Another half turn fits equally
        well, with the opposite phase.
    transposed : bool
        Whether y and x are exchanged first.
    curl_before : float
        Fraction of the field's variation that is curl before the correction; about one half for noise.
    curl_after : float
        Fraction after the correction.
    error : float
        Standard deviation of the angle [rad], from parts of the scan.
    false_alarm : float
        Probability that parts of a field without orientation agree so well.
    """

    angle: float
    transposed: bool
    curl_before: float
    curl_after: float
    error: float
    false_alarm: float

    @property
    def degrees(self) -> float:
        """Angle in degrees."""
        return math.degrees(self.angle)

    @property
    def needed(self) -> bool:
        """Whether the positions need this correction: they are transposed, or rotated by more than 2° and 4 errors."""
        return self.transposed or abs(self.angle) > max(LEAST_ANGLE, SIGNIFICANT * self.error)

    @property
    def steps(self) -> tuple[PrepareStep, ...]:
        """The correction as steps of preparation for `Recipe` and run files."""
        exchange = (PrepareStep(function="transpose_positions"),) if self.transposed else ()
        return (*exchange, PrepareStep(function="rotate_positions", arguments={"angle": self.angle}))

    @property
    def lines(self) -> tuple[str, ...]:
        """The correction as lines of Python."""
        return tuple(f"scan = {step.as_python}" for step in self.steps)

    def __str__(self) -> str:
        exchange = "y and x of the positions are exchanged, then they are" if self.transposed else "positions are"
        return f"{exchange} rotated by {self.degrees:.1f}° ± {math.degrees(self.error):.1f}° from x towards y"

    def apply(self, scan: Scan) -> Scan:
        """Correct the positions of a scan.

        Parameters
        ----------
        scan : Scan
            Scan, which does not change.

        Returns
        -------
        Scan
            The new scan.
        """
        return rotate_positions(transpose_positions(scan) if self.transposed else scan, self.angle)


def estimate_rotation(scan: Scan, seen: Moments | None = None, *, patterns: int = MOST_PATTERNS) -> ScanRotation:
    """Find the rotation of the scan for which the field of the centres of mass has no curl, as in 4D-STEM.

    A mirrored scan is equivalent to one that is transposed and rotated by 90 degrees. A rotation by another 180 degrees
    has the same curl and the opposite phase: if atoms appear as holes, add π. Any set of positions is supported; the
    steps must not be longer than the probe is wide. After Lazić, Bosch and Lazar, Ultramicroscopy 160, 265 (2016), who
    derive that the field is a gradient.

    Parameters
    ----------
    scan : Scan
        Far-field scan of an area.
    seen : Survey, optional
        Survey of at least half of the patterns; by default patterns are read.
    patterns : int, default 40000
        Largest number of patterns that are used, those nearest to the centre.

    Returns
    -------
    ScanRotation
        Angle, whether positions are transposed, and how certain both are.

    Raises
    ------
    ScanError
        For near-field scans, tilted geometries and scans that are being measured, for fewer than 96 patterns or ones on
        a line (code "scan.too-few-patterns"), if the field has no orientation or absorption may explain it
        ("scan.no-rotation"), and for an incomplete survey ("scan.survey-incomplete").
    InvalidValueError
        If the survey is of another scan ("scan.wrong-survey").
    """
    check_measured(scan, "estimate_rotation")
    geometry = far_field_geometry(scan, "the rotation of a scan")
    chosen = np.arange(len(scan))
    if seen is not None:
        check_survey(scan, seen)
        read = int(np.isfinite(seen.sums).sum())
        if read < ENOUGH * len(scan):
            raise ScanError(
                f"{read} of {len(scan)} patterns were surveyed; expected at least half of them. "
                "Wait for the survey, or leave it out to read all patterns.",
                code="scan.survey-incomplete",
            )
        chosen = np.flatnonzero(np.isfinite(seen.moments).all(1))
    near = chosen[nearest_to_centre(scan.positions[chosen], patterns)]
    places, pixel = scan.positions[near], pixel_of(scan)
    sizes = np.ones(2) if geometry is None else np.array(geometry.detector_pixel)
    sizes = sizes / sizes.mean()
    if seen is None:
        check_area(places)  # before anything is read
        seen = pattern_moments(select(scan, near) if len(near) < len(scan) else scan)
        near = np.arange(len(near))
    nonempty = np.isfinite(seen.moments[near]).all(1)
    near, places = near[nonempty], places[nonempty] * (pixel / pixel.mean())
    field = seen.moments[near] * sizes
    pairs = neighbours(places)
    _check_absorption(places, field, seen.sums[near], _spread(scan, seen.mean, sizes), pairs)
    return rotation_of_field(places, field, pairs)


def rotation_if_known(scan: Scan, patterns: int = ORIENTING, seen: Moments | None = None) -> ScanRotation | None:
    """Return `estimate_rotation` from so many patterns; None if the scan is not one that it can be found of."""
    try:
        return estimate_rotation(scan, seen, patterns=patterns)
    except ScanError as error:
        if error.code not in UNKNOWN:
            raise
        return None


def nearest_to_centre(positions: Array, count: int) -> NDArray[np.int64]:
    """Return the sorted indices of so many positions (point, yx) that are nearest to their median."""
    if count >= len(positions):
        return np.arange(len(positions))
    away = ((positions - np.median(positions, 0)) ** 2).sum(1)
    return np.sort(np.argpartition(away, count)[:count])


def rotation_of_field(places: Array, field: Array, pairs: Pairs | None = None) -> ScanRotation:
    """Apply `estimate_rotation` to a field (point, yx) at positions `places` (point, yx), each in any unit."""
    pairs = pairs or neighbours(places)
    derivatives, weights = local_gradients(places, _without_plane(places, field), pairs)
    derivatives *= np.sqrt(weights)[:, None, None]
    parts = _parts(places)
    total = max(float((derivatives**2).sum()), 1e-300)
    found = []
    for transposed in (False, True):
        z = _divergence_and_curl(derivatives, transposed)
        powers = np.bincount(parts, np.abs(z) ** 2)
        sums = np.bincount(parts, (z**2).real) + 1j * np.bincount(parts, (z**2).imag)
        whole = sums.sum()
        curl = float(powers.sum() - abs(whole)) / 2 / total
        evened = sums / np.sqrt(np.maximum(powers, 1e-300))
        agreement = float(abs(evened.sum()) ** 2 / max((np.abs(evened) ** 2).sum() * len(sums), 1e-300))
        angle = float(np.angle(whole) / 2)
        across = float(np.linalg.norm((sums * np.exp(-2j * angle)).imag))
        # Twice: the better one of two orientations is taken.
        chance = min(1.0, 2 * max(0.0, 1 - agreement) ** (len(sums) - 1))
        found.append((curl, transposed, angle, across / 2 / max(float(abs(whole)), 1e-300), chance))
    (curl, transposed, angle, error, chance), other = min(found), max(found)
    if total == 1e-300 or chance > FALSE_ALARM or curl > MOST_CURL:
        raise ScanError(
            f"The centres of mass of the patterns vary by {field.std():.3g} pixels and are not a gradient in any "
            "orientation (noise, or an object without phase); more counts, or patterns centred on the beam, may help.",
            code="scan.no-rotation",
        )
    if other[0] - curl < LEAST_DIFFERENCE:
        raise ScanError(
            "The centres of mass of the patterns vary in one direction only, as by a drift, so that a rotation cannot "
            "be told from an exchange of y and x; expected an object with structure in all directions.",
            code="scan.no-rotation",
        )
    before = float((_divergence_and_curl(derivatives, False).imag ** 2).sum()) / total
    return ScanRotation(angle if angle > -math.pi / 2 else math.pi / 2, transposed, before, curl, error, chance)


def check_survey(scan: Scan, seen: Moments) -> None:
    """Raise InvalidValueError if the shape of a survey is not that of the scan."""
    if (len(seen.sums), *seen.mean.shape) != scan.frames.shape:
        height, width = seen.mean.shape
        raise InvalidValueError(
            f"The survey has {len(seen.sums)} patterns of {height} x {width} and the scan has {len(scan)} of "
            f"{scan.pattern_shape[0]} x {scan.pattern_shape[1]}; expected a survey of this scan.",
            code="scan.wrong-survey",
        )


def _spread(scan: Scan, mean: Array, sizes: Array) -> float:
    """Return the root-mean-square distance of counts from the centre of the mean pattern [detector pixels]."""
    pattern = np.maximum(known(scan.mask, mean), 0)
    pattern = pattern if scan.centred else np.fft.fftshift(pattern)
    total = max(float(pattern.sum()), 1e-300)
    squared = 0.0
    for axis, size in zip((1, 0), sizes, strict=True):
        profile = pattern.sum(axis) / total
        place = np.arange(len(profile)) * size
        squared += float(profile @ (place - profile @ place) ** 2)
    return math.sqrt(squared)


def _check_absorption(places: Array, field: Array, sums: Array, spread: float, pairs: Pairs) -> None:
    """Raise ScanError if absorption can explain the field; sums: counts (point,). spread: from `_spread`."""
    changes = _without_plane(places, (sums / sums.mean() - 1)[:, None])
    shift = spread * _common(changes, pairs)
    observed = _common(_without_plane(places, field), pairs)
    if shift > MOST_ABSORPTION * observed:
        raise ScanError(
            f"The counts of the patterns change with the position by {shift / spread:.2g} of their mean; absorption "
            f"may shift their centres of mass by {shift:.2g} pixels, and they shift by {observed:.2g}. Expected an "
            "object that shifts the phase more than it absorbs.",
            code="scan.no-rotation",
        )


Pairs = tuple[NDArray[np.int64], NDArray[np.int64], Array]


def _common(values: Array, pairs: Pairs) -> float:
    """Return the standard deviation of what neighbours have in common, of values (point, component)."""
    start, end, weights = pairs
    return math.sqrt(max(0.0, float(weights @ (values[start] * values[end]).sum(1)) / float(weights.sum())))


def _without_plane(places: Array, values: Array) -> Array:
    """Return values (point, component) without their linear trend, which descan causes in any direction."""
    design = np.column_stack([np.ones(len(places)), places - places.mean(0)])
    return np.asarray(values - design @ np.linalg.lstsq(design, values, rcond=None)[0])


def _parts(places: Array) -> NDArray[np.int64]:
    """Return the part (point,) of each position: a power of two of them, halved along their longer sides."""
    parts = [np.arange(len(places))]
    while 2 * len(parts) <= min(MOST_PARTS, len(places) // PER_PART):
        halves = []
        for part in parts:
            along = places[part, np.argmax(np.ptp(places[part], axis=0))]
            halves += np.array_split(part[np.argsort(along, kind="stable")], 2)
        parts = halves
    labels = np.empty(len(places), np.int64)
    for number, part in enumerate(parts):
        labels[part] = number
    return labels


def _divergence_and_curl(derivatives: Array, transposed: bool) -> NDArray[np.complex128]:
    """Return z (point,) from derivatives (point, yx of the field, yx of the position)."""
    j = derivatives[:, :, ::-1] if transposed else derivatives
    return j[:, 0, 0] + j[:, 1, 1] + 1j * (j[:, 0, 1] - j[:, 1, 0])


def check_area(places: Array) -> None:
    """Raise ScanError for too few positions (point, yx), or positions on a line."""
    if len(places) < FEWEST_PATTERNS or np.linalg.matrix_rank(places - places.mean(0), tol=1e-6 * np.ptp(places)) < 2:
        raise ScanError(
            f"The rotation cannot be found from {len(places)} patterns with counts that are on a line or fewer than "
            f"{FEWEST_PATTERNS}; expected a scan of an area.",
            code="scan.too-few-patterns",
        )


def neighbours(places: Array) -> Pairs:
    """Return pairs (pair,) of neighbouring positions and their weights; raise ScanError as `check_area` does.

    They share an edge of the Delaunay triangulation, which also suits rasters with unequal steps. The difference along
    an edge of length d has the same noise for all edges, and an error from curvature that grows as d²; its weight is
    1 / (1 + (d / d₀)⁴) with the median length d₀.
    """
    check_area(places)
    triangles = scipy.spatial.Delaunay(places).simplices
    sides = np.concatenate([triangles[:, pair] for pair in ([0, 1], [1, 2], [2, 0])])
    start, end = np.unique(np.sort(sides, axis=1), axis=0).T.astype(np.int64)
    squared = ((places[end] - places[start]) ** 2).sum(1)
    return start, end, 1 / (1 + (squared / np.median(squared)) ** 2)


def local_gradients(places: Array, field: Array, pairs: Pairs) -> tuple[Array, Array]:
    """Return ∂field_i/∂place_j (point, i, j) at each point by least squares from neighbours, and weights (point,).

    The weight of a point is the inverse variance of the gradient, 0 if the gradient is not determined.
    """
    start, end, weight = pairs
    step, change = places[end] - places[start], field[end] - field[start]
    weighted = weight[:, None] * step
    squares, products = np.zeros((2, len(places), 2, 2))
    for side in (start, end):
        np.add.at(squares, side, weighted[:, :, None] * step[:, None, :])
        np.add.at(products, side, weighted[:, :, None] * change[:, None, :])
    gradients = np.swapaxes(np.linalg.pinv(squares, rcond=1e-6, hermitian=True) @ products, 1, 2)
    trace = np.trace(squares, axis1=1, axis2=2)
    weights = np.maximum(np.linalg.det(squares), 0) / np.where(trace > 0, trace, 1)
    return gradients, weights
