"""Ranges of values of the scan as typed text, one a line: `load.rotation: -0.1 to 0.1`, `prepare.bin: 1, 2`."""

from __future__ import annotations

import re

from ptynb.exceptions import SettingsError
from ptynb.settings.ranges import Between, Choice, Range
from ptynb.text import quoted

INTERVAL = re.compile(r"(\S+)\s+to\s+(\S+?)(\s+log)?", re.IGNORECASE)


def ranges_in(text: str) -> dict[str, Range]:
    """Return ranges by name from lines of text. Raises SettingsError for a line that is none."""
    found: dict[str, Range] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, separator, range = (part.strip() for part in line.partition(":"))
        if not separator or not range or name in found:
            raise SettingsError(
                f"{quoted(line)} is not a range; expected a line for each name, such as 'load.rotation: -0.1 to 0.1', "
                "'load.distance: 0.5 to 2 log', or choices, 'prepare.bin: 1, 2'.",
                code="tuning.invalid-range",
            )
        found[name] = _range(name, range)
    return found


def _range(name: str, text: str) -> Range:
    interval = INTERVAL.fullmatch(text)
    if interval is None:
        return tuple(_value(choice.strip()) for choice in text.split(","))
    low, high = _value(interval[1]), _value(interval[2])
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        raise SettingsError(
            f"The range of {name} is {quoted(text)}; expected two numbers, such as '-0.1 to 0.1'.",
            code="tuning.invalid-range",
        )
    return Between(low, high, interval[3] is not None)


def _value(text: str) -> Choice:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
