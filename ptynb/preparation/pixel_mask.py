"""Bad pixels: masking those that are known, and finding those that are not."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError
from ptynb.preparation.carry_over import parts

ENOUGH_TO_BE_STUCK = 16
"""Patterns from which on a pixel that always shows the same count, though its neighbours change, is stuck."""


def mask_pixels(scan: Scan, mask: ArrayLike) -> Scan:
    """Masks pixels besides those masked already.

    mask: (y, x) in the order of the patterns, True or 1 where the detector works.

    Raises ValueError if it does not fit, and ScanError if no good pixel is left.
    """
    given = np.asarray(mask)
    numbers = given.dtype == bool or np.isin(given, (0, 1)).all()
    if given.shape != scan.pattern_shape or not numbers:
        raise InvalidValueError(
            f"The mask has shape {given.shape} and type {given.dtype}; expected that of a pattern, "
            f"{scan.pattern_shape}, "
            "and True or 1 where the detector works, False or 0 elsewhere.",
            code="array.shape-mismatch",
        )
    good = given.astype(bool)
    return dataclasses.replace(scan, mask=good if scan.mask is None else scan.mask & good)


def find_bad_pixels(scan: Scan, *, factor: float = 3.0, sigmas: float = 6.0) -> NDArray[np.bool_]:
    """The mask (y, x) for `mask_pixels`, True where the detector works, in the order of the patterns; reads them all.

    A pixel is hot whose mean over the scan exceeds that of all but two of its eight neighbours by `factor` and by
    `sigmas` standard errors, dead if it lies as far below all but two of them. Pixels with counts that are not finite
    are bad, and stuck ones that never change though their neighbours do (from 16 patterns on). Two pixels beside each
    other and lines of one pixel's width are found, wider gaps are not; a beam narrower than two pixels passes for hot.

    Pixels masked already stay bad and judge no neighbour. Raises ValueError for a factor below 1 or negative sigmas.
    """
    if not (math.isfinite(factor) and factor >= 1 and math.isfinite(sigmas) and sigmas >= 0):
        raise InvalidValueError(
            f"factor is {factor!r} and sigmas {sigmas!r}; expected at least 1, and at least 0.",
            code="argument.invalid-value",
        )
    seen = _statistics(scan)
    kinds = judged(scan, seen, factor=factor, sigmas=sigmas)
    working = seen.finite if scan.mask is None else seen.finite & scan.mask
    found: NDArray[np.bool_] = working & ~kinds.hot & ~kinds.dead & ~kinds.stuck
    return found


@dataclass(frozen=True, eq=False)
class Judged:
    """Bad pixels (y, x) beside those masked before, in the order of the patterns: see `find_bad_pixels`."""

    hot: NDArray[np.bool_]
    dead: NDArray[np.bool_]
    stuck: NDArray[np.bool_]


def judged(scan: Scan, seen: Statistics, *, factor: float, sigmas: float) -> Judged:
    """What is wrong with the pixels, by the statistics of some or all patterns of the scan."""
    shifted = scan.is_far_field and not scan.centred
    good = seen.finite if scan.mask is None else seen.finite & scan.mask
    mean, variance = seen.mean, seen.variance
    if shifted:
        mean, variance, good = np.fft.fftshift(mean), np.fft.fftshift(variance), np.fft.fftshift(good)
    around = _neighbours(np.where(good, mean, np.nan))
    counted = np.isfinite(around).sum(0)
    ordered = np.sort(around, axis=0)  # NaN comes last
    # In a corner, or among bad pixels, there are too few neighbours to leave two out.
    left_out = np.where(counted >= 5, 2, 0)
    high = np.take_along_axis(ordered, np.maximum(counted - 1 - left_out, 0)[None], 0)[0]
    low = np.take_along_axis(ordered, left_out[None], 0)[0]
    typical = _median(_neighbours(np.where(good, variance, np.nan)))
    error = sigmas * np.sqrt((variance + typical) / seen.patterns)
    enough = counted >= 3
    hot = good & enough & (mean > factor * high + error)
    dead = good & enough & (low > factor * mean + error)
    stuck = good & (variance == 0) & (mean != 0) & (typical > 0) & (seen.patterns >= ENOUGH_TO_BE_STUCK)
    return Judged(*(np.fft.ifftshift(kind) if shifted else kind for kind in (hot, dead, stuck)))


@dataclass(frozen=True, eq=False)
class Statistics:
    """Over so many patterns: which pixels (y, x) are always finite, their mean and variance (0 where not)."""

    patterns: int
    finite: NDArray[np.bool_]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]


def _statistics(scan: Scan) -> Statistics:
    """Raw patterns are read: what bad pixels show is what is looked for."""
    finite = np.ones(scan.pattern_shape, bool)
    offset = np.zeros(scan.pattern_shape)
    total, squares = np.zeros(scan.pattern_shape), np.zeros(scan.pattern_shape)
    for part in parts(scan):
        patterns = scan.frames.read(part.start, part.stop).astype(np.float64)
        finite &= np.isfinite(patterns).all(0)
        patterns = np.where(finite, patterns, 0)
        if part.start == 0:
            # Sums of differences from the first pattern keep their digits, and are 0 exactly where nothing changes.
            offset = patterns[0].copy()
        patterns -= offset
        total += patterns.sum(0)
        squares += (patterns**2).sum(0)
    mean = total / len(scan)
    variance = np.maximum(squares / len(scan) - mean**2, 0)
    return Statistics(len(scan), finite, np.where(finite, mean + offset, 0), np.where(finite, variance, 0))


def _neighbours(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """(8, y, x): the pixels around each, NaN beyond the edges."""
    height, width = values.shape
    padded = np.pad(values, 1, constant_values=np.nan)
    steps = [(y, x) for y in range(3) for x in range(3) if (y, x) != (1, 1)]
    return np.stack([padded[y : y + height, x : x + width] for y, x in steps])


def _median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Lower median over the first axis without NaNs; 0 where there is nothing else."""
    counted = np.isfinite(values).sum(0)
    ordered = np.sort(values, axis=0)
    middle = np.take_along_axis(ordered, np.maximum((counted - 1) // 2, 0)[None], 0)[0]
    return np.where(counted > 0, middle, 0)
