"""What makes one trial better than another: one number of it that is to be small."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from ptynb.analysis.ring_correlation import FEWEST, fourier_ring_correlation
from ptynb.data.snapshot import Array, Result
from ptynb.exceptions import InvalidValueError, SettingsError

Metric = Literal["loss", "frc"] | Callable[[Result], float]
SMALLEST_SIDE = 8
"""Pixels of the area that two halves share, at least: a correlation has no rings in less."""


def check_metric(metric: Metric) -> None:
    """Raises SettingsError for what is no metric."""
    if metric not in ("loss", "frc") and not callable(metric):
        raise SettingsError(
            f"metric is {metric!r}; expected 'loss', 'frc' or a function of a Result.", code="argument.invalid-value"
        )


def metric_name(metric: Metric) -> str:
    """What a study's file and a widget call it."""
    return metric if isinstance(metric, str) else getattr(metric, "__qualname__", type(metric).__name__)


def of_function(metric: Callable[[Result], float], result: Result) -> float:
    """What the user's function makes of a result. Raises ValueError where that is no finite number."""
    given = metric(result)
    try:
        score = float(given)
    except (TypeError, ValueError):
        raise InvalidValueError(
            f"The metric returned {given!r:.80}; expected a number, small for what is good.",
            code="tuning.invalid-score",
        ) from None
    if not math.isfinite(score):
        raise InvalidValueError(
            f"The metric returned {score}; expected a finite number, small for what is good.",
            code="tuning.invalid-score",
        )
    return score


def frc_score(one: Result, other: Result) -> float:
    """1 less the mean Fourier ring correlation of two objects, reconstructed from the halves of a scan.

    0 where they agree at all frequencies, about 1 where they have nothing in common. The mean over the rings rather
    than the frequency at which a threshold is crossed: the crossing jumps, and stays at the last ring for every trial
    that resolves the pixels. Rings with too few independent coefficients are left out, as there.

    The objects are compared between the middles of the outermost windows of both.
    Raises ValueError where that is less than 8 pixels, or the objects can't be registered.
    """
    shift = tuple(int(a) - int(b) for a, b in zip(one.origin, other.origin, strict=True))
    area = _shared_area(one, other)
    correlation = fourier_ring_correlation(one.projection, other.projection, area=area, offset=(shift[0], shift[1]))
    told = correlation.independent >= min(FEWEST, float(correlation.independent.max()))
    return 1.0 - float(correlation.correlation[told].mean())


def _shared_area(one: Result, other: Result) -> tuple[slice, slice]:
    """In pixels of `other`: from the middles of the first windows of both to those of the last ones."""
    shift = np.array(one.origin) - np.array(other.origin)
    low = np.maximum(_middles(one).min(0) + shift, _middles(other).min(0))
    high = np.minimum(_middles(one).max(0) + shift, _middles(other).max(0))
    starts, stops = np.ceil(low).astype(int), np.floor(high).astype(int)
    if (stops - starts).min() < SMALLEST_SIDE:
        raise InvalidValueError(
            f"The halves of the scan share an area of {' x '.join(str(side) for side in stops - starts)} pixels, too "
            "small for a Fourier ring correlation; use the metric 'loss'.",
            code="comparison.area-too-small",
        )
    return slice(int(starts[0]), int(stops[0])), slice(int(starts[1]), int(stops[1]))


def _middles(result: Result) -> Array:
    """Middles of the windows (pattern, yx) in pixels of the result's object."""
    return result.positions + np.array(result.probe.shape[-2:]) / 2
