"""Metrics of trials: one number that is minimised."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from ptynb.analysis.ring_correlation import FEWEST, fourier_ring_correlation
from ptynb.data.engine_records import Array, Result
from ptynb.exceptions import InvalidValueError, SettingsError

Metric = Literal["loss", "frc"] | Callable[[Result], float]
SMALLEST_SIDE = 8
"""Smallest side of the common area of two halves; smaller ones have no rings."""


def check_metric(metric: Metric) -> None:
    """Raise SettingsError if this is not a metric."""
    if metric not in ("loss", "frc") and not callable(metric):
        raise SettingsError(
            f"metric is {metric!r}; expected 'loss', 'frc' or a function of a Result.", code="argument.invalid-value"
        )


def metric_name(metric: Metric) -> str:
    """Return the name of a metric in files and widgets."""
    return metric if isinstance(metric, str) else getattr(metric, "__qualname__", type(metric).__name__)


def of_function(metric: Callable[[Result], float], result: Result) -> float:
    """Return the user's score of a result. Raises InvalidValueError if it is not a finite number."""
    value = metric(result)
    try:
        score = float(value)
    except (TypeError, ValueError):
        raise InvalidValueError(
            f"The metric returned {value!r:.80}; expected a number that is small for good results.",
            code="tuning.invalid-score",
        ) from None
    if not math.isfinite(score):
        raise InvalidValueError(
            f"The metric returned {score}; expected a finite number.",
            code="tuning.invalid-score",
        )
    return score


def frc_score(one: Result, other: Result) -> float:
    """Return 1 minus the mean Fourier ring correlation of two objects from the halves of a scan.

    It is 0 if they agree at all frequencies and about 1 if they are independent. The mean over the rings is used, since
    the frequency at which a threshold is crossed jumps, and is the last ring for all trials that resolve the pixels.
    Rings with too few independent coefficients are left out.

    The area between the centres of the outermost probe windows is compared. Raises InvalidValueError if it has less
    than 8 pixels, or the objects cannot be registered.
    """
    shift = tuple(int(a) - int(b) for a, b in zip(one.origin, other.origin, strict=True))
    area = _shared_area(one, other)
    correlation = fourier_ring_correlation(one.projection, other.projection, area=area, offset=(shift[0], shift[1]))
    decisive = correlation.independent >= min(FEWEST, float(correlation.independent.max()))
    return 1.0 - float(correlation.correlation[decisive].mean())


def _shared_area(one: Result, other: Result) -> tuple[slice, slice]:
    """Return the area between the centres of the outermost windows of both, in pixels of `other`."""
    shift = np.array(one.origin) - np.array(other.origin)
    low = np.maximum(_centres(one).min(0) + shift, _centres(other).min(0))
    high = np.minimum(_centres(one).max(0) + shift, _centres(other).max(0))
    starts, stops = np.ceil(low).astype(int), np.floor(high).astype(int)
    if (stops - starts).min() < SMALLEST_SIDE:
        raise InvalidValueError(
            f"The halves of the scan have a common area of {' x '.join(str(side) for side in stops - starts)} pixels, "
            "too small for a Fourier ring correlation; use the metric 'loss'.",
            code="comparison.area-too-small",
        )
    return slice(int(starts[0]), int(stops[0])), slice(int(starts[1]), int(stops[1]))


def _centres(result: Result) -> Array:
    """Return the centres of the probe windows (pattern, yx) in pixels of the result's object."""
    return result.positions + np.array(result.probe.shape[-2:]) / 2
