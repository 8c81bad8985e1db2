"""Samplers and pruners of studies: those of Optuna by name, or the user's own."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping, Sequence
from typing import Literal

from optuna.pruners import (
    BasePruner,
    HyperbandPruner,
    MedianPruner,
    NopPruner,
    PercentilePruner,
    SuccessiveHalvingPruner,
)
from optuna.samplers import (
    BaseSampler,
    BruteForceSampler,
    CmaEsSampler,
    GPSampler,
    GridSampler,
    RandomSampler,
    TPESampler,
)
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from ptynb.exceptions import SettingsError
from ptynb.settings.ranges import Between, Range

SamplerName = Literal["tpe", "random", "grid", "gp", "cmaes"]
PrunerName = Literal["auto", "none", "median", "halving", "hyperband"]
SAMPLERS: tuple[SamplerName, ...] = ("tpe", "random", "grid", "gp", "cmaes")
PRUNERS: tuple[PrunerName, ...] = ("auto", "none", "median", "halving", "hyperband")


class _Grid(GridSampler):
    """All combinations, without the end of Optuna's loop, which studies do not use."""

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Do nothing."""


def check_methods(
    sampler: SamplerName | BaseSampler, pruner: PrunerName | BasePruner, ranges: Mapping[str, Range]
) -> None:
    """Raise SettingsError for an unknown sampler or pruner, or one that does not support these ranges."""
    if sampler not in SAMPLERS and not isinstance(sampler, BaseSampler):
        raise SettingsError(
            f"sampler is {sampler!r}; expected one of {', '.join(map(repr, SAMPLERS))}, or one of optuna.samplers.",
            code="argument.invalid-value",
        )
    if isinstance(sampler, GridSampler | BruteForceSampler):
        raise SettingsError(
            f"sampler is an optuna.samplers.{type(sampler).__name__}, which ends a loop of Optuna's own; use the "
            "sampler 'grid', which tries all combinations too.",
            code="argument.conflict",
        )
    if pruner not in PRUNERS and not isinstance(pruner, BasePruner):
        raise SettingsError(
            f"pruner is {pruner!r}; expected one of {', '.join(map(repr, PRUNERS))}, or one of optuna.pruners.",
            code="argument.invalid-value",
        )
    intervals = [name for name, range in ranges.items() if isinstance(range, Between)]
    if sampler == "grid" and intervals:
        raise SettingsError(
            f"sampler is 'grid' and the range of {intervals[0]} is {ranges[intervals[0]]!r}; a grid requires choices: "
            "give the values to try as a tuple.",
            code="argument.conflict",
        )
    if sampler == "cmaes" and importlib.util.find_spec("cmaes") is None:
        raise SettingsError(
            "sampler is 'cmaes', which requires the package cmaes: pip install cmaes, or use the sampler 'tpe'.",
            code="package.not-installed",
        )


def grid_size(ranges: Mapping[str, Range]) -> int:
    """Return the number of combinations of choices."""
    return math.prod(len(range) for range in ranges.values() if not isinstance(range, Between))


def make_sampler(
    chosen: SamplerName | BaseSampler, ranges: Mapping[str, Range], seed: int, known: int, startup: int
) -> BaseSampler:
    """Return a sampler.

    known: number of trials in the file; with the same seed the sampler would suggest their values again. startup:
    number of random trials before a model of the scores is used.
    """
    if isinstance(chosen, BaseSampler):
        return chosen
    match chosen:
        case "random":
            return RandomSampler(seed=seed + known)
        case "grid":
            # Combinations are numbered in an order that depends on the seed, and the file contains their numbers.
            return _Grid({name: range for name, range in ranges.items() if isinstance(range, tuple)}, seed=0)
        case "gp":
            return GPSampler(seed=seed + known, n_startup_trials=startup)
        case "cmaes":
            return CmaEsSampler(seed=seed + known, n_startup_trials=startup)
        case "tpe":
            return TPESampler(seed=seed + known, n_startup_trials=startup, constant_liar=True)


def make_pruner(chosen: PrunerName | BasePruner, by_loss: bool, epochs: int) -> BasePruner:
    """Return a pruner, which compares trials by their losses, from a fifth of the epochs on.

    by_loss: whether the loss is the score, too. With another score a loss above the median may have a good score: by
    default only the worst quarter is stopped then.
    """
    if isinstance(chosen, BasePruner):
        return chosen
    first = max(1, epochs // 5)
    match chosen:
        case "none":
            return NopPruner()
        case "halving":
            return SuccessiveHalvingPruner(min_resource=first, reduction_factor=2)
        case "hyperband":
            return HyperbandPruner(min_resource=first, max_resource=max(epochs, 2 * first), reduction_factor=2)
        case "auto" if not by_loss:
            return PercentilePruner(75.0, n_startup_trials=4, n_warmup_steps=epochs // 5)
        case _:
            return MedianPruner(n_startup_trials=4, n_warmup_steps=epochs // 5)
