"""Making patterns worse on purpose: fewer counts, a blurred detector."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError
from ptynb.preparation.carry_over import Array, known, real_type, transformed
from ptynb.preparation.counts import normalise


def add_poisson_noise(scan: Scan, dose: float | None = None, seed: int = 0) -> Scan:
    """Draws each count from Poisson's distribution around what it was.

    dose: mean sum of a pattern over good pixels [counts], to which all are scaled before (`normalise`, which reads all
        patterns once); None: as bright as they are.
    seed: pattern j of this scan has random numbers from (seed, j), so that each reading, by any engine, is the same.

    Raises ValueError for a dose that is not positive and finite, or a negative seed.
    """
    if not (isinstance(seed, int) and seed >= 0):
        raise InvalidValueError(
            f"The seed of the noise is {seed!r}; expected a whole number of at least 0.", code="argument.invalid-value"
        )
    if dose is not None:
        scan = normalise(scan, counts=dose)
    return dataclasses.replace(scan, frames=transformed(scan, _noisy, seed, scan.mask, dtype=real_type(scan)))


def blur(scan: Scan, sigma: float) -> Scan:
    """Spreads each count by a Gaussian of `sigma` [detector pixels], around the edges too (as `detector.psf_sigma`).

    Good pixels near bad ones are weighted means of good pixels only. Guess and truth stay what they were before the
    blur.

    Raises ValueError unless sigma is positive and finite.
    """
    if not (math.isfinite(sigma) and sigma > 0):
        raise InvalidValueError(
            f"The sigma of the blur is {sigma!r} detector pixels; expected a positive, finite number.",
            code="argument.invalid-value",
        )
    return dataclasses.replace(scan, frames=transformed(scan, _blurred, float(sigma), scan.mask, dtype=real_type(scan)))


def _noisy(seed: int, mask: NDArray[np.bool_] | None, patterns: Array, first: int) -> Array:
    mean = known(mask, patterns).astype(np.float64)
    # What is negative or not finite at a good pixel stays, and is refused where counts are checked.
    drawable = np.isfinite(mean) & (mean > 0)
    for index, pattern in enumerate(mean):
        random = np.random.default_rng([seed, first + index])
        drawn = random.poisson(np.where(drawable[index], pattern, 0))
        pattern[drawable[index]] = drawn[drawable[index]]
    return mean


def _blurred(sigma: float, mask: NDArray[np.bool_] | None, patterns: Array, first: int) -> Array:
    spread = (0, sigma, sigma)
    kind = np.result_type(patterns.dtype, np.float32)
    counts = ndimage.gaussian_filter(known(mask, patterns).astype(kind), spread, mode="wrap")
    if mask is None:
        return counts
    weight = ndimage.gaussian_filter(mask.astype(kind), sigma, mode="wrap")
    return np.where(mask, counts / np.where(mask, weight, 1), 0)
