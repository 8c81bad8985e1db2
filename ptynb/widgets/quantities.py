"""Numbers with units, as they are typed and shown: 0, 12.3, 1.2e-3, "1.5 µm"."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from ptynb.io.file_info import Fact

UNITS: dict[str, dict[str, Decimal]] = {
    "m": {"pm": Decimal("1e-12"), "nm": Decimal("1e-9"), "µm": Decimal("1e-6"), "mm": Decimal("1e-3"), "m": Decimal(1)},
    "rad": {"mrad": Decimal("1e-3"), "°": Decimal(repr(math.pi / 180)), "rad": Decimal(1)},
    "eV": {"eV": Decimal(1), "keV": Decimal("1e3")},
    "V": {"V": Decimal(1), "kV": Decimal("1e3")},
}
"""Units in which values are shown and typed, by that of the value, and their sizes in it."""
UNIT = re.compile(r"\[(\w+)\]$")
"""The unit at the end of the description of an option."""
NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?)\s*([^\d\s]*)")
LONGEST_NUMBER = 100
"""Maximum length of a number [characters]; longer input is no number: an integer may be too long for Python."""
SPELLINGS = {"um": "µm", "μm": "µm", "deg": "°"}
EXPONENT = re.compile(r"e([-+])0*(\d+)$")


def number(value: float, digits: int = 4) -> str:
    """Return a number with so many significant digits, without zeros that say nothing: 1e-5, not 1e-05."""
    text = f"{value:.{digits}g}"
    return EXPONENT.sub(lambda found: f"e{'-' if found[1] == '-' else ''}{found[2]}", "0" if text == "-0" else text)


def number_and_unit(text: str, units: Mapping[str, Decimal], unit: str, whole: bool = False) -> Any:
    """Return the number in `text`, in the base unit; the text itself if it is none. A unit in it goes before `unit`.

    whole: return an integer if it is written as one.
    """
    found = NUMBER.fullmatch(text.strip())
    if found is None or len(found[1]) > LONGEST_NUMBER:
        return text
    written = SPELLINGS.get(found[2], found[2]) or unit
    if written not in units:
        return text
    return int(found[1]) if whole and found[1].lstrip("+-").isdecimal() else float(Decimal(found[1]) * units[written])


def in_unit(value: float, size: Decimal) -> str:
    """Return a value of the base unit in a unit of this size, without a loss of digits."""
    return f"{float(Decimal(repr(float(value))) / size):.12g}"


def fact_text(fact: Fact) -> str:
    """Return the value of a fact with its unit; numbers at its end in the unit that reads easily."""
    *first, last = fact.parts or (fact.value,)
    before = "".join(one if isinstance(one, str) else quantity(one, "") for one in first)
    return before + (f"{last} {fact.unit}".strip() if isinstance(last, str) else quantity(last, fact.unit))


def quantity(numbers: Sequence[float], unit: str) -> str:
    """Return numbers in a base unit, (5.5e-05, 5.5e-05), in the unit that reads easily: "55 × 55 µm"."""
    largest = max(map(abs, numbers))
    fitting = [name for name, size in UNITS.get(unit, {}).items() if name != "°" and largest >= float(size)]
    if not fitting or not math.isfinite(largest):
        return f"{' × '.join(f'{one:g}' for one in numbers)} {unit}".strip()
    size = max(float(UNITS[unit][name]) for name in fitting)
    name = next(name for name in fitting if float(UNITS[unit][name]) == size)
    return f"{' × '.join(f'{one / size:.6g}' for one in numbers)} {name}"
