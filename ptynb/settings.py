"""What can be chosen in a reconstruction: frozen, validated models.

One source for Python, files, the command line and forms: each field carries its description, its range and,
in `json_schema_extra`, whether it may change while a reconstruction runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

LIVE = {"live": True}
"""Marks a field that may change while a reconstruction runs."""

Rate = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False, json_schema_extra=LIVE)]


class SettingsError(ValueError):
    """Settings that can't be used; the message says which, what was found and what is expected."""

    def __init__(self, message: str, problems: tuple[ErrorDetails, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            problems = tuple(_whole_names(error))
            raise SettingsError(_sentences(problems, type(self)), problems) from None


class Object(_Model):
    """How the object is started and updated."""

    rate: Rate = Field(
        default=0.01, description="Step size of the object's updates (1 = the transmission of vacuum); 0 freezes it"
    )
    padding: int = Field(
        default=4, ge=0, le=4096, description="Pixels added on each side of the scanned area [object pixels]"
    )


class Probe(_Model):
    """How the probe is started and updated."""

    modes: int = Field(default=1, ge=1, le=64, description="Number of incoherent probe modes")
    rate: Rate = Field(
        default=0.01,
        description="Step size of updates (1 = the probe's root-mean-square amplitude over the window); 0 freezes it",
    )


class Settings(_Model):
    """All that is chosen for a reconstruction.

    Unknown names, values out of range and contradictory choices raise `SettingsError`, a `ValueError`.
    """

    object: Object = Field(default=Object(), description="The object")
    probe: Probe = Field(default=Probe(), description="The probe")
    loss: Literal["amplitude", "poisson", "intensity"] = Field(
        default="amplitude",
        description="What is minimised: difference of amplitudes, Poisson likelihood or difference of intensities",
    )
    optimiser: Literal["adam", "sgd"] = Field(default="adam", description="How gradients become updates")
    batch: int = Field(
        default=16,
        ge=1,
        le=1_000_000,
        description="Diffraction patterns behind one update, over all engines together",
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="Start of every random choice")
    precision: Literal["single", "double"] = Field(
        default="single", description="Floating-point precision of the reconstruction"
    )

    @model_validator(mode="after")
    def _something_moves(self) -> Self:
        if self.object.rate == 0 and self.probe.rate == 0:
            raise ValueError(
                "object.rate and probe.rate are both 0, so nothing would change; give at least one a positive rate"
            )
        return self

    def replace(self, **changes: Any) -> Self:
        """These settings with some values changed, validated again.

        Parts are given as mappings and merged: `settings.replace(batch=32, probe={"rate": 0.01})`.
        """
        return type(self)(**_merge(self.model_dump(), changes))

    def differences(self, other: Settings) -> dict[str, tuple[Any, Any]]:
        """Dotted name -> (value here, value in `other`) of every field that differs."""
        mine, others = dict(_flat(self.model_dump())), dict(_flat(other.model_dump()))
        return {name: (mine[name], others[name]) for name in mine if mine[name] != others[name]}

    @classmethod
    def is_live(cls, name: str) -> bool:
        """Whether the field of this dotted name may change while a reconstruction runs."""
        *parts, last = name.split(".")
        model: type[BaseModel] = cls
        for part in parts:
            inner = model.model_fields[part].annotation
            assert isinstance(inner, type)
            assert issubclass(inner, BaseModel)
            model = inner
        extra = model.model_fields[last].json_schema_extra
        return isinstance(extra, dict) and bool(extra.get("live"))

    def to_yaml(self) -> str:
        """These settings as YAML text, readable by `from_yaml`."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)

    @classmethod
    def from_yaml(cls, text_or_path: str | Path) -> Self:
        """Settings from YAML (or JSON, which is YAML too): a `Path` is read, a `str` is the text itself."""
        text = text_or_path.read_text() if isinstance(text_or_path, Path) else text_or_path
        try:
            values = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise SettingsError(f"The settings are not valid YAML: {' '.join(str(error).split())}") from None
        if values is None:
            values = {}
        if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
            raise SettingsError(
                f"The settings are a {type(values).__name__}; expected names with values, such as 'batch: 16'."
            )
        return cls(**values)


def _merge(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(values)
    for name, change in changes.items():
        if isinstance(change, BaseModel):
            merged[name] = change.model_dump()
        elif isinstance(change, Mapping) and isinstance(merged.get(name), Mapping):
            merged[name] = _merge(merged[name], change)
        else:
            merged[name] = change
    return merged


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


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
            known = ", ".join(_names_beside(model, problem["loc"]))
            sentences.append(f"There is no setting '{name}'; known here are {known}.")
        elif not name:
            sentences.append(f"{problem['msg'].removeprefix('Value error, ')}.")
        else:
            sentences.append(f"{name} is {problem['input']!r}: {problem['msg'].removeprefix('Value error, ')}.")
    return " ".join(sentences)


def _names_beside(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    for part in location[:-1]:
        inner = model.model_fields[str(part)].annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            model = inner
    return list(model.model_fields)
