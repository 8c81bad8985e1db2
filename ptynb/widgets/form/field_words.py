"""What the form writes: labels of fields, names of choices, and values as text in the units of the display.

Numbers are shown and read in common units, nm or mrad where the settings have m or rad, without a loss of digits.
"""

from __future__ import annotations

import functools
import math
import re
from decimal import Decimal
from typing import Any

from ptynb.settings.load_options import LoadOptions
from ptynb.settings.schema import Setting, structure
from ptynb.widgets.number_text import number

MISSING = object()
"""The value of an empty field that has no default and cannot be None."""
UNITS: dict[str, dict[str, Decimal]] = {
    "m": {"nm": Decimal("1e-9"), "µm": Decimal("1e-6"), "mm": Decimal("1e-3"), "m": Decimal(1)},
    "rad": {"mrad": Decimal("1e-3"), "°": Decimal(repr(math.pi / 180)), "rad": Decimal(1)},
    "eV": {"eV": Decimal(1), "keV": Decimal("1e3")},
}
"""Display units of each unit of the settings, the default first, and their sizes in that unit."""
_SPELLINGS = {"um": "µm", "μm": "µm", "deg": "°"}
_NUMBER = re.compile(r"^([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\d\s]*)$")
_NONE = ("", "none")
TECHNICAL = 1e6
"""Limits that large are only technical, and not shown."""
LONGEST_NUMBER = 100
"""Maximum length of a number [characters]; longer input stays text, which validation rejects: a float may overflow."""

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
    "spread": "spread over the scan", "compact": "neighbours", "interleaved": "every n-th pattern",
    "auto": "automatic", "device": "memory of the device", "host": "memory of the host", "disk": "file",
    "sparse": "probe windows only", "dense": "whole object", "update": "each update", "epoch": "each epoch",
    "plane": "fitted plane",
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
    return tuple(UNITS.get(setting.unit, ()))


def fitting_unit(setting: Setting, value: Any) -> str:
    """Return the unit in which this value has one to three digits before the point; the default if there is none."""
    units = units_of(setting)
    if not isinstance(value, int | float) or not units or not value:
        return units[0] if units else setting.unit
    factors = UNITS[setting.unit]
    known = [unit for unit in units if 1 <= abs(value) / float(factors[unit]) < 1000]
    return known[0] if known else units[0]


def text_of(value: Any, setting: Setting, unit: str) -> str:
    """Return a value as text in this unit; "" for None; values that are not finite numbers are formatted with `str`."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return str(value)
    factor = _factor(setting, unit)
    if factor == 1:
        return repr(value).removesuffix(".0")
    shown = Decimal(repr(value)) / factor
    return f"{float(shown):.12g}"


def value_of(text: str, setting: Setting, unit: str) -> Any:
    """Return the value of typed text: None if empty, the text itself if not a number, which validation rejects.

    A unit after the number, such as "1.5 µm", replaces the unit shown.
    """
    text = text.strip()
    if text.lower() in _NONE:
        return None
    found = _NUMBER.match(text)
    if found is None:
        return text
    number, written = found.groups()
    written = _SPELLINGS.get(written, written)
    if written and written not in (*units_of(setting), setting.unit):
        return text
    if len(number) > LONGEST_NUMBER:
        return text
    if setting.kind == "integer":
        return int(number) if re.fullmatch(r"[-+]?\d+", number) else float(number)
    factor = _factor(setting, written or unit)
    try:
        return float(number) if factor == 1 else float(Decimal(number) * factor)
    except ArithmeticError:
        return text


def range_of(setting: Setting, unit: str) -> str:
    """Return the range of a setting as text in this unit: "0 to 10", "above 0", "at least 1"; "" if there is none.

    Limits that are only technical are left out.
    """
    low, high = (
        None if end is None else float(Decimal(repr(end)) / _factor(setting, unit))
        for end in (setting.low, setting.high)
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


def _factor(setting: Setting, unit: str) -> Decimal:
    return UNITS.get(setting.unit, {}).get(unit, Decimal(1))


@functools.cache
def _prefixes() -> dict[str, str]:
    return {section.name: section.title for section in structure().sections} | PREFIXES
