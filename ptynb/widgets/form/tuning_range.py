"""The range in which a field of the settings is tuned."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ptynb.settings.schema import Setting
from ptynb.widgets.form.field_words import fitting_unit, text_of, units_of, value_of

Range = tuple[float, float, bool] | tuple[Any, ...]
"""(lowest, highest, logarithmic) of a number; the values of a choice."""


class TuningRange:
    """The range in which a field is tuned: lowest and highest value as typed, or the choices to try.

    on: whether it is tuned; what was entered stays while it is not.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting, self.on, self.logarithmic = setting, False, False
        self.ends = {"low": ("", setting.unit), "high": ("", setting.unit)}
        self.chosen: tuple[Any, ...] = ()

    def suggest(self, value: Any) -> None:
        """Fill in 0.1 to 10 times a number, half to double an integer, within its limits; the current choice."""
        setting = self.setting
        if not setting.numeric:
            self.chosen = self.chosen or (value,)
            return
        if any(text for text, _ in self.ends.values()) or not isinstance(value, int | float) or value <= 0:
            return
        factor = 10 if setting.kind == "number" else 2
        low, high = value / factor, value * factor
        if setting.low is not None and setting.low > 0:
            low = max(low, setting.low)
        if setting.high is not None:
            high = min(high, setting.high)
        if setting.kind == "integer":
            low, high = max(int(low), 1), int(high)
        else:
            low, high = float(f"{low:.6g}"), float(f"{high:.6g}")
        unit = fitting_unit(setting, value)
        self.ends = {end: (text_of(one, setting, unit), unit) for end, one in (("low", low), ("high", high))}
        self.logarithmic = setting.kind == "number"

    def read(self, check: Callable[[Iterable[Any]], str]) -> tuple[str, Range]:
        """Return the problem, or "", and the range. check: returns the problem of values."""
        if not self.setting.numeric:
            return (check(self.chosen) if self.chosen else "no value is selected; select at least one"), self.chosen
        low, high = (value_of(text, self.setting, unit) for text, unit in self.ends.values())
        if not isinstance(low, int | float) or not isinstance(high, int | float):
            return "lowest or highest value is missing or not a number; enter both", ()
        if low >= high:
            return f"the lowest value is {low:g} and the highest {high:g}; enter a lowest value below the highest", ()
        if self.logarithmic and low <= 0:
            return f"the lowest value is {low:g}; enter one above 0 for a logarithmic range", ()
        return check((low, high)), (low, high, self.logarithmic)

    def plain(self, check: Callable[[Iterable[Any]], str]) -> dict[str, Any]:
        """Return it as the browser shows it; both ends as text in each unit."""
        problem, _ = self.read(check)
        told = {"problem": f"{problem.rstrip('.')}." if problem else ""}
        if not self.setting.numeric:
            return told | {"chosen": [*self.chosen]}
        return told | {end: self._texts(*typed) for end, typed in self.ends.items()} | {"logarithmic": self.logarithmic}

    def _texts(self, text: str, unit: str) -> list[str]:
        """Return typed text in each unit; what is not a number stays as it is."""
        value = value_of(text, self.setting, unit)
        units = units_of(self.setting) or (unit,)
        if not isinstance(value, int | float):
            return [text] * len(units)
        return [text if one == unit else text_of(value, self.setting, one) for one in units]
