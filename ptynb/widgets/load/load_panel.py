"""Options of `ptynb.load` as fields with units, generated from `ptynb.settings.load_options`."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from ptynb.data.geometry import energy_from_wavelength
from ptynb.exceptions import PtynbError
from ptynb.io.file_info import FileInfo
from ptynb.settings.load_options import MAY_BE_ARRAYS, LoadOptions, aberrations_as_text
from ptynb.widgets import elements
from ptynb.widgets.load.quantities import UNIT, UNITS, fact_text, in_unit, number_and_unit
from ptynb.widgets.shared_widgets import free, put

SEPARATORS = re.compile(r"\s*(?:[,;x×]|(?<=\d)\s+(?=[\d.+-]))\s*")
FIRST = ("geometry", "energy", "distance", "detector_pixel")
"""Options that are always shown; with them those that the file lacks, the others are folded."""
ORDER = ("geometry", "focus_to_sample", "energy", "voltage", "wavelength", "distance", "detector_pixel")
"""Options that come first where they are shown."""
USUAL_UNITS = {
    "energy": "keV", "voltage": "kV", "wavelength": "nm", "distance": "m", "detector_pixel": "µm", "step": "µm",
    "focus_to_sample": "mm", "rotation": "°", "angular_pixel": "mrad",
    "convergence_angle": "mrad", "defocus": "nm", "extent_y": "µm", "extent_x": "µm",
}  # fmt: skip
OPTIONS = {name.replace("_", " "): name for name in LoadOptions.model_fields}
"""Options by the name of the fact that they replace."""
SHORTEST_PHOTONS = 2e-11
"""Wavelength [m] below which a beam is more likely of electrons: no photon energy is told for it."""


def title_of(name: str) -> str:
    """Return the title of an option's field."""
    return LoadOptions.model_fields[name].title or name


class LoadPanel(elements.VBox):
    """A field for each option of `ptynb.load`; empty fields keep what the file says.

    edited: called after each change by the user. names: options that have fields; by default all. more: title of those
    that are folded. lacking: options that supply what the file lacks.
    """

    def __init__(
        self,
        edited: Callable[[], None] = lambda: None,
        names: Collection[str] = (*LoadOptions.model_fields,),
        more: str = "More that replaces what the file says",
    ) -> None:
        self._edited, self._filling = edited, False
        self.lacking: tuple[str, ...] = ()
        self.fields = {name: OptionField(name, LoadOptions.model_fields[name]) for name in names}
        for field in self.fields.values():
            field.observe_all(self._changed)
        # Each field is in both places, and hidden in one of them: a page makes all fields behind a new child of a box
        # anew, and loses what is being typed.
        order = sorted(self.fields, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
        self._shown, self._others = (
            {name: elements.VBox([self.fields[name]], layout=free()) for name in order} for _ in range(2)
        )
        others = elements.VBox([*self._others.values()], layout=free())
        self._folded = elements.Accordion([others], titles=(more,), selected_index=None)
        super().__init__([*self._shown.values(), self._folded], layout=free())
        self._arrange(())

    @property
    def arguments(self) -> dict[str, Any]:
        """The options that were entered, as keyword arguments of `load`. Raises InvalidValueError."""
        given = {name: field.entered for name, field in self.fields.items()}
        return LoadOptions.from_arguments({name: value for name, value in given.items() if value is not None}).arguments

    def show(self, found: FileInfo | None) -> None:
        """Show beside the fields what a file has, and first those that it lacks; None: of no file."""
        lacks = {} if found is None else _missing(found)
        known = {} if found is None else _known(found)
        for name, field in self.fields.items():
            known_text = f"file: {known[name]}" if name in known else ""
            field.show(lacks.get(name, known_text), needed=name in lacks)
        self.lacking = (*lacks,)
        self._arrange(lacks)

    def fill(self, options: Mapping[str, Any]) -> None:
        """Enter options, as if the user had."""
        self._filling = True
        try:
            for name, value in options.items():
                self.fields[name].enter(value)
        finally:
            self._filling = False
        self._changed()

    def point_to(self, names: Collection[str]) -> None:
        """Put the cursor into the first of these fields on the page, unfolding it if it is folded."""
        wanted = [name for name in self._shown if name in names]
        for name in sorted(wanted, key=self._is_folded)[:1]:
            if self._is_folded(name):
                self._folded.selected_index = 0
            self.fields[name].input.focus()

    def mark(self, error: PtynbError) -> None:
        """Show which fields an error is about, with what it proposes, and put the cursor into the first of them."""
        for name in error.fields:
            if name in self.fields and name not in self.lacking:
                self.fields[name].mark(error.proposals.get(name))
        self.point_to(error.fields)

    def clear(self) -> None:
        """Empty all fields, for another file."""
        self._filling = True
        try:
            for field in self.fields.values():
                field.enter(None)
        finally:
            self._filling = False
        self.show(None)

    def _changed(self, _: Any = None) -> None:
        if not self._filling:
            self._edited()

    def _arrange(self, lacks: Collection[str]) -> None:
        near = self.fields["geometry"].entered == "near field"
        first = {*FIRST, *lacks, *(["focus_to_sample"] if near else [])}
        for name in self.fields:
            self._shown[name].layout.display = None if name in first else "none"
            self._others[name].layout.display = "none" if name in first else None

    def _is_folded(self, name: str) -> bool:
        return bool(self._shown[name].layout.display == "none")


class OptionField(elements.HBox):
    """The field of an option, its unit, and what the file has."""

    def __init__(self, name: str, field: FieldInfo) -> None:
        self.name, self._field = name, field
        text = field.description or ""
        found = UNIT.search(text)
        self._units = UNITS.get(found[1], {}) if found else {}
        self._pair = any(get_origin(kind) is tuple for kind in get_args(field.annotation))
        self.input = self._input(text)
        self.unit: elements.Dropdown | None = None
        if self._units:
            self.unit = elements.Dropdown(
                options=[*self._units], value=USUAL_UNITS[name], description="in", tooltip=f"Unit of {field.title}",
                style={"description_width": "16px"}, layout=elements.Layout(width="84px", flex="0 0 auto"),
            )  # fmt: skip
        self._about = elements.HTML(layout=elements.Layout(flex="1 1 0%", min_width="0"))
        units = [] if self.unit is None else [self.unit]
        super().__init__([self.input, *units, self._about], layout=free())

    def observe_all(self, call: Callable[[Any], None]) -> None:
        """Call a function after each change of value or unit."""
        for widget in (self.input, *([] if self.unit is None else [self.unit])):
            widget.observe(call, "value")

    @property
    def entered(self) -> Any:
        """What the field contains, of which `LoadOptions` makes numbers; None if it is empty."""
        value = self.input.value
        if not isinstance(value, str) or get_origin(self._field.annotation) is Literal:
            return value
        text = value.strip()
        if not text:
            return None
        if not self._pair:
            return self._number(text)
        parts = [self._number(part) for part in SEPARATORS.split(text)]
        return parts * 2 if len(parts) == 1 and self.name != "raster" else parts

    def enter(self, value: Any) -> None:
        """Show a value of the option, in the unit shown; None: its default."""
        if value is None and not isinstance(self.input, elements.Text):
            value = self._field.default
        if value is None or not isinstance(self.input, elements.Text):
            self.input.value = "" if value is None else value
        else:
            self.input.value = self._shown(value)

    def show(self, text: str, needed: bool = False) -> None:
        """Show what the file has, or that something is needed."""
        text = f"● {text}" if needed else text
        style = f"padding:5px 6px 0;font-size:90%;line-height:1.4;font-weight:{600 if needed else 400}"
        put(self._about, f'<div style="{style}">{html.escape(text)}</div>' if text else "")

    def mark(self, proposal: Any = None) -> None:
        """Show that an error is about this field, and the value that it proposes."""
        if proposal is None:
            return self.show("see the message", needed=True)
        unit = "" if self.unit is None else f" {self.unit.value}"
        return self.show(f"see the message; it proposes {self._shown(proposal)}{unit}", needed=True)

    def _shown(self, value: Any) -> str:
        if isinstance(value, Mapping):
            return aberrations_as_text(value)
        values = value if isinstance(value, tuple | list) else (value,)
        return ", ".join(str(one) if self.unit is None else in_unit(one, self._size) for one in values)

    @property
    def _size(self) -> Decimal:
        assert self.unit is not None
        return self._units[self.unit.value]

    def _number(self, text: str) -> Any:
        """Return a number in the unit of the option, or the text if it is none."""
        if self.unit is None:
            return text
        return number_and_unit(text, self._units, self.unit.value)

    def _input(self, text: str) -> elements.Control:
        field = self._field
        shown: dict[str, Any] = {
            "description": field.title,
            "tooltip": text,
            "style": {"description_width": "135px"},
            "layout": elements.Layout(width="222px" if self._units else "310px", flex="0 0 auto"),
        }
        if field.annotation is bool:
            return elements.Checkbox(value=bool(field.default), **shown)
        if get_origin(field.annotation) is Literal:
            return elements.Dropdown(options=get_args(field.annotation), value=field.default, **shown)
        if self._pair:
            what = "rows, columns" if self.name == "raster" else "y, x"
        else:
            what = "" if self._units else "C12=2e-9@0.5, C30=1e-3" if self.name == "aberrations" else "dataset or file"
        return elements.Text(placeholder=what, continuous_update=False, **shown)


def _missing(found: FileInfo) -> dict[str, str]:
    """Return what to say beside the options that supply what a file lacks; several supply the same."""
    said: dict[str, str] = {}
    for lack in found.missing:
        first, *others = lack.options or ("",)
        said |= {first: "missing in the file", **dict.fromkeys(others, "or this instead")}
    return said


def _known(found: FileInfo) -> dict[str, str]:
    """Return what a file has, by the name of the option that would replace it."""
    known = {}
    for fact in found.facts:
        if fact.place == "given":
            continue
        if (name := OPTIONS.get(fact.name)) is not None:
            is_place = name in ("patterns", *MAY_BE_ARRAYS)
            known[name] = fact.place if is_place else fact_text(fact)
        if name == "wavelength" and (wavelength := float(fact.parts[0][0])) > SHORTEST_PHOTONS:
            known["energy"] = f"{energy_from_wavelength(wavelength) / 1e3:.5g} keV"
    return known
