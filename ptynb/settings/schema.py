"""What can be set, as a tree that forms are made from: read from the models' own schema, with no list beside it.

Pydantic's JSON schema of `Settings` has names, types, descriptions, ranges, choices and defaults, and the marks that
each field carries in `json_schema_extra`. A unit is what a description has in brackets.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ptynb.exceptions import SettingsError
from ptynb.settings.settings import Settings
from ptynb.settings.validation import flat
from ptynb.settings.validation import nested as nested

Kind = Literal["number", "integer", "choice", "switch"]
Schema = Mapping[str, Any]
_UNIT = re.compile(r" ?\[([^]]+)\]")
_RATIO = re.compile(r"^1 = ")
ABBREVIATIONS = {"dct": "DCT", "opr": "OPR", "pacbed": "PACBED", "psf": "PSF", "rpie": "rPIE"}
"""Words of names that are written otherwise."""


@dataclass(frozen=True)
class Setting:
    """One field.

    name: dotted, "probe.learning_rate"; that of an entry's field is the field's alone, "sigma".
    unit: "" where there is none. description: a sentence without the unit. low, high: of the range, None where it has
    no end; low_included, high_included: whether the ends belong to it. choices: of a kind "choice". optional: None is a
    value too. required: it has no default. live: it may change while a reconstruction runs. simple: forms show it
    first.
    """

    name: str
    title: str
    kind: Kind
    description: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    low_included: bool = True
    high_included: bool = True
    choices: tuple[str, ...] = ()
    optional: bool = False
    required: bool = False
    default: Any = None
    live: bool = False
    simple: bool = False

    @property
    def numeric(self) -> bool:
        """Whether its values are numbers."""
        return self.kind in ("number", "integer")


@dataclass(frozen=True)
class Section:
    """Fields that belong together: a part, or those that `Settings` itself has (with the name "")."""

    name: str
    title: str
    description: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class EntryKind:
    """A kind of entry in a list, with what can be set in it."""

    kind: str
    title: str
    description: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class Entries:
    """A list of entries, each of one of these kinds: constraints, regularizers."""

    name: str
    title: str
    description: str
    live: bool
    kinds: tuple[EntryKind, ...]

    def kind(self, name: str) -> EntryKind:
        """The kind of this name."""
        return next(kind for kind in self.kinds if kind.kind == name)


@dataclass(frozen=True)
class Structure:
    """All that can be set: single fields by section, and lists of entries."""

    sections: tuple[Section, ...]
    lists: tuple[Entries, ...]

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The fields of all sections."""
        return tuple(setting for section in self.sections for setting in section.settings)

    def setting(self, name: str) -> Setting:
        """The field of this dotted name. Raises KeyError."""
        return self._by_name[name]

    @functools.cached_property
    def _by_name(self) -> dict[str, Setting]:
        return {setting.name: setting for setting in self.settings}


@functools.cache
def structure() -> Structure:
    """The structure of `Settings`, in the order of its fields; its own fields first."""
    schema = Settings.model_json_schema()
    models: Schema = schema["$defs"]
    own: list[Setting] = []
    sections: list[Section] = []
    lists: list[Entries] = []
    for name, field in schema["properties"].items():
        if "$ref" in field:
            sections.append(_section(name, field, _model(models, field["$ref"])))
        elif field.get("type") == "array":
            lists.append(_entries(name, field, models))
        else:
            own.append(_setting(name, name, field, required=False))
    first = Section("", "Method", "How the reconstruction goes, and in what portions", tuple(own))
    return Structure((first, *sections), tuple(lists))


def given(settings: Settings) -> dict[str, Any]:
    """The fewest values, by dotted name, from which these settings follow; the rest are defaults.

    Some defaults follow from other choices (the rates of object and probe from the optimiser), so what differs from
    `Settings()` is not always what somebody has chosen.
    """
    found = dict(flat(settings.model_dump(mode="json")))
    for name in tuple(found):
        rest = {other: value for other, value in found.items() if other != name}
        try:
            if Settings(**nested(rest)) == settings:
                found = rest
        except SettingsError:  # it can't be left out
            continue
    return found


def python_of(values: Mapping[str, Any]) -> str:
    """Values by dotted name as arguments in Python: `batch=8, probe={'learning_rate': 0.01}`."""
    return ", ".join(f"{name}={value!r}" for name, value in nested(values).items())


def _model(models: Schema, reference: str) -> Schema:
    model: Schema = models[reference.rsplit("/", 1)[-1]]
    return model


def _section(name: str, field: Schema, model: Schema) -> Section:
    settings = tuple(_settings(f"{name}.", model))
    return Section(name, _title(name, field), field["description"], settings)


def _entries(name: str, field: Schema, models: Schema) -> Entries:
    kinds = []
    members = [_model(models, reference["$ref"]) for reference in field["items"]["oneOf"]]
    common = set.intersection(*(set(model["properties"]) for model in members))
    for model in members:
        kind = model["properties"]["kind"]["const"]
        # What a kind is about comes first, then when it is imposed, which is the same for all.
        settings = sorted(_settings("", model), key=lambda setting: setting.name in common and not setting.required)
        kinds.append(EntryKind(kind, _words(kind), model["description"], tuple(settings)))
    return Entries(name, _title(name, field), field["description"], bool(field.get("live")), tuple(kinds))


def _settings(prefix: str, model: Schema) -> Iterator[Setting]:
    """Fields of a model."""
    required = model.get("required", ())
    for name, field in model["properties"].items():
        if name != "kind" or "const" not in field:
            yield _setting(f"{prefix}{name}", name, field, required=name in required)


def _setting(whole: str, name: str, field: Schema, *, required: bool) -> Setting:
    values, optional = field, False
    if "anyOf" in field:
        optional = True
        (values,) = (choice for choice in field["anyOf"] if choice["type"] != "null")
    unit = _UNIT.search(field["description"])
    low, high = values.get("minimum"), values.get("maximum")
    return Setting(
        name=whole,
        title=_title(name, field),
        kind="choice" if "enum" in values else _KINDS[values["type"]],
        description=field["description"].replace(unit.group(), "", 1) if unit else field["description"],
        unit=_RATIO.sub("× ", unit.group(1)) if unit else "",
        low=values.get("exclusiveMinimum") if low is None else low,
        high=values.get("exclusiveMaximum") if high is None else high,
        low_included=low is not None,
        high_included=high is not None,
        choices=tuple(values.get("enum", ())),
        optional=optional,
        required=required,
        default=field.get("default"),
        live=bool(field.get("live")),
        simple=bool(field.get("simple")),
    )


_KINDS: dict[str, Kind] = {"number": "number", "integer": "integer", "boolean": "switch"}


def _title(name: str, field: Schema) -> str:
    """The title that the field was given, else its name as words; pydantic's own titles have capitals everywhere."""
    title = field.get("title", "")
    return title if title and title != name.replace("_", " ").title() else _words(name)


def _words(name: str) -> str:
    first, *others = name.split("_")
    return " ".join([ABBREVIATIONS.get(first, first.capitalize()), *(ABBREVIATIONS.get(word, word) for word in others)])
