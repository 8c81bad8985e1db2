"""What the form writes: labels of fields, names of choices, and values as text in the units of the display.

Numbers are shown and read in common units, nm or mrad where the settings have m or rad, without a loss of digits.
"""

from __future__ import annotations

import functools
import math
from decimal import Decimal
from typing import Any

from ptynb.settings.load_options import LoadOptions
from ptynb.settings.schema import Setting, structure
from ptynb.widgets.quantities import UNITS, in_unit, number, number_and_unit

MISSING = object()
"""The value of an empty field that has no default and cannot be None."""
NOT_SHOWN = ("pm",)
"""Units that settings are not shown in."""
_NONE = ("", "none")
TECHNICAL = 1e6
"""Limits that large are only technical, and not shown."""
PREFIXES = {
    "slices": "Slice distance",
    "positions": "Position",
    "affine": "Linear map",
    "opr": "OPR",
    "pattern_intensities": "Intensity",
    "schedule": "",
    "stop": "Early stop",
}
"""First words of the labels of a part's fields, where they are not its title."""
CHOICES = {
    "adam": "Adam", "adamw": "AdamW", "nadam": "NAdam", "radam": "RAdam", "rmsprop": "RMSprop", "sgd": "SGD",
    "lbfgs": "L-BFGS", "rpie": "rPIE", "lsqml": "LSQ-ML", "dm": "difference map (DM)", "raar": "RAAR",
    "poisson": "Poisson", "tv": "total variation", "l1": "L1 norm", "l2": "L2 norm",
    "amplitude_phase": "amplitude and phase", "group": "all engines together", "engine": "each engine",
    "spread": "spread over the scan", "cells": "one of each cell of the scan", "bands": "of one band of the scan",
    "compact": "neighbours", "interleaved": "every n-th pattern",
    "auto": "automatic", "device": "memory of the device", "host": "memory of the host", "disk": "file",
    "sparse": "probe windows only", "dense": "whole object", "update": "each update", "epoch": "each epoch",
    "plane": "fitted plane", "whole": "all of it", "tiles": "its tile", "streamed": "rows of one band",
}  # fmt: skip
"""Names of choices that are not words of the field by themselves."""


def label_of(setting: Setting) -> str:
    """Return the label of a setting: its title, with the words for its part unless they are in it."""
    prefix = _prefixes().get(setting.name.rpartition(".")[0], "")
    if not prefix or prefix.split()[0].lower() in setting.title.lower():
        return setting.title
    first, rest = setting.title[0], setting.title[1:]
    return f"{prefix} {first if rest[:1].isupper() else first.lower()}{rest}"


def label_of_name(name: str) -> str:
    """Return the label of a setting, or the words for a value of the scan: "load.focus_to_sample", "scan.angle"."""
    if structure().has(name):
        return label_of(structure().setting(name))
    group, _, field = name.rpartition(".")
    title = LoadOptions.model_fields[field].title if group == "load" and field in LoadOptions.model_fields else None
    return title or field.replace("_", " ")


def choice_label(choice: str) -> str:
    """Return the words for one of the choices of a setting."""
    return CHOICES.get(choice, choice.replace("_", " "))


def value_words(setting: Setting, value: Any) -> str:
    """Return a value with its unit, or the words for a choice; numbers are shortened."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if not setting.numeric:
        return choice_label(str(value))
    unit = fitting_unit(setting, value)
    text = text_of(value, setting, unit)
    short = number(float(text)) if isinstance(value, float) else text
    return " ".join(filter(None, (short or "none", unit)))


def units_of(setting: Setting) -> tuple[str, ...]:
    """Return the display units of a setting, the default first; empty if it has only one unit."""
    return tuple(unit for unit in UNITS.get(setting.unit, ()) if unit not in NOT_SHOWN)


def fitting_unit(setting: Setting, value: Any) -> str:
    """Return the unit in which this value has one to three digits before the point; the default if there is none."""
    units = units_of(setting)
    if not isinstance(value, int | float) or not units or not value:
        return units[0] if units else setting.unit
    sizes = UNITS[setting.unit]
    return next((unit for unit in units if 1 <= abs(value) / float(sizes[unit]) < 1000), units[0])


def text_of(value: Any, setting: Setting, unit: str) -> str:
    """Return a value as text in this unit; "" for None; values that are not finite numbers are formatted with `str`."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return str(value)
    size = _size(setting, unit)
    return repr(value).removesuffix(".0") if size == 1 else in_unit(value, size)


def value_of(text: str, setting: Setting, unit: str) -> Any:
    """Return the value of typed text: None if empty, the text itself if not a number, which validation rejects.

    A unit after the number, such as "1.5 µm", replaces the unit shown.
    """
    if text.strip().lower() in _NONE:
        return None
    sizes = {unit: Decimal(1), setting.unit: Decimal(1)} | {one: UNITS[setting.unit][one] for one in units_of(setting)}
    return number_and_unit(text.strip(), sizes, unit, whole=setting.kind == "integer")


def read(setting: Setting, given: Any, unit: str) -> Any:
    """Return the value of what the browser sends: typed text in the unit shown, a key, or whether it is on."""
    if not setting.numeric:
        return None if setting.kind == "text" and setting.optional and given == "" else given
    value = value_of(given, setting, unit or setting.unit)
    return MISSING if value is None and not setting.optional else value


def range_of(setting: Setting, unit: str) -> str:
    """Return the range of a setting as text in this unit: "0 to 10", "above 0", "at least 1"; "" if there is none.

    Limits that are only technical are left out.
    """
    low, high = (
        None if end is None else float(Decimal(repr(end)) / _size(setting, unit)) for end in (setting.low, setting.high)
    )
    if high is not None and high >= TECHNICAL:
        high = None
    if low is not None and high is not None and setting.low_included and setting.high_included:
        return f"{number(low, 7)} to {number(high, 7)}"
    limits = []
    if low is not None:
        limits.append(f"{'at least' if setting.low_included else 'above'} {number(low, 7)}")
    if high is not None:
        limits.append(f"{'at most' if setting.high_included else 'below'} {number(high, 7)}")
    return ", ".join(limits)


def _size(setting: Setting, unit: str) -> Decimal:
    return UNITS.get(setting.unit, {}).get(unit, Decimal(1))


@functools.cache
def _prefixes() -> dict[str, str]:
    return {section.name: section.title for section in structure().sections} | PREFIXES
