"""Base classes of all settings: frozen, validated models.

The fields are the only source for Python, files, the command line, forms and docstrings: each has a description with
the unit in brackets, a range, a title where its name is not clear enough, and, in `json_schema_extra`, whether it can
be changed during a run and whether forms show it first.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from ptynb.exceptions import InvalidValueError, PtynbError, SettingsError
from ptynb.settings.field_docs import documentation, kinds_in, models_in
from ptynb.text import has_control_characters, in_one_line, quoted

LIVE: JsonDict = {"live": True}
"""Marks a field that can be changed during a run."""
SIMPLE: JsonDict = {"simple": True}
"""Marks a field that forms show first; the others come with "more"."""
GROUP = "group"
"""Key of the group in which forms show a field of `Settings` itself."""

TRUST = "trust"
"""Marks a field that runs code or connects to other machines: see `ptynb.cli.trust_prompt`."""
ADDRESS = "address"
"""Marks such a field that connects to another machine only if its value is an address, with "://" in it."""
MOST_EPOCHS = 10**9
"""Limit of numbers of epochs that fits every counter."""
MOST_SECONDS = 10**7
"""Longest time limit, four months."""
MOST_LETTERS = 4096
"""Largest number of characters of a text, as many as a path can have on Linux."""
MOST_PROBLEMS = 3
"""Largest number of problems that one error describes; the others are counted."""
LONGEST_NAME = 80
"""Largest number of characters of a name in a message; the names of all fields are shorter."""

Rate = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False, json_schema_extra=LIVE)]


@dataclass(frozen=True)
class PartSwitch:
    """How forms switch a part on and off: values by the names of its fields. It is off while all values of `off` hold.

    on: values for a start. unused: values of what means nothing while the part is off, which are set then, too.
    """

    off: Mapping[str, Any]
    on: Mapping[str, Any]
    unused: Mapping[str, Any] = field(default_factory=dict)


def rate_switch(rate: float) -> PartSwitch:
    """Return the switch of a part that is off while its learning rate is 0."""
    return PartSwitch({"learning_rate": 0.0}, {"learning_rate": rate})


class SettingsModel(BaseModel):
    """Frozen, validated values; unknown names raise a SettingsError.

    The section Parameters of a model's docstring is generated from the descriptions of its fields. switch: how forms
    switch the part on and off; None if it cannot be off, or has no values that are a good guess.
    """

    switch: ClassVar[PartSwitch | None] = None
    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        if cls.model_fields:
            cls.__doc__ = documentation(cls)

    def __init__(self, /, **values: Any) -> None:  # a file may contain the name 'self'
        problems = [*_not_plain(type(self), values)]
        try:
            super().__init__(**values)
        except ValidationError as error:
            known = {problem["loc"][0] for problem in problems}
            problems += [one for one in _whole_names(error) if not known & {*one["loc"][:1]}]
        if problems:
            # An unknown name comes first: it may be a misspelt one that is missing.
            problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
            raise SettingsError(
                _sentences(problems, type(self)),
                tuple(problems),
                code=code_of(problems),
                fields=fields_of(*problems),
                proposals=_proposals_of(problems),
            ) from None
        if is_tagged(type(self)):
            self.model_fields_set.add("kind")

    def as_given(self) -> dict[str, Any]:
        """Return the values that were given, as plain ones from which this class makes an equal model.

        What was not given may depend on other values, and would count as given if it were included. A tag `kind`,
        without which nothing can be read, is always there.
        """
        return self.model_dump(mode="json", exclude_unset=True)


class FileSection(SettingsModel):
    """Section of a file, in which null stands for the default of a field."""

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        return {name: value for name, value in values.items() if value is not None}


def cause_of(problem: ErrorDetails) -> PtynbError | None:
    """Return the error that a validator of ptynb raised; None for a problem that pydantic found."""
    cause = problem.get("ctx", {}).get("error")
    return cause if isinstance(cause, PtynbError) else None


def code_of(problems: Sequence[ErrorDetails]) -> str:
    """Return the code of the error that reports these problems: that of the first one."""
    cause = cause_of(problems[0])
    if cause is not None and cause.code:
        return cause.code
    return "settings.unknown-name" if problems[0]["type"] == "extra_forbidden" else "settings.invalid-value"


def fields_of(*problems: ErrorDetails) -> tuple[str, ...]:
    """Return the dotted names of the fields that problems are about; a validator of several names them by itself."""
    found = []
    for problem in problems:
        cause, place = cause_of(problem), problem["loc"]
        own = () if cause is None else cause.fields
        found += [dotted((*place, name)) for name in own] or ([dotted(place)] if place else [])
    return tuple(dict.fromkeys(found))


def _proposals_of(problems: Iterable[ErrorDetails]) -> dict[str, float | str]:
    return {
        dotted((*problem["loc"], name)): value
        for problem in problems
        if (cause := cause_of(problem)) is not None
        for name, value in cause.proposals.items()
    }


def told_by_field(error: SettingsError, titles: Mapping[str, str]) -> dict[str, str]:
    """Return a sentence about each invalid field of a form, with its title; a rule of several names the first."""
    told: dict[str, str] = {}
    for problem in error.problems:
        name = next(iter(fields_of(problem)), "").partition(".")[0]
        if name not in titles:
            continue
        if problem["type"] == "missing":
            sentence = f"{titles[name]} is required, and empty."
        else:
            subject = f"{titles[name]} is {quoted(problem['input'])}: " if problem["loc"] else ""
            sentence = f"{subject}{message_of(problem)}."
        told.setdefault(name, sentence)
    return told


def _not_plain(model: type[BaseModel], values: Mapping[str, Any]) -> Iterator[ErrorDetails]:
    """Yield problems that pydantic accepts: true and false as the numbers 1 and 0, texts that cannot be a path."""
    for name, value in values.items():
        if name not in model.model_fields:
            continue
        for one in _inside(value):
            switch = isinstance(one, bool) or getattr(getattr(one, "dtype", None), "kind", "") == "b"  # also numpy's
            if message := _wrong_with_text(one) or (switch and _wrong_with_switch(model, name)):
                yield {"type": "not_plain", "loc": (name,), "msg": message, "input": value}
                break


def _inside(value: Any) -> Iterator[Any]:
    """Yield what is in a list, a mapping, or a list of lists, or the value itself."""
    if isinstance(value, dict):
        yield from (*value, *value.values())
    elif isinstance(value, list | tuple):
        for one in value:
            yield from one if isinstance(one, list | tuple) else (one,)
    else:
        yield value


@functools.cache
def _wrong_with_switch(model: type[BaseModel], name: str) -> str:
    kinds = [*kinds_in(model.model_fields[name].annotation)]
    numeric = any(kind is int or kind is float for kind in kinds) and not any(kind is bool for kind in kinds)
    return "expected a number, not true or false" if numeric else ""


def _wrong_with_text(value: Any) -> str:
    if not isinstance(value, str | Path):
        return ""
    text = str(value)
    if len(text) > MOST_LETTERS:
        return f"expected text of at most {MOST_LETTERS} characters, not of {len(text)}"
    if has_control_characters(text):
        return "expected text without control characters"
    return ""


class Part(SettingsModel):
    """Base class of the parts that are optimised: learning rate and epochs.

    component: name of its component of the model in results and checkpoints; empty: that of the part. by_pattern:
    whether its parameters belong to single patterns, so that their steps do not depend on the size of the batch.
    """

    component: ClassVar[str] = ""
    by_pattern: ClassVar[bool] = False
    switch: ClassVar[PartSwitch | None] = rate_switch(0.1)
    learning_rate: Rate = Field(default=0.0, description="Learning rate of the part; 0 keeps it fixed")
    start_epoch: int = Field(
        default=1,
        ge=1,
        le=MOST_EPOCHS,
        title="First epoch",
        description="First epoch in which the part is updated",
        json_schema_extra=LIVE,
    )
    end_epoch: int | None = Field(
        default=None,
        ge=1,
        le=MOST_EPOCHS,
        title="Last epoch",
        description="Last epoch in which the part is updated; none: no limit",
        json_schema_extra=LIVE,
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        check_span(self.start_epoch, self.end_epoch)
        return self

    def moves(self, epoch: int) -> bool:
        """Whether the part is updated in an epoch, 1 for the first."""
        return self.learning_rate > 0 and self.start_epoch <= epoch <= (self.end_epoch or epoch)


def check_span(start_epoch: int, end_epoch: int | None, prefix: str = "") -> None:
    """Raise InvalidValueError if the last epoch comes before the first. prefix: of the names of both fields."""
    if end_epoch is not None and end_epoch < start_epoch:
        raise InvalidValueError(
            f"its {prefix}end_epoch is {end_epoch} and its {prefix}start_epoch {start_epoch}; give an "
            f"{prefix}end_epoch that is not earlier",
            code="settings.wrong-order",
            fields=(f"{prefix}start_epoch", f"{prefix}end_epoch"),
        )


def merge(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with changes; parts given as mappings are merged, parts given as models replaced.

    Fields of a model that were not set are left out, since their defaults may depend on other values.
    """
    merged = dict(values)
    for name, change in changes.items():
        if isinstance(change, BaseModel):
            merged[name] = change.model_dump(exclude_unset=True)
        elif isinstance(change, Mapping) and isinstance(merged.get(name), Mapping):
            merged[name] = merge(merged[name], change)
        else:
            merged[name] = change
    return merged


def check_names(values: Any, below: str = "") -> None:
    """Raise SettingsError if a name, at any depth, is not text: YAML reads null, yes and 12 as other types."""
    if isinstance(values, Mapping):
        for name, value in values.items():
            if not isinstance(name, str):
                where = f" below '{in_one_line(below, LONGEST_NAME)}'" if below else ""
                raise SettingsError(
                    f"{quoted(name)} is used as a name{where}; expected text, or put it in quotes.",
                    code="settings.invalid-name",
                )
            check_names(value, name)
    elif isinstance(values, list):
        for value in values:
            check_names(value, below)


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of every field."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by dotted name as nested mappings, which `Settings` and `Settings.replace` accept."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        part, _, last = name.rpartition(".")
        place = found.setdefault(part, {}) if part else found
        if not isinstance(place, dict):
            raise SettingsError(
                f"{dotted([part])} is {quoted(place)} and {dotted([name])} is given, too; give one of them.",
                code="settings.given-twice",
            )
        place[last] = value
    return found


def field_at(model: type[BaseModel], name: str) -> FieldInfo | None:
    """Return the field of a model by its dotted name; None if there is none."""
    *parts, last = name.split(".")
    for part in parts:
        inner = model.model_fields.get(part)
        if inner is None or not (isinstance(inner.annotation, type) and issubclass(inner.annotation, BaseModel)):
            return None
        model = inner.annotation
    return model.model_fields.get(last)


def _whole_names(error: ValidationError) -> Iterator[ErrorDetails]:
    """Yield the problems found by pydantic; those raised by the validator of a part get their full names."""
    for problem in error.errors():
        inner = problem.get("ctx", {}).get("error")
        if isinstance(inner, SettingsError) and inner.problems:
            for part in inner.problems:
                yield {**part, "loc": (*problem["loc"], *part["loc"])}
        else:
            yield problem


def _sentences(problems: Sequence[ErrorDetails], model: type[BaseModel]) -> str:
    """Return one sentence for each of the first problems."""
    sentences = []
    for problem in problems[:MOST_PROBLEMS]:
        name, message = dotted(problem["loc"]), message_of(problem)
        if problem["type"] == "extra_forbidden":
            known = names_beside(model, problem["loc"])
            near = closest(str(problem["loc"][-1]), known)
            sentences.append(f"There is no setting '{name}'{near}; known here are {', '.join(known)}.")
        elif not name:
            sentences.append(f"{message}.")
        elif problem["type"] == "missing":
            sentences.append(f"{name} is required, and missing.")
        else:
            sentences.append(f"{name} is {quoted(problem['input'])}: {message}.")
    if len(problems) > MOST_PROBLEMS:
        sentences.append(f"{len(problems) - MOST_PROBLEMS} more settings are invalid.")
    return " ".join(sentences)


def closest(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: the known one that it resembles, or an empty string."""
    near = difflib.get_close_matches(name, [*known], 1) if len(name) <= LONGEST_NAME else []
    return f" (did you mean '{near[0]}'?)" if near else ""


def dotted(location: Iterable[int | str]) -> str:
    """Return the dotted name of a field for a message."""
    return ".".join(in_one_line(part, LONGEST_NAME) for part in location)


def message_of(problem: ErrorDetails) -> str:
    """Return the message of a problem without a full stop."""
    if problem["type"] == "union_tag_invalid":  # the message of pydantic repeats the input, however long
        context = problem["ctx"]
        return f"expected an entry whose {context['discriminator']} is one of {context['expected_tags']}"
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, Exception):
        return str(cause).rstrip(".")
    message, head = problem["msg"].rstrip("."), "Input should be"  # of pydantic
    return f"expected{message.removeprefix(head)}" if message.startswith(head) else message


def names_beside(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Return the known names beside an unknown one; entries of lists are found by their kind."""
    choices = [model]
    for part in location[:-1]:
        if isinstance(part, int):
            continue
        kinds = [choice for choice in choices if part == kind_of(choice)]
        choices = kinds or [
            found
            for choice in choices
            if part in choice.model_fields
            for found in models_in(choice.model_fields[part].annotation)
        ]
        if not choices:  # an entry of a plug-in, whose class no annotation names
            choices = [one for one in _all_models(SettingsModel) if kind_of(one) == part] or [model]
    return [name for name in choices[0].model_fields if name != "kind"]


@functools.cache
def is_tagged(model: type[BaseModel]) -> bool:
    """Whether `kind` of a model is the tag by which it is chosen among others, and can have one value only."""
    field = model.model_fields.get("kind")
    return field is not None and field.annotation == Literal[field.default]  # type: ignore[valid-type]


def kind_of(model: type[BaseModel]) -> str:
    """Return the kind of the entries that have this model; empty for other models."""
    return str(model.model_fields["kind"].default) if "kind" in model.model_fields else ""


def _all_models(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        yield model
        yield from _all_models(model)
