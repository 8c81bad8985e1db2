"""One field of a form: its label, value, unit, description and error.

Numbers are shown and read in common units, nm or mrad where the settings have m or rad, without a loss of digits.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from ptynb.settings.schema import Setting
from ptynb.widgets import elements
from ptynb.widgets.form.field_search import choice_label
from ptynb.widgets.number_text import number
from ptynb.widgets.shared_widgets import put

LABEL = {"description_width": "205px"}
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


class Row(elements.HBox):
    """A field; `enter` is called with a value that the user entered, or `MISSING`; `reset` after a click on Reset.

    reason: why the field cannot be changed, if it is read-only. note: shown with the description. beside: widgets
    after the field.
    """

    def __init__(
        self,
        setting: Setting,
        label: str,
        enter: Callable[[Any], None],
        reset: Callable[[], None],
        *,
        reason: str = "",
        note: str = "",
        beside: Sequence[elements.Element] = (),
    ) -> None:
        self.setting, self.label = setting, label
        self._enter, self._reason, self._note = enter, reason, note
        self._value: Any = None
        self._shown: Any = None
        self._state: tuple[bool, Any, str, str, str] = (False, None, "", "default", "")
        self.input = self._input()
        self.unit = self._unit_choice()
        self.reset = elements.Button(
            icon="undo",
            tooltip=f"{label}: reset",
            layout=elements.Layout(width="30px", padding="0", visibility="hidden", flex="0 0 auto"),
        )
        self.reset.on_click(lambda _: reset())
        self.about = elements.HTML(layout=elements.Layout(flex="1 1 0%", min_width="0"))
        self.input.disabled = self.reset.disabled = bool(reason)
        self.input.observe(self._typed, "value")
        units = [] if self.unit is None else [self.unit]
        super().__init__(
            [self.input, *units, *beside, self.reset, self.about],
            layout=elements.Layout(align_items="flex-start", overflow="visible", width="100%"),
        )
        self.add_class("ptynb-row")

    def show(
        self,
        value: Any,
        *,
        changed: bool,
        default: Any = None,
        problem: str = "",
        source: str = "default",
        reason: str = "",
    ) -> None:
        """Show a value and its problem.

        changed: whether it differs from `default`, the value of the source ("default", "preset low dose"). reason: why
        the source has this value, if it is not changed.
        """
        self._value = value
        self._write()
        self.reset.layout.visibility = "visible" if changed and not self._reason else "hidden"
        self.reset.tooltip = f"{self.label}: reset to {source}"
        self._state = (changed, default, problem, source, reason)
        put(self.about, self._about(*self._state))

    def _write(self) -> None:
        """Write the value into the field; its observer compares values, so that this does not count as user input."""
        if self.setting.kind == "choice":
            shown = self._value if self._value in self.setting.choices else None
        elif self.setting.kind == "switch":
            shown = bool(self._value)
        else:
            shown = "" if self._value is MISSING else text_of(self._value, self.setting, self.shown_unit)
        self._shown = shown
        if self.input.value != shown:
            self.input.value = shown

    def _typed(self, change: dict[str, Any]) -> None:
        new = change["new"]
        if new == self._shown:
            return
        self._shown = new
        if self.setting.numeric:
            value = value_of(new, self.setting, self.shown_unit)
            self._enter(MISSING if value is None and not self.setting.optional else value)
        else:
            self._enter(MISSING if new is None else new)

    @property
    def value(self) -> Any:
        """The value that is shown, in the unit of the settings."""
        return self._value

    @property
    def shown_unit(self) -> str:
        """The unit in which the value is shown."""
        return self.setting.unit if self.unit is None else self.unit.value

    def _input(self) -> elements.Control:
        setting, tooltip = self.setting, self.setting.description
        if setting.kind == "choice":
            return elements.Dropdown(
                options=[(choice_label(choice), choice) for choice in setting.choices],
                value=None,
                description=self.label,
                tooltip=tooltip,
                style=LABEL,
                layout=elements.Layout(width="365px", flex="0 0 auto"),
            )
        if setting.kind == "switch":
            return elements.Checkbox(
                value=False,
                description=self.label,
                tooltip=tooltip,
                style=LABEL,
                layout=elements.Layout(width="365px", flex="0 0 auto"),
            )
        return elements.Text(
            description=self.label,
            tooltip=tooltip,
            placeholder="none" if setting.optional else "",
            continuous_update=False,
            style=LABEL,
            layout=elements.Layout(width="281px" if units_of(setting) else "365px", flex="0 0 auto"),
        )

    def _unit_choice(self) -> elements.Dropdown | None:
        units = units_of(self.setting)
        if not units:
            return None
        chosen = elements.Dropdown(
            options=units,
            value=units[0],
            description="in",
            tooltip=f"Unit of {self.label}",
            style={"description_width": "16px"},
            layout=elements.Layout(width="80px", flex="0 0 auto"),
        )
        chosen.observe(lambda _: self._show_unit(), "value")
        return chosen

    def _show_unit(self) -> None:
        self._write()
        put(self.about, self._about(*self._state))

    def fit_unit(self) -> None:
        """Choose the unit that suits the value."""
        if self.unit is not None:
            self.unit.value = fitting_unit(self.setting, self._value)

    def _about(self, changed: bool, default: Any, problem: str, source: str, reason: str) -> str:
        setting = self.setting
        facts = [html.escape(setting.unit)] if setting.unit and self.unit is None else []
        if changed and not setting.required:
            facts.append(f"<b>● changed</b> ({html.escape(f'{source}: {self._words(default)}')})")
        elif reason:
            facts.append(f"<b>◆ {html.escape(source)}</b>: {html.escape(reason)}")
        facts += [f"<i>{html.escape(text)}</i>" for text in (self._reason, self._note) if text]
        limits = range_of(setting, self.shown_unit)
        whole = "; ".join(part for part in (setting.description, limits) if part)
        facts.append(f'<span class="ptynb-muted">{html.escape(whole)}</span>')
        error = (
            f'<div role="alert" style="border-left:4px solid #c62828;padding:0 8px"><b>⚠ '
            f"{html.escape(problem)}</b></div>"
            if problem
            else ""
        )
        tip = html.escape(whole if not reason else f"{reason}. {whole}")
        return (
            '<div style="padding:0 6px;font-size:90%;color:var(--jp-ui-font-color1,#333)">'
            f'<div class="ptynb-clip" title="{tip}">{" · ".join(facts)}</div>{error}</div>'
        )

    def _words(self, value: Any) -> str:
        """Return a value as shown in text."""
        setting = self.setting
        if setting.numeric:
            return " ".join(filter(None, (text_of(value, setting, self.shown_unit) or "none", self.shown_unit)))
        return {True: "on", False: "off"}[value] if setting.kind == "switch" else choice_label(str(value))


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
