"""One field of a form: its label, a place to write, its unit, what it is for, and what is wrong with it."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets

from ptynb.settings.schema import Setting
from ptynb.widgets.elements import put
from ptynb.widgets.form.display_units import fitting_unit, range_of, text_of, units_of, value_of

WIDE = {"description_width": "150px"}
MISSING = object()
"""What an empty field holds that has no default and can't be none."""


class Row(ipywidgets.HBox):
    """A field; `enter` is told the value that somebody wrote, or `MISSING` for nothing; `reset` that it was given back.

    reason: why it can't be changed, where it can't; it is then shown only. note: more to say of it. beside:
    more to show behind the field.
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
        self._told: tuple[bool, Any, str] = (False, None, "")
        self.input = self._input()
        self.unit = self._unit_choice()
        self.reset = ipywidgets.Button(
            description="Reset",
            tooltip=f"{label}: back to its default",
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
        """Shows a value, whether it was changed from its default, and what is wrong with it."""
        self._value = value
        self._write()
        self.reset.layout.visibility = "visible" if changed and not self._reason else "hidden"
        self._told = (changed, default, problem)
        put(self.about, self._about(*self._told))

    def _write(self) -> None:
        """Puts the value into the field; the observer compares, so that this is no wish of anybody's."""
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
        """The value it shows, in the settings' unit."""
        return self._value

    @property
    def shown_unit(self) -> str:
        """The unit it is shown in."""
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
        chosen.observe(lambda _: self._in_another_unit(), "value")
        return chosen

    def _in_another_unit(self) -> None:
        self._write()
        put(self.about, self._about(*self._told))

    def fit_unit(self) -> None:
        """Chooses the unit in which the value that is shown is easy to read."""
        if self.unit is not None:
            self.unit.value = fitting_unit(self.setting, self._value)

    def _about(self, changed: bool, default: Any, problem: str) -> str:
        setting = self.setting
        unit = "" if self.unit is not None else setting.unit
        facts = [fact for fact in (html.escape(unit), html.escape(range_of(setting, self.shown_unit))) if fact]
        if changed and not setting.required:
            shown = text_of(default, setting, self.shown_unit) if setting.numeric else str(default)
            facts.append(f"<b>● changed</b> (default {html.escape(shown or 'none')})")
        facts += [f"<i>{html.escape(words)}</i>" for words in (self._reason, self._note) if words]
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
