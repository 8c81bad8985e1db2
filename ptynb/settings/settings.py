"""Settings: all that is chosen for a reconstruction, and what can't be chosen together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, Field, model_validator

from ptynb.exceptions import InvalidValueError, SettingsError
from ptynb.settings.constraints import AnyConstraint, DepthBlur, MissingWedge, RecenterDepth
from ptynb.settings.lr_scaling import BY_PATTERN, rate_factor
from ptynb.settings.model_parts import (
    OPR,
    PARTS,
    Affine,
    Background,
    Detector,
    Object,
    PatternIntensities,
    Positions,
    Probe,
    ProbeOffset,
    Slices,
    Tilt,
)
from ptynb.settings.regularizers import PACBED, LossName, Similarity, Term
from ptynb.settings.renamed import translated
from ptynb.settings.validation import LIVE, MOST_EPOCHS, SIMPLE, Part, SettingsModel, check_names, flat, merge, nested
from ptynb.settings.yaml_reader import read_yaml, read_yaml_file

Optimiser = Literal["adam", "adamw", "nadam", "radam", "rmsprop", "sgd", "lbfgs", "rpie", "lsqml", "dm", "raar"]
FULL_STEPS = ("lbfgs", "rpie", "lsqml")
"""Optimisers that know their step's length: a rate of 1, the default with them, takes it as it is."""
PROJECTIONS = ("dm", "raar")
"""Optimisers without gradients: every epoch is one update with all patterns."""
WHOLE_PASSES = ("lbfgs", *PROJECTIONS)
"""Optimisers whose every update sees all patterns; a batch is then only what is computed at once."""
THIN_ONLY = ("lsqml", *PROJECTIONS)
"""Optimisers for one slice, whose exit wave is probe times object."""


class Schedule(SettingsModel):
    """How all learning rates change with the epochs."""

    kind: Literal["constant", "linear", "cosine", "exponential"] = Field(
        default="constant", title="Course", description="The learning rates' course", json_schema_extra=LIVE
    )
    epochs: int = Field(
        default=100,
        ge=1,
        le=MOST_EPOCHS,
        title="End at epoch",
        description="Epoch at which the end factor is reached",
        json_schema_extra=LIVE,
    )
    end_factor: float = Field(
        default=0.1,
        gt=0,
        le=1,
        description="What the learning rates are multiplied by in the end",
        json_schema_extra=LIVE,
    )

    def factor(self, epoch: int) -> float:
        """What the learning rates are multiplied by in this epoch (1 for the first)."""
        done = min((epoch - 1) / max(self.epochs - 1, 1), 1.0)
        match self.kind:
            case "constant":
                return 1.0
            case "linear":
                return 1 + (self.end_factor - 1) * done
            case "cosine":
                return self.end_factor + (1 - self.end_factor) * (1 + math.cos(math.pi * done)) / 2
            case "exponential":
                return self.end_factor**done


class Settings(SettingsModel):
    """All that is chosen for a reconstruction.

    Unknown names, values out of range and contradictory choices raise `SettingsError`, a `ValueError`.
    """

    object: Object = Field(default=Object(), description="The object")
    probe: Probe = Field(default=Probe(), description="The probe")
    slices: Slices = Field(default=Slices(), description="A thick object's slices")
    tilt: Tilt = Field(default=Tilt(), description="Inclination of the beam to the slices' normal")
    positions: Positions = Field(default=Positions(), description="Positions found together with the object")
    affine: Affine = Field(default=Affine(), description="One linear map of all positions")
    probe_offset: ProbeOffset = Field(default=ProbeOffset(), description="One shift of the probe against all positions")
    opr: OPR = Field(
        default=OPR(), description="Orthogonal probe relaxation: a probe that varies from pattern to pattern"
    )
    pattern_intensities: PatternIntensities = Field(
        default=PatternIntensities(), description="How bright the beam was behind each pattern"
    )
    background: Background = Field(default=Background(), description="Intensity that is the same in all patterns")
    detector: Detector = Field(default=Detector(), description="What the detector does to the intensity")
    loss: LossName = Field(
        default="amplitude",
        description="What is minimised: difference of amplitudes, Poisson likelihood or difference of intensities",
        json_schema_extra=SIMPLE,
    )
    regularizers: tuple[Term, ...] = Field(
        default=(), description="What is minimised beside the loss", json_schema_extra=LIVE
    )
    constraints: tuple[AnyConstraint, ...] = Field(
        default=(), description="What is imposed between updates, in this order", json_schema_extra=LIVE
    )
    optimiser: Optimiser = Field(
        default="adam", description="How object, probe and the other parts are updated", json_schema_extra=SIMPLE
    )
    momentum: float = Field(default=0.0, ge=0, lt=1, description="How much of their last step SGD and rPIE keep")
    rpie_alpha: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Regularisation of rPIE, which divides steps by the brightest illumination (1: ePIE) or each "
        "pixel's own (0)",
    )
    beta: float = Field(default=0.75, gt=0, le=1, description="Relaxation (beta) of DM and RAAR")
    schedule: Schedule = Field(default=Schedule(), description="How all learning rates change with the epochs")
    batch: int = Field(
        default=16,
        ge=1,
        le=1_000_000,
        description="Diffraction patterns behind one update, over all engines together or on each (`batch_per`)",
        json_schema_extra=SIMPLE,
    )
    batch_per: Literal["group", "engine"] = Field(
        default="group",
        title="Batch of",
        description="Whose patterns `batch` counts: those of all engines together, whose number then does not change "
        "the result, or each engine's, so that more engines make larger batches",
    )
    gradient_accumulation: int = Field(
        default=1,
        ge=1,
        le=4096,
        description="Parts in which a batch is computed, gradients summed: less memory, the same update",
    )
    batch_sampling: Literal["spread", "random", "compact"] = Field(
        default="spread",
        description="Which patterns make a batch: evenly spread over the scan, any, or neighbours",
    )
    pattern_storage: Literal["auto", "device", "host", "disk"] = Field(
        default="auto",
        description="Where engines keep the patterns: on the device, in memory, in the file, or the first with room",
    )
    gradient_sync: Literal["sparse", "dense"] = Field(
        default="sparse",
        description="What engines with gradient optimisers exchange of the object's gradient: where the batch's "
        "windows lie, or all of it; the result is the same",
        json_schema_extra=LIVE,
    )
    sync_every: int = Field(
        default=1,
        ge=1,
        le=1_000_000,
        description="Updates that engines make alone before their parameters are averaged; "
        "1: the result is that of one engine, above 1 it is not",
        json_schema_extra=LIVE,
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="Start of every random choice")
    precision: Literal["single", "double"] = Field(
        default="single", description="Floating-point precision of the reconstruction"
    )

    @model_validator(mode="before")
    @classmethod
    def _full_steps(cls, values: Any) -> Any:
        """Rates of object and probe that nobody gave are 1 where the optimiser knows its step's length."""
        if not isinstance(values, Mapping) or values.get("optimiser") not in FULL_STEPS:
            return values
        values = dict(values)
        for name, default in (("object", Object()), ("probe", Probe())):
            part = values.get(name, default)
            if isinstance(part, BaseModel) and "learning_rate" not in part.model_fields_set:
                values[name] = part.model_copy(update={"learning_rate": 1.0})
            elif isinstance(part, Mapping) and "learning_rate" not in part:
                values[name] = {**part, "learning_rate": 1.0}
        return values

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problem = next(_contradictions(self), None)
        if problem is not None:
            raise InvalidValueError(problem)
        return self

    @property
    def margin(self) -> int:
        """Pixels of the object around the scanned area: the padding, and room for positions that move."""
        moves = max(self.positions.learning_rate, self.affine.learning_rate, self.probe_offset.learning_rate) > 0
        return max(self.object.padding, math.ceil(self.positions.max_shift) + 1 if moves else 0)

    def part(self, name: str) -> Part:
        """The part of this name, one of `PARTS`."""
        part = getattr(self, name)
        assert isinstance(part, Part)
        return part

    def replace(self, /, **changes: Any) -> Self:
        """These settings with some values changed, validated again.

        Parts are given as mappings and merged: `settings.replace(batch=32, probe={"learning_rate": 0.01})`.
        """
        return type(self)(**merge(self.model_dump(), changes))

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """These settings with the values of some dotted names: `settings.with_values({"probe.modes": 2})`.

        Raises SettingsError for an unknown name, and where they don't go together.
        """
        return self.replace(**nested(values))

    def effective_batch(self, engines: int) -> int:
        """Patterns behind one update of so many engines."""
        return self.batch * (engines if self.batch_per == "engine" else 1)

    def scale_for_engines(self, engines: int) -> Self:
        """Settings that suit one engine, for several with a batch of this size each, and the rates that go with it.

        Rates grow with the square root of the number of engines (Adam and its kin) or in proportion to it (SGD); those
        of rPIE, LSQML, L-BFGS, DM and RAAR, and of what belongs to single patterns, stay. Nothing does this by itself.
        Goyal et al., arXiv:1706.02677; Malladi et al., arXiv:2205.10330.

        Raises SettingsError where a rate would be too high.
        """
        if engines < 1:
            raise SettingsError(f"scale_for_engines got {engines} engines; expected at least 1.")
        changes: dict[str, Any] = {"batch_per": "engine"}
        for name in PARTS:
            by_pattern = name in BY_PATTERN or (name == "tilt" and self.tilt.per_position)
            factor = rate_factor(self.optimiser, name, engines, by_pattern)
            changes[name] = {"learning_rate": self.part(name).learning_rate * factor}
            if name == "object" and self.object.amplitude_learning_rate is not None:
                changes[name]["amplitude_learning_rate"] = self.object.amplitude_learning_rate * factor
        return self.replace(**changes)

    def differences(self, other: Settings) -> dict[str, tuple[Any, Any]]:
        """Dotted name -> (value here, value in `other`) of every field that differs."""
        mine, others = dict(flat(self.model_dump())), dict(flat(other.model_dump()))
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
        if isinstance(text_or_path, Path):
            values = read_yaml_file(text_or_path)
        else:
            values = read_yaml(text_or_path, "The text of the settings")
        if values is None:
            values = {}
        if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
            raise SettingsError(
                f"The settings are a {type(values).__name__}; expected names with values, such as 'batch: 16'."
            )
        check_names(values)
        return cls(**translated(values, cls))


def _contradictions(settings: Settings) -> Iterator[str]:
    """Sentences about choices that can't go together."""
    if settings.object.learning_rate == 0 and settings.probe.learning_rate == 0:
        yield (
            "object.learning_rate and probe.learning_rate are both 0, so nothing would change; "
            "give at least one a positive rate"
        )
    yield from _thickness(settings)
    yield from _optimisers(settings)
    yield from _thin_only(settings)
    yield from _exchange(settings)
    if settings.gradient_accumulation > settings.batch:
        yield (
            f"gradient_accumulation is {settings.gradient_accumulation}, and a batch has {settings.batch} patterns; "
            "make it smaller"
        )
    if any(isinstance(term, Similarity) for term in settings.regularizers) and settings.object.modes < 2:
        yield (
            "the regularizer 'similarity' compares modes of the object, and object.modes is 1; "
            "leave it out or ask for more modes"
        )
    if any(isinstance(term, PACBED) for term in settings.regularizers) and settings.gradient_accumulation > 1:
        yield (
            "the regularizer 'pacbed' needs a whole batch at once, and gradient_accumulation is above 1; "
            "leave one of them out"
        )


def _thickness(settings: Settings) -> Iterator[str]:
    slices = settings.slices
    if slices.count > 1 and slices.thickness is None:
        yield f"slices.count is {slices.count}, and slices.thickness is missing; give the distance between them [m]"
    if slices.count > 1:
        return
    if slices.learning_rate > 0 or settings.tilt.learning_rate > 0:
        name = "slices.learning_rate" if slices.learning_rate > 0 else "tilt.learning_rate"
        yield f"{name} is above 0, and slices.count is 1: nothing lies between slices; ask for at least 2 slices"
    for constraint in settings.constraints:
        if isinstance(constraint, DepthBlur | MissingWedge | RecenterDepth):
            yield f"the constraint '{constraint.kind}' works in depth, and slices.count is 1; leave it out"


def _optimisers(settings: Settings) -> Iterator[str]:
    name = settings.optimiser
    if settings.momentum > 0 and name not in ("sgd", "rpie"):
        yield f"momentum is {settings.momentum:g}, and the optimiser '{name}' has its own; it goes with 'sgd' or 'rpie'"
    if name == "rpie" and settings.object.parametrization == "amplitude_phase":
        yield (
            "object.parametrization is 'amplitude_phase', and 'rpie' divides complex steps by the illumination; "
            "use 'complex'"
        )
    if name == "rpie" and settings.loss != "amplitude":
        yield f"loss is '{settings.loss}', and the optimiser 'rpie' fits amplitudes; use 'amplitude'"
    if name in ("lbfgs", *PROJECTIONS) and settings.gradient_accumulation > 1:
        yield (
            f"gradient_accumulation is {settings.gradient_accumulation}, and '{name}' takes all patterns at once; "
            "leave it out"
        )
    if name in ("lbfgs", *PROJECTIONS) and any(isinstance(term, PACBED) for term in settings.regularizers):
        yield f"the regularizer 'pacbed' needs batches, and the optimiser '{name}' has none; leave one of them out"


def _exchange(settings: Settings) -> Iterator[str]:
    """Engines that go their own ways need steps that each can make alone."""
    every, name = settings.sync_every, settings.optimiser
    if every == 1:
        return
    if name in ("lbfgs", *THIN_ONLY):
        yield (
            f"sync_every is {every}, and the steps of '{name}' follow from sums over all engines; "
            "use 'adam', or leave it at 1"
        )
    if any(isinstance(term, PACBED) for term in settings.regularizers):
        yield (
            f"sync_every is {every}, and the regularizer 'pacbed' needs a batch's patterns of all engines; "
            "leave one of them out"
        )


def _thin_only(settings: Settings) -> Iterator[str]:
    """LSQML, DM and RAAR know one slice, object and probe, and amplitudes."""
    name = settings.optimiser
    if name not in THIN_ONLY:
        return
    found = {
        "slices.count above 1": settings.slices.count > 1,
        "object.modes above 1": settings.object.modes > 1,
        "opr.modes above 0": settings.opr.modes > 0,
        "detector choices": settings.detector != Detector(),
        "regularizers": bool(settings.regularizers),
        "object.parametrization 'amplitude_phase'": settings.object.parametrization == "amplitude_phase",
        f"the loss '{settings.loss}'": settings.loss != "amplitude",
        "gradient_accumulation above 1": settings.gradient_accumulation > 1,
    }
    found |= {
        f"{part}.learning_rate above 0": settings.part(part).learning_rate > 0
        for part in PARTS
        if part not in ("object", "probe", "opr")
    }
    for what, there in found.items():
        if there:
            yield f"the optimiser '{name}' can't go with {what}; use 'adam', or leave it out"
