"""One trial of a study: a reconstruction with some values, on some engines, and what came of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ptynb.analysis.half_scans import split_scan
from ptynb.cluster.cluster import Cluster
from ptynb.data import images
from ptynb.data.scan import Scan
from ptynb.data.snapshot import Picture, Result
from ptynb.data.trial_record import TrialState
from ptynb.exceptions import ClusterStoppedError, ReconstructionError
from ptynb.session.reconstruction import Reconstruction
from ptynb.settings import Settings
from ptynb.tuning.metrics import Metric, frc_score, of_function

POLL_SECONDS = 0.05
PICTURE_PIXELS = 96

EpochReport = Callable[[int, float], bool]
"""Is told an epoch's number and loss; says whether the trial is hopeless."""


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


@dataclass(frozen=True)
class Outcome:
    """How a trial ended; score: None unless it is complete."""

    state: TrialState
    score: float | None = None
    picture: Picture | None = None
    reason: str = ""


def attempt(
    task: Task, values: Mapping[str, Any], places: tuple[int, ...], report: EpochReport, stopping: threading.Event
) -> Outcome:
    """Reconstructs with these values on these engines (none: in this process).

    Raises what ended it where that is a failure.
    """
    settings = task.settings.with_values(values)
    if task.metric == "frc":
        return _of_halves(task, settings, places, report, stopping)
    with _Tried(task, task.scan, settings, places) as tried:
        if ended := tried.follow(report, stopping):
            return ended
        score = of_function(task.metric, tried.recon.result) if callable(task.metric) else tried.recon.epochs[-1].loss
        return Outcome("complete", score, tried.picture())


def _of_halves(
    task: Task, settings: Settings, places: tuple[int, ...], report: EpochReport, stopping: threading.Event
) -> Outcome:
    """Two reconstructions, each of half the patterns; nothing is random in the same way in both."""
    results: list[Result] = []
    picture = None
    for half, seed in zip(split_scan(task.scan), (settings.seed, settings.seed + 1), strict=True):
        with _Tried(task, half, settings.replace(seed=seed), places) as tried:
            if ended := tried.follow(report if not results else _never, stopping):
                return ended
            picture = picture or tried.picture()
            results.append(tried.recon.result)
    return Outcome("complete", frc_score(*results), picture)


def _never(epoch: int, loss: float) -> bool:
    return False


class _Tried:
    """A reconstruction while it is tried, closed at the end of a `with` block without a result."""

    def __init__(self, task: Task, scan: Scan, settings: Settings, places: tuple[int, ...]) -> None:
        self._epochs = task.epochs
        self.recon = Reconstruction(
            scan,
            settings,
            task.cluster,
            device=task.device,
            extensions=task.extensions,
            checkpointing=None,
            ranks=places or None,
        )

    def __enter__(self) -> _Tried:
        return self

    def __exit__(self, *exception: object) -> None:
        self.recon.close(result=False)

    def follow(self, report: EpochReport, stopping: threading.Event) -> Outcome | None:
        """Runs all epochs; an outcome where it came to no end. The engines don't wait for what is told."""
        recon, seen = self.recon, 0
        recon.start(self._epochs)
        while True:
            for epoch in recon.epochs[seen:]:
                seen += 1
                if report(epoch.number, epoch.loss):
                    recon.stop()
                    reason = f"Hopeless after epoch {epoch.number}: its loss of {epoch.loss:.3g} is above most others'."
                    return Outcome("pruned", None, self.picture(), reason)
            if seen >= self._epochs:
                return None
            if recon.failure is not None:
                raise recon.failure
            if recon.cluster is not None and not recon.cluster.running:
                raise ClusterStoppedError(
                    "The cluster was stopped; start() it, and then the study again.", code="cluster.stopped"
                )
            if recon.closed:
                raise ReconstructionError("It was closed from elsewhere before its end.", code="tuning.run-closed")
            if stopping.wait(POLL_SECONDS):
                recon.stop()
                return Outcome("stopped", reason="The study was stopped; its values will be tried again.")

    def picture(self) -> Picture:
        """The object's phase."""
        phase = images.flat_phase(self.recon.snapshot(PICTURE_PIXELS).object)
        return images.picture(phase, "phase", "object phase", size=PICTURE_PIXELS, unit="rad")
