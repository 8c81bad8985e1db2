"""Simulated degradation of patterns: Poisson noise and detector blur."""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy
from numpy.typing import NDArray

from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError, check_positive
from ptynb.preparation.counts import normalise
from ptynb.preparation.recorded_steps import recorded
from ptynb.preparation.shared_transforms import Array, known, real_type, transformed


@recorded
def add_poisson_noise(scan: Scan, dose: float | None = None, seed: int = 0) -> Scan:
    """Replace each count by a Poisson random number with this mean.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    dose : float, optional
        Mean sum of a pattern over good pixels [counts], to which all patterns are scaled first (`normalise`, which
        reads all patterns once); by default they are not scaled.
    seed : int, default 0
        Seed; the random numbers of pattern j depend on (seed, j), so that each reading returns the same counts.

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    InvalidValueError
        If the dose is not positive and finite, or the seed is negative.
    """
    if not (isinstance(seed, int) and seed >= 0):
        raise InvalidValueError(f"seed is {seed!r}; expected an integer of at least 0.", code="argument.invalid-value")
    if dose is not None:
        scan = normalise(scan, counts=dose)
    return dataclasses.replace(scan, frames=transformed(scan, _noisy, seed, scan.mask, dtype=real_type(scan)))


@recorded
def blur(scan: Scan, sigma: float) -> Scan:
    """Blur the patterns by a Gaussian, periodic at the edges (as `detector.psf_sigma`).

    Good pixels near bad ones are weighted means of good pixels only. Guess and ground truth do not change.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    sigma : float
        Standard deviation [detector pixels].

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    InvalidValueError
        Unless sigma is positive and finite.
    """
    check_positive(sigma, "sigma", "detector pixels")
    return dataclasses.replace(scan, frames=transformed(scan, _blurred, float(sigma), scan.mask, dtype=real_type(scan)))


def _noisy(seed: int, mask: NDArray[np.bool_] | None, patterns: Array, first: int) -> Array:
    mean = known(mask, patterns).astype(np.float64)
    # Negative and non-finite counts at good pixels are unchanged, for the later check of counts.
    drawable = np.isfinite(mean) & (mean > 0)
    for index, pattern in enumerate(mean):
        random = np.random.default_rng([seed, first + index])
        drawn = random.poisson(np.where(drawable[index], pattern, 0))
        pattern[drawable[index]] = drawn[drawable[index]]
    return mean


def _blurred(sigma: float, mask: NDArray[np.bool_] | None, patterns: Array, first: int) -> Array:
    spread = (0, sigma, sigma)
    kind = np.result_type(patterns.dtype, np.float32)
    counts = scipy.ndimage.gaussian_filter(known(mask, patterns).astype(kind), spread, mode="wrap")
    if mask is None:
        return counts
    weight = scipy.ndimage.gaussian_filter(mask.astype(kind), sigma, mode="wrap")
    return np.where(mask, counts / np.where(mask, weight, 1), 0)
