"""Evidence for an effect: how well a fit predicts counts that were held out from it.

Each count of a pattern is held out with probability `HELD_OUT`, independently (binomial thinning). Of Poisson counts
with expectation μ both parts are Poisson distributed and independent, with expectations (1 - h) μ and h μ, so a model
M of the one predicts h / (1 - h) M for the other. Counts are held out, rather than pixels or patterns, because some
effects have a parameter for each pattern (positions, intensities) or for each pixel (background).

With m and m' the predictions of two models for the held-out counts t, and fixed weights w, the gain

    G = Σ w [(t - m)² - (t - m')²] = Σ w (m' - m) (2 t - m - m')

has the expectation Σ w [(hμ - m)² - (hμ - m')²], by which the squared error of the prediction falls. It is negative if
m' only follows the noise of the fitted counts. The standard error of G is √(Σ 4 w² (m' - m)² t). If the values have g
times the variance of counts, G remains negative for parameters without meaning up to g = 2 + h / (1 - h).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.analysis.scan_survey import Survey
from ptynb.data.scan import Scan
from ptynb.preparation.shared_transforms import as_centred, transformed
from ptynb.session.reconstruction import Reconstruction

HELD_OUT = 0.1
"""Part of the counts that is held out."""
SEED = 20
"""Of the random numbers, with the index of the pattern."""
MOST_PIXELS, LEAST_PATTERNS = 2**20, 32
"""Approximate number of pixels whose held-out counts are compared, and least number of patterns."""
FACTOR = HELD_OUT / (1 - HELD_OUT)
"""Held-out counts for each fitted one."""


def counts_per_unit(scan: Scan, seen: Survey) -> float:
    """Return the number of counts of a unit of the stored values: 1 if they are integers.

    Of others it is at least 1 / g, if their variance is g times their mean: the variance over all patterns, in which
    differences of the patterns are, too, of the pixels where it is lowest. Too few counts only make evidence weaker.
    """
    values = scan.frames.read(0, min(8, len(scan)))
    if np.array_equal(values, np.rint(values), equal_nan=True):
        return 1.0
    used = seen.finite & (seen.mean > 0) & (seen.variance > 0)
    if scan.mask is not None:
        used &= scan.mask
    return float(1 / np.quantile(seen.variance[used] / seen.mean[used], 0.02)) if used.any() else 1.0


def _thinned(unit: float, held_out: bool, patterns: NDArray[Any], first: int) -> NDArray[np.float32]:
    counts = np.rint(np.maximum(np.nan_to_num(patterns, posinf=0.0), 0) * unit).astype(np.int64)
    for offset, pattern in enumerate(counts):
        held = np.random.default_rng((SEED, first + offset)).binomial(pattern, HELD_OUT)
        counts[offset] = held if held_out else pattern - held
    return counts.astype(np.float32)


def thinned(scan: Scan, unit: float, held_out: bool = False) -> Scan:
    """Return the scan with the counts that are fitted, or with those that are held out. unit: `counts_per_unit`."""
    return replace(scan, frames=transformed(scan, _thinned, unit, held_out, dtype=np.dtype(np.float32)))


@dataclass(frozen=True, eq=False)
class TrialFit:
    """How well a fit describes the counts.

    predicted: of the held-out counts, m (pattern, y, x), at masked pixels too. misfit: mean square of the model's error
    in units of the noise, x: Σ w (M - μ)² / Σ w μ. The fitted counts show x - k, the held-out ones x + k, where k is
    the noise that the fit follows, per pixel; this is their mean, 0 for a perfect model of Poisson counts.
    """

    predicted: NDArray[np.float32]
    misfit: float


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out counts (pattern, y, x) of some patterns; the zero frequency is at n // 2, and masked pixels are 0.

    good: working pixels (y, x). totals: sum of all counts of these patterns (y, x), at masked pixels too.
    """

    patterns: NDArray[np.int64]
    counts: NDArray[np.float32]
    good: NDArray[np.bool_]
    totals: NDArray[np.float64]

    @classmethod
    def of(cls, scan: Scan, unit: float) -> HeldOut:
        """Return those of evenly spread patterns of the scan, which has all counts."""
        most = max(LEAST_PATTERNS, MOST_PIXELS // math.prod(scan.pattern_shape))
        patterns = np.unique(np.linspace(0, len(scan) - 1, min(most, len(scan))).astype(np.int64))
        whole, held = as_centred(scan), as_centred(thinned(scan, unit, held_out=True))
        values = np.empty((len(patterns), *scan.pattern_shape), whole.frames.dtype)
        whole.frames.take(patterns, values)
        totals = unit * np.nan_to_num(values, posinf=0.0).sum(0, dtype=np.float64)
        counts = np.empty(values.shape, np.float32)
        held.frames.take(patterns, counts)
        good = np.ones(scan.pattern_shape, bool) if held.mask is None else held.mask
        return cls(patterns, counts * good, good, totals)

    def fit(self, recon: Reconstruction) -> TrialFit:
        """Judge a reconstruction from the other counts. Weights w are 1 / (m + h): h is one count before thinning."""
        predicted = np.empty_like(self.counts)
        sums = np.zeros((2, 2))
        for row, pattern in enumerate(self.patterns.tolist()):
            pair = recon.pattern(pattern)
            predicted[row] = pair.modelled * FACTOR
            weights = pair.mask / (predicted[row] + HELD_OUT)
            for counts, model, total in (
                (pair.measured, pair.modelled, sums[0]),
                (self.counts[row], predicted[row], sums[1]),
            ):
                total += (weights * ((counts - model) ** 2 - counts)).sum(), (weights * counts).sum()
        fitted, held = sums[:, 0] / np.maximum(sums[:, 1], 1e-300)
        return TrialFit(predicted, float(fitted + held / FACTOR) / 2)

    def gain(self, before: TrialFit, after: TrialFit) -> tuple[float, float]:
        """Return G, with the weights of the fit before, and its standard error."""
        change = self.good * (after.predicted - before.predicted) / (before.predicted + HELD_OUT)
        gain = (change * (2 * self.counts - before.predicted - after.predicted)).sum(dtype=np.float64)
        return float(gain), 2 * math.sqrt((change**2 * self.counts).sum(dtype=np.float64))

    def unexplained(self, fit: TrialFit) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the pixels (y, x) whose counts are less than half or more than twice those of the model.

        Of pixels that were masked in the fit all counts are held out: it predicts a fringe of the beam, and no defect.
        The second array has also those that would be among them if they had no counts.
        """
        expected = fit.predicted.sum(0, dtype=np.float64) / HELD_OUT
        noise = 5 * np.sqrt(expected + 1)
        wrong = (self.totals > 2 * expected) | (self.totals < expected / 2)
        unexplained: NDArray[np.bool_] = wrong & (np.abs(self.totals - expected) > noise)
        return unexplained, unexplained | (expected > noise)
