"""Numbers as a person writes them: in nm or mrad where the settings hold m or rad, and back without a digit lost."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

from ptynb.settings.schema import Setting

UNITS: dict[str, dict[str, Decimal]] = {
    "m": {"nm": Decimal("1e-9"), "µm": Decimal("1e-6"), "mm": Decimal("1e-3"), "m": Decimal(1)},
    "rad": {"mrad": Decimal("1e-3"), "°": Decimal(repr(math.pi / 180)), "rad": Decimal(1)},
    "eV": {"eV": Decimal(1), "keV": Decimal("1e3")},
}
"""What a unit of the settings is shown in, the usual one first, and how much of the settings' unit each is."""
_SPELLINGS = {"um": "µm", "μm": "µm", "deg": "°"}
_NUMBER = re.compile(r"^([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\d\s]*)$")
_NONE = ("", "none")
LONGEST_NUMBER = 100
"""Characters of a number; longer ones are left for the settings to refuse, as no float may hold them."""


def units_of(setting: Setting) -> tuple[str, ...]:
    """The units that its values can be shown in, the usual one first; none where there is only its own."""
    return tuple(UNITS.get(setting.unit, ()))


def fitting_unit(setting: Setting, value: Any) -> str:
    """The unit in which this value is a number of one to three digits, if there is one; else the usual one."""
    units = units_of(setting)
    if not isinstance(value, int | float) or not units or not value:
        return units[0] if units else setting.unit
    factors = UNITS[setting.unit]
    known = [unit for unit in units if 1 <= abs(value) / float(factors[unit]) < 1000]
    return known[0] if known else units[0]


def text_of(value: Any, setting: Setting, unit: str) -> str:
    """A value of the settings as text in this unit; nothing for None, and what is no number as it was typed."""
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
    """What was typed as a value of the settings: None for nothing, and the text itself where it is no number.

    A unit behind the number counts instead of the one shown: "1.5 µm". The settings refuse what is no number.
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
    """Its range in words, in this unit: "0 to 10", "above 0", "at least 1"; nothing where there is none."""
    low, high = (None if end is None else float(Decimal(repr(end)) / _factor(setting, unit)) for end in _ends(setting))
    if low is not None and high is not None and setting.low_included and setting.high_included:
        return f"{low:.7g} to {high:.7g}"
    words = []
    if low is not None:
        words.append(f"{'at least' if setting.low_included else 'above'} {low:.7g}")
    if high is not None:
        words.append(f"{'at most' if setting.high_included else 'below'} {high:.7g}")
    return ", ".join(words)


def _ends(setting: Setting) -> tuple[float | None, float | None]:
    return setting.low, setting.high


def _factor(setting: Setting, unit: str) -> Decimal:
    return UNITS.get(setting.unit, {}).get(unit, Decimal(1))
