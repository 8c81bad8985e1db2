"""Options of `ptynb.load` as fields, generated from `ptynb.settings.load_options`, with what a file says of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ptynb.data.geometry import energy_from_wavelength
from ptynb.exceptions import PtynbError
from ptynb.io.file_info import FileInfo
from ptynb.io.reading.reader_interface import Missing
from ptynb.settings.load_options import MAY_BE_ARRAYS, LoadOptions, aberrations_as_text
from ptynb.widgets.option_fields import OptionField, OptionFields, option_of
from ptynb.widgets.quantities import fact_text

FIRST = ("geometry", "energy", "distance", "detector_pixel")
"""Options that are always shown; with them those that the file lacks, the others are folded."""
ORDER = ("geometry", "focus_to_sample", "energy", "voltage", "wavelength", "distance", "detector_pixel")
"""Options that come first."""
USUAL_UNITS = {
    "energy": "keV", "voltage": "kV", "wavelength": "nm", "distance": "m", "detector_pixel": "µm", "step": "µm",
    "focus_to_sample": "mm", "rotation": "°", "angular_pixel": "mrad", "convergence_angle": "mrad", "defocus": "nm",
}  # fmt: skip
PLACEHOLDERS = {"raster": "rows, columns", "aberrations": "C12=2e-9@0.5, C30=1e-3"}
SHORTEST_PHOTONS = 2e-11
"""Wavelength [m] below which a beam is more likely of electrons: no photon energy is told for it."""


def title_of(name: str) -> str:
    """Return the title of an option's field."""
    return LoadOptions.model_fields[name].title or name


def load_options(names: Collection[str] = (*LoadOptions.model_fields,)) -> list[OptionField]:
    """Return these options of `ptynb.load`, in the order of their fields."""
    order = sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    options = [option_of(name, LoadOptions.model_fields[name], USUAL_UNITS.get(name, "")) for name in order]
    usual = {one.name: "y, x" if one.pair else "" if one.unit else "dataset or file" for one in options}
    return [replace(one, placeholder=PLACEHOLDERS.get(one.name, usual[one.name])) for one in options]


def given_in(fields: OptionFields) -> LoadOptions:
    """Return the options of `ptynb.load` that were entered into fields. Raises InvalidValueError."""
    given = {name: fields.entered(name) for name in fields.options if name in LoadOptions.model_fields}
    return LoadOptions.from_arguments({name: value for name, value in given.items() if value is not None})


def unfold_near_field(fields: OptionFields) -> None:
    """Show what the near field needs if that was chosen."""
    if fields.entered("geometry") == "near field":
        fields.unfold(["focus_to_sample"])


class LoadFields(OptionFields):
    """A field for each option of `ptynb.load`; empty fields keep what the file says. edited: as for `OptionFields`."""

    def __init__(self, edited: Callable[[], None] = lambda: None) -> None:
        options = load_options()
        folded = [one.name for one in options if one.name not in FIRST]
        super().__init__(options, edited, folded, "More that replaces what the file says")

    @property
    def arguments(self) -> dict[str, Any]:
        """The options that were entered, as keyword arguments of `load`. Raises InvalidValueError."""
        return given_in(self).arguments

    def show(self, found: FileInfo | None) -> None:
        """Show beside the fields what a file has, and unfold those that it lacks; None: of no file."""
        lacks = {} if found is None else _missing(found)
        known = {} if found is None else _known(found)
        self.lacking = (*lacks,)
        self.notes = {name: {"text": f"file: {text}", "needed": False} for name, text in known.items()} | {
            name: {"text": text, "needed": True} for name, text in lacks.items()
        }
        self.unfold(self.lacking)
        unfold_near_field(self)

    def fill(self, values: Mapping[str, Any]) -> None:
        """Enter values of options, as if the user had; None: as at first."""
        super().fill(
            {name: aberrations_as_text(one) if isinstance(one, Mapping) else one for name, one in values.items()}
        )

    def mark(self, error: PtynbError | None, otherwise: str = "") -> bool:
        """Refer beside the fields to an error that is told elsewhere, and put the cursor into the first of them."""
        notes = {**self.notes}
        for name in () if error is None else error.fields:
            if name in self.options and name not in self.lacking:
                text = "see the message"
                if error is not None and (value := error.proposals.get(name)) is not None:
                    text += f"; it proposes {self.shown_value(name, value)} {self.units.get(name, '')}".rstrip()
                notes[name] = {"text": text, "needed": True}
        self.notes = notes
        self.focus(() if error is None else error.fields)
        return False


def remarks_of(found: FileInfo) -> list[dict[str, str]]:
    """Return the problem of a file, what it lacks, and what was guessed, each with its role: "alert" or "status"."""
    remarks = [{"text": found.problem, "role": "alert"}] if found.problem else []
    remarks += [{"text": one, "role": "status"} for one in found.notes]
    if found.suggested:  # which may be the remedy of the problem
        remarks.reverse()
    return [{"text": lacking(found.missing), "role": "status"}, *remarks] if found.missing else remarks


def lacking(lacks: Sequence[Missing]) -> str:
    """Return a sentence about what a file lacks, and the fields into which it is entered; "" if it lacks nothing."""
    if not lacks:
        return ""
    names = _listed([lack.name for lack in lacks], "and")
    fields = [_fields_of(lack) for lack in lacks]
    return f"The file lacks {names}: enter {'; '.join(fields)}."


def _fields_of(lack: Missing) -> str:
    if "raster" in lack.options and "positions" in lack.options:  # which replaces the others together
        return f"{title_of('positions')}, or {title_of('raster')} and {title_of('step')}"
    return _listed([title_of(name) for name in lack.options], "or")


def _listed(words: Sequence[str], last: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


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
        if (name := fact.name.replace(" ", "_")) in LoadOptions.model_fields:
            is_place = name in ("patterns", *MAY_BE_ARRAYS)
            known[name] = fact.place if is_place else fact_text(fact)
        if name == "wavelength" and (wavelength := float(fact.parts[0][0])) > SHORTEST_PHOTONS:
            known["energy"] = f"{energy_from_wavelength(wavelength) / 1e3:.5g} keV"
    return known
