"""Study: trials of settings across the engines of a cluster, each lane of engines with a trial of its own.

A thread for each lane asks for values (Optuna's tree-structured Parzen estimator; Bergstra et al., NIPS 24, 2011), has
them tried, and writes down what came of it. Whatever goes wrong in a trial is that trial's end only.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.pruners import BasePruner, MedianPruner, NopPruner, PercentilePruner

from ptynb.cluster.cluster import Cluster
from ptynb.data.scan import Scan, check_scan
from ptynb.data.trial_record import TrialState, TunedTrial, best_of, value_text
from ptynb.exceptions import ClusterError, ClusterStoppedError, EnginesBusyError, ReconstructionError, SettingsError
from ptynb.io.checkpoint_dir import new_folder
from ptynb.planning.memory_check import Room, refusal, room_for
from ptynb.planning.memory_model import Workload
from ptynb.session.reconstruction import make_way
from ptynb.settings import Settings
from ptynb.settings.ranges import Between, Range, checked_ranges, value_of
from ptynb.settings.validation import flat
from ptynb.table import Table, duration
from ptynb.tuning.metrics import Metric, check_metric, metric_name
from ptynb.tuning.trial import Task, attempt
from ptynb.tuning.trial_storage import StudyFile

MOST_FAILURES = 5
"""Trials in a row that may fail; then it is not the values."""
REPORTS = 20
"""How often a trial's loss is compared with the others', at most."""


class Study:
    """Trials of settings, under way or done; made by `tune`, which says what the arguments are.

    settings: what is not tried is as here. ranges: of what is tried. path: of the file that keeps all trials.
    """

    def __init__(
        self,
        scan: Scan,
        settings: Settings,
        ranges: Mapping[str, Any],
        cluster: Cluster | None = None,
        *,
        trials: int = 20,
        epochs: int = 30,
        metric: Metric = "loss",
        engines_per_trial: int = 1,
        study: str | Path | None = None,
        seed: int = 0,
        prune: bool = True,
        device: str = "auto",
        extensions: Sequence[Any] = (),
    ) -> None:
        for name, number in (("trials", trials), ("epochs", epochs), ("engines_per_trial", engines_per_trial)):
            if number < 1:
                raise SettingsError(f"{name} is {number}; expected at least 1.", code="argument.invalid-value")
        check_scan(scan)
        check_metric(metric)
        self.settings, self.ranges = settings, checked_ranges(settings, ranges)
        if metric == "loss" and "loss" in self.ranges:
            raise SettingsError(
                "loss is among the ranges, and values of different losses can't be compared; use the metric 'frc', or "
                "a function of yours.",
                code="argument.conflict",
            )
        self.path = new_folder(scan.name) / "tuning.journal" if study is None else Path(study).expanduser().absolute()
        self.metric, self.epochs, self.wanted = metric_name(metric), epochs, trials
        self._task = Task(scan, settings, cluster, device, epochs, metric, tuple(extensions))
        self._engine_groups = _engine_groups(cluster, engines_per_trial)
        self._seed, self._pruner = seed, _pruner(prune and "loss" not in self.ranges, metric, epochs)
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._left = 0  # lanes at work
        self._running: dict[int, TunedTrial] = {}
        self._failures_in_a_row = 0
        self.failure: Exception | None = None
        """What ended it before its last trial, if something did."""
        self._file = self._open_file()
        self._file.close()

    # Driving

    def start(self, trials: int | None = None) -> None:
        """Goes on in the background until all trials are done, and returns at once.

        trials: how many more; None: those that are left.
        Raises ReconstructionError where it runs already, or where a reconstruction runs on its engines.
        """
        if trials is not None and trials < 1:
            raise SettingsError(f"trials is {trials}; expected at least 1.", code="argument.invalid-value")
        if self.running:
            raise ReconstructionError(
                f"It is already running: {self!r}; stop() it first, or wait().", code="tuning.already-running"
            )
        if self._task.cluster is not None:
            make_way(self._task.cluster, [place for places in self._engine_groups for place in places])
            self._check_room(self._task.cluster)
        self._file = self._open_file()
        with self._changed:
            self.wanted = self.wanted if trials is None else self.done + trials
            self.failure, self._failures_in_a_row = None, 0
            self._stopping.clear()
            self._threads = [
                threading.Thread(target=self._work, args=(places,), name="ptynb tuning", daemon=True)
                for places in self._engine_groups
            ]
            self._left = len(self._threads)
        for thread in self._threads:
            thread.start()

    def _check_room(self, cluster: Cluster) -> None:
        """Raises SettingsError where all lanes together need more memory than there is.

        A trial itself asks what is free when it begins, which all that begin at the same time find for themselves.
        """
        lanes, room = len(self._engine_groups), room_for(cluster.plan.on_gpu, cluster.held_bytes())
        asked = Workload(self.settings, len(self._engine_groups[0]), True, keep=False)
        problem = refusal(self._task.scan, asked, Room(room.host / lanes, room.device))
        if problem is not None:
            raise SettingsError(
                f"Of {lanes} trials at the same time each has its share of the memory. {problem}",
                code="tuning.too-little-memory",
            )

    def stop(self) -> None:
        """Ends the trials under way, whose values are tried again after `start`; does nothing where none are."""
        self._stopping.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def wait(self, timeout: float | None = None) -> None:
        """Waits for its end. Raises TimeoutError after `timeout` seconds, and its failure.

        An interrupt (Ctrl-C) ends the waiting only.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: not self.running, timeout):
                raise TimeoutError(f"Still running after {timeout} s: {self!r}.")
        if self.failure is not None:
            raise self.failure

    # Looking

    @property
    def running(self) -> bool:
        """Whether trials are under way."""
        return self._left > 0

    @property
    def trials(self) -> tuple[TunedTrial, ...]:
        """All trials, by number; those under way too."""
        with self._changed:
            return tuple(sorted((*self._file.finished, *self._running.values()), key=lambda trial: trial.number))

    @property
    def done(self) -> int:
        """Trials that came to an end: complete, pruned or failed."""
        return sum(trial.state != "stopped" for trial in self._file.finished)

    @property
    def best(self) -> TunedTrial | None:
        """The complete trial with the smallest score; None where there is none yet."""
        return best_of(self.trials)

    @property
    def best_settings(self) -> Settings:
        """The settings of the best trial. Raises ReconstructionError where none is complete."""
        best = self.best
        if best is None:
            raise ReconstructionError(
                "No trial is complete yet; wait() for one, or try other ranges.", code="tuning.no-complete-trial"
            )
        return self.settings.with_values(best.values)

    def __iter__(self) -> Iterator[TunedTrial]:
        """Trials as they come to an end, waiting for those under way; the ones in the file first."""
        seen = 0
        while True:
            with self._changed:
                while self.running and len(self._file.finished) == seen:
                    self._changed.wait()
                new = self._file.finished[seen:]
            if not new:
                return
            seen += len(new)
            yield from new

    def table(self) -> Table:
        """The trials, for looking at; the best one is starred."""
        best = self.best
        rows = tuple(
            (
                f"{trial.number}{' ★' if best is not None and trial.number == best.number else ''}",
                *(value_text(trial.values.get(name, "")) for name in self.ranges),
                "" if trial.score is None else f"{trial.score:.5g}",
                trial.state,
                duration(trial.seconds),
            )
            for trial in self.trials
        )
        return Table(("trial", *self.ranges, f"score ({self.metric})", "state", "time"), rows, repr(self)[1:-1])

    def _repr_html_(self) -> str:
        return self.table().html()

    def __repr__(self) -> str:
        best = self.best
        score = "" if best is None else f", best score {best.score:.5g} in trial {best.number}"
        state = "failed" if self.failure is not None else "running" if self.running else "idle"
        return f"<Study of {self._task.scan.name}: {state}, {self.done} of {self.wanted} trials{score}, {self.path}>"

    # A lane

    def _work(self, places: tuple[int, ...]) -> None:
        try:
            while (trial := self._next(places)) is not None:
                self._try(trial, places)
                if not self._usable(places):
                    return
        except Exception as error:  # noqa: BLE001 - such as a full disk; shown to whoever waits, or looks
            self._fail(error)
        finally:
            with self._changed:
                self._left -= 1
                if self._left == 0:
                    self._end()
                self._changed.notify_all()

    def _end(self) -> None:
        self._file.close()
        if self.failure is None and not self._stopping.is_set() and self.done < self.wanted:
            self.failure = ClusterError(
                "No engines are left for the other trials; start a new cluster, and tune again.",
                code="tuning.no-engines-left",
            )

    def _next(self, places: tuple[int, ...]) -> optuna.Trial | None:
        with self._changed:
            if self._stopping.is_set() or self.done + len(self._running) >= self.wanted:
                return None
            trial = self._file.ask()
            self._running[trial.number] = TunedTrial(trial.number + 1, trial.params, "running", ranks=places)
            self._changed.notify_all()
            return trial

    def _try(self, trial: optuna.Trial, places: tuple[int, ...]) -> None:
        started = time.monotonic()
        record = self._running[trial.number]
        try:
            outcome = attempt(
                self._task, trial.params, places, lambda epoch, loss: self._told(trial, epoch, loss), self._stopping
            )
            record = dataclasses.replace(record, **vars(outcome))
        except (ClusterStoppedError, EnginesBusyError) as error:
            record = dataclasses.replace(record, state="stopped", reason=str(error))
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - the user's metric may raise anything; told with the trial
            stopped = self._task.cluster is not None and not self._task.cluster.running
            if stopped:
                self._fail(
                    ClusterStoppedError(
                        "The cluster was stopped; start() it, and then the study again.", code="cluster.stopped"
                    )
                )
            # A step that was too large is a verdict on the values, and the sampler is to learn from it.
            state: TrialState = "stopped" if stopped else "pruned" if "FloatingPointError" in str(error) else "failed"
            record = dataclasses.replace(record, state=state, reason=str(error) or repr(error))
        seconds = time.monotonic() - started
        with self._changed:
            losses = self._running.pop(trial.number).losses
            self._file.finish(trial, dataclasses.replace(record, losses=losses, seconds=seconds))
            self._failures_in_a_row = self._failures_in_a_row + 1 if record.state == "failed" else 0
            hopeless = self._failures_in_a_row >= MOST_FAILURES
            self._changed.notify_all()
        if hopeless:
            self._fail(
                ReconstructionError(
                    f"{MOST_FAILURES} trials in a row have failed, at last: {record.reason}",
                    code="tuning.trials-failed",
                )
            )

    def _told(self, trial: optuna.Trial, epoch: int, loss: float) -> bool:
        with self._changed:
            record = self._running[trial.number]
            self._running[trial.number] = dataclasses.replace(record, losses=(*record.losses, loss))
            self._changed.notify_all()
            if epoch % _every(self.epochs) or epoch == self.epochs:
                return False
            return self._file.hopeless(trial, epoch, loss)

    def _usable(self, places: tuple[int, ...]) -> bool:
        """Whether the engines of a lane are there, replaced where they were lost."""
        cluster = self._task.cluster
        if cluster is None or not cluster.running or {*places} <= {*cluster.alive()}:
            return True
        cluster.replace_lost()
        return {*places} <= {*cluster.alive()}

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self.failure = self.failure or error
            self._stopping.set()

    def _open_file(self) -> StudyFile:
        present = {name: value_of(self.settings, name) for name in self.ranges}
        fits = all(value in self.ranges[name] for name, value in present.items())
        rest = dict(flat(self.settings.model_dump(mode="json")))
        about = {
            "scan": self._task.scan.name,
            "number of patterns": len(self._task.scan),
            "metric": self.metric,
            "number of epochs": self.epochs,
            **{f"range of {name}": repr(range) for name, range in self.ranges.items()},
            **{name: value for name, value in rest.items() if name not in self.ranges},
        }
        startup = max(4, min(10, self.wanted // 3))
        return StudyFile(self.path, about, self.ranges, present if fits else {}, self._pruner, self._seed, startup)


def _engine_groups(cluster: Cluster | None, engines: int) -> list[tuple[int, ...]]:
    """The ranks of the cluster in groups; one group of none is this process."""
    if cluster is None:
        if engines > 1:
            raise SettingsError(
                f"engines_per_trial is {engines}, and there is no cluster; give one, or leave it at 1.",
                code="tuning.too-many-engines",
            )
        return [()]
    if engines > len(cluster):
        raise SettingsError(
            f"engines_per_trial is {engines}, and the cluster has {len(cluster)}; give fewer.",
            code="tuning.too-many-engines",
        )
    return [tuple(range(first, first + engines)) for first in range(0, len(cluster) - engines + 1, engines)]


def _every(epochs: int) -> int:
    return max(1, epochs // REPORTS)


def _pruner(prune: bool, metric: Metric, epochs: int) -> BasePruner:
    """Trials are compared by their losses, after a fifth of the epochs at first.

    Where the score is another one, a loss above the median may go with a good score: only the last quarter is hopeless.
    """
    if not prune:
        return NopPruner()
    if metric == "loss":
        return MedianPruner(n_startup_trials=4, n_warmup_steps=epochs // 5)
    return PercentilePruner(75.0, n_startup_trials=4, n_warmup_steps=epochs // 5)


def tune(
    scan: Scan,
    settings: Settings,
    ranges: Mapping[str, Between | Range | Sequence[Any]],
    cluster: Cluster | None = None,
    *,
    trials: int = 20,
    epochs: int = 30,
    metric: Metric = "loss",
    engines_per_trial: int = 1,
    study: str | Path | None = None,
    seed: int = 0,
    prune: bool = True,
    device: str = "auto",
    extensions: Sequence[Any] = (),
) -> Study:
    """Looks for good settings: reconstructs with some after others, on all engines at once. Returns at once.

    ranges: dotted name of a setting -> `pt.between(low, high, log=True)` or a tuple of choices:
        `{"probe.learning_rate": pt.between(1e-4, 1e-1, log=True), "batch": (8, 16, 32)}`. The first trial has the
        values of `settings` where they lie in the ranges.
    cluster: whose engines try, each `engines_per_trial` of them one trial; None: this process, one trial after another.
    trials: how many in all, those in the file included. epochs: of each.
    metric: what is to be small: "loss", that of the last epoch; "frc", 1 less the mean Fourier ring correlation of two
        reconstructions from half the scan each (see `ptynb.analysis.split_scan`), which a loss that fits the noise does
        not make smaller; or a function of the `Result`, called in this process.
    study: file that keeps the trials (Optuna's journal); one that is there is gone on with, if all else is the same.
        None: a new one among the states that ptynb keeps.
    seed: of the values that are suggested. prune: whether trials with a loss above the others' median (for another
        metric: in their last quarter) are ended early.
    device, extensions: as of `Reconstruction`.

    A trial that fails, or whose engine is lost, is one trial less; the engine is replaced. Raises SettingsError and
    FileError for what can't be tried, ReconstructionError where a reconstruction runs on the engines.
    """
    made = Study(
        scan,
        settings,
        ranges,
        cluster,
        trials=trials,
        epochs=epochs,
        metric=metric,
        engines_per_trial=engines_per_trial,
        study=study,
        seed=seed,
        prune=prune,
        device=device,
        extensions=extensions,
    )
    made.start()
    return made
