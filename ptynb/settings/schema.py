"""Structure of all settings, from which forms are generated: read from the JSON schema of `Settings`; Python code.

The schema has names, types, descriptions, ranges, choices, defaults, and the marks in `json_schema_extra`. The unit of
a setting is given in brackets in its description.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from ptynb.settings.base_models import GROUP, LONGEST_NAME, Part, flat
from ptynb.settings.base_models import nested as nested
from ptynb.settings.constraints import ConstraintPlugin
from ptynb.settings.plugin_entries import ComponentPlugin
from ptynb.settings.settings import Settings
from ptynb.text import in_one_line

Kind = Literal["number", "integer", "choice", "switch"]
Schema = Mapping[str, Any]
_UNIT = re.compile(r" ?\[([^]]+)\]")
_RATIO = re.compile(r"^1 = ")
ABBREVIATIONS = {"dct": "DCT", "opr": "OPR", "pacbed": "PACBED", "psf": "PSF", "rpie": "rPIE"}
"""Words of names with a special spelling."""
OWN_GROUPS = {
    "Algorithm": "Loss, and the algorithm that minimises it",
    "Batches": "Patterns of an update",
    "Computing": "Storage, exchange between engines, precision",
}
"""Groups of the fields of `Settings` itself, with their descriptions."""
LISTED = {"ptynb.settings.constraints": "constraints", "ptynb.settings.regularizers": "regularizers"}
"""Module with the entries of a list -> its name in `pt`."""


@dataclass(frozen=True)
class Setting:
    """One field.

    name: dotted, "probe.learning_rate"; for a field of an entry the last part only, "sigma".
    unit: "" if there is none. description: without the unit. low, high: of the range, None if unlimited;
    low_included, high_included: whether the limits belong to it. choices: of a kind "choice". optional: None is
    allowed. required: it has no default. live: it can be changed during a run. simple: forms show it first.
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
            settings = tuple(_settings(f"{name}.", _model(models, field["$ref"])))
            sections.append(Section(name, _title(name, field), field["description"], settings))
        elif field.get("type") == "array":
            entries = _entries(name, field, models)
            lists += [entries] if entries.kinds else []  # of components, which only plug-ins have
        else:
            own.setdefault(field.get(GROUP, "Algorithm"), []).append(_setting(name, name, field, required=False))
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
        settings = sorted(_settings("", model), key=lambda setting: setting.name in common and not setting.required)
        kinds.append(EntryKind(kind, _words(kind), model["description"].partition("\n")[0], tuple(settings)))
    return Entries(name, _title(name, field), field["description"], tuple(kinds))


@functools.cache
def form_problem(model: type[BaseModel]) -> str:
    """Return why forms cannot show an entry with this model, which is of a plug-in; empty if they can."""
    try:
        schema = model.model_json_schema()
    except Exception as error:  # noqa: BLE001 - of pydantic, or of a function of the plug-in
        return f"has fields that no form can show ({in_one_line(error, LONGEST_NAME)})"
    for name, field in schema.get("properties", {}).items():
        try:
            shown = [*_settings("", {"properties": {name: field}})]
        except (KeyError, TypeError, ValueError):
            shown = []
        if name != "kind" and not (shown and all(isinstance(choice, str) for choice in shown[0].choices)):
            return (
                f"has the field {name}, which no form can show; expected a number, a bool or a Literal of texts (or "
                'None), with a description: name: float = Field(default=1.0, description="...")'
            )
    return ""


def _settings(prefix: str, model: Schema) -> Iterator[Setting]:
    """Yield the fields of a model."""
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
    """Return the title of a field, or its name as words; the default titles of pydantic are capitalised."""
    title = field.get("title", "")
    return title if title and title != name.replace("_", " ").title() else _words(name)


def _words(name: str) -> str:
    first, *others = name.split("_")
    return " ".join([ABBREVIATIONS.get(first, first.capitalize()), *(ABBREVIATIONS.get(word, word) for word in others)])
