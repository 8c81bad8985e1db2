"""Result of a scaling test: plain records of trials, and derived figures."""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass
from typing import Any

from ptynb.data.engine_records import Epoch
from ptynb.table import Table, Tabular, duration


@dataclass(frozen=True)
class ScalingTrial:
    """One run from the start, on its own engines.

    number: 1 for the first of its kind. threads: of each engine. batch: the effective one.
    """

    engines: int
    threads: int
    number: int
    batch: int
    epochs: tuple[Epoch, ...]

    @property
    def seconds(self) -> float:
        """Duration of an epoch [s]: the median of all but the first, which includes warm-up."""
        return statistics.median(epoch.seconds for epoch in self.epochs[1:])

    @property
    def curve(self) -> tuple[tuple[float, float], ...]:
        """(seconds since the start of the first epoch, loss) at the end of each epoch."""
        passed, points = 0.0, []
        for epoch in self.epochs:
            passed += epoch.seconds
            points.append((passed, epoch.loss))
        return tuple(points)


@dataclass(frozen=True)
class Scale:
    """All trials with one number of engines and threads.

    seconds: of an epoch, mean over trials; spread: their standard deviation, 0 for one trial [s].
    speed_up: relative to the smallest number of engines and threads in the test. efficiency: speed-up divided by the
    ratio of busy processors (GPUs, or cores of the CPU): 1 if doubling them halves the time.
    loss: mean over trials, after the last epoch.
    """

    engines: int
    threads: int
    batch: int
    seconds: float
    spread: float
    speed_up: float
    efficiency: float
    loss: float


@dataclass(frozen=True)
class ScalingTest(Tabular):
    """Epoch time and loss against time for several numbers of engines.

    Parameters
    ----------
    scan : str
        Name of the scan.
    patterns : int
        Number of patterns.
    device : str
        "CPU" or the name of the GPUs.
    cores : int
        Cores of the CPU.
    settings : dict
        Settings as plain values.
    trials : tuple of ScalingTrial
        In the order in which they ran, numbers of engines alternating.
    """

    scan: str
    patterns: int
    device: str
    cores: int
    settings: dict[str, Any]
    trials: tuple[ScalingTrial, ...]

    @property
    def rows(self) -> tuple[Scale, ...]:
        """One row per number of engines and threads, ascending."""
        kinds = sorted({(trial.engines, trial.threads) for trial in self.trials})
        groups = [[trial for trial in self.trials if (trial.engines, trial.threads) == kind] for kind in kinds]
        first = groups[0]
        base, busy = _mean_seconds(first), self._processors(first[0])
        rows = []
        for group in groups:
            one, seconds = group[0], _mean_seconds(group)
            rows.append(
                Scale(
                    engines=one.engines,
                    threads=one.threads,
                    batch=one.batch,
                    seconds=seconds,
                    spread=statistics.stdev(trial.seconds for trial in group) if len(group) > 1 else 0.0,
                    speed_up=base / seconds,
                    efficiency=base / seconds / (self._processors(one) / busy),
                    loss=statistics.mean(trial.epochs[-1].loss for trial in group),
                )
            )
        return tuple(rows)

    def table(self) -> Table:
        """Return the rows as a table for display.

        Returns
        -------
        Table
            One row for each number of engines and threads.
        """
        rows = tuple(
            (
                str(row.engines),
                str(row.threads),
                str(row.batch),
                duration(row.seconds),
                f"± {duration(row.spread)}",
                f"{row.speed_up:.2f}",
                f"{row.efficiency:.0%}",
                f"{row.loss:.4g}",
            )
            for row in self.rows
        )
        trials, epochs = max(trial.number for trial in self.trials), len(self.trials[0].epochs)
        caption = (
            f"{self.scan}: {self.patterns} patterns on {self.device}, {trials} trials of {epochs} epochs by turns; "
            "seconds are those of an epoch."
        )
        heads = ("engines", "threads each", "batch", "epoch", "spread", "speed-up", "efficiency", "last loss")
        return Table(heads, rows, caption)

    def to_plain(self) -> dict[str, Any]:
        """Return rows and trials as plain values.

        Returns
        -------
        dict
            Values that JSON can hold.
        """
        return super().to_plain() | {"rows": [dataclasses.asdict(row) for row in self.rows]}

    def _processors(self, trial: ScalingTrial) -> int:
        """Number of busy processors: GPUs, or cores, at most those of the machine."""
        return min(trial.engines * trial.threads, self.cores) if self.device == "CPU" else trial.engines


def _mean_seconds(group: list[ScalingTrial]) -> float:
    return statistics.mean(trial.seconds for trial in group)
