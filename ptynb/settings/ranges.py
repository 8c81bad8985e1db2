"""Ranges of settings: between which values, or among which, good ones are looked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import BaseModel

from ptynb.exceptions import SettingsError
from ptynb.settings.settings import Settings
from ptynb.settings.validation import kinds_in
from ptynb.text import quoted

Choice = bool | int | float | str | None


@dataclass(frozen=True, repr=False)
class Between:
    """All values from low to high; only whole ones where the setting takes no others. log: evenly over their logarithm.

    Raises SettingsError where they are in the wrong order, or not positive with log.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not (_is_number(self.low) and _is_number(self.high) and math.isfinite(self.low) and self.low < self.high):
            raise SettingsError(f"{self!r} is no range; expected two finite numbers, the lower one first.")
        if not math.isfinite(self.high) or (self.log and self.low <= 0):
            raise SettingsError(f"{self!r} is no range; expected finite numbers, and with log=True positive ones.")

    def __repr__(self) -> str:
        log = ", log=True" if self.log else ""
        return f"pt.between({self.low!r}, {self.high!r}{log})"

    def __contains__(self, value: object) -> bool:
        return _is_number(value) and self.low <= value <= self.high  # type: ignore[operator]


Range: TypeAlias = Between | tuple[Choice, ...]
"""What is between two values, or one of some choices."""


def between(low: float, high: float, *, log: bool = False) -> Between:
    """A range for `tune`: `{"probe.learning_rate": pt.between(1e-4, 1e-1, log=True)}`. log: evenly over the
    logarithm.
    """
    return Between(low, high, log)


def checked_ranges(settings: Settings, ranges: Mapping[str, Any]) -> dict[str, Range]:
    """Dotted name -> range, of settings that exist and of values that each of them can have.

    ranges: `between`, the tuple (low, high, log) for the same, or a sequence of choices.
    Raises SettingsError, with one sentence, for the first that is wrong. Whether values of different settings go
    together is seen when they are tried.
    """
    if not ranges:
        raise SettingsError(
            "ranges is empty; name at least one setting, as {'probe.learning_rate': pt.between(1e-4, 1e-1)}."
        )
    return {name: _checked(settings, name, given) for name, given in ranges.items()}


def with_values(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """The settings with the values of these dotted names. Raises SettingsError where they don't go together."""
    return settings.with_values(values)


def value_of(settings: Settings, name: str) -> Any:
    """The value of this dotted name."""
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def is_whole(name: str) -> bool:
    """Whether the setting of this dotted name takes whole numbers only."""
    kinds = {*kinds_in(_annotation(name))}
    return int in kinds and float not in kinds


def usual_ranges(settings: Settings) -> dict[str, Range]:
    """A decade up and down around the learning rate of each part that is optimised, as far as learning rates go."""
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
        raise SettingsError(f"{name} is no number, and its range is {chosen!r}; give its choices as a tuple.")
    if is_whole(name):
        return Between(int(chosen.low), int(chosen.high), chosen.log)
    return chosen


def _as_range(name: str, given: Any) -> Range:
    if isinstance(given, Between):
        return given
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise SettingsError(
            f"The range of {name} is {quoted(given)}; expected pt.between(low, high), or its choices as a tuple."
        )
    if len(given) == 3 and isinstance(given[2], bool) and _is_number(given[0]) and _is_number(given[1]):
        return Between(*given)
    if not given or not all(isinstance(choice, Choice) for choice in given):
        raise SettingsError(
            f"The choices of {name} are {quoted(given)}; expected at least one, each a number, a word or None."
        )
    if len({*given}) < len(given):
        raise SettingsError(f"The choices of {name} are {quoted(given)}; expected each of them once.")
    return tuple(given)


def _check_value(settings: Settings, name: str, value: Any) -> None:
    """Raises SettingsError where the setting does not exist or can't have this value, whatever the others are."""
    part = _part(name)
    if part is not None:
        inside = next(iter(part.model_fields))
        raise SettingsError(f"{name} is a part with settings of its own; name one of them, as '{name}.{inside}'.")
    try:
        with_values(settings, {name: value})
    except SettingsError as error:
        own = [
            problem
            for problem in error.problems
            if problem["type"] == "extra_forbidden" or ".".join(str(part) for part in problem["loc"]) == name
        ]
        if own or not error.problems:
            raise SettingsError(f"The range of {name} can't be used: {error}") from None


def _part(name: str) -> type[BaseModel] | None:
    """The model of the settings below this dotted name; None where it is a single one, or there is none of it."""
    kind: Any = Settings
    for word in name.split("."):
        if not (isinstance(kind, type) and issubclass(kind, BaseModel) and word in kind.model_fields):
            return None
        kind = kind.model_fields[word].annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _annotation(name: str) -> Any:
    """The type of the field of this dotted name, which exists."""
    kind: Any = Settings
    for part in name.split("."):
        kind = kind.model_fields[part].annotation
    return kind


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
