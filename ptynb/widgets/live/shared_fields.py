"""Fields that show a value which others may change too, and never answer what the view itself put there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets


class Field:
    """A widget with a `value`, what it last stood for, and what is done when a user enters another.

    A value that the view shows is no wish of anybody's, and one that is refused gives way to the old one.
    """

    def __init__(self, widget: Any, entered: Callable[[Any], None]) -> None:
        self.widget = widget
        self._known = self._seen = widget.value
        self._entered = entered
        widget.observe(self._changed, "value")

    def show(self, value: Any) -> None:
        """Puts a value into the field, whatever was typed there."""
        self._known = self._seen = value  # before the field, whose observer compares
        if self.widget.value != value:
            self.widget.value = value

    def follow(self, value: Any) -> None:
        """Shows the value if it is another one than before, so that what is being typed stays."""
        if value != self._known:
            self.show(value)

    def _changed(self, change: Any) -> None:
        if change["new"] != self._seen:
            self._seen = change["new"]
            self._entered(change["new"])


def row(*widgets: ipywidgets.Widget, **layout: Any) -> ipywidgets.HBox:
    """Widgets beside each other, in as many lines as it takes."""
    return ipywidgets.HBox(
        [*widgets], layout=ipywidgets.Layout(flex_flow="row wrap", align_items="center", overflow="visible", **layout)
    )


def checkbox(text: str, value: bool, tooltip: str = "", width: str = "auto") -> ipywidgets.Checkbox:
    """A box to tick with its text close to it."""
    return ipywidgets.Checkbox(
        value, description=text, tooltip=tooltip or text, indent=False, layout=ipywidgets.Layout(width=width)
    )


def whole_number(text: str, value: int, least: int, most: int, width: str, tooltip: str) -> ipywidgets.BoundedIntText:
    """A field for a whole number."""
    return ipywidgets.BoundedIntText(
        value,
        min=least,
        max=most,
        description=text,
        tooltip=tooltip,
        continuous_update=False,
        style={"description_width": "initial"},
        layout=ipywidgets.Layout(width=width),
    )
