"""Colour maps and limits that were chosen in a comparison, and their line of Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Limits = tuple[float, float]


@dataclass(frozen=True)
class Look:
    """Colour maps and limits by picture."""

    colours: dict[str, str] = field(default_factory=dict)
    limits: dict[str, list[float]] = field(default_factory=dict)


def look_line(trait: str, before: Any, now: Any, results: set[str]) -> str:
    """Return the call of `Compare.show`, for a view named `view`, of a change of a viewer's trait.

    trait: "colours", "limits" or "linked_colours". results: names of the results whose pictures are shown: one value
    for all of them is told as such, others by picture.
    """
    if trait == "linked_colours":
        return f"view.show(linked={now!r})"
    changed: Mapping[str, Any] = {name: value for name, value in now.items() if value != before.get(name)}
    if not changed:
        return "view.show(limits='auto')"
    values = {name: value if trait == "colours" else _rounded(*value) for name, value in changed.items()}
    first = next(iter(values.values()))
    common = {*values} == results and all(value == first for value in values.values())
    return f"view.show({trait}={(first if common else values)!r})"


def _rounded(low: float, high: float) -> Limits:
    return float(f"{low:.5g}"), float(f"{high:.5g}")
