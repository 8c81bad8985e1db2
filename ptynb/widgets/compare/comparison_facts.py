"""What is told about results that are compared: tables, curves (`CurveSpec` of the scripts) and sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ptynb.analysis.result_comparison import Difference, facts_of, settings_that_differ
from ptynb.data.engine_records import Result
from ptynb.widgets.quantities import number

Row = tuple[str, list[str], bool]
"""Name of a fact, its text for each result, and whether the results differ in it."""


def facts(results: Mapping[str, Result]) -> list[Row]:
    """Return quality, duration, devices and versions of each result."""
    columns = [facts_of(result) for result in results.values()]
    names = dict.fromkeys(name for column in columns for name in column)
    return _rows({name: [column.get(name) for column in columns] for name in names})


def settings(results: Mapping[str, Result]) -> list[Row]:
    """Return the settings that differ between results."""
    return _rows(settings_that_differ(results))


def losses(results: Mapping[str, Result]) -> dict[str, Any]:
    """Return the curve of losses over epochs and seconds, and why they are not comparable if they are not."""
    lines = []
    for name, result in results.items():
        seconds = np.cumsum([epoch.seconds for epoch in result.epochs]).tolist()
        x = [[epoch.number for epoch in result.epochs], _finite(seconds)]
        lines.append({"name": name, "x": x, "y": _finite(epoch.loss for epoch in result.epochs)})
    kinds = {name: str(result.settings.get("loss", "unknown")) for name, result in results.items()}
    told = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
    apart = f"The losses are of different kinds ({told}); their heights do not compare."
    curve = {
        "title": "Loss", "axes": ["epoch", "s"], "log": True, "lowest": None, "highest": None, "lines": lines,
        "marks": [], "marked": "", "file": "losses",
    }  # fmt: skip
    return {"curve": curve, "note": apart if len({*kinds.values()}) > 1 else ""}


def difference(found: Difference, pair: tuple[str, str], pixel_size: tuple[float, float] | None) -> dict[str, Any]:
    """Return the registration of a pair, and the Fourier ring correlation with what it means."""
    moved = found.registered
    by = f"({moved.shift[0]:.3f}, {moved.shift[1]:.3f}) pixels"
    if pixel_size is not None:
        nanometres = [1e9 * shift * side for shift, side in zip(moved.shift, pixel_size, strict=True)]
        by += f" = ({nanometres[0]:.3g}, {nanometres[1]:.3g}) nm"
    parts = [
        f"{pair[0]} was moved onto {pair[1]} by {by}",
        f"multiplied by {number(abs(moved.factor))}, phase {np.angle(moved.factor):.3f} rad",
        f"given a ramp of ({number(moved.ramp[0], 3)}, {number(moved.ramp[1], 3)}) rad/pixel",
        f"what is left is {moved.error:.2%} of it",
    ]
    rings = found.correlation
    scale, unit = (1.0, "pixel") if pixel_size is None else (1e9, "nm")
    period, crossing = rings.resolution * scale, rings.crossing()
    told = f"It stays above the half-bit threshold up to the last ring, {period:.3g} {unit}."
    marks = list[dict[str, Any]]()
    if crossing is not None:
        marks.append({"x": [crossing / scale], "text": f"{period:.3g} {unit}"})
        half = f"(half: {period / 2:.3g} {unit})"
        told = f"It falls below the half-bit threshold at a period of {period:.3g} {unit} {half}."
    frequencies = (rings.frequencies / scale).tolist()
    lines: list[dict[str, Any]] = [
        {"name": "FRC", "x": [frequencies], "y": _finite(rings.correlation.tolist())},
        {"name": "half-bit", "x": [frequencies], "y": _finite(rings.half_bit.tolist()), "faint": True},
    ]
    title, axis = f"Fourier ring correlation of {pair[0]} and {pair[1]}", f"spatial frequency [1/{unit}]"
    curve = {
        "title": title, "axes": [axis], "log": False, "lowest": None, "highest": 1.0, "lines": lines, "marks": marks,
        "marked": "period at the threshold", "file": "correlation",
    }  # fmt: skip
    return {"registration": "; ".join(parts) + ".", "curve": curve, "meaning": f"{told} {found.meaning}"}


def _finite(values: Iterable[float]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values]


def _rows(rows: Mapping[str, Sequence[Any]]) -> list[Row]:
    return [
        (name, [_said(value) for value in values], any(value != values[0] for value in values))
        for name, values in rows.items()
    ]


def _said(value: Any) -> str:
    if value is None:
        return "—"
    if isinstance(value, float):
        return number(value, 5)
    if isinstance(value, tuple):
        return " × ".join(_said(item) for item in value)
    return str(value)
