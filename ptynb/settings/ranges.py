"""Ranges of values that a study tries: intervals, or lists of choices.

Values are settings, by their dotted names, or belong to the scan: "load.NAME" is an option of `ptynb.load`,
"prepare.NAME" a field of `PreparationValues`, and "scan.NAME" an argument of a function of the user.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import BaseModel, Field

from ptynb.exceptions import PtynbError, SettingsError
from ptynb.settings.base_models import SettingsModel, field_at
from ptynb.settings.field_docs import kinds_in
from ptynb.settings.load_options import LoadOptions
from ptynb.settings.settings import Settings
from ptynb.text import quoted

SCAN_GROUPS = ("load", "prepare", "scan")
"""First parts of the names of values that belong to the scan."""


class PreparationValues(SettingsModel):
    """Values of the preparation that a study can try."""

    crop: int | None = Field(
        default=None, ge=4, le=8192, description="Side of the window that patterns are cropped to [pixels]"
    )
    bin: int = Field(default=1, ge=1, le=64, description="Side of the blocks of pixels that are summed [pixels]")
    position_rotation: float = Field(
        default=0.0, ge=-10, le=10, description="Rotation of the positions about their mean, from x towards y [rad]"
    )
    position_scale: float = Field(default=1.0, gt=0, le=1e6, description="Factor of the positions about their mean")


Choice = bool | int | float | str | None


@dataclass(frozen=True, repr=False)
class Between:
    """All values from low to high, whole numbers only if the setting is one; log: uniform in the logarithm."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        finite = all(_is_number(end) and math.isfinite(end) for end in (self.low, self.high))
        if not finite or self.low >= self.high or (self.log and self.low <= 0):
            raise SettingsError(
                f"{self!r} is not a range; expected two finite numbers, the lower one first, positive with log=True.",
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


def checked_ranges(
    settings: Settings, ranges: Mapping[str, Any], opened: LoadOptions | None = None
) -> dict[str, Range]:
    """Validate ranges and return them by dotted name.

    ranges: `between`, the tuple (low, high, log) for the same, or a sequence of choices. opened: options with which
    the scan was loaded; None: values of the scan are not supported. Raises SettingsError for the first invalid one.
    Combinations of several values are validated when they are tried.
    """
    if not ranges:
        raise SettingsError(
            "ranges is empty; name at least one setting, as {'probe.learning_rate': pt.between(1e-4, 1e-1)}.",
            code="tuning.invalid-range",
        )
    checked = {
        name: _checked(settings, name, given)
        if opened is None or group_of(name) is None
        else _checked_of_scan(name, given)
        for name, given in ranges.items()
    }
    first = {
        name.removeprefix("load."): range.low if isinstance(range, Between) else range[0]
        for name, range in checked.items()
        if name.startswith("load.")
    }
    if opened is not None and first:
        try:
            LoadOptions.from_arguments({**opened.arguments, **first})
        except PtynbError as error:
            raise error.retold(SettingsError, f"Options of load in ranges can't be used: {error}") from None
    return checked


def group_of(name: str) -> str | None:
    """Return the group of a value that belongs to the scan, one of `SCAN_GROUPS`; None for a setting."""
    first, _, rest = name.partition(".")
    return first if rest and first in SCAN_GROUPS else None


def value_of(settings: Settings, name: str) -> Any:
    """Return the value of a setting by its dotted name."""
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def is_whole(name: str) -> bool:
    """Whether a value, given by its dotted name, is always a whole number."""
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
    return _of_its_kind(name, chosen)


def _checked_of_scan(name: str, given: Any) -> Range:
    chosen = _as_range(name, given)
    group, _, field = name.partition(".")
    if group == "scan":
        return chosen
    model = GROUP_MODELS[group]
    if field not in model.model_fields:
        raise SettingsError(
            f"There is no {name}; expected one of {', '.join(f'{group}.{known}' for known in model.model_fields)}.",
            code="settings.unknown-name",
        )
    values = (chosen.low, chosen.high) if isinstance(chosen, Between) else chosen
    for value in values:
        try:
            model(**{field: value})
        except SettingsError as error:
            if any(problem["loc"][:1] == (field,) for problem in error.problems):  # others are of several options
                raise error.retold(SettingsError, f"The range of {name} can't be used: {error}") from None
    return _of_its_kind(name, chosen)


GROUP_MODELS: dict[str, type[BaseModel]] = {"load": LoadOptions, "prepare": PreparationValues}


def _of_its_kind(name: str, chosen: Range) -> Range:
    """Return an interval of whole numbers for a value that is one. Raises SettingsError if it is no number."""
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
    if not given or not all(isinstance(choice, Choice) for choice in given) or len({*given}) < len(given):
        raise SettingsError(
            f"The choices of {name} are {quoted(given)}; expected at least one, different ones, each a number, a text "
            "or None.",
            code="tuning.invalid-range",
        )
    return tuple(given)


def _check_value(settings: Settings, name: str, value: Any) -> None:
    """Raise SettingsError if the setting does not exist, or if the value is invalid whatever the others are."""
    field = field_at(Settings, name)
    if field is not None and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
        inside = next(iter(field.annotation.model_fields))
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
            raise error.retold(SettingsError, f"The range of {name} can't be used: {error}") from None


def _annotation(name: str) -> Any:
    """Return the type of a value by its dotted name."""
    group, _, field = name.partition(".")
    if group == "scan":
        return float
    found = field_at(GROUP_MODELS.get(group, Settings), field if group in GROUP_MODELS else name)
    assert found is not None, name
    return found.annotation


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
