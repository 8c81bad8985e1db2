"""Bad pixels: masking of known ones, and detection of unknown ones."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError
from ptynb.preparation.recorded_steps import recorded
from ptynb.preparation.shared_transforms import parts

ENOUGH_TO_BE_STUCK = 16
"""Smallest number of patterns from which stuck pixels are detected."""
BRIGHTEST = 8.0
"""Brightest fringe of one pixel width, in units of `factor` times its neighbours; 4.3 was seen."""
MOST_BAD = 0.03
"""Largest part of hot pixels, and of dead ones: more are fringes.

A pinhole half as wide as the window has fringes of one pixel width. Of a weak object (ptypy) they vary so little that
their variance does not tell them from defects: 5% of all pixels were taken for hot, and 14% for dead.
"""


@recorded
def mask_pixels(scan: Scan, mask: ArrayLike) -> Scan:
    """Mask pixels in addition to those that are already masked.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    mask : array_like
        Mask (y, x) in the order of the patterns, True or 1 at working pixels.

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    InvalidValueError
        If the mask has another shape or other values.
    ScanError
        If no good pixel is left (code "scan.mask-empty").
    """
    array = np.asarray(mask)
    numbers = array.dtype == bool or np.isin(array, (0, 1)).all()
    if array.shape != scan.pattern_shape or not numbers:
        raise InvalidValueError(
            f"The mask has shape {array.shape} and type {array.dtype}; expected that of a pattern, "
            f"{scan.pattern_shape}, and True or 1 at working pixels, False or 0 elsewhere.",
            code="array.shape-mismatch",
        )
    good = array.astype(bool)
    return dataclasses.replace(scan, mask=good if scan.mask is None else scan.mask & good)


@recorded
def mask_bad_pixels(scan: Scan, *, factor: float = 3.0, sigmas: float = 6.0) -> Scan:
    """Mask the pixels that `find_bad_pixels` finds, in addition to those that are already masked.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change; all its patterns are read.
    factor, sigmas : float
        As for `find_bad_pixels`.

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    InvalidValueError
        If factor or sigmas is out of range.
    ScanError
        If no good pixel is left (code "scan.mask-empty").
    """
    return mask_pixels(scan, find_bad_pixels(scan, factor=factor, sigmas=sigmas))


def find_bad_pixels(scan: Scan, *, factor: float = 3.0, sigmas: float = 6.0) -> NDArray[np.bool_]:
    """Find bad pixels from the statistics of the scan. Reads all patterns once.

    A pixel is hot if its mean over the scan exceeds that of all but two of its eight neighbours by `factor` and by
    `sigmas` standard errors, and dead if it is as far below all but two of them. Fringes of a coherent beam are
    neither: pixels that vary from pattern to pattern as their neighbours do, and all that would be hot, or dead, if
    these were more than 3% of the pixels. Pixels with non-finite counts are bad, as are stuck ones that never change
    although their neighbours do (from 16 patterns on). Pairs of pixels and lines of one pixel width are found, wider
    gaps are not; a beam narrower than two pixels is taken as hot. Masked pixels stay bad and are not used as
    neighbours.

    Parameters
    ----------
    scan : Scan
        Scan with the patterns.
    factor : float, default 3.0
        Ratio to the neighbours, at least 1.
    sigmas : float, default 6.0
        Number of standard errors, at least 0.

    Returns
    -------
    ndarray of bool
        Mask (y, x) for `mask_pixels`, True at working pixels, in the order of the patterns.


    Raises
    ------
    InvalidValueError
        If factor or sigmas is out of range.
    """
    check_limits(factor, sigmas)
    statistics = pixel_statistics(scan)
    kinds = judged(scan, statistics, factor=factor, sigmas=sigmas)
    working = statistics.finite if scan.mask is None else statistics.finite & scan.mask
    return working & ~kinds.hot & ~kinds.dead & ~kinds.stuck


def check_limits(factor: float, sigmas: float) -> None:
    """Raise InvalidValueError for limits of `find_bad_pixels` that are out of range."""
    if not (math.isfinite(factor) and factor >= 1 and math.isfinite(sigmas) and sigmas >= 0):
        raise InvalidValueError(
            f"factor is {factor!r} and sigmas is {sigmas!r}; expected factor >= 1 and sigmas >= 0.",
            code="argument.invalid-value",
        )


@dataclass(frozen=True, eq=False)
class Judged:
    """Bad pixels (y, x) except masked ones, in the order of the patterns, by kind; see `find_bad_pixels`."""

    hot: NDArray[np.bool_]
    dead: NDArray[np.bool_]
    stuck: NDArray[np.bool_]


def judged(scan: Scan, seen: Statistics, *, factor: float = 3.0, sigmas: float = 6.0) -> Judged:
    """Classify the pixels from the statistics of some or all patterns of the scan."""
    shifted = scan.is_far_field and not scan.centred
    good = seen.finite if scan.mask is None else seen.finite & scan.mask
    mean, variance = seen.mean, seen.variance
    if shifted:
        mean, variance, good = np.fft.fftshift(mean), np.fft.fftshift(variance), np.fft.fftshift(good)
    neighbours = _neighbours(np.where(good, mean, np.nan))
    available = np.isfinite(neighbours).sum(0)
    sorted_neighbours = np.sort(neighbours, axis=0)  # NaN comes last
    # In a corner, or among bad pixels, there are too few neighbours to ignore two.
    left_out = np.where(available >= 5, 2, 0)
    high = np.take_along_axis(sorted_neighbours, np.maximum(available - 1 - left_out, 0)[None], 0)[0]
    low = np.take_along_axis(sorted_neighbours, left_out[None], 0)[0]
    typical = _median(_neighbours(np.where(good, variance, np.nan)))
    error = sigmas * np.sqrt((variance + typical) / seen.patterns)
    enough = available >= 3
    diffracted = _diffracted(mean, variance, good, seen.patterns, 4 / 3 * factor)
    hot = good & enough & (mean > factor * high + error) & ~(diffracted & (mean < BRIGHTEST * factor * high))
    dead = good & enough & (low > factor * mean + error) & ~diffracted
    hot, dead = (kind & (kind.sum() <= MOST_BAD * good.sum()) for kind in (hot, dead))
    stuck = good & (variance == 0) & (mean != 0) & (typical > 0) & (seen.patterns >= ENOUGH_TO_BE_STUCK)
    return Judged(*(np.fft.ifftshift(kind) if shifted else kind for kind in (hot, dead, stuck)))


def _diffracted(
    mean: NDArray[np.float64], variance: NDArray[np.float64], good: NDArray[np.bool_], patterns: int, factor: float
) -> NDArray[np.bool_]:
    """Whether a pixel varies from pattern to pattern as its neighbours do, within a factor, or a little more.

    Where the light A that is the same in all patterns interferes with the light δ of the object, |A + δ|² has a
    variance in proportion to its mean, in bright and in dark fringes, also where each is one pixel wide. The values of
    a defect do not depend on the object, have another gain, or flicker far more.
    """
    used = good & (mean > 0) & (variance > 0)
    ratio = np.divide(variance, mean, out=np.full(mean.shape, np.nan), where=used)
    # Less the noise of counts; values that are scaled down have less, and those of a detector with a gain more.
    excess = ratio - (min(1.0, float(np.nanquantile(ratio, 1e-3))) if used.any() else 0)
    typical = _median(_neighbours(excess))
    varies = typical > 6 * np.sqrt(2 / patterns)
    return varies & (excess * factor > typical) & (excess < factor**2 * typical)


@dataclass(frozen=True, eq=False)
class Statistics:
    """Statistics over some patterns (y, x): whether pixels are always finite, mean and variance (0 if not finite)."""

    patterns: int
    finite: NDArray[np.bool_]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]


def pixel_statistics(scan: Scan) -> Statistics:
    """Read the raw patterns, without masking, and return their statistics."""
    finite = np.ones(scan.pattern_shape, bool)
    offset = np.zeros(scan.pattern_shape)
    total, squares = np.zeros(scan.pattern_shape), np.zeros(scan.pattern_shape)
    for part in parts(scan):
        patterns = scan.frames.read(part.start, part.stop).astype(np.float64)
        finite &= np.isfinite(patterns).all(0)
        patterns = np.where(finite, patterns, 0)
        if part.start == 0:
            # Sums of differences from the first pattern avoid cancellation, and are exactly 0 for constant pixels.
            offset = patterns[0].copy()
        patterns -= offset
        total += patterns.sum(0)
        squares += (patterns**2).sum(0)
    mean = total / len(scan)
    variance = np.maximum(squares / len(scan) - mean**2, 0)
    return Statistics(len(scan), finite, np.where(finite, mean + offset, 0), np.where(finite, variance, 0))


def _neighbours(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the eight neighbours (8, y, x) of each pixel, NaN beyond the edges."""
    height, width = values.shape
    padded = np.pad(values, 1, constant_values=np.nan)
    steps = [(y, x) for y in range(3) for x in range(3) if (y, x) != (1, 1)]
    return np.stack([padded[y : y + height, x : x + width] for y, x in steps])


def _median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the lower median over the first axis, ignoring NaN; 0 if all are NaN."""
    counted = np.isfinite(values).sum(0)
    ordered = np.sort(values, axis=0)
    middle = np.take_along_axis(ordered, np.maximum((counted - 1) // 2, 0)[None], 0)[0]
    return np.where(counted > 0, middle, 0)
