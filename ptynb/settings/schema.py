"""Structure of all settings, from which forms are generated: read from the JSON schema of `Settings`; Python code.

The schema has names, types, descriptions, ranges, choices, defaults, and the marks in `json_schema_extra`. The unit of
a setting is given in brackets in its description.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from ptynb.settings.base_models import GROUP, Part, flat
from ptynb.settings.base_models import nested as nested
from ptynb.settings.constraints import ConstraintPlugin
from ptynb.settings.field_docs import ABBREVIATIONS as ABBREVIATIONS
from ptynb.settings.field_docs import Schema, in_words, setting_of, settings_in, title_of
from ptynb.settings.field_docs import Setting as Setting
from ptynb.settings.plugin_entries import ComponentPlugin
from ptynb.settings.settings import Settings

OWN_GROUPS = {
    "Algorithm": "Loss, and the algorithm that minimises it",
    "Batches": "Patterns of an update",
    "Computing": "Storage, exchange between engines, precision",
}
"""Groups of the fields of `Settings` itself, with their descriptions."""
LISTED = {"ptynb.settings.constraints": "constraints", "ptynb.settings.regularizers": "regularizers"}
"""Module with the entries of a list -> its name in `pt`."""


@dataclass(frozen=True)
class Section:
    """Fields of a part, or a group of fields of `Settings` itself, whose name is no prefix of theirs: "Batches"."""

    name: str
    title: str
    description: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class EntryKind:
    """A kind of entry in a list, with its fields."""

    kind: str
    title: str
    description: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class Entries:
    """A list of entries of several kinds: constraints, regularizers."""

    name: str
    title: str
    description: str
    kinds: tuple[EntryKind, ...]

    def kind(self, name: str) -> EntryKind:
        """Return a kind by its name."""
        return next(kind for kind in self.kinds if kind.kind == name)


@dataclass(frozen=True)
class Structure:
    """All settings: single fields by section, and lists of entries."""

    sections: tuple[Section, ...]
    lists: tuple[Entries, ...]

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Fields of all sections."""
        return tuple(setting for section in self.sections for setting in section.settings)

    def setting(self, name: str) -> Setting:
        """Return a field by its dotted name. Raises KeyError."""
        return self._by_name[name]

    def has(self, name: str) -> bool:
        """Whether there is a field with this dotted name."""
        return name in self._by_name

    @functools.cached_property
    def _by_name(self) -> dict[str, Setting]:
        return {setting.name: setting for setting in self.settings}


@functools.cache
def structure() -> Structure:
    """Return the structure of `Settings`: groups of its own fields, then the parts, each in the order of the fields."""
    schema = Settings.model_json_schema()
    models: Schema = schema["$defs"]
    own: dict[str, list[Setting]] = {}
    sections: list[Section] = []
    lists: list[Entries] = []
    for name, field in schema["properties"].items():
        if "$ref" in field:
            settings = tuple(settings_in(f"{name}.", _model(models, field["$ref"])))
            sections.append(Section(name, title_of(name, field), field["description"], settings))
        elif field.get("type") == "array":
            entries = _entries(name, field, models)
            lists += [entries] if entries.kinds else []  # of components, which only plug-ins have
        else:
            own.setdefault(field.get(GROUP, "Algorithm"), []).append(setting_of(name, name, field, required=False))
    groups = [Section(name, name, OWN_GROUPS[name], tuple(settings)) for name, settings in own.items()]
    return Structure((*groups, *sections), tuple(lists))


def given(settings: Settings) -> dict[str, Any]:
    """Return the smallest set of values, by dotted name, that reproduces these settings; all others are defaults.

    Some defaults depend on the optimiser, so a difference from `Settings()` is not always a choice of the user.
    """
    names = Settings(optimiser=settings.optimiser).differences(settings)
    chosen = {"optimiser", *names} if settings.optimiser != Settings().optimiser else {*names}
    return {name: value for name, value in flat(settings.model_dump(mode="json")) if name in chosen}


def python_of(values: Mapping[str, Any]) -> str:
    """Return values by dotted name as Python arguments: `batch=8, probe={'learning_rate': 0.01}`."""
    return ", ".join(f"{name}={value!r}" for name, value in nested(values).items())


def as_python(settings: Settings) -> str:
    """Return an expression with all non-default values: `pt.Settings(batch=32, probe=pt.Probe(modes=3))`."""
    arguments = []
    names = {name.partition(".")[0] for name in given(settings)}
    defaults = Settings(optimiser=settings.optimiser)
    for field in (field for field in Settings.model_fields if field in names):
        value, default = getattr(settings, field), getattr(defaults, field)
        text = _python_call(f"pt.{type(value).__name__}", value, default) if isinstance(value, Part) else None
        arguments.append(f"{field}={text or _python_value(value)}")
    return f"pt.Settings({', '.join(arguments)})"


def _python_call(name: str, model: BaseModel, defaults: BaseModel | None = None) -> str:
    """Return a call with the values that differ from those of `defaults`, None: the defaults of the fields."""
    arguments = []
    for field, info in type(model).model_fields.items():
        value, default = getattr(model, field), info.default if defaults is None else getattr(defaults, field)
        if field != "kind" and (info.is_required() or value != default):
            arguments.append(f"{field}={_python_value(value)}")
    return f"{name}({', '.join(arguments)})"


def _python_value(value: Any) -> str:
    if isinstance(value, ComponentPlugin | ConstraintPlugin):
        defaults = value.model_dump(mode="json", exclude_defaults=True)
        return repr({"kind": value.kind, **defaults})
    if isinstance(value, BaseModel):
        home = LISTED.get(type(value).__module__, "")
        return _python_call(f"pt.{home}.{type(value).__name__}" if home else f"pt.{type(value).__name__}", value)
    if isinstance(value, tuple):
        inside = ", ".join(_python_value(one) for one in value)
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return repr(value)


def _model(models: Schema, reference: str) -> Schema:
    return models[reference.rsplit("/", 1)[-1]]


def _entries(name: str, field: Schema, models: Schema) -> Entries:
    kinds = []
    # Those of plug-ins stand in the schema themselves.
    members = [_model(models, one["$ref"]) if "$ref" in one else one for one in field["items"].get("oneOf", ())]
    common = set.intersection(*(set(model["properties"]) for model in members)) if members else set()
    for model in members:
        kind = model["properties"]["kind"]["const"]
        # The fields of a kind come first, then those that all kinds have.
        settings = sorted(settings_in("", model), key=lambda setting: setting.name in common and not setting.required)
        kinds.append(EntryKind(kind, in_words(kind), model["description"].partition("\n")[0], tuple(settings)))
    return Entries(name, title_of(name, field), field["description"], tuple(kinds))
