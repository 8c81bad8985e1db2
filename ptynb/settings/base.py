"""What all settings are made of: frozen, validated models whose errors are sentences.

One source for Python, files, the command line and forms: each field carries its description, its unit in brackets in
it, its range, a title where its name alone would not do, and, in `json_schema_extra`, whether it may change while a
reconstruction runs and whether forms show it first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.config import JsonDict
from pydantic_core import ErrorDetails

LIVE: JsonDict = {"live": True}
"""Marks a field that may change while a reconstruction runs."""
SIMPLE: JsonDict = {"simple": True}
"""Marks a field that forms show first; the others come with "more"."""

Rate = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False, json_schema_extra=LIVE)]


class SettingsError(ValueError):
    """Settings that can't be used; the message says which, what was found and what is expected."""

    def __init__(self, message: str, problems: tuple[ErrorDetails, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class SettingsModel(BaseModel):
    """Frozen values that are checked when they are made; unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            problems = tuple(_whole_names(error))
            raise SettingsError(_sentences(problems, type(self)), problems) from None


class Part(SettingsModel):
    """Something that is optimised: how fast, and in which epochs."""

    rate: Rate = Field(default=0.0, description="Step size of its updates; 0 freezes it")
    first: int = Field(
        default=1, ge=1, title="First epoch", description="First epoch in which it is updated", json_schema_extra=LIVE
    )
    last: int | None = Field(
        default=None,
        ge=1,
        title="Last epoch",
        description="Last epoch in which it is updated; none: to the end",
        json_schema_extra=LIVE,
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        check_span(self.first, self.last)
        return self

    def moves(self, epoch: int) -> bool:
        """Whether it is updated in this epoch (1 for the first)."""
        return self.rate > 0 and self.first <= epoch <= (self.last or epoch)


def check_span(first: int, last: int | None) -> None:
    """Raises ValueError where the last epoch comes before the first."""
    if last is not None and last < first:
        raise ValueError(f"its last epoch is {last} and its first {first}; give a last one that is not earlier")


def merge(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The values with some changed; parts given as mappings are merged, parts given whole are taken."""
    merged = dict(values)
    for name, change in changes.items():
        if isinstance(change, BaseModel):
            merged[name] = change.model_dump()
        elif isinstance(change, Mapping) and isinstance(merged.get(name), Mapping):
            merged[name] = merge(merged[name], change)
        else:
            merged[name] = change
    return merged


def check_names(values: Any, below: str = "") -> None:
    """Raises SettingsError where a name, at any depth, is not text: YAML takes null, yes and 12 for other things."""
    if isinstance(values, Mapping):
        for name, value in values.items():
            if not isinstance(name, str):
                place = f" below '{below}'" if below else ""
                raise SettingsError(f"{name!r} stands for a name{place}; expected text, or quotes around it.")
            check_names(value, name)
    elif isinstance(values, list):
        for value in values:
            check_names(value, below)


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of every field."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by dotted name as mappings of parts: what `Settings` and `Settings.replace` take."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        part, _, last = name.rpartition(".")
        (found.setdefault(part, {}) if part else found)[last] = value
    return found


def _whole_names(error: ValidationError) -> Iterator[ErrorDetails]:
    """What pydantic found; the problems of a part, which that part has raised already, under their whole names."""
    for problem in error.errors():
        inner = problem.get("ctx", {}).get("error")
        if isinstance(inner, SettingsError) and inner.problems:
            for part in inner.problems:
                yield {**part, "loc": (*problem["loc"], *part["loc"])}
        else:
            yield problem


def _sentences(problems: tuple[ErrorDetails, ...], model: type[BaseModel]) -> str:
    """One sentence for each problem."""
    sentences = []
    for problem in problems:
        name = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            known = ", ".join(names_beside(model, problem["loc"]))
            sentences.append(f"There is no setting '{name}'; known here are {known}.")
        elif not name:
            sentences.append(f"{problem['msg'].removeprefix('Value error, ')}.")
        else:
            sentences.append(f"{name} is {problem['input']!r}: {problem['msg'].removeprefix('Value error, ')}.")
    return " ".join(sentences)


def names_beside(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Names known where this one was not; entries of lists are found by their kind."""
    choices = [model]
    for part in location[:-1]:
        if isinstance(part, int):
            continue
        kinds = [
            choice
            for choice in choices
            if "kind" in choice.model_fields and part == choice.model_fields["kind"].default
        ]
        choices = kinds or [
            found
            for choice in choices
            if part in choice.model_fields
            for found in _models_in(choice.model_fields[part].annotation)
        ]
    return [name for name in choices[0].model_fields if name != "kind"]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]
