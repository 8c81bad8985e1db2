"""Settings of a reconstruction, and which of them are not supported together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, model_validator
from pydantic.config import JsonDict

from ptynb import plugins
from ptynb.exceptions import InvalidValueError, SettingsError
from ptynb.plugins import Plugin
from ptynb.settings.base_models import (
    GROUP,
    LIVE,
    MOST_EPOCHS,
    SIMPLE,
    Part,
    PartSwitch,
    SettingsModel,
    check_names,
    field_at,
    flat,
    merge,
    nested,
)
from ptynb.settings.constraints import (
    CONSTRAINTS,
    AmplitudeLimits,
    AmplitudePhaseCoupling,
    AnyConstraint,
    DepthBlur,
    FixedProbePower,
    MissingWedge,
    OrthogonalModes,
    PositivePhase,
    ProbeAperture,
    ProbeSupport,
    RecenterDepth,
    SmoothTilts,
    ZeroMeanPositions,
)
from ptynb.settings.field_docs import DOCUMENTED_TYPE
from ptynb.settings.lr_scaling import rate_factor
from ptynb.settings.model_parts import (
    OPR,
    PARTS,
    Aberrations,
    Affine,
    Background,
    Descan,
    Detector,
    FlyScan,
    Object,
    PatternIntensities,
    Positions,
    Probe,
    ProbeOffset,
    Slices,
    Tilt,
)
from ptynb.settings.plugin_entries import ComponentPlugin, PluginEntries, PluginName
from ptynb.settings.regularizers import LOSSES, PACBED, DataTerm, Similarity, Term
from ptynb.settings.yaml_reader import read_mapping

Optimiser = Literal["adam", "adamw", "nadam", "radam", "rmsprop", "sgd", "lbfgs", "rpie", "lsqml", "dm", "raar"]
BATCHES: JsonDict = {GROUP: "Batches"}
COMPUTING: JsonDict = {GROUP: "Computing"}
"""Groups of fields of `Settings` itself, beside those of the algorithm, in which forms show them."""
FULL_STEPS = ("lbfgs", "rpie", "lsqml")
"""Optimisers that compute their step length."""
PROJECTIONS = ("dm", "raar")
"""Optimisers without gradients; an epoch is one update with all patterns."""
LSQML_PARTS = ("object", "probe", "positions", "opr", "pattern_intensities", "background")
"""Parts that LSQML updates."""
WITH_MOMENTUM = ("sgd", "rpie", "lsqml")
"""Optimisers with the setting `momentum`."""
WHOLE_PASSES = ("lbfgs", *PROJECTIONS)
"""Optimisers whose updates use all patterns; `batch` is then only the number that is computed at once."""
STREAMABLE = ("adam", "sgd", "rpie", "lsqml")
"""Optimisers by which a streamed object can be reconstructed."""
POINTWISE = PositivePhase, AmplitudeLimits, AmplitudePhaseCoupling, DepthBlur
"""Constraints of the object that act on each (y, x) alone."""
WITHOUT_OBJECT = OrthogonalModes, ProbeSupport, ProbeAperture, FixedProbePower, ZeroMeanPositions, SmoothTilts
"""Constraints that do not act on the object."""
BY_EXIT_WAVES = ("lsqml", *PROJECTIONS)
"""Optimisers that correct exit waves, by the inverse of the propagation, and update some parts only."""
GLOBAL_STEPS = ("lbfgs", *BY_EXIT_WAVES)
"""Optimisers whose steps require sums over all engines: no sparse exchange of gradients."""


class Schedule(SettingsModel):
    """Schedule of all learning rates over the epochs."""

    switch = PartSwitch({"kind": "constant"}, {"kind": "cosine"})

    kind: Literal["constant", "linear", "cosine", "exponential"] = Field(
        default="cosine",
        title="Course of the learning rates",
        description="Course of all learning rates over the epochs; constant by default with L-BFGS, rPIE, LSQML, DM "
        "and RAAR, which compute their step length",
        json_schema_extra=LIVE | SIMPLE,
    )
    epochs: int | None = Field(
        default=None,
        ge=1,
        le=MOST_EPOCHS,
        title="Last epoch of the schedule",
        description="Epoch in which the final factor is reached, and from which on the learning rates are constant; "
        "None: the last epoch of each run, or of all stages; a run begins with the full rates",
        json_schema_extra=LIVE | SIMPLE,
    )
    end_factor: float = Field(
        default=0.05,
        gt=0,
        le=1,
        title="Final factor of the learning rates",
        description="Factor of the learning rates at the end",
        json_schema_extra=LIVE | SIMPLE,
    )

    def factor(self, epoch: int, run: tuple[int, int] = (0, 100)) -> float:
        """Return the factor of the learning rates in an epoch.

        Parameters
        ----------
        epoch : int
            Number of the epoch, 1 for the first.
        run : tuple of int
            Epochs completed before the run, and its last epoch; used if `epochs` is None.

        Returns
        -------
        float
            Factor, 1 in the first epoch.
        """
        before, last = run if self.epochs is None else (0, self.epochs)
        done = min(max(epoch - before - 1, 0) / max(last - before - 1, 1), 1.0)
        match self.kind:
            case "constant":
                return 1.0
            case "linear":
                return 1 + (self.end_factor - 1) * done
            case "cosine":
                return self.end_factor + (1 - self.end_factor) * (1 + math.cos(math.pi * done)) / 2
            case "exponential":
                return self.end_factor**done


class Stop(SettingsModel):
    """End of a run before its last epoch, once it makes no more progress.

    Only epochs of the present run after the last change of settings count, and only once all parts and constraints have
    begun. In a run of stages it applies in the last one only.
    """

    switch = PartSwitch({"patience": 0}, {"patience": 20})

    patience: int = Field(
        default=0,
        ge=0,
        le=MOST_EPOCHS,
        description="Number of epochs over which progress is judged; 0: a run ends at its last epoch only",
        json_schema_extra=LIVE | SIMPLE,
    )
    tolerance: float = Field(
        default=0.01,
        ge=0,
        lt=1,
        title="Least progress",
        description="Progress that continues a run: the relative decrease of the lowest loss, or the largest change of "
        "object, probe (relative) and positions (in object pixels) in an epoch",
        json_schema_extra=LIVE,
    )
    criterion: Literal["loss", "changes"] = Field(
        default="loss",
        title="Progress judged by",
        description="Whether progress is judged by the loss, or by the changes of object, probe and positions",
        json_schema_extra=LIVE,
    )
    min_epochs: int = Field(
        default=0,
        ge=0,
        le=MOST_EPOCHS,
        title="Least epochs",
        description="Number of epochs, counted from the first, before which no run is ended",
        json_schema_extra=LIVE,
    )


class Settings(SettingsModel):
    """All settings of a reconstruction.

    Unknown names, values out of range and unsupported combinations raise `SettingsError`, a `ValueError`.
    """

    object: Object = Field(default=Object(), description="Transmission of the sample")
    probe: Probe = Field(default=Probe(), description="Illumination of the sample")
    slices: Slices = Field(default=Slices(), description="Slices of a thick object")
    tilt: Tilt = Field(default=Tilt(), description="Tilt of the beam against the normal of the slices")
    positions: Positions = Field(default=Positions(), description="Refinement of the scan positions")
    affine: Affine = Field(
        default=Affine(), title="Linear map of positions", description="Refinement of one linear map of all positions"
    )
    probe_offset: ProbeOffset = Field(
        default=ProbeOffset(), description="Refinement of one shift of the probe against all positions"
    )
    aberrations: Aberrations = Field(
        default=Aberrations(), description="Refinement of the aberrations of the lens that forms the probe"
    )
    opr: OPR = Field(
        default=OPR(),
        title="Probe variation (OPR)",
        description="Orthogonal probe relaxation: a probe that varies from pattern to pattern",
    )
    pattern_intensities: PatternIntensities = Field(
        default=PatternIntensities(), description="Relative intensity of the beam for each pattern"
    )
    background: Background = Field(default=Background(), description="Background intensity, the same in all patterns")
    descan: Descan = Field(default=Descan(), description="Shift of each pattern on the detector")
    fly_scan: FlyScan = Field(default=FlyScan(), description="Motion of the sample during the exposure")
    detector: Detector = Field(default=Detector(), description="Model of the detector")
    components: tuple[Annotated[ComponentPlugin, PluginEntries("components", ComponentPlugin)], ...] = Field(
        default=(), description="Components of plug-ins, each a further effect in the model, in this order"
    )
    loss: Annotated[str, PluginName("losses", ("auto", *LOSSES))] = Field(
        default="auto",
        description="Loss that is minimised: difference of amplitudes, Poisson likelihood or difference of "
        "intensities; auto: the Poisson likelihood of counts that are fewer than 10 a pixel on average (30 of "
        "electrons), of which amplitudes give too small phases, and amplitudes otherwise",
        json_schema_extra=SIMPLE
        | {DOCUMENTED_TYPE: '{"auto", "amplitude", "poisson", "intensity"} or the name of a plug-in'},
    )
    regularizers: tuple[Term, ...] = Field(
        default=(), description="Functions that are added to the loss", json_schema_extra=LIVE
    )
    constraints: tuple[AnyConstraint, ...] = Field(
        default=(), description="Constraints that are imposed between updates, in this order", json_schema_extra=LIVE
    )
    optimiser: Optimiser = Field(
        default="adam",
        description="Algorithm that updates object, probe and the other parts; Adam goes with all other settings, "
        "LSQML finds strong objects in fewer epochs",
        json_schema_extra=SIMPLE,
    )
    momentum: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Fraction of the last step that SGD and rPIE add to the next one, and LSQML from epoch to epoch",
    )
    rpie_alpha: float = Field(
        default=0.1,
        ge=0,
        le=1,
        title="rPIE regularisation α",
        description="Regularisation of rPIE, whose steps are divided by the brightest illumination (1: ePIE) or by "
        "that of each pixel (0)",
    )
    beta: float = Field(
        default=0.75,
        gt=0,
        le=1,
        title="DM and RAAR relaxation β",
        description="Relaxation parameter (beta) of DM and RAAR",
    )
    schedule: Schedule = Field(default=Schedule(), description="Schedule of all learning rates over the epochs")
    stop: Stop = Field(default=Stop(), title="Early stop", description="End of a run before its last epoch")
    batch: int = Field(
        default=16,
        ge=1,
        le=1_000_000,
        description="Diffraction patterns per update [patterns], over all engines together or on each of them",
        json_schema_extra=SIMPLE | BATCHES,
    )
    batch_per: Literal["group", "engine"] = Field(
        default="group",
        title="Batch is that of",
        description="Whether the batch counts the patterns of all engines together (the number of engines then does "
        "not change the result) or of each engine (more engines make larger batches)",
        json_schema_extra=BATCHES,
    )
    gradient_accumulation: int = Field(
        default=1,
        ge=1,
        le=4096,
        description="Parts in which a batch is computed [parts], with summed gradients: less memory, same update",
        json_schema_extra=BATCHES,
    )
    batch_sampling: Literal["spread", "cells", "bands", "random", "compact", "interleaved"] = Field(
        default="spread",
        title="Patterns of a batch",
        description="Patterns of a batch: evenly spread over the scan in its order, or over its area (one of each of "
        "as many cells), or over one band of it after the other, random, neighbours, or one of each every n-th "
        "pattern, as in a live scan",
        json_schema_extra=BATCHES,
    )
    batch_bands: int = Field(
        default=8,
        ge=1,
        le=4096,
        title="Bands of the scan",
        description="Number of bands, one below the other along y, into which batches from bands divide the scan; "
        "fewer if a band would have less than a batch. Batches of a band are not larger than it",
        json_schema_extra=BATCHES,
    )
    pattern_storage: Literal["auto", "device", "host", "disk"] = Field(
        default="auto",
        title="Patterns stored in",
        description="Where engines store the patterns: on the device, in host memory, in the file, or the first with "
        "enough space",
        json_schema_extra=COMPUTING,
    )
    gradient_sync: Literal["sparse", "dense"] = Field(
        default="sparse",
        title="Exchanged gradient",
        description="Part of the object's gradient that engines exchange: that of the probe windows in the batch, or "
        "all of it; the result is the same",
        json_schema_extra=LIVE | COMPUTING,
    )
    seed: int = Field(
        default=0,
        ge=0,
        lt=2**63,
        title="Random seed",
        description="Seed of the random numbers",
        json_schema_extra=COMPUTING,
    )
    precision: Literal["single", "double"] = Field(
        default="single",
        description="Floating-point precision of the reconstruction",
        json_schema_extra=COMPUTING,
    )

    @model_validator(mode="after")
    def _follow_optimiser(self) -> Self:
        """Give fields that were not set the defaults that depend on the optimiser, see `_defaults_of`."""
        for name, default in _defaults_of(self.optimiser).items():
            part, _, field = name.partition(".")
            values = getattr(self, part)
            if field not in values.model_fields_set and getattr(values, field) != default:
                own = values.model_copy(update={field: default})
                own.model_fields_set.discard(field)
                self.__dict__[part] = own
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problem = next(_contradictions(self), None)
        if problem is not None:
            raise problem
        return self

    @property
    def margin(self) -> int:
        """Margin around the scanned area, the padding or what refined positions need [object pixels]."""
        moves = max(self.positions.learning_rate, self.affine.learning_rate, self.probe_offset.learning_rate) > 0
        moves = moves or self.positions.search_trials > 0
        return max(self.object.padding, math.ceil(self.positions.max_shift) + 1 if moves else 0)

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """Plug-ins of other packages that are used: for loss, components and constraints."""
        losses = (self.loss, *(term.loss for term in self.regularizers if isinstance(term, DataTerm)))
        names = [
            *(("losses", name) for name in losses if name not in ("auto", *LOSSES)),
            *(("components", one.kind) for one in self.components),
            *(("constraints", one.kind) for one in self.constraints if one.kind not in CONSTRAINTS.own),
        ]
        return tuple(dict.fromkeys(plugins.used(kind, name) for kind, name in names))

    def part(self, name: str) -> Part:
        """Return the settings of a part.

        Parameters
        ----------
        name : str
            Name of the part, one of `PARTS`.

        Returns
        -------
        Part
            Settings of the part.
        """
        part = getattr(self, name)
        assert isinstance(part, Part)
        return part

    def replace(self, /, **changes: Any) -> Self:
        """Return settings with changed values, which are validated.

        Parameters
        ----------
        **changes : Any
            New values by name. Mappings change single fields of a part:
            `settings.replace(batch=32, probe={"learning_rate": 0.01})`. If a new optimiser has other default learning
            rates, which are in other units, those of the parts that are not frozen become its defaults, unless they
            are given too.

        Returns
        -------
        Settings
            The changed settings.
        """
        values = merge(self.model_dump(), nested(self._with_optimiser(changes.get("optimiser", self.optimiser))))
        return type(self)(**merge(values, changes))

    def changes_to(self, other: Settings) -> dict[str, Any]:
        """Return the changes with which `with_values` makes other settings from these.

        Parameters
        ----------
        other : Settings
            The other settings.

        Returns
        -------
        dict of str to Any
            Plain values by dotted name.
        """
        plain = dict(flat(other.model_dump(mode="json")))
        follows = self._with_optimiser(other.optimiser)
        changed = {*self.differences(other)} | {*follows}
        return {name: plain[name] for name in plain if name in changed and (name, plain[name]) not in follows.items()}

    def _with_optimiser(self, optimiser: Any) -> dict[str, Any]:
        """Return the values that change with the optimiser, by dotted name."""
        found = dict[str, Any]()
        for name, default in changed_defaults(self.optimiser, optimiser).items():
            part, _, field = name.partition(".")
            present = getattr(getattr(self, part), field)
            if field != "learning_rate" or present > 0:  # a frozen part stays so
                found[name] = default
            if part == "object" and present > 0 and self.object.amplitude_learning_rate is not None:
                found["object.amplitude_learning_rate"] = self.object.amplitude_learning_rate * default / present
        return found

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """Return settings with changed values, given by dotted names.

        Parameters
        ----------
        values : Mapping of str to Any
            New values by dotted name: `{"probe.modes": 2}`.

        Returns
        -------
        Settings
            The changed settings.

        Raises
        ------
        SettingsError
            If a name is unknown (code "settings.unknown-name"), or values are invalid or not supported together.
        """
        return self.replace(**nested(values))

    def effective_batch(self, engines: int) -> int:
        """Return the number of patterns per update.

        Parameters
        ----------
        engines : int
            Number of engines.

        Returns
        -------
        int
            Patterns of all engines together.
        """
        return self.batch * (engines if self.batch_per == "engine" else 1)

    def scale_for_engines(self, engines: int) -> Self:
        """Return settings for several engines with a batch each, and learning rates scaled accordingly.

        Rates grow with the square root of the number of engines (Adam and similar optimisers) or in proportion to it
        (SGD). Those of rPIE, LSQML, L-BFGS, DM and RAAR, and of parameters of single patterns, do not change.
        Goyal et al., arXiv:1706.02677; Malladi et al., arXiv:2205.10330.

        Parameters
        ----------
        engines : int
            Number of engines.

        Returns
        -------
        Settings
            Settings with `batch_per="engine"`.

        Raises
        ------
        SettingsError
            If a scaled rate is out of range.
        """
        if engines < 1:
            raise SettingsError(
                f"scale_for_engines got engines={engines}; expected at least 1.", code="argument.invalid-value"
            )
        changes: dict[str, Any] = {"batch_per": "engine"}
        for name in PARTS:
            by_pattern = PARTS[name].by_pattern or (name == "tilt" and self.tilt.per_position)
            if name == "aberrations" and self.aberrations.order == 0:
                continue  # its rate is that of no parameter
            factor = rate_factor(self.optimiser, name, engines, by_pattern)
            changes[name] = {"learning_rate": self.part(name).learning_rate * factor}
            if name == "object" and self.object.amplitude_learning_rate is not None:
                changes[name]["amplitude_learning_rate"] = self.object.amplitude_learning_rate * factor
        return self.replace(**changes)

    def differences(self, other: Settings) -> dict[str, tuple[Any, Any]]:
        """Return the fields whose values differ.

        Parameters
        ----------
        other : Settings
            Settings to compare with.

        Returns
        -------
        dict of str to tuple
            Dotted name -> (value here, value in `other`).
        """
        mine, others = dict(flat(self.model_dump())), dict(flat(other.model_dump()))
        return {name: (mine[name], others[name]) for name in mine if mine[name] != others[name]}

    @classmethod
    def is_live(cls, name: str) -> bool:
        """Whether a field can be changed during a run.

        Parameters
        ----------
        name : str
            Dotted name of the field.

        Returns
        -------
        bool
            True if it can be changed.
        """
        field = field_at(cls, name)
        assert field is not None, name
        return isinstance(field.json_schema_extra, dict) and bool(field.json_schema_extra.get("live"))

    def to_yaml(self) -> str:
        """Return the settings as YAML, which `from_yaml` reads.

        Returns
        -------
        str
            YAML text.
        """
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)

    @classmethod
    def from_yaml(cls, text_or_path: str | Path) -> Self:
        """Read settings from YAML or JSON.

        Parameters
        ----------
        text_or_path : str or Path
            The text itself (str), or the file (Path).

        Returns
        -------
        Settings
            The settings; defaults for fields that are missing.

        Raises
        ------
        SettingsError
            If the text is not valid YAML, or the settings are invalid.
        """
        values = read_mapping(text_or_path, "settings", "batch: 16")
        check_names(values)
        return cls(**values)


def _defaults_of(optimiser: Any) -> dict[str, Any]:
    """Return the defaults that depend on the optimiser, by dotted name; no other field has such a default.

    Optimisers that compute their step length make whole steps of object and probe in all epochs, LSQML also of OPR, and
    positions then need no momentum.
    """
    whole, lsqml = optimiser in FULL_STEPS, optimiser == "lsqml"
    return {
        "object.learning_rate": 1.0 if whole else Object().learning_rate,
        "probe.learning_rate": 1.0 if whole else Probe().learning_rate,
        "opr.learning_rate": 1.0 if lsqml else OPR().learning_rate,
        "positions.momentum": 0.0 if lsqml else Positions().momentum,
        "schedule.kind": "constant" if whole or optimiser in PROJECTIONS else Schedule().kind,
    }


FOLLOWING = tuple(_defaults_of("adam"))
"""Dotted names of the fields whose default depends on the optimiser."""


def changed_defaults(before: Any, after: Any) -> dict[str, Any]:
    """Return the defaults that are others with another optimiser, by dotted name, as they are with the new one."""
    earlier = _defaults_of(before)
    return {name: value for name, value in _defaults_of(after).items() if value != earlier[name]}


def _conflict(message: str, fields: tuple[str, ...]) -> InvalidValueError:
    return InvalidValueError(message, code="settings.unsupported-combination", fields=fields)


def _contradictions(settings: Settings) -> Iterator[InvalidValueError]:
    """Yield errors about settings that are not supported together."""
    kinds = [one.kind for one in settings.components]
    if repeated := next((kind for kind in kinds if kinds.count(kind) > 1), None):
        yield _conflict(
            f"there are {kinds.count(repeated)} components of the kind '{repeated}', and their parameters have its "
            "name; remove all but one",
            ("components",),
        )
    if settings.object.learning_rate == 0 and settings.probe.learning_rate == 0:
        yield _conflict(
            "object.learning_rate and probe.learning_rate are both 0, so that nothing is optimised; "
            "set at least one of them to a positive value",
            ("object.learning_rate", "probe.learning_rate"),
        )
    yield from _thickness(settings)
    if settings.descan.learning_rate > 0 and settings.descan.start == "none":
        yield _conflict(
            f"descan.learning_rate is {settings.descan.learning_rate:g} and descan.start is 'none', so that patterns "
            "are not shifted; set descan.start to 'plane' or 'zero', or descan.learning_rate to 0",
            ("descan.learning_rate", "descan.start"),
        )
    lens, pixels = settings.aberrations, settings.probe
    together = lens.start_epoch <= (pixels.end_epoch or MOST_EPOCHS) and pixels.start_epoch <= (
        lens.end_epoch or MOST_EPOCHS
    )
    if lens.order and lens.learning_rate and pixels.learning_rate and together:
        # Pixels contain aberrations: MoS2 at 10^4 electrons a square angstrom (`tests/benchmarks/RESULTS.md`) with both
        # in ten epochs lost the focus (correlation 0.29); with pixels after the lens it has 0.91.
        yield _conflict(
            f"aberrations.order is {lens.order} and probe.learning_rate is {pixels.learning_rate:g}, so that the lens "
            "and the pixels of its probe are refined in the same epochs; set probe.learning_rate to 0, or "
            "aberrations.end_epoch to an epoch before probe.start_epoch",
            ("aberrations.order", "probe.learning_rate"),
        )
    if settings.aberrations.order and settings.optimiser in GLOBAL_STEPS:
        # Their steps become part of the probe after each update: the memory of L-BFGS would be of another probe.
        yield _conflict(
            f"aberrations.order is {settings.aberrations.order}, optimiser is '{settings.optimiser}'; aberrations are "
            "refined by other optimisers, such as 'adam': use these, or set aberrations.order to 0",
            ("aberrations.order", "optimiser"),
        )
    yield from _tiles(settings)
    yield from _streamed(settings)
    yield from _search(settings)
    yield from _optimisers(settings)
    yield from _by_exit_waves(settings)
    if settings.gradient_accumulation > settings.batch:
        yield _conflict(
            f"gradient_accumulation is {settings.gradient_accumulation} and batch is {settings.batch}; "
            "set gradient_accumulation to at most batch",
            ("gradient_accumulation", "batch"),
        )
    if any(isinstance(term, Similarity) for term in settings.regularizers) and settings.object.modes < 2:
        yield _conflict(
            "the regularizer 'similarity' compares object modes and object.modes is 1; "
            "remove it or set object.modes to at least 2",
            ("regularizers", "object.modes"),
        )
    if any(isinstance(term, PACBED) for term in settings.regularizers) and settings.gradient_accumulation > 1:
        yield _conflict(
            f"the regularizer 'pacbed' requires a whole batch at once and gradient_accumulation is "
            f"{settings.gradient_accumulation}; remove it or set gradient_accumulation=1",
            ("regularizers", "gradient_accumulation"),
        )


def _streamed(settings: Settings) -> Iterator[InvalidValueError]:
    if settings.object.layout != "streamed":
        return
    if settings.optimiser not in STREAMABLE:
        yield _conflict(
            f"object.layout is 'streamed' and optimiser is '{settings.optimiser}', whose moments stay on the device; "
            f"use one of {', '.join(STREAMABLE)}, or object.layout='whole'",
            ("object.layout", "optimiser"),
        )
    if settings.momentum > 0 and settings.optimiser != "lsqml":
        yield _conflict(
            f"object.layout is 'streamed' and momentum is {settings.momentum:g}, by which all rows of the object "
            "change in each update; set it to 0, or object.layout to 'whole'",
            ("object.layout", "momentum"),
        )
    if settings.batch_sampling != "bands":
        yield _conflict(
            f"object.layout is 'streamed' and batch_sampling is '{settings.batch_sampling}', by which a batch has "
            "patterns from all over the object; set batch_sampling to 'bands'",
            ("object.layout", "batch_sampling"),
        )
    for term in settings.regularizers:
        if not isinstance(term, DataTerm | PACBED):
            yield _conflict(
                f"object.layout is 'streamed' and the regularizer '{term.kind}' changes the object everywhere in each "
                "update; remove it or set object.layout to 'whole'",
                ("object.layout", "regularizers"),
            )
    for constraint in settings.constraints:
        after_epoch = isinstance(constraint, POINTWISE) and constraint.after == "epoch"
        if not (after_epoch or isinstance(constraint, WITHOUT_OBJECT)):
            remedy = "impose it after='epoch'" if isinstance(constraint, POINTWISE) else "remove it"
            yield _conflict(
                f"object.layout is 'streamed' and the constraint '{constraint.kind}', imposed after each "
                f"{constraint.after}, acts on all rows of the object, some of which are on the device; {remedy}, or "
                "set object.layout to 'whole'",
                ("object.layout", "constraints"),
            )
    if settings.positions.search_trials > 0:
        yield _conflict(
            f"object.layout is 'streamed' and positions.search_trials is {settings.positions.search_trials}, a search "
            "that compares all patterns; set it to 0 and refine positions by positions.learning_rate, or set "
            "object.layout to 'whole'",
            ("object.layout", "positions.search_trials"),
        )


def _tiles(settings: Settings) -> Iterator[InvalidValueError]:
    if settings.object.layout != "tiles":
        return
    if settings.optimiser in WHOLE_PASSES:
        yield _conflict(
            f"object.layout is 'tiles' and optimiser is '{settings.optimiser}', which needs the whole object; use one "
            "such as 'adam', 'rpie' or 'lsqml', or object.layout='whole'",
            ("object.layout", "optimiser"),
        )
    if settings.batch_sampling != "cells":
        yield _conflict(
            f"object.layout is 'tiles' and batch_sampling is '{settings.batch_sampling}', by which an engine may have "
            "few patterns of a batch, and another one many; set batch_sampling to 'cells'",
            ("object.layout", "batch_sampling"),
        )
    for constraint in settings.constraints:
        if constraint.reach is None:
            yield _conflict(
                f"object.layout is 'tiles' and the constraint '{constraint.kind}' needs the whole object; remove it or "
                "set object.layout to 'whole'",
                ("object.layout", "constraints"),
            )


def _thickness(settings: Settings) -> Iterator[InvalidValueError]:
    slices = settings.slices
    if slices.count > 1 and slices.thickness is None:
        yield _conflict(
            f"slices.count is {slices.count} and slices.thickness is missing; give the distance of two slices [m]",
            ("slices.count", "slices.thickness"),
        )
    if slices.count > 1:
        return
    if slices.learning_rate > 0 or settings.tilt.learning_rate > 0:
        name = "slices.learning_rate" if slices.learning_rate > 0 else "tilt.learning_rate"
        yield _conflict(
            f"{name} is above 0 and slices.count is 1; set slices.count to at least 2 or {name} to 0",
            (name, "slices.count"),
        )
    for constraint in settings.constraints:
        if isinstance(constraint, DepthBlur | MissingWedge | RecenterDepth):
            yield _conflict(
                f"the constraint '{constraint.kind}' acts along depth and slices.count is 1; remove it",
                ("constraints", "slices.count"),
            )


def _search(settings: Settings) -> Iterator[InvalidValueError]:
    positions = settings.positions
    if positions.search_trials == 0:
        return
    if positions.search_radius > positions.max_shift:
        yield _conflict(
            f"positions.search_radius is {positions.search_radius:g} and positions.max_shift is "
            f"{positions.max_shift:g}, beyond which no position moves; set max_shift to at least "
            f"{positions.search_radius:g} or lower search_radius",
            ("positions.search_radius", "positions.max_shift"),
        )
    if settings.optimiser in WHOLE_PASSES:
        yield _conflict(
            f"positions.search_trials is {positions.search_trials} and optimiser is '{settings.optimiser}', whose "
            "memory of earlier updates would be wrong at other positions; use 'adam' or set search_trials=0",
            ("positions.search_trials", "optimiser"),
        )


def _optimisers(settings: Settings) -> Iterator[InvalidValueError]:
    name = settings.optimiser
    if settings.momentum > 0 and name not in WITH_MOMENTUM:
        yield _conflict(
            f"momentum is {settings.momentum:g} and optimiser is '{name}'; set momentum=0 or use 'sgd', 'rpie' or "
            "'lsqml'",
            ("momentum", "optimiser"),
        )
    if name == "rpie" and settings.object.parametrization == "amplitude_phase":
        yield _conflict(
            "object.parametrization is 'amplitude_phase' and optimiser is 'rpie', which supports complex values only; "
            "use 'complex'",
            ("object.parametrization", "optimiser"),
        )
    if name == "rpie" and settings.loss not in ("auto", "amplitude"):
        yield _conflict(
            f"loss is '{settings.loss}' and optimiser is 'rpie', which supports amplitudes only; use 'amplitude'",
            ("loss", "optimiser"),
        )
    if name in WHOLE_PASSES and settings.gradient_accumulation > 1:
        yield _conflict(
            f"gradient_accumulation is {settings.gradient_accumulation} and optimiser is '{name}', whose "
            "updates use all patterns; set gradient_accumulation=1",
            ("gradient_accumulation", "optimiser"),
        )
    if name in WHOLE_PASSES and any(isinstance(term, PACBED) for term in settings.regularizers):
        yield _conflict(
            f"the regularizer 'pacbed' requires batches and optimiser is '{name}'; remove it or use 'adam'",
            ("regularizers", "optimiser"),
        )


def _by_exit_waves(settings: Settings) -> Iterator[InvalidValueError]:
    """Yield errors for LSQML, DM and RAAR, which support the amplitude loss and few parts."""
    name = settings.optimiser
    if name not in BY_EXIT_WAVES:
        return
    unsupported = [
        ("object.modes", "object.modes above 1", settings.object.modes > 1),
        ("descan.start", f"descan.start '{settings.descan.start}'", settings.descan.start != "none"),
        ("fly_scan.steps", "fly_scan.steps above 1", settings.fly_scan.steps > 1),
        ("detector", "settings of the detector", settings.detector != Detector()),
        ("regularizers", "regularizers", bool(settings.regularizers)),
        ("components", "components of plug-ins", bool(settings.components)),
        (
            "object.parametrization",
            "object.parametrization 'amplitude_phase'",
            settings.object.parametrization == "amplitude_phase",
        ),
        ("loss", f"the loss '{settings.loss}'", settings.loss not in ("auto", "amplitude")),
        ("gradient_accumulation", "gradient_accumulation above 1", settings.gradient_accumulation > 1),
    ]
    if name in PROJECTIONS:
        unsupported += [
            ("slices.count", "slices.count above 1", settings.slices.count > 1),
            ("opr.modes", "opr.modes above 0", settings.opr.modes > 0),
        ]
    supported = LSQML_PARTS if name == "lsqml" else ("object", "probe")
    unsupported += [
        (f"{part}.learning_rate", f"{part}.learning_rate above 0", settings.part(part).learning_rate > 0)
        for part in PARTS
        if part not in (*supported, "aberrations", "opr")
    ]
    for field, setting, present in unsupported:
        if present:
            yield _conflict(
                f"optimiser is '{name}', which does not support {setting}; use 'adam' or leave it out",
                ("optimiser", field),
            )
