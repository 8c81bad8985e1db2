"""Ranges of settings that a study tries: intervals, or lists of choices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import BaseModel

from ptynb.exceptions import SettingsError
from ptynb.settings.field_docs import kinds_in
from ptynb.settings.settings import Settings
from ptynb.text import quoted

Choice = bool | int | float | str | None


@dataclass(frozen=True, repr=False)
class Between:
    """All values from low to high, whole numbers only if the setting is one; log: uniform in the logarithm."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not (_is_number(self.low) and _is_number(self.high) and math.isfinite(self.low) and self.low < self.high):
            raise SettingsError(
                f"{self!r} is not a range; expected two finite numbers, the lower one first.",
                code="tuning.invalid-range",
            )
        if not math.isfinite(self.high) or (self.log and self.low <= 0):
            raise SettingsError(
                f"{self!r} is not a range; expected finite numbers, positive ones with log=True.",
                code="tuning.invalid-range",
            )

    def __repr__(self) -> str:
        log = ", log=True" if self.log else ""
        return f"pt.between({self.low!r}, {self.high!r}{log})"

    def __contains__(self, value: object) -> bool:
        return _is_number(value) and self.low <= value <= self.high  # type: ignore[operator]


Range: TypeAlias = Between | tuple[Choice, ...]
"""An interval, or a tuple of choices."""


def between(low: float, high: float, *, log: bool = False) -> Between:
    """Return a range of values for `tune`: `{"probe.learning_rate": pt.between(1e-4, 1e-1, log=True)}`.

    Parameters
    ----------
    low, high : float
        Limits, both included.
    log : bool, default False
        Whether values are distributed uniformly over the logarithm.

    Returns
    -------
    Between
        The range.

    Raises
    ------
    SettingsError
        If the limits are not finite or not in order, or not positive with `log` (code "tuning.invalid-range").
    """
    return Between(low, high, log)


def checked_ranges(settings: Settings, ranges: Mapping[str, Any]) -> dict[str, Range]:
    """Validate ranges and return them by dotted name.

    ranges: `between`, the tuple (low, high, log) for the same, or a sequence of choices. Raises SettingsError for the
    first invalid one. Combinations of several settings are validated when they are tried.
    """
    if not ranges:
        raise SettingsError(
            "ranges is empty; name at least one setting, as {'probe.learning_rate': pt.between(1e-4, 1e-1)}.",
            code="tuning.invalid-range",
        )
    return {name: _checked(settings, name, given) for name, given in ranges.items()}


def value_of(settings: Settings, name: str) -> Any:
    """Return the value of a setting by its dotted name."""
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def is_whole(name: str) -> bool:
    """Whether a setting, given by its dotted name, takes whole numbers only."""
    kinds = {*kinds_in(_annotation(name))}
    return int in kinds and float not in kinds


def usual_ranges(settings: Settings) -> dict[str, Range]:
    """Return ranges of a factor of 10 below and above the learning rates of object, probe and positions."""
    rates = {
        name: value_of(settings, name)
        for name in ("object.learning_rate", "probe.learning_rate", "positions.learning_rate")
    }
    return {name: Between(rate / 10, min(rate * 10, 10.0), True) for name, rate in rates.items() if 0 < rate < 10}


def _checked(settings: Settings, name: str, given: Any) -> Range:
    chosen = _as_range(name, given)
    values = (chosen.low, chosen.high) if isinstance(chosen, Between) else chosen
    for value in values:
        _check_value(settings, name, value)
    if isinstance(chosen, tuple):
        return chosen
    if not {int, float} & {*kinds_in(_annotation(name))}:
        raise SettingsError(
            f"{name} is not a number and its range is {chosen!r}; give its choices as a tuple.",
            code="tuning.invalid-range",
        )
    if is_whole(name):
        return Between(int(chosen.low), int(chosen.high), chosen.log)
    return chosen


def _as_range(name: str, given: Any) -> Range:
    if isinstance(given, Between):
        return given
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise SettingsError(
            f"The range of {name} is {quoted(given)}; expected pt.between(low, high), or its choices as a tuple.",
            code="tuning.invalid-range",
        )
    if len(given) == 3 and isinstance(given[2], bool) and _is_number(given[0]) and _is_number(given[1]):
        return Between(*given)
    if not given or not all(isinstance(choice, Choice) for choice in given):
        raise SettingsError(
            f"The choices of {name} are {quoted(given)}; expected at least one, each a number, a text or None.",
            code="tuning.invalid-range",
        )
    if len({*given}) < len(given):
        raise SettingsError(
            f"The choices of {name} are {quoted(given)}; expected different ones.", code="tuning.invalid-range"
        )
    return tuple(given)


def _check_value(settings: Settings, name: str, value: Any) -> None:
    """Raise SettingsError if the setting does not exist, or if the value is invalid whatever the others are."""
    part = _part(name)
    if part is not None:
        inside = next(iter(part.model_fields))
        raise SettingsError(
            f"{name} is a group of settings; name one of them, as '{name}.{inside}'.",
            code="tuning.invalid-range",
        )
    try:
        settings.with_values({name: value})
    except SettingsError as error:
        own = [
            problem
            for problem in error.problems
            if problem["type"] == "extra_forbidden" or ".".join(str(part) for part in problem["loc"]) == name
        ]
        if own or not error.problems:
            raise SettingsError(f"The range of {name} can't be used: {error}", code=error.code) from None


def _part(name: str) -> type[BaseModel] | None:
    """Return the model at a dotted name; None for a single setting, or an unknown name."""
    kind: Any = Settings
    for word in name.split("."):
        if not (isinstance(kind, type) and issubclass(kind, BaseModel) and word in kind.model_fields):
            return None
        kind = kind.model_fields[word].annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _annotation(name: str) -> Any:
    """Return the type of a field by its dotted name."""
    kind: Any = Settings
    for part in name.split("."):
        kind = kind.model_fields[part].annotation
    return kind


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
