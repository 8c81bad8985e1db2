"""Options of `ptynb.load` as fields, generated from `ptynb.settings.load_options`."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args, get_origin

import ipywidgets
from pydantic.fields import FieldInfo

from ptynb.settings.load_options import LoadOptions
from ptynb.widgets.shared_widgets import Whole, free

UNIT = re.compile(r"\[(\w+)\]$")
SEPARATORS = re.compile(r"[\s,;]+")


class LoadPanel(Whole):
    """A field for each option of `ptynb.load`, folded until it is needed; empty fields keep what the file says."""

    def __init__(self) -> None:
        self._fields = {name: _field(name, field) for name, field in LoadOptions.model_fields.items()}
        shown = ipywidgets.VBox([*self._fields.values()], layout=free())
        self._folded = ipywidgets.Accordion([shown], titles=("What the file lacks or has wrong",), selected_index=None)
        super().__init__([self._folded], layout=free())

    @property
    def arguments(self) -> dict[str, Any]:
        """The options that were entered, as keyword arguments of `load`. Raises InvalidValueError."""
        given = {name: _entered(name, field.value) for name, field in self._fields.items()}
        return LoadOptions.from_arguments({name: value for name, value in given.items() if value is not None}).arguments

    def unfold(self) -> None:
        """Show the fields."""
        self._folded.selected_index = 0


def _field(name: str, field: FieldInfo) -> ipywidgets.ValueWidget:
    text = field.description or ""
    shown: dict[str, Any] = {
        "description": name.replace("_", " ").capitalize(),
        "tooltip": text,
        "style": {"description_width": "120px"},
        "layout": ipywidgets.Layout(width="460px", max_width="100%"),
    }
    if field.annotation is bool:
        return ipywidgets.Checkbox(value=bool(field.default), **shown)
    if get_origin(field.annotation) is Literal:
        return ipywidgets.Dropdown(options=get_args(field.annotation), value=field.default, **shown)
    unit = UNIT.search(text)
    pair = _is_pair(name)
    what = f"{'y, x' if pair else 'number'} [{unit[1]}]" if unit else "rows, columns" if pair else "name"
    return ipywidgets.Text(placeholder=what, **shown)


def _entered(name: str, value: Any) -> Any:
    """Return what a field contains, of which `LoadOptions` makes numbers; None if it is empty."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text or not _is_pair(name):
        return text or None
    parts = SEPARATORS.split(text)
    return parts * 2 if len(parts) == 1 and name != "raster" else parts


def _is_pair(name: str) -> bool:
    return any(get_origin(kind) is tuple for kind in get_args(LoadOptions.model_fields[name].annotation))
