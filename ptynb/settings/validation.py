"""What all settings are made of: frozen, validated models whose errors are sentences.

One source for Python, files, the command line and forms: each field carries its description, its unit in brackets in
it, its range, a title where its name alone would not do, and, in `json_schema_extra`, whether it may change while a
reconstruction runs and whether forms show it first.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.config import JsonDict
from pydantic_core import ErrorDetails

from ptynb.exceptions import InvalidValueError, SettingsError
from ptynb.text import has_control_characters, in_one_line, quoted

LIVE: JsonDict = {"live": True}
"""Marks a field that may change while a reconstruction runs."""
SIMPLE: JsonDict = {"simple": True}
"""Marks a field that forms show first; the others come with "more"."""

TRUST = "trust"
"""Marks, with what it does, a field that runs code or reaches other machines: see `ptynb.cli.trust_prompt`."""
MOST_EPOCHS = 10**9
"""More than anybody computes, and few enough for every counter."""
MOST_SECONDS = 10**7
"""Four months, of anything that is waited for."""
MOST_LETTERS = 4096
"""Of a text: what Linux takes for a path."""
MOST_PROBLEMS = 3
"""That one error tells; the rest is counted."""
LONGEST_NAME = 80
"""Letters of a name that an error repeats; no field has such a long one."""

Rate = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False, json_schema_extra=LIVE)]


class SettingsModel(BaseModel):
    """Frozen values that are checked when they are made; unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    def __init__(self, /, **values: Any) -> None:  # 'self' is a name that a file may hold
        problems = [*_not_plain(type(self), values)]
        try:
            super().__init__(**values)
        except ValidationError as error:
            known = {problem["loc"][0] for problem in problems}
            problems += [one for one in _whole_names(error) if not known & {*one["loc"][:1]}]
        if problems:
            raise SettingsError(_sentences(problems, type(self)), tuple(problems)) from None


def _not_plain(model: type[BaseModel], values: Mapping[str, Any]) -> Iterator[ErrorDetails]:
    """What pydantic takes, and settings don't: true and false as the numbers 1 and 0, texts that no path can be."""
    for name, value in values.items():
        if name not in model.model_fields:
            continue
        inside: tuple[Any, ...] = ()
        if isinstance(value, list | tuple | dict):
            inside = (*value, *value.values()) if isinstance(value, dict) else (*value,)
        for one in inside or (value,):
            if message := _wrong_with_text(one) or (_is_switch(one) and _wrong_with_switch(model, name)):
                yield {"type": "not_plain", "loc": (name,), "msg": message, "input": value}
                break


def _is_switch(value: Any) -> bool:
    """Whether it is Python's or numpy's true or false."""
    return isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b"


@functools.cache
def _wrong_with_switch(model: type[BaseModel], name: str) -> str:
    kinds = [*kinds_in(model.model_fields[name].annotation)]
    numeric = any(kind is int or kind is float for kind in kinds) and not any(kind is bool for kind in kinds)
    return "Input should be a number, not true or false" if numeric else ""


def _wrong_with_text(value: Any) -> str:
    if not isinstance(value, str | Path):
        return ""
    text = str(value)
    if len(text) > MOST_LETTERS:
        return f"Input should be text of at most {MOST_LETTERS} letters, not of {len(text)}"
    if has_control_characters(text):
        return "Input should be text without control characters"
    return ""


def kinds_in(annotation: Any) -> Iterator[Any]:
    """The types in an annotation such as `int | None`."""
    inner = get_args(annotation)
    if not inner:
        yield annotation
    for kind in inner:
        yield from kinds_in(kind)


class Part(SettingsModel):
    """Something that is optimised: how fast, and in which epochs."""

    learning_rate: Rate = Field(default=0.0, description="Step size of its updates; 0 freezes it")
    start_epoch: int = Field(
        default=1,
        ge=1,
        le=MOST_EPOCHS,
        title="First epoch",
        description="First epoch in which it is updated",
        json_schema_extra=LIVE,
    )
    end_epoch: int | None = Field(
        default=None,
        ge=1,
        le=MOST_EPOCHS,
        title="Last epoch",
        description="Last epoch in which it is updated; none: to the end",
        json_schema_extra=LIVE,
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        check_span(self.start_epoch, self.end_epoch)
        return self

    def moves(self, epoch: int) -> bool:
        """Whether it is updated in this epoch (1 for the first)."""
        return self.learning_rate > 0 and self.start_epoch <= epoch <= (self.end_epoch or epoch)


def check_span(start_epoch: int, end_epoch: int | None) -> None:
    """Raises ValueError where the last epoch comes before the first."""
    if end_epoch is not None and end_epoch < start_epoch:
        raise InvalidValueError(
            f"its end_epoch is {end_epoch} and its start_epoch {start_epoch}; give an end_epoch that is not earlier"
        )


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
                place = f" below '{in_one_line(below, LONGEST_NAME)}'" if below else ""
                raise SettingsError(f"{quoted(name)} stands for a name{place}; expected text, or quotes around it.")
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
        place = found.setdefault(part, {}) if part else found
        if not isinstance(place, dict):
            raise SettingsError(
                f"{dotted([part])} is {quoted(place)}, and {dotted([name])} is given too; give one of them."
            )
        place[last] = value
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


def _sentences(problems: Sequence[ErrorDetails], model: type[BaseModel]) -> str:
    """One sentence for each problem, the first few."""
    sentences = []
    for problem in problems[:MOST_PROBLEMS]:
        name, message = dotted(problem["loc"]), message_of(problem)
        if problem["type"] == "extra_forbidden":
            known = ", ".join(names_beside(model, problem["loc"]))
            sentences.append(f"There is no setting '{name}'; known here are {known}.")
        elif not name:
            sentences.append(f"{message}.")
        else:
            sentences.append(f"{name} is {quoted(problem['input'])}: {message}.")
    if len(problems) > MOST_PROBLEMS:
        sentences.append(f"{len(problems) - MOST_PROBLEMS} more settings can't be used.")
    return " ".join(sentences)


def dotted(location: Iterable[int | str]) -> str:
    """The name of a field by its place, fit for a sentence."""
    return ".".join(in_one_line(part, LONGEST_NAME) for part in location)


def message_of(problem: ErrorDetails) -> str:
    """What pydantic says of a field, without a full stop."""
    if problem["type"] == "union_tag_invalid":  # its own words repeat the input, however long
        context = problem["ctx"]
        return f"Input should be an entry whose {context['discriminator']} is one of {context['expected_tags']}"
    return problem["msg"].removeprefix("Value error, ").rstrip(".")


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
            for found in models_in(choice.model_fields[part].annotation)
        ]
    return [name for name in choices[0].model_fields if name != "kind"]


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models in an annotation such as `tuple[OneModel | OtherModel, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in models_in(inner)]
