"""Places of plug-ins in the settings: names, and entries of lists, that installed packages add to those of ptynb.

A field that has one of them in its annotation accepts what is installed when a value is validated, and its JSON schema,
from which forms are made, lists it. Plug-ins are looked up only for what is not ptynb's own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from ptynb import plugins
from ptynb.exceptions import InvalidValueError, PluginError, SettingsError
from ptynb.plugins import Plugin
from ptynb.settings.base_models import SettingsModel, closest, kind_of
from ptynb.settings.field_docs import form_problem
from ptynb.text import quoted

Model = TypeVar("Model", bound=SettingsModel)
OWN_COMPONENTS = (
    *("object", "probe", "slices", "tilt", "affine", "positions", "offset", "weights", "aberrations", "variations"),
    *("descan", "pixels", "point spread", "background", "saturation", "fly_scan"),
)
"""Names of ptynb's own model components, of which each model has some; results name parameters by them."""


@dataclass(frozen=True)
class PluginName:
    """A text that is one of ptynb's own names, or that of an installed plug-in."""

    kind: str
    own: tuple[str, ...]

    def _check(self, name: str) -> str:
        if name not in self.own and plugins.named(self.kind, name) is None:
            *others, last = map(repr, self.own)
            near = closest(name, (*self.own, *(one.name for one in plugins.of_kind(self.kind))))
            raise InvalidValueError(
                f"expected {', '.join(others)} or {last}{plugins.or_of_plugins(self.kind)}{near}",
                code="settings.invalid-value",
            )
        return name

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        added = [one.name for one in plugins.of_kind(self.kind) if one.name not in self.own]
        return {**handler(schema), "enum": [*self.own, *added]}


@dataclass(frozen=True)
class PluginEntries(Generic[Model]):
    """An entry whose `kind` is one of ptynb's own, or the name of an installed plug-in, whose model is a `base`."""

    plugin_kind: str
    base: type[Model]
    own: tuple[str, ...] = ()

    def model(self, kind: str) -> type[Model] | None:
        """Return the model of a plug-in; None if none of this name is installed. Raises PluginError."""
        plugin = None if kind in self.own else plugins.named(self.plugin_kind, kind)
        return None if plugin is None else entry_model(plugin, self.base)

    def models(self) -> dict[str, type[Model]]:
        """Return the models of all plug-ins that can be used; the others are notices."""
        found = dict[str, type[Model]]()
        for plugin in plugins.of_kind(self.plugin_kind):
            with plugins.isolated():
                if plugin.name not in self.own:
                    found[plugin.name] = entry_model(plugin, self.base)
        return found

    def _check(self, value: Any, handler: core_schema.ValidatorFunctionWrapHandler) -> Any:
        kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
        if kind in self.own:
            return handler(value)
        model = self.model(kind) if isinstance(kind, str) else None
        added = plugins.of_kind(self.plugin_kind)
        if model is None and self.own and not (added and isinstance(kind, str)):
            return handler(value)
        if model is None:
            names = ", ".join(map(repr, (*self.own, *(one.name for one in added))))
            what = plugins.KINDS[self.plugin_kind]
            known = f"expected one of {names}" if names else f"no plug-in with a {what} is installed"
            raise InvalidValueError(
                f"there is no {what} {quoted(kind)}; {known}",
                code="settings.invalid-value" if self.own or not isinstance(kind, str) else "plugin.not-installed",
            )
        if isinstance(value, model):
            return value
        if not isinstance(value, Mapping):
            raise PluginError(
                f"it is of another class than {model.__name__}, which the installed plug-in {kind!r} has",
                code="plugin.invalid",
            )
        try:
            return model(**value)
        except SettingsError as error:
            # Places begin with the kind of the entry, as pydantic's do.
            error.problems = tuple({**one, "loc": (str(kind), *one["loc"])} for one in error.problems)
            raise

    def _serialized(
        self, value: Any, handler: core_schema.SerializerFunctionWrapHandler, info: core_schema.SerializationInfo
    ) -> Any:
        if not isinstance(value, BaseModel) or getattr(value, "kind", None) in self.own:
            return handler(value)
        return value.model_dump(
            mode=info.mode,
            exclude_unset=info.exclude_unset,
            exclude_defaults=info.exclude_defaults,
            exclude_none=info.exclude_none,
        )

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(
            self._check,
            handler(source),
            serialization=core_schema.wrap_serializer_function_ser_schema(self._serialized, info_arg=True),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        own = handler(schema["schema"]) if self.own else {"not": {}}
        added = [handler(model.__pydantic_core_schema__) for model in self.models().values()]
        return {"oneOf": [*own.get("oneOf", ()), *added]} if added else own


def entry_model(plugin: Plugin, base: type[Model]) -> type[Model]:
    """Return the model of a plug-in whose field `kind` has the plug-in's name, and no other. Raises PluginError.

    Forms can show the entries in settings.
    """
    if plugin.kind == "components" and plugin.name in OWN_COMPONENTS:
        raise plugins.unfit(plugin, "has the name of one of ptynb's own components; expected another one")
    model = plugins.class_of(plugin, base)
    kind, only = kind_of(model), model.model_fields["kind"].annotation
    if kind != plugin.name or get_args(only) != (kind,):
        raise plugins.unfit(
            plugin,
            f"has the field kind with the default {quoted(kind)} and the type {quoted(only)}; expected the name of its "
            f'entry point: kind: Literal["{plugin.name}"] = "{plugin.name}"',
        )
    if plugin.kind != "launchers" and (problem := form_problem(model)):
        raise plugins.unfit(plugin, problem)
    return model


def kinds_of(models: Sequence[type[BaseModel]]) -> tuple[str, ...]:
    """Return the kinds of entries."""
    return tuple(kind_of(model) for model in models)


class ComponentPlugin(SettingsModel):
    """Base class of model components of plug-ins: the settings of one, from which the component is made.

    A subclass has its name as `kind: Literal["name"] = "name"`, further fields with descriptions, from which forms and
    docstrings are made, and `component`.
    """

    kind: str
    learning_rate: float = Field(
        default=0.01,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="Typical step of an update, in the unit of its parameters; 0 keeps the component fixed",
    )

    @abstractmethod
    def component(self, scan: Any) -> Any:
        """Return the component; equal on all engines, each of which calls it.

        Parameters
        ----------
        scan : Scan
            The scan, as the model has it.

        Returns
        -------
        ModelComponent
            The component, whose `name` and `rate` are set by ptynb.
        """
