"""Ranges of values of the scan as typed text, one a line, by the titles of fields or as in Python.

"Scan rotation: -5 to 5 °", "bin: 1, 2", or `load.rotation: -0.1 to 0.1`, `prepare.bin: 1, 2`. Without a unit, numbers
are in that of the option of `load`.
"""

from __future__ import annotations

import re

from ptynb.exceptions import SettingsError
from ptynb.settings.load_options import LoadOptions
from ptynb.settings.ranges import Between, Choice, PreparationValues, Range
from ptynb.text import quoted
from ptynb.widgets.quantities import NUMBER, UNIT, UNITS, number_and_unit

NAMES = {
    **{(field.title or name).lower(): f"load.{name}" for name, field in LoadOptions.model_fields.items()},
    **{name.replace("_", " "): f"prepare.{name}" for name in PreparationValues.model_fields},
}
"""Names as in Python, by the words for them in small letters."""

INTERVAL = re.compile(r"(\S.*?)\s+to\s+(\S.*?)(\s+log)?", re.IGNORECASE)


def ranges_in(text: str) -> dict[str, Range]:
    """Return ranges by name from lines of text. Raises SettingsError for a line that is none."""
    found: dict[str, Range] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, separator, range = (part.strip() for part in line.partition(":"))
        name = NAMES.get(name.lower(), name)
        if not separator or not range or name in found:
            raise SettingsError(
                f"{quoted(line)} is not a range; expected a line for each name, such as 'Scan rotation: -5 to 5 °', "
                "'Detector distance: 0.5 to 2 m log', or choices, 'bin: 1, 2'.",
                code="tuning.invalid-range",
            )
        found[name] = _range(name, range)
    return found


def _range(name: str, text: str) -> Range:
    interval = INTERVAL.fullmatch(text)
    if interval is None:
        return tuple(_value(name, choice.strip()) for choice in text.split(","))
    ends = [interval[1], interval[2]]
    unit = NUMBER.fullmatch(ends[1].strip())
    if unit is not None and unit[2] and NUMBER.fullmatch(f"{ends[0]} {unit[2]}"):
        ends[0] = f"{ends[0]} {unit[2]}"  # "-5 to 5 °": the unit is that of both
    low, high = (_value(name, end) for end in ends)
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        raise SettingsError(
            f"The range of {name} is {quoted(text)}; expected two numbers, such as '-0.1 to 0.1'.",
            code="tuning.invalid-range",
        )
    return Between(low, high, interval[3] is not None)


def scan_unit(name: str) -> str:
    """Return the unit of a value of the scan, such as "load.rotation", as in Python; "" if it has none."""
    group, _, option = name.rpartition(".")
    fields = {"load": LoadOptions.model_fields, "prepare": PreparationValues.model_fields}.get(group, {})
    found = UNIT.search((fields[option].description or "") if option in fields else "")
    return found[1] if found else ""


def _value(name: str, text: str) -> Choice:
    unit = scan_unit(name)
    if unit in UNITS:
        value = number_and_unit(text, UNITS[unit], unit)
        if isinstance(value, float) and NUMBER.fullmatch(text.strip())[2]:  # type: ignore[index]  # it matches a number
            return value
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
