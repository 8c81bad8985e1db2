"""The range in which a field is tuned: a checkbox, and lowest and highest value or the choices to try."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptynb.exceptions import SettingsError
from ptynb.settings.schema import Setting
from ptynb.widgets import elements
from ptynb.widgets.form.field_row import Row, text_of, value_of
from ptynb.widgets.form.field_search import choice_label
from ptynb.widgets.shared_widgets import complaint, put

Range = tuple[float, float, bool] | tuple[Any, ...]
"""(lowest, highest, logarithmic) of a number; the values of a choice."""


class RangeEditor(elements.VBox):
    """A row that begins with a checkbox, and below it, while that is on, the range in which the field is tuned.

    check: returns the problem of these values, or "". changed: called after every edit.
    """

    def __init__(self, row: Row, check: Callable[[tuple[Any, ...]], str], changed: Callable[[], None]) -> None:
        self.row, self._check, self._changed = row, check, changed
        self.tick = elements.Checkbox(
            value=False,
            description=f'<span class="ptynb-hidden">Tune {row.label}</span>',
            description_allow_html=True,
            tooltip=f"Tune {row.label}",
            indent=False,
            layout=elements.Layout(width="24px", flex="0 0 auto"),
        )
        self.low, self.high = (self._end(f"{row.label}: {end}", end) for end in ("lowest", "highest"))
        self.logarithmic = elements.Checkbox(
            value=False,
            description="logarithmic",
            tooltip=f"{row.label}: sample the logarithm uniformly",
            indent=False,
            layout=elements.Layout(width="120px"),
        )
        self.choices = elements.SelectMultiple(
            options=[(_words(choice), choice) for choice in _choices(row.setting)],
            description="Try",
            tooltip=f"{row.label}: values to try; select several with Ctrl or Shift",
            rows=min(5, max(2, len(_choices(row.setting)))),
            layout=elements.Layout(width="260px"),
        )
        self.message = elements.HTML()
        self._range = elements.HBox(
            [self.low, self.high, self.logarithmic] if row.setting.numeric else [self.choices],
            layout=elements.Layout(display="none", overflow="visible", margin="0 0 0 180px"),
        )
        for widget in (self.tick, self.low, self.high, self.logarithmic, self.choices):
            widget.observe(self._edited, "value")
        if row.unit is not None:
            row.unit.observe(self._in_another_unit, "value")
        row.layout.flex, row.layout.width, row.layout.min_width = "1 1 0%", "auto", "0"
        line = elements.HBox([self.tick, row], layout=elements.Layout(overflow="visible"))
        super().__init__([line, self._range, self.message], layout=elements.Layout(overflow="visible"))

    def range(self) -> Range | None:
        """Return the range; None if the checkbox is off. Raises SettingsError for an invalid range."""
        if not self.tick.value:
            return None
        problem, found = self._read()
        if problem:
            raise SettingsError(f"{self.row.label}: {problem}.", code="tuning.invalid-range")
        return found

    def _end(self, label: str, placeholder: str) -> elements.Text:
        return elements.Text(
            description=placeholder,
            tooltip=label,
            placeholder=placeholder,
            continuous_update=False,
            style={"description_width": "50px"},
            layout=elements.Layout(width="150px"),
        )

    def _edited(self, change: dict[str, Any]) -> None:
        if change["owner"] is self.tick:
            self._range.layout.display = None if self.tick.value else "none"
            if self.tick.value:
                self._suggest()
        problem = self._read()[0] if self.tick.value else ""
        put(self.message, complaint(f"{problem}.") if problem else "")
        self._changed()

    def _in_another_unit(self, change: dict[str, Any]) -> None:
        """Convert the limits to the unit that the row shows now; text that is not a number is left unchanged."""
        setting = self.row.setting
        for end in (self.low, self.high):
            value = value_of(end.value, setting, change["old"])
            if isinstance(value, int | float):
                end.unobserve(self._edited, "value")  # the range itself does not change
                end.value = text_of(value, setting, change["new"])
                end.observe(self._edited, "value")

    def _suggest(self) -> None:
        """Fill in 0.1 to 10 times a number, half to double an integer, within its limits; the current choice."""
        setting, value = self.row.setting, self.row.value
        if not setting.numeric:
            if not self.choices.value:
                self.choices.value = (value,)
            return
        if self.low.value or self.high.value or not isinstance(value, int | float) or value <= 0:
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
        self.low.value, self.high.value = (text_of(end, setting, self.row.shown_unit) for end in (low, high))
        self.logarithmic.value = setting.kind == "number"

    def _read(self) -> tuple[str, Range]:
        """Return the problem, or "", and the range."""
        setting = self.row.setting
        if not setting.numeric:
            chosen = tuple(self.choices.value)
            return (self._check(chosen) if chosen else "no value is selected; select at least one"), chosen
        low, high = (value_of(end.value, setting, self.row.shown_unit) for end in (self.low, self.high))
        if not isinstance(low, int | float) or not isinstance(high, int | float):
            return "lowest or highest value is missing or not a number; enter both", ()
        if low >= high:
            return f"the lowest value is {low:g} and the highest {high:g}; enter a lowest value below the highest", ()
        if self.logarithmic.value and low <= 0:
            return f"the lowest value is {low:g}; enter one above 0 for a logarithmic range", ()
        return self._check((low, high)), (low, high, self.logarithmic.value)


def _words(choice: Any) -> str:
    return {True: "on", False: "off"}[choice] if isinstance(choice, bool) else choice_label(choice)


def _choices(setting: Setting) -> tuple[Any, ...]:
    return (False, True) if setting.kind == "switch" else setting.choices
