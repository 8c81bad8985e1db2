"""Curves on the page: loss and R-factor, changes per epoch, and Fourier ring correlations."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ptynb.analysis.ring_correlation import RingCorrelation
from ptynb.data.engine_records import Result
from ptynb.figures.scale_marks import metric
from ptynb.report.page_data import PageData

CHANGED = "a setting was changed (see Changes)"
POINTS = 5000
"""Maximum number of points of a curve; longer curves are thinned, except for their last point."""


def show_losses(data: PageData, results: Mapping[str, Result]) -> bool:
    """Add the curve "loss": losses over epochs and over seconds, R-factors, and changes of a single result."""
    lines: list[dict[str, Any]] = []
    for name, result in results.items():
        after = "" if len(results) == 1 else f" of {name}"
        times = _times(result)
        numbers = [epoch.number for epoch in result.epochs]
        seconds = [times[number] for number in range(1, len(numbers) + 1)]
        lines.append(_line(f"loss{after}", numbers, seconds, result.losses.tolist()))
        if len(result.r_factors) > 1:  # a single value is in the section Quality
            at = [epoch for epoch, _ in result.r_factors]
            when = [times[min(epoch, len(times) - 1)] for epoch in at]
            lines.append(_line(f"R-factor{after}", at, when, [value for _, value in result.r_factors]))
    lines = [line for line in lines if line["y"]]
    if lines:
        title = "Loss" if len(results) == 1 else "Losses"
        data.add_curve("loss", title, ("epoch", "seconds"), lines, marks=_marks(results), marked=CHANGED)
    return bool(lines)


def show_state_changes(data: PageData, result: Result) -> bool:
    """Add the curve "changes": changes of object, probe and positions in each epoch."""
    times, lines = _times(result), []
    for name, field in (
        ("object", "object_change"),
        ("probe", "probe_change"),
        ("positions [pixels]", "position_change"),
    ):
        known = [(epoch.number, value) for epoch in result.epochs if (value := getattr(epoch, field)) is not None]
        if any(value > 0 for _, value in known):
            numbers = [number for number, _ in known]
            seconds = [times[min(number, len(times) - 1)] for number in numbers]
            lines.append(_line(name, numbers, seconds, [value for _, value in known]))
    if lines:
        data.add_curve(
            "changes", "Change in an epoch", ("epoch", "seconds"), lines, marks=_marks({"": result}), marked=CHANGED
        )
    return bool(lines)


def show_correlation(data: PageData, name: str, title: str, rings: RingCorrelation, known: bool) -> None:
    """Add a Fourier ring correlation with its threshold and crossing. known: whether lengths are in metres."""
    scale, unit = _frequency_unit(float(rings.frequencies[-1])) if known else (1.0, "1/pixel")
    places = [(rings.frequencies * scale).tolist()]
    crossing = rings.crossing()
    marks = [] if crossing is None else [{"x": [crossing * scale], "text": period_text(1 / crossing, known)}]
    lines = [
        {"name": "FRC", "x": places, "y": rings.correlation.tolist(), "faint": False},
        {"name": "half-bit threshold", "x": places, "y": rings.half_bit.tolist(), "faint": True},
    ]
    axes = (f"spatial frequency [{unit}]",)
    lowest = min(0.0, *rings.correlation)
    crossed = "falls below the threshold"
    data.add_curve(name, title, axes, lines, marks=marks, marked=crossed, log=False, lowest=lowest, highest=1.0)


def _frequency_unit(highest: float) -> tuple[float, str]:
    """Return a factor from 1/m to a unit in which the highest frequency is below 1000, and the unit."""
    units = ((1e-3, "1/mm"), (1e-6, "1/µm"), (1e-9, "1/nm"))
    return next(((scale, unit) for scale, unit in units if highest * scale < 1000), units[-1])


def period_text(period: float, known: bool) -> str:
    """Return a period with its unit: metres if the pixel size is known, else pixels."""
    return metric(period) if known else f"{period:.3g} pixels"


def crossing_sentence(rings: RingCorrelation, known: bool) -> str:
    """Return the sentence that states where the correlation falls below the half-bit threshold."""
    period = rings.resolution
    if rings.crossing() is None:
        return f"It stays above the half-bit threshold up to the last ring, a period of {period_text(period, known)}."
    half = period_text(period / 2, known)
    return f"It falls below the half-bit threshold at a period of {period_text(period, known)} (half-period {half})."


def _times(result: Result) -> list[float]:
    """Return seconds from the start to the end of each epoch."""
    return [0.0, *itertools.accumulate(epoch.seconds for epoch in result.epochs)]


def _line(name: str, epochs: Sequence[int], seconds: Sequence[float], values: Sequence[float]) -> dict[str, Any]:
    every = max(1, -(-len(values) // POINTS))
    indices = sorted({*range(0, len(values), every), *range(max(len(values) - 1, 0), len(values))})
    x = [[epochs[index] for index in indices], [float(f"{seconds[index]:.7g}") for index in indices]]
    return {"name": name, "x": x, "y": [float(f"{values[index]:.7g}") for index in indices], "faint": False}


def _marks(results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Return the changes of a single result's settings, by their numbers in the table of changes."""
    if len(results) > 1:
        return []
    (result,) = results.values()
    times = _times(result)
    return [
        {"x": [change.epoch + 1, times[min(change.epoch, len(times) - 1)]], "text": str(number)}
        for number, change in enumerate(result.changes, start=1)
    ]
