"""Recommended settings of a scan, with reasons and trials; made by `recommend`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ptynb.settings import PARTS, Settings
from ptynb.settings.base_models import merge
from ptynb.settings.recipe import Recipe, Stage
from ptynb.table import Table, Tabular, duration


@dataclass(frozen=True)
class RecommendedSetting:
    """A recommended setting.

    Parameters
    ----------
    name : str
        Dotted name of the setting, or the preparation step.
    value : str
        Its value as text.
    reason : str
        Why.
    confidence : float
        Of an effect: by how much held-out counts are predicted better with it, in units of the standard error; NaN for
        what was not decided by trials.
    """

    name: str
    value: str
    reason: str
    confidence: float = math.nan


@dataclass(frozen=True)
class RecommendationTrial:
    """A short run.

    Parameters
    ----------
    effect : str
        What was tried.
    settings : dict
        Settings that differ from those of the trial it is compared with, by dotted name.
    loss : float
        Loss of the last epoch; infinite if it diverged or is not supported.
    misfit : float
        Mean square of the model's error in units of the noise; infinite without a loss.
    confidence : float
        By how much held-out counts are predicted better, in units of the standard error; NaN if nothing was compared.
    seconds : float
        Wall time [s].
    chosen : bool
        Whether it is part of the recommendation.
    note : str
        Why it has no loss.
    """

    effect: str
    settings: dict[str, Any]
    loss: float
    misfit: float = math.inf
    confidence: float = math.nan
    seconds: float = 0.0
    chosen: bool = False
    note: str = ""


@dataclass(frozen=True)
class Recommendation(Tabular):
    """Recommended preparation and settings of a scan, with reasons.

    Parameters
    ----------
    scan : str
        Name of the scan.
    recipe : Recipe
        Recipe for `Reconstruction`: preparation, settings and stages.
    choices : tuple of RecommendedSetting
        Settings that differ from the defaults, and why.
    trials : tuple of RecommendationTrial
        All trials, in order.
    patterns : int
        Number of patterns in the trials.
    seconds : float
        Wall time [s] of the recommendation.
    notes : tuple of str
        What was not tried or not decided, and why.
    """

    scan: str
    recipe: Recipe
    choices: tuple[RecommendedSetting, ...]
    trials: tuple[RecommendationTrial, ...]
    patterns: int
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def settings(self) -> Settings:
        """The settings without stages: parts that begin in a later one have a `start_epoch` instead.

        The loss of the last stage is left out: with the likelihood from the beginning, strong objects are not found.
        """
        settings, done = self.recipe.settings, 0
        for stage in self.recipe.stages:
            changes = {name: value for name, value in stage.settings.items() if not (done and name == "loss")}
            for name in PARTS:
                if done and name not in ("object", "probe") and "learning_rate" in changes.get(name, {}):
                    changes[name] = {**changes[name], "start_epoch": done + 1}
            settings, done = Settings(**merge(settings.model_dump(), changes)), done + stage.epochs
        return settings

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of a run with `settings`, if its last epochs minimise the likelihood; else none."""
        last = self.recipe.stages[-1]
        if "loss" not in last.settings or len(self.recipe.stages) < 2:
            return ()
        return Stage(epochs=self.recipe.epochs - last.epochs), last

    def table(self) -> Table:
        """Return the choices as a table.

        Returns
        -------
        Table
            One row per setting.
        """
        rows = tuple((choice.name, choice.value, choice.reason) for choice in self.choices)
        caption = (
            f"Recommended for {self.scan}: {self.recipe.epochs} epochs in {len(self.recipe.stages)} stages, from "
            f"{len(self.trials)} trials with {self.patterns} patterns in {duration(self.seconds)}"
        )
        return Table(("setting", "value", "reason"), rows, "\n".join([f"{caption}.", *self.notes]), left=(0, 2))

    def to_plain(self) -> dict[str, Any]:
        """Return plain values for JSON, with the recipe as in files.

        Returns
        -------
        dict
            The attributes.
        """
        plain = super().to_plain()
        rows = {
            part: [{name: _finite(value) for name, value in row.items()} for row in plain[part]]
            for part in ("choices", "trials")
        }
        return plain | rows | {"recipe": self.recipe.model_dump(mode="json")}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
