"""Studies: trials of settings and scans on the engines of a cluster, one trial at a time on each group of engines.

A thread per group requests values from a sampler (by default Optuna's tree-structured Parzen estimator; Bergstra et
al., NIPS 24, 2011), runs a reconstruction with them, and records the outcome. An error in a trial ends that trial only.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler

from ptynb.cluster.cluster import Cluster
from ptynb.data.scan import Scan
from ptynb.data.trial_record import TrialState, TunedTrial, best_of, value_text
from ptynb.exceptions import (
    ClusterError,
    ClusterStoppedError,
    EnginesBusyError,
    FileError,
    PtynbError,
    ReconstructionError,
    SettingsError,
)
from ptynb.io.checkpoint_dir import new_folder
from ptynb.planning.memory import Workload, refusal, room_for
from ptynb.preparation.recorded_steps import check_measured
from ptynb.session.reconstruction import make_way
from ptynb.settings import Settings
from ptynb.settings.ranges import Range, checked_ranges, group_of, value_of
from ptynb.supervised_thread import SupervisedThread
from ptynb.table import Table, duration
from ptynb.tuning.scan_variants import (
    OTHER_PATTERNS,
    ScanFunction,
    check_variants,
    loaded_options,
    present_values,
)
from ptynb.tuning.search_methods import (
    PrunerName,
    SamplerName,
    check_methods,
    grid_size,
    make_pruner,
    make_sampler,
)
from ptynb.tuning.trial import Task, cause_of, run_trial
from ptynb.tuning.trial_score import Metric, check_metric, metric_name
from ptynb.tuning.trial_storage import StudyFile

MOST_FAILURES = 5
"""Failed trials in a row after which a study ends."""
REPORTS = 20
"""Largest number of comparisons of a trial's loss with those of the others."""


class Study:
    """Trials of settings, running or done; created by `tune`.

    Parameters
    ----------
    task : Task
        What all trials have in common: scan, settings, cluster, device, epochs, metric, extensions.
    ranges : dict of str to Range
        Ranges of the values that are tried, by dotted name.
    trials : int
        Total number of trials, including those in the file.
    engine_groups : list of tuple of int
        Ranks of the engines of each group; `[()]` for trials in this process.
    path : Path
        File with all trials (a journal of Optuna).
    seed : int
        Seed of the suggested values.
    sampler, pruner : str or object
        As for `tune`.

    Attributes
    ----------
    failure : Exception or None
        Error that ended the study before its last trial.
    """

    def __init__(
        self,
        task: Task,
        ranges: dict[str, Range],
        *,
        trials: int,
        engine_groups: list[tuple[int, ...]],
        path: Path,
        seed: int,
        sampler: SamplerName | BaseSampler = "tpe",
        pruner: PrunerName | BasePruner = "auto",
    ) -> None:
        self.settings, self.ranges, self.path = task.settings, ranges, path
        self.metric, self.epochs, self.wanted = metric_name(task.metric), task.epochs, trials
        self._task, self._engine_groups = task, engine_groups
        comparable = not {"loss", *OTHER_PATTERNS} & {*ranges}
        self._seed, self._sampler = seed, sampler
        self._pruner = make_pruner(pruner if comparable else "none", task.metric == "loss", task.epochs)
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._threads: list[SupervisedThread] = []
        self._active_groups = 0
        self._running: dict[int, TunedTrial] = {}
        self._failures_in_a_row = 0
        self.failure: Exception | None = None
        self._file = self._open_file()
        self._file.close()

    def start(self, trials: int | None = None) -> None:
        """Run trials in the background until all are done; returns at once.

        Parameters
        ----------
        trials : int, optional
            Number of additional trials; by default those that are left.

        Raises
        ------
        ReconstructionError
            If the study is already running (code "tuning.already-running"), or a reconstruction uses its engines.
        SettingsError
            If the trials need more memory than is available.
        """
        if trials is not None and trials < 1:
            raise SettingsError(f"trials is {trials}; expected at least 1.", code="argument.invalid-value")
        if self.running:
            raise ReconstructionError(
                f"The study is already running: {self!r}; call stop() or wait() first.", code="tuning.already-running"
            )
        if self._task.cluster is not None:
            make_way(self._task.cluster, [rank for ranks in self._engine_groups for rank in ranks])
            self._check_room(self._task.cluster)
        self._file = self._open_file()
        with self._changed:
            self.wanted = self.wanted if trials is None else self.done + trials
            self.failure, self._failures_in_a_row = None, 0
            self._stopping.clear()
            self._threads = [SupervisedThread("ptynb tuning", self._work, ranks) for ranks in self._engine_groups]
            self._active_groups = len(self._threads)
        for thread in self._threads:
            thread.start()

    def _check_room(self, cluster: Cluster) -> None:
        """Raise SettingsError if all groups together need more memory than is available.

        The check at the start of each trial cannot see the memory of trials that start at the same time.
        """
        plan, groups = cluster.plan, len(self._engine_groups)
        room = room_for(plan.on_gpu, cluster.held_bytes(), plan.engines_per_gpu)
        workload = Workload(self.settings, len(self._engine_groups[0]), True, keep=False)
        problem = refusal(self._task.scan, workload, dataclasses.replace(room, host=room.host / groups))
        if problem is not None:
            raise SettingsError(
                f"{groups} trials run at the same time and share the memory. {problem}",
                code="tuning.too-little-memory",
            )

    def stop(self) -> None:
        """Stop the running trials; their values are tried again after `start`."""
        self._stopping.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the study ends; an interrupt (Ctrl-C) does not stop the study.

        Parameters
        ----------
        timeout : float, optional
            Longest time to wait [s].

        Raises
        ------
        TimeoutError
            If the study is still running after `timeout`.
        Exception
            The failure that ended the study.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: not self.running, timeout):
                raise TimeoutError(f"Still running after {timeout} s: {self!r}.")
        if self.failure is not None:
            raise self.failure

    @property
    def running(self) -> bool:
        """Whether trials are running."""
        return self._active_groups > 0

    @property
    def varies_scan(self) -> bool:
        """Whether trials have scans of their own; `scan_of` returns them."""
        return self._task.scan_function is not None or any(group_of(name) is not None for name in self.ranges)

    @property
    def trials(self) -> tuple[TunedTrial, ...]:
        """All trials, including running ones, in the order of their numbers."""
        with self._changed:
            return tuple(sorted((*self._file.finished, *self._running.values()), key=lambda trial: trial.number))

    @property
    def done(self) -> int:
        """Number of trials that are complete, pruned or failed."""
        return sum(trial.state != "stopped" for trial in self._file.finished)

    @property
    def best(self) -> TunedTrial | None:
        """The complete trial with the smallest score; None if there is none yet."""
        return best_of(self.trials)

    @property
    def best_settings(self) -> Settings:
        """Settings of the best trial. Raises ReconstructionError if no trial is complete."""
        return self._task.settings_of(self._complete_best().values)

    @property
    def best_scan(self) -> Scan:
        """Scan of the best trial. Raises ReconstructionError if no trial is complete, and as `scan_of`."""
        return self.scan_of(self._complete_best().number)

    def settings_of(self, trial: int) -> Settings:
        """Return the settings of a trial, such as one that was picked by its picture.

        Parameters
        ----------
        trial : int
            Number of the trial, 1 for the first.

        Returns
        -------
        Settings
            The settings of the study with the values of the trial.

        Raises
        ------
        SettingsError
            If there is no such trial (code "argument.invalid-value").
        """
        return self._task.settings_of(self._trial(trial).values)

    def scan_of(self, trial: int) -> Scan:
        """Return the scan of a trial: opened and prepared as it was, if the study varies the scan.

        With `settings_of` the trial can be reconstructed again.

        Parameters
        ----------
        trial : int
            Number of the trial, 1 for the first.

        Returns
        -------
        Scan
            The scan.

        Raises
        ------
        SettingsError
            If there is no such trial (code "argument.invalid-value").
        FileError
            If the scan is not that of the trial any more (code "scan.other"), or cannot be opened.
        """
        record = self._trial(trial)
        scan = self._task.scan_of(record.values)
        if record.scan and scan.metadata_digest != record.scan:
            raise FileError(
                f"The scan of trial {trial} has other positions, mask, geometry or guesses than the trial had; "
                "expected the same file and the same scan_function: restore them.",
                code="scan.other",
            )
        return scan

    def _trial(self, number: int) -> TunedTrial:
        trials = self.trials
        found = next((trial for trial in trials if trial.number == number), None)
        if found is None:
            raise SettingsError(
                f"There is no trial {number!r}; the study has trials 1 to {len(trials)}.", code="argument.invalid-value"
            )
        return found

    def _complete_best(self) -> TunedTrial:
        best = self.best
        if best is None:
            raise ReconstructionError(
                f"No trial is complete{self._last_reason()}; wait() for one, or try other ranges.",
                code="tuning.no-complete-trial",
            )
        return best

    def __iter__(self) -> Iterator[TunedTrial]:
        """Yield finished trials, those in the file first, and wait for running ones."""
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
        """Return the trials as a table; the best one has a star.

        Returns
        -------
        Table
            One row per trial.
        """
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

    def _work(self, ranks: tuple[int, ...]) -> None:
        try:
            while (trial := self._next(ranks)) is not None:
                self._run_trial(trial, ranks)
                if not self._usable(ranks):
                    return
        except BaseException as error:  # noqa: BLE001 - such as a full disk; raised by wait()
            self._fail(error)
        finally:
            with self._changed:
                self._active_groups -= 1
                if self._active_groups == 0:
                    try:
                        self._file.close()
                    except Exception as error:  # noqa: BLE001 - likewise
                        self._fail(error)
                    if self.failure is None and not self._stopping.is_set() and self.done < self.wanted:
                        self.failure = ClusterError(
                            f"No engines are left for the remaining trials{self._last_reason()}; start a new cluster "
                            "and call tune() again.",
                            code="tuning.no-engines-left",
                        )
                self._changed.notify_all()

    def _last_reason(self) -> str:
        """Return why the last trial was not complete, in brackets; empty if none ended so."""
        reasons = [trial.reason.splitlines()[0].rstrip(".") for trial in self._file.finished if trial.reason]
        return f" (the last one was not: {reasons[-1]})" if reasons else ""

    def _next(self, ranks: tuple[int, ...]) -> optuna.Trial | None:
        with self._changed:
            if self._stopping.is_set() or self.done + len(self._running) >= self.wanted:
                return None
            trial = self._file.ask()
            self._running[trial.number] = TunedTrial(trial.number + 1, trial.params, "running", ranks=ranks)
            self._changed.notify_all()
            return trial

    def _run_trial(self, trial: optuna.Trial, ranks: tuple[int, ...]) -> None:
        started = time.monotonic()
        record = self._running[trial.number]
        try:
            outcome = run_trial(
                self._task, trial.params, ranks, lambda epoch, loss: self._report(trial, epoch, loss), self._stopping
            )
            record = dataclasses.replace(record, **vars(outcome))
        except (ClusterStoppedError, EnginesBusyError) as error:
            record = dataclasses.replace(record, state="stopped", reason=str(error))
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - the user's metric may raise anything; recorded with the trial
            stopped = self._task.cluster is not None and not self._task.cluster.running
            if stopped:
                failure = ClusterStoppedError(
                    "The cluster was stopped; call its start(), then that of the study.", code="cluster.stopped"
                )
                failure.__cause__ = error
                self._fail(failure)
            # Divergence depends on the values, so the sampler has to learn from it.
            diverged = isinstance(error, PtynbError) and error.code == "reconstruction.not-finite"
            state: TrialState = "stopped" if stopped else "pruned" if diverged else "failed"
            record = dataclasses.replace(record, state=state, reason=cause_of(error))
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
                    f"{MOST_FAILURES} trials in a row have failed; the last one: {record.reason}",
                    code="tuning.trials-failed",
                )
            )

    def _report(self, trial: optuna.Trial, epoch: int, loss: float) -> bool:
        with self._changed:
            record = self._running[trial.number]
            self._running[trial.number] = dataclasses.replace(record, losses=(*record.losses, loss))
            self._changed.notify_all()
            if epoch % max(1, self.epochs // REPORTS) or epoch == self.epochs:
                return False
            return self._file.hopeless(trial, epoch, loss)

    def _usable(self, ranks: tuple[int, ...]) -> bool:
        """Whether the engines of a group are alive, after lost ones were replaced."""
        cluster = self._task.cluster
        if cluster is None or not cluster.running or {*ranks} <= {*cluster.alive()}:
            return True
        cluster.replace_lost()
        return {*ranks} <= {*cluster.alive()}

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, Exception):  # SystemExit, which would end the caller of wait() without a word
            error = ReconstructionError(f"A trial has failed: {error!r}", code="tuning.trials-failed")
        with self._changed:
            self.failure = self.failure or error
            self._stopping.set()

    def _open_file(self) -> StudyFile:
        present = {name: value_of(self.settings, name) for name in self.ranges if group_of(name) is None}
        present |= present_values(self._task.scan, self.ranges)
        fits = self._sampler != "grid" and all(value in self.ranges[name] for name, value in present.items())
        about = {
            "scan": self._task.scan.name,
            "number of patterns": len(self._task.scan),
            "metric": self.metric,
            "number of epochs": self.epochs,
            **self._about_scan(),
        }
        startup = max(4, min(10, self.wanted // 3))

        def sampler(known: int) -> BaseSampler:
            return make_sampler(self._sampler, self.ranges, self._seed, known, startup)

        return StudyFile(self.path, about, self.settings, self.ranges, present if fits else {}, self._pruner, sampler)

    def _about_scan(self) -> dict[str, Any]:
        """Return what the scans of trials are made of, if the study varies them."""
        scan, function = self._task.scan, self._task.scan_function
        if not self.varies_scan:
            return {}
        made = {"scan's digest": scan.metadata_digest}
        if scan.loaded is not None:
            made |= {"scan's file": scan.loaded.path, "scan's options": repr(scan.loaded.given)}
        if function is not None:
            made["scan function"] = getattr(function, "__qualname__", type(function).__name__)
        return made


def _engine_groups(cluster: Cluster | None, engines: int) -> list[tuple[int, ...]]:
    """Return the ranks of the cluster in groups; an empty group is this process."""
    if cluster is None:
        if engines > 1:
            raise SettingsError(
                f"engines_per_trial is {engines} and there is no cluster; give a cluster or set it to 1.",
                code="tuning.too-many-engines",
            )
        return [()]
    if engines > len(cluster):
        raise SettingsError(
            f"engines_per_trial is {engines} and the cluster has {len(cluster)} engines; set it to at most that.",
            code="tuning.too-many-engines",
        )
    return [tuple(range(first, first + engines)) for first in range(0, len(cluster) - engines + 1, engines)]


def tune(
    scan: Scan,
    settings: Settings,
    ranges: Mapping[str, Range | Sequence[Any]],
    cluster: Cluster | None = None,
    *,
    trials: int = 20,
    epochs: int = 30,
    metric: Metric = "loss",
    engines_per_trial: int = 1,
    study: str | Path | None = None,
    seed: int = 0,
    sampler: SamplerName | BaseSampler = "tpe",
    pruner: PrunerName | BasePruner = "auto",
    scan_function: ScanFunction | None = None,
    device: str = "auto",
    extensions: Sequence[Any] = (),
) -> Study:
    """Search for good settings, and for a good description of the scan, by trials on all engines at once.

    It returns at once. A trial that fails, or loses an engine, does not end the study; lost engines are replaced. The
    first trial has the values of `settings` and of the scan if they lie in the ranges.

    An error of distance, energy or pixel size scales all positions, for which a curvature of probe and object makes up
    nearly, as long as the probe is not known: losses then decide only with an initial probe (from the file, or by
    `scan_function`) and enough epochs. Errors of rotation have no such substitute. Pictures of trials are in
    `Study.trials` and in `pt.tuner`; `Study.settings_of` and `Study.scan_of` return what a picked trial was made of.

    Parameters
    ----------
    scan : Scan
        Scan that is reconstructed in each trial.
    settings : Settings
        Settings of the trials, except for those in `ranges`.
    ranges : Mapping of str to Range
        Dotted name of a setting -> `pt.between(low, high, log=True)` or a tuple of choices:
        `{"probe.learning_rate": pt.between(1e-4, 1e-1, log=True), "batch": (8, 16, 32)}`.
        "load.NAME" is an option of `pt.load`, with which the file of the scan is opened again: `"load.distance":
        pt.between(0.9, 1.1)`, also "load.rotation", "load.energy", "load.detector_pixel". "prepare.NAME" is a step of
        preparation: "prepare.crop", "prepare.bin" [pixels], "prepare.position_rotation" [rad],
        "prepare.position_scale". "scan.NAME" is an argument of `scan_function`.
    cluster : Cluster, optional
        Engines for the trials; without a cluster they run one after another in this process.
    trials : int, default 20
        Total number of trials, including those in the file.
    epochs : int, default 30
        Epochs of each trial.
    metric : {"loss", "frc"} or callable, default "loss"
        Score that is minimised: the loss of the last epoch; 1 minus the mean Fourier ring correlation of two
        reconstructions from half the scan each (see `ptynb.analysis.split_scan`), which does not favour fitting the
        noise; or a function of the `Result`, called in this process.
    engines_per_trial : int, default 1
        Number of engines of each trial.
    study : str or Path, optional
        File for the trials (a journal of Optuna). An existing one is continued if all other arguments are the same;
        by default a new one in ptynb's folder of checkpoints.
    seed : int, default 0
        Seed of the suggested values.
    sampler : {"tpe", "random", "grid", "gp", "cmaes"} or optuna.samplers.BaseSampler, default "tpe"
        How values are suggested: tree-structured Parzen estimator, independent random values, all combinations of
        choices (which end the study), Gaussian process, covariance matrix adaptation (which requires the package
        cmaes), or a sampler of Optuna. It may be another one when a study is continued.
    pruner : {"auto", "none", "median", "halving", "hyperband"} or optuna.pruners.BasePruner, default "auto"
        Which trials are stopped early, by their losses: those above the median of the others (auto; for another
        metric those in the last quarter), none, those above the median, successive halving, Hyperband, or a pruner of
        Optuna. None where losses are not comparable, because ranges contain the loss, "prepare.crop" or
        "prepare.bin".
    scan_function : callable, optional
        Function that returns the scan of a trial, called with the scan, after its options and steps of preparation,
        and with the values of "scan.NAME" as keyword arguments: for a defocus, a convergence angle, or preparation
        that is always the same. It must return the same scan for the same values.
    device : str, default "auto"
        Device, as for `Reconstruction`.
    extensions : Sequence, optional
        Components and constraints, as for `Reconstruction`.

    Returns
    -------
    Study
        The running study.

    Raises
    ------
    SettingsError
        If a range (code "tuning.invalid-range") or another argument is invalid, or the scan cannot be opened again
        with other options (code "scan.not-in-file").
    FileError
        If the file belongs to another study ("tuning.different-study"), is in use, damaged, or cannot be written.
    ReconstructionError
        If a reconstruction runs on the engines.
    ScanError
        If the scan is being measured (code "scan.live").
    """
    for name, number in (("trials", trials), ("epochs", epochs), ("engines_per_trial", engines_per_trial)):
        if number < 1:
            raise SettingsError(f"{name} is {number}; expected at least 1.", code="argument.invalid-value")
    check_measured(scan, "tune")
    check_metric(metric)
    valid_ranges = checked_ranges(settings, ranges, loaded_options(scan))
    check_variants(scan, valid_ranges, scan_function)
    check_methods(sampler, pruner, valid_ranges)
    others = [name for name in OTHER_PATTERNS if name in valid_ranges]
    if others and not callable(metric):
        raise SettingsError(
            f"ranges contains {others[0]} and metric is {metric!r}, but losses and correlations of different patterns "
            "are not comparable; use a function of the Result as metric.",
            code="argument.conflict",
        )
    if metric == "loss" and "loss" in valid_ranges:
        raise SettingsError(
            "ranges contains loss and metric is 'loss', but values of different losses are not comparable; use the "
            "metric 'frc' or a function.",
            code="argument.conflict",
        )
    started = Study(
        Task(scan, settings, cluster, device, epochs, metric, tuple(extensions), scan_function),
        valid_ranges,
        trials=min(trials, grid_size(valid_ranges)) if sampler == "grid" else trials,
        engine_groups=_engine_groups(cluster, engines_per_trial),
        path=new_folder(scan.name) / "tuning.journal" if study is None else Path(study).expanduser().absolute(),
        seed=seed,
        sampler=sampler,
        pruner=pruner,
    )
    started.start()
    return started
