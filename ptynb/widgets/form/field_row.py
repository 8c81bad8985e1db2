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

import ipywidgets

from ptynb.settings.schema import Setting
from ptynb.widgets.shared_widgets import put

WIDE = {"description_width": "150px"}
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
LONGEST_NUMBER = 100
"""Maximum length of a number [characters]; longer input stays text, which validation rejects: a float may overflow."""


class Row(ipywidgets.HBox):
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
        beside: Sequence[ipywidgets.Widget] = (),
    ) -> None:
        self.setting, self.label = setting, label
        self._enter, self._reason, self._note = enter, reason, note
        self._value: Any = None
        self._shown: Any = None
        self._state: tuple[bool, Any, str] = (False, None, "")
        self.input = self._input()
        self.unit = self._unit_choice()
        self.reset = ipywidgets.Button(
            description="Reset",
            tooltip=f"{label}: restores the default",
            layout=ipywidgets.Layout(width="64px", visibility="hidden"),
        )
        self.reset.on_click(lambda _: reset())
        self.about = ipywidgets.HTML(layout=ipywidgets.Layout(flex="1 1 0%", min_width="0"))
        self.input.disabled = self.reset.disabled = bool(reason)
        self.input.observe(self._typed, "value")
        units = [] if self.unit is None else [self.unit]
        super().__init__(
            [self.input, *units, *beside, self.reset, self.about],
            layout=ipywidgets.Layout(align_items="flex-start", overflow="visible", width="100%"),
        )

    def show(self, value: Any, *, changed: bool, default: Any = None, problem: str = "") -> None:
        """Show a value, whether it differs from the default, and its problem."""
        self._value = value
        self._write()
        self.reset.layout.visibility = "visible" if changed and not self._reason else "hidden"
        self._state = (changed, default, problem)
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

    def _input(self) -> ipywidgets.DOMWidget:
        setting, tooltip = self.setting, self.setting.description
        if setting.kind == "choice":
            return ipywidgets.Dropdown(
                options=[(choice.replace("_", " "), choice) for choice in setting.choices],
                value=None,
                description=self.label,
                tooltip=tooltip,
                style=WIDE,
                layout=ipywidgets.Layout(width="310px", flex="0 0 auto"),
            )
        if setting.kind == "switch":
            return ipywidgets.Checkbox(
                value=False,
                description=self.label,
                tooltip=tooltip,
                style=WIDE,
                layout=ipywidgets.Layout(width="310px", flex="0 0 auto"),
            )
        return ipywidgets.Text(
            description=self.label,
            tooltip=tooltip,
            placeholder="none" if setting.optional else "",
            continuous_update=False,
            style=WIDE,
            layout=ipywidgets.Layout(width="214px" if units_of(setting) else "310px", flex="0 0 auto"),
        )

    def _unit_choice(self) -> ipywidgets.Dropdown | None:
        units = units_of(self.setting)
        if not units:
            return None
        chosen = ipywidgets.Dropdown(
            options=units,
            value=units[0],
            description="in",
            tooltip=f"Unit of {self.label}",
            style={"description_width": "18px"},
            layout=ipywidgets.Layout(width="92px", flex="0 0 auto"),
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

    def _about(self, changed: bool, default: Any, problem: str) -> str:
        setting = self.setting
        unit = "" if self.unit is not None else setting.unit
        facts = [fact for fact in (html.escape(unit), html.escape(range_of(setting, self.shown_unit))) if fact]
        if changed and not setting.required:
            shown = text_of(default, setting, self.shown_unit) if setting.numeric else str(default)
            facts.append(f"<b>● changed</b> (default {html.escape(shown or 'none')})")
        facts += [f"<i>{html.escape(text)}</i>" for text in (self._reason, self._note) if text]
        error = (
            f'<div role="alert" style="border-left:4px solid #c62828;padding:0 8px"><b>⚠ '
            f"{html.escape(problem)}</b></div>"
            if problem
            else ""
        )
        return (
            '<div style="line-height:1.35;padding:2px 8px;color:var(--jp-ui-font-color1,#333)">'
            f"<div>{' · '.join(facts)}</div>{error}"
            f'<div style="font-size:90%;color:var(--jp-ui-font-color2,#555)">{html.escape(setting.description)}</div>'
            "</div>"
        )


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
    """Return the range of a setting as text in this unit: "0 to 10", "above 0", "at least 1"; "" if there is none."""
    low, high = (
        None if end is None else float(Decimal(repr(end)) / _factor(setting, unit))
        for end in (setting.low, setting.high)
    )
    if low is not None and high is not None and setting.low_included and setting.high_included:
        return f"{low:.7g} to {high:.7g}"
    limits = []
    if low is not None:
        limits.append(f"{'at least' if setting.low_included else 'above'} {low:.7g}")
    if high is not None:
        limits.append(f"{'at most' if setting.high_included else 'below'} {high:.7g}")
    return ", ".join(limits)


def _factor(setting: Setting, unit: str) -> Decimal:
    return UNITS.get(setting.unit, {}).get(unit, Decimal(1))
