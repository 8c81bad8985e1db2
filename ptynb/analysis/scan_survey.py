"""Survey of a scan: statistics of each pattern and each pixel, collected in portions, an evenly spread sample first.

A scan may be larger than memory: of each portion of a few patterns only some numbers per pattern and some images are
stored. A survey is available after any number of portions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError

SAMPLE = 256
"""Number of patterns in the first sample."""
PORTION = 2**21
"""Largest number of pixels of a portion: 32 patterns of 256 x 256, which take about 0.1 s."""
RINGS = 48
"""Approximate number of rings, which are summed to virtual detectors."""
LOWEST, OCTAVES = -20, 64
"""Exponent of the first octave of the histogram, 2^-20, and number of octaves."""


@dataclass(frozen=True, eq=False)
class Survey:
    """Statistics of the surveyed patterns. Images have the pixel order of the patterns and include masked pixels.

    Parameters
    ----------
    covered : ndarray of bool
        Surveyed patterns (pattern,); the values of others are NaN, or 0 for integers.
    finite : ndarray of bool
        Pixels (y, x) whose counts were always finite.
    mean, variance, maximum : ndarray of float64
        Statistics (y, x) over the surveyed patterns [counts], 0 at non-finite pixels.
    sums : ndarray of float64
        Sum over good pixels (pattern,) [counts].
    brightest : ndarray of float64
        Largest count of good pixels (pattern,).
    at_brightest : ndarray of int64
        Number of pixels with this count (pattern,).
    moments : ndarray of float64
        Centre of mass (pattern, yx) [detector pixels from index n // 2]; NaN for patterns without counts.
    rings : ndarray of float32
        Counts in rings (pattern, ring) about `centre`.
    ring_width : float
        Width of the rings [detector pixels].
    centre : (float, float)
        Centre (y, x) of the rings, the centre of mass of the first patterns [detector pixels from n // 2].
    octaves : ndarray of int64
        Histogram (65,) of good counts: below 2^-20 (including 0), and in [2^k, 2^(k+1)) from there.
    infinite, negative : ndarray of bool
        Patterns (pattern,) with non-finite, or negative, counts at good pixels.
    """

    covered: NDArray[np.bool_]
    finite: NDArray[np.bool_]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    maximum: NDArray[np.float64]
    sums: NDArray[np.float64]
    brightest: NDArray[np.float64]
    at_brightest: NDArray[np.int64]
    moments: NDArray[np.float64]
    rings: NDArray[np.float32]
    ring_width: float
    centre: tuple[float, float]
    octaves: NDArray[np.int64]
    infinite: NDArray[np.bool_]
    negative: NDArray[np.bool_]

    @property
    def patterns(self) -> int:
        """Number of surveyed patterns."""
        return int(self.covered.sum())

    @property
    def complete(self) -> bool:
        """Whether all patterns were surveyed."""
        return bool(self.covered.all())

    def annulus(self, inner: float = 0.0, outer: float = math.inf) -> NDArray[np.float64]:
        """Return the counts of a virtual annular detector, with radii rounded to whole rings.

        Parameters
        ----------
        inner : float, default 0
            Inner radius about `centre` [detector pixels].
        outer : float, default infinity
            Outer radius [detector pixels].

        Returns
        -------
        ndarray of float64
            Counts (pattern,); NaN for others than surveyed patterns.

        Raises
        ------
        InvalidValueError
            If there is no ring between the radii.
        """
        rings = self.rings.shape[1]
        first, last = (rings if radius == math.inf else round(radius / self.ring_width) for radius in (inner, outer))
        if not 0 <= first < min(last, rings):
            raise InvalidValueError(
                f"The virtual detector reaches from {inner:g} to {outer:g} pixels; expected an inner radius of "
                f"at least 0, and an outer one that is larger by {self.ring_width:.3g} or more.",
                code="argument.invalid-value",
            )
        return self.rings[:, first:last].sum(1, dtype=np.float64)


def survey(scan: Scan, patterns: int | None = None) -> Survey:
    """Survey all patterns of a scan, or an evenly spread sample.

    Parameters
    ----------
    scan : Scan
        Scan to examine.
    patterns : int, optional
        Approximate number of patterns; by default all.

    Returns
    -------
    Survey
        The survey.

    Raises
    ------
    InvalidValueError
        If the number is below 1; or errors of reading the patterns.
    """
    if patterns is not None and patterns < 1:
        raise InvalidValueError(
            f"patterns is {patterns}; expected at least 1, or None for all.",
            code="argument.invalid-value",
        )
    surveyor = Surveyor(scan, sample=patterns or SAMPLE)
    while (patterns is None or surveyor.in_sample) and surveyor.advance():
        pass
    return surveyor.survey()


class Surveyor:
    """Surveys a scan in portions: call `advance` until it returns False, and `survey` at any time."""

    def __init__(self, scan: Scan, sample: int = SAMPLE) -> None:
        count, window = len(scan), scan.pattern_shape
        self._scan = scan
        self._good = np.ones(window, bool) if scan.mask is None else scan.mask
        together = scan.frames.stored_together
        self._step = max(1, PORTION // (window[0] * window[1]))
        if together <= self._step:
            self._step -= self._step % together
        self._sample = list(_sample(count, min(sample, count), min(together, self._step), self._step))
        self._portions = iter([*self._sample, *_spread(count, self._step)])
        self._taken = 0
        self._seen = np.zeros(count, bool)
        self._finite = np.ones(window, bool)
        self._mean, self._squares, self._maximum = np.zeros((3, *window))
        self._sums, self._brightest = np.full((2, count), np.nan)
        self._moments = np.full((count, 2), np.nan)
        self._at_brightest = np.zeros(count, np.int64)
        self._infinite, self._negative = np.zeros((2, count), bool)
        self._octaves = np.zeros(OCTAVES + 1, np.int64)
        shifted = scan.is_far_field and not scan.centred
        axes = [np.arange(side) - float(side // 2) for side in window]
        self._y, self._x = (np.fft.ifftshift(axis) if shifted else axis for axis in axes)
        self._rings: NDArray[np.float32] | None = None
        self._ring_of: Any = None
        self._ring_width, self._centre = 1.0, (0.0, 0.0)

    @property
    def in_sample(self) -> bool:
        """Whether portions of the first sample are still to be read."""
        return self._taken < len(self._sample)

    def advance(self) -> bool:
        """Read the next portion; return False if there is none."""
        for wanted in self._portions:
            self._taken += 1
            indices = wanted[~self._seen[wanted]]
            if len(indices):
                patterns = np.empty((len(indices), *self._scan.pattern_shape), self._scan.frames.dtype)
                self._scan.frames.take(indices, patterns)
                self._add(indices, patterns.astype(np.float64))
                return True
        return False

    def survey(self) -> Survey:
        """Return the survey of the portions read so far, at least one."""
        assert self._rings is not None, "no portion was read"
        finite, patterns = self._finite, int(self._seen.sum())
        return Survey(
            self._seen.copy(),
            finite.copy(),
            np.where(finite, self._mean, 0),
            np.where(finite, self._squares / patterns, 0),
            np.where(finite, self._maximum, 0),
            self._sums.copy(),
            self._brightest.copy(),
            self._at_brightest.copy(),
            self._moments.copy(),
            self._rings.copy(),
            self._ring_width,
            self._centre,
            self._octaves.copy(),
            self._infinite.copy(),
            self._negative.copy(),
        )

    def _add(self, indices: NDArray[np.int64], patterns: NDArray[np.float64]) -> None:
        finite = np.isfinite(patterns)
        if not finite.all():
            self._infinite[indices] = (~finite & self._good).any((1, 2))
            self._finite &= finite.all(0)
            patterns = np.where(finite, patterns, 0)
        self._count_pixels(len(indices), patterns)
        if self._scan.mask is not None:
            patterns = np.where(self._good, patterns, 0)
        low = patterns.min((1, 2))
        if low.min() < 0:
            self._negative[indices] = low < 0
            patterns = np.maximum(patterns, 0)
        self._count_patterns(indices, patterns)
        self._octaves += _octaves(patterns if self._scan.mask is None else patterns[:, self._good])
        self._seen[indices] = True

    def _count_pixels(self, more: int, patterns: NDArray[np.float64]) -> None:
        """Update mean, maximum and sum of squared deviations (Chan, Golub and LeVeque, 1983)."""
        before = int(self._seen.sum())
        mean = patterns.mean(0)
        # The variance of a constant pixel has to be exactly 0, independent of rounding.
        constant = (patterns == patterns[0]).all(0)
        mean = np.where(constant, patterns[0], mean)
        difference = mean - self._mean
        self._squares += ((patterns - mean) ** 2).sum(0) + difference**2 * (before * more / (before + more))
        self._mean += difference * (more / (before + more))
        highest = patterns.max(0)
        self._maximum = highest if not before else np.maximum(self._maximum, highest)

    def _count_patterns(self, indices: NDArray[np.int64], patterns: NDArray[np.float64]) -> None:
        rows, columns = patterns.sum(2), patterns.sum(1)
        total = rows.sum(1)
        nonempty = total > 0
        moments = np.stack([rows @ self._y, columns @ self._x], axis=1)
        brightest = patterns.max((1, 2))
        self._sums[indices], self._brightest[indices] = total, brightest
        self._at_brightest[indices] = (patterns == brightest[:, None, None]).sum((1, 2))
        self._moments[indices[nonempty]] = moments[nonempty] / total[nonempty, None]
        if self._rings is None or self._ring_of is None:
            if nonempty.any():
                y, x = moments[nonempty].sum(0) / total[nonempty].sum()
                self._centre = (float(y), float(x))
            self._lay_rings()
        assert self._rings is not None
        self._rings[indices] = patterns.reshape(len(indices), -1) @ self._ring_of

    def _lay_rings(self) -> None:
        radius = np.hypot(self._y[:, None] - self._centre[0], self._x[None, :] - self._centre[1]).ravel()
        self._ring_width = max(1.0, float(radius.max()) / RINGS)
        ring = (radius / self._ring_width).astype(np.int64)
        count = int(ring.max()) + 1
        pixel = np.arange(len(ring))
        self._ring_of = csr_array((np.ones(len(ring)), (pixel, ring)), shape=(len(ring), count))
        self._rings = np.full((len(self._seen), count), np.nan, np.float32)


def bright_radius(seen: Survey) -> float:
    """Return the radius of the undiffracted beam: that of the outermost ring with at least half the largest ring mean.

    It separates virtual bright-field and dark-field detectors (`Survey.annulus`).

    Parameters
    ----------
    seen : Survey
        Survey of the scan.

    Returns
    -------
    float
        Radius [detector pixels], at least one ring.
    """
    rings = np.nan_to_num(seen.rings).sum(0, dtype=np.float64)
    edges = np.arange(len(rings) + 1) * seen.ring_width
    # Counts per area of a whole ring; only the outermost, dark rings are cut by the corners.
    height = rings / (edges[1:] ** 2 - edges[:-1] ** 2)
    above = np.flatnonzero(height >= height.max() / 2)
    return float(edges[int(above[-1]) + 1]) if height.max() > 0 else seen.ring_width


def _octaves(counts: NDArray[Any]) -> NDArray[np.int64]:
    _, exponents = np.frexp(counts.ravel())  # counts are in [2^(e-1), 2^e)
    bins = np.where(counts.ravel() > 0, np.clip(exponents - LOWEST, 0, OCTAVES), 0)
    return np.bincount(bins, minlength=OCTAVES + 1)


def _sample(count: int, size: int, together: int, step: int) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of about `size` evenly spread patterns in portions, by groups that are stored together."""
    groups = -(-count // together)
    chosen = np.unique(np.linspace(0, groups - 1, max(min(8, groups), -(-size // together))).astype(np.int64))
    indices = (chosen[:, None] * together + np.arange(together)).ravel()
    indices = indices[indices < count]
    for start in range(0, len(indices), step):
        yield indices[start : start + step]


def _spread(count: int, step: int) -> Iterator[NDArray[np.int64]]:
    """Yield all indices in portions of neighbours, ordered so that the first portions are spread over the scan."""
    portions = np.arange(-(-count // step))
    for portion in np.argsort(portions * ((math.sqrt(5) - 1) / 2) % 1, kind="stable").tolist():
        yield np.arange(portion * step, min((portion + 1) * step, count), dtype=np.int64)
