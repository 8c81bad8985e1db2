"""One trial of a study: a reconstruction with some values on some engines, and its outcome."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ptynb.analysis.half_scans import split_scan
from ptynb.cluster.cluster import Cluster
from ptynb.data import images
from ptynb.data.engine_records import Picture, Result
from ptynb.data.scan import Scan
from ptynb.data.trial_record import TrialState
from ptynb.exceptions import ClusterStoppedError, PtynbError, ReconstructionError
from ptynb.session.reconstruction import Reconstruction
from ptynb.settings import Settings
from ptynb.settings.ranges import group_of
from ptynb.tuning.scan_variants import ScanFunction, variant
from ptynb.tuning.trial_score import Metric, frc_score, of_function

POLL_SECONDS = 0.05
PICTURE_PIXELS = 128

EpochReport = Callable[[int, float], bool]
"""Function of the number and the loss of an epoch; returns whether the trial is hopeless."""


@dataclass(frozen=True)
class Task:
    """What all trials of a study have in common."""

    scan: Scan
    settings: Settings
    cluster: Cluster | None
    device: str
    epochs: int
    metric: Metric
    extensions: tuple[Any, ...]
    scan_function: ScanFunction | None = None

    def settings_of(self, values: Mapping[str, Any]) -> Settings:
        """Return the settings of a trial with these values."""
        return self.settings.with_values({name: value for name, value in values.items() if group_of(name) is None})

    def scan_of(self, values: Mapping[str, Any]) -> Scan:
        """Return the scan of a trial with these values."""
        return variant(self.scan, values, self.scan_function)


def cause_of(error: Exception) -> str:
    """Return what ended a trial, to be told to the user: without advice for the reconstruction, which is closed."""
    text = str(error).split("\n\n")[0]
    return text if isinstance(error, PtynbError) else f"{type(error).__name__}: {text}"


@dataclass(frozen=True)
class Outcome:
    """Outcome of a trial; score: None unless it is complete. scan: as in `TunedTrial`."""

    state: TrialState
    score: float | None = None
    picture: Picture | None = None
    reason: str = ""
    scan: str = ""


def run_trial(
    task: Task, values: Mapping[str, Any], ranks: tuple[int, ...], report: EpochReport, stopping: threading.Event
) -> Outcome:
    """Reconstruct with these values on these engines (none: in this process); raises the error of a failure."""
    settings, scan = task.settings_of(values), task.scan_of(values)
    outcome = (_of_halves if task.metric == "frc" else _of_whole)(task, scan, settings, ranks, report, stopping)
    return outcome if scan is task.scan else replace(outcome, scan=scan.metadata_digest)


def _of_whole(
    task: Task,
    scan: Scan,
    settings: Settings,
    ranks: tuple[int, ...],
    report: EpochReport,
    stopping: threading.Event,
) -> Outcome:
    with _TrialRun(task, scan, settings, ranks) as run:
        if ended := run.follow(report, stopping):
            return ended
        score = of_function(task.metric, run.recon.result) if callable(task.metric) else run.recon.epochs[-1].loss
        return Outcome("complete", score, run.picture())


def _of_halves(
    task: Task,
    scan: Scan,
    settings: Settings,
    ranks: tuple[int, ...],
    report: EpochReport,
    stopping: threading.Event,
) -> Outcome:
    """Run two reconstructions of half the patterns each, with different seeds."""
    results: list[Result] = []
    picture = None
    for half, seed in zip(split_scan(scan), (settings.seed, settings.seed + 1), strict=True):
        with _TrialRun(task, half, settings.replace(seed=seed), ranks) as run:
            if ended := run.follow(report if not results else lambda *_: False, stopping):
                return ended
            picture = picture or run.picture()
            results.append(run.recon.result)
    return Outcome("complete", frc_score(*results), picture)


class _TrialRun:
    """The reconstruction of a trial, closed without a result at the end of a `with` block."""

    def __init__(self, task: Task, scan: Scan, settings: Settings, ranks: tuple[int, ...]) -> None:
        self._epochs = task.epochs
        self.recon = Reconstruction(
            scan,
            settings,
            task.cluster,
            device=task.device,
            extensions=task.extensions,
            checkpointing=None,
            ranks=ranks or None,
        )

    def __enter__(self) -> _TrialRun:
        return self

    def __exit__(self, *exception: object) -> None:
        self.recon.close(result=False)

    def follow(self, report: EpochReport, stopping: threading.Event) -> Outcome | None:
        """Run all epochs; return an outcome if the trial ended early. The engines do not wait for the reports."""
        recon, seen = self.recon, 0
        recon.start(self._epochs)
        while True:
            ended = bool(recon.stopped)  # read before the epochs, so that all of them are reported
            for epoch in recon.epochs[seen:]:
                seen += 1
                if report(epoch.number, epoch.loss):
                    recon.stop()
                    reason = f"Hopeless after epoch {epoch.number}: its loss {epoch.loss:.3g} is above most others."
                    return Outcome("pruned", None, self.picture(), reason)
            if seen >= self._epochs or ended:
                return None
            if recon.failure is not None:
                raise recon.failure
            if recon.cluster is not None and not recon.cluster.running:
                raise ClusterStoppedError(
                    "The cluster was stopped; call its start(), then that of the study.", code="cluster.stopped"
                )
            if recon.closed:
                raise ReconstructionError(
                    "The reconstruction was closed by another caller before its end.", code="tuning.run-closed"
                )
            if stopping.wait(POLL_SECONDS):
                recon.stop()
                return Outcome("stopped", reason="The study was stopped; these values will be tried again.")

    def picture(self) -> Picture:
        """Return a picture of the object's phase."""
        phase = images.flat_phase(self.recon.snapshot(PICTURE_PIXELS).object)
        return images.picture(phase, "phase", "object phase", size=PICTURE_PIXELS, unit="rad")
