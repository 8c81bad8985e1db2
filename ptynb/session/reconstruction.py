"""Reconstruction: the user's session, which sends commands to rank 0 and fetches its record, but does not compute."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar, get_args

from ptynb.analysis.error_map import SMOOTHING
from ptynb.cluster.accelerators import local_device
from ptynb.cluster.cluster import Cluster
from ptynb.data.admissions import Admissions
from ptynb.data.commands import (
    Annotate,
    ChangeSettings,
    CheckpointRequest,
    MakeResult,
    MeasureEvery,
    PauseRun,
    ResumeRun,
    RunTo,
    SetTarget,
    StopRun,
)
from ptynb.data.engine_records import (
    Branch,
    Checkpoint,
    Epoch,
    Result,
    Status,
)
from ptynb.data.record import Annotation
from ptynb.data.scan import Scan, Share
from ptynb.data.standard_error import ErrorMap
from ptynb.exceptions import (
    ClusterError,
    EngineLostError,
    EnginesBusyError,
    FileError,
    PtynbWarning,
    ReconstructionError,
    SettingsError,
)
from ptynb.io.checkpoint_file import ReconstructionState
from ptynb.io.prepared_scan import prepare
from ptynb.io.result_file import save_result
from ptynb.optimize.batching import check_shares
from ptynb.physics.model_builder import check_together
from ptynb.planning.memory import Workload, check_room, room_for
from ptynb.preparation.combination import as_one_scan
from ptynb.preparation.crop_and_pad import in_window
from ptynb.serial_executor import PATIENCE_SECONDS, held_back
from ptynb.session.branching import BranchManager, Which
from ptynb.session.engine_client import EngineClient
from ptynb.session.engines import ClusterEngines, Engines, LocalEngine, OwnRank
from ptynb.session.halves import map_of_halves
from ptynb.session.recorded_arrivals import with_recorded_arrivals
from ptynb.session.reopen import checkpoint_since
from ptynb.session.run_result import make_result, object_file, with_object
from ptynb.session.run_spec import OnFailure, RunSpec, pickled
from ptynb.session.run_view import RunView, whole
from ptynb.settings import Checkpointing, Settings
from ptynb.settings.base_models import flat, nested
from ptynb.settings.recipe import WITHOUT_STAGES, Recipe, StagePlan

Answer = TypeVar("Answer")

CHECKPOINTING = Checkpointing()
PROGRESS_SECONDS = 0.25
"""Interval of the calls of `progress` by `wait` [s]."""

_open: weakref.WeakKeyDictionary[Cluster, weakref.WeakSet[Reconstruction]] = weakref.WeakKeyDictionary()
"""Open reconstructions of each cluster."""
_open_lock = threading.Lock()


class Reconstruction(RunView):
    """A reconstruction of a scan, or of several together, on the engines of a cluster, or in this process.

    The engines begin to read the scan at once. A new reconstruction on a cluster closes the previous one on the same
    engines, whose result remains available.

    Parameters
    ----------
    scan : Scan or sequence of Scan
        Scan from `load`, `Scan.from_arrays` or `simulate`, or several, which `preparation.combine` makes one.
    settings : Settings or Recipe, optional
        Settings of the reconstruction, or a recipe: it prepares the scan, and `start()` runs its stages. None:
        `Settings()`.
    cluster : Cluster, optional
        Cluster whose engines reconstruct. None: this process reconstructs.
    device : {"auto", "cpu", "cuda", "xpu"}
        Device of this process if there is no cluster; "auto": a GPU if there is one.
    timeout : float
        Longest time that engines wait for each other [s], not counting time in which they are suspended.
    extensions : sequence of ModelComponent or CustomConstraint
        User-defined components of the forward model and constraints.
    checkpointing : Checkpointing, optional
        Interval and folder of checkpoints, from which `ptynb.resume` continues. None: no checkpoints.
    on_failure : {"pause", "continue"}
        Action after the loss of an engine. "pause": stop until `recover` is called. "continue": continue from the
        latest checkpoint, on the remaining and on new engines; `changes` records it.
    ranks : sequence of int, optional
        Ranks of the engines to use. None: all. Several reconstructions can run on different engines of one cluster.
    share : {"probe", "object"}, optional
        What several scans have in common: see `preparation.combine`, which also takes shifts of the scans.
    admissions : Admissions, optional
        Record of an earlier run (`Result.admissions`) whose scan came while it was reconstructed: patterns are used
        from the same updates on, so that the run is repeated. `scan` is the complete one, from its file.

    Attributes
    ----------
    title, comments : str
        Title (one line) and comments (Markdown), which can be set and are saved with the result and its report.
    warns : bool
        Whether `notices` are issued as warnings too, by the calls that start a run or wait for it; True by default.

    Raises
    ------
    SettingsError
        If an argument is invalid, or settings and scan are incompatible.
    EnginesBusyError
        If the engines are running another reconstruction.
    ClusterError
        If the cluster is stopped, or an engine is lost and cannot be replaced.
    """

    warns = True

    def __init__(
        self,
        scan: Scan | Sequence[Scan],
        settings: Settings | Recipe | None = None,
        cluster: Cluster | None = None,
        *,
        device: str = "auto",
        timeout: float = 30.0,
        extensions: Sequence[Any] = (),
        checkpointing: Checkpointing | None = CHECKPOINTING,
        on_failure: OnFailure = "pause",
        ranks: Sequence[int] | None = None,
        share: Share | None = None,
        admissions: Admissions | None = None,
    ) -> None:
        plan, chosen = WITHOUT_STAGES, settings or Settings()
        every = chosen.stage_settings if isinstance(chosen, Recipe) else (chosen,)
        if isinstance(chosen, Recipe):
            steps = chosen.prepare
            scan = prepare(scan, steps) if isinstance(scan, Scan) else [prepare(one, steps) for one in scan]
            plan, chosen = StagePlan(chosen.stages), every[0]
        whole = as_one_scan(scan, share, every)
        if admissions is not None:
            whole = with_recorded_arrivals(whole, admissions)
        packed, own = pickled(extensions, plan), None if ranks is None else check_ranks(ranks, cluster)
        spec = RunSpec(whole, chosen, packed, checkpointing, timeout, on_failure, ranks=own, plan=plan)
        self._open(spec, place_for(device, cluster))

    @classmethod
    def _opened(
        cls,
        spec: RunSpec,
        place: Cluster | OwnRank,
        start: Path | None = None,
        state: ReconstructionState | None = None,
    ) -> Self:
        """Open a reconstruction from the checkpoint `start`, whose content is `state`, or from the beginning."""
        recon = cls.__new__(cls)
        recon._open(spec, place, start, state)
        return recon

    @classmethod
    def _joined(cls, cluster: Cluster, engines: Engines, spec: RunSpec, status: Status) -> Self:
        """Connect to a reconstruction that is open on the cluster's engines."""
        recon = cls.__new__(cls)
        recon._set_up(cluster, spec, EngineClient(engines, spec))
        with contextlib.suppress(ReconstructionError):  # an engine is lost: `recover` continues
            recon._client.status()
            recon._client.r_factor_every, measured = recon._call(0, "measured")
            recon._client.r_factors = dict(measured)
            recon._client.annotation = recon._call(0, "annotation")
        if status.state not in ("ready", "closed"):
            recon._client.target_epoch = status.target - status.live_epochs
            recon._client.paused = status.state == "paused"
        return recon

    def _open(
        self,
        spec: RunSpec,
        place: Cluster | OwnRank,
        start: Path | None = None,
        state: ReconstructionState | None = None,
    ) -> None:
        if spec.on_failure not in get_args(OnFailure):
            raise SettingsError(
                f"on_failure is {spec.on_failure!r}; expected 'pause' or 'continue'.", code="argument.invalid-value"
            )
        if isinstance(place, OwnRank):
            engines, one_host = place.membership.world, place.one_host
            room = room_for(place.membership.device != "cpu")
        else:
            engines, one_host = len(spec.ranks or place), True
            reused = place.held_bytes() * engines / len(place)
            room = room_for(place.plan.on_gpu, reused, place.plan.engines_per_gpu)
        stages = spec.plan.settings_from(spec.settings)
        for number, one in enumerate(stages, spec.plan.number):
            seen = in_window(spec.scan, dataclasses.replace(spec.plan, number=number).pattern_size)
            check_together(seen, one)
            check_shares(seen, one, engines)
            if one_host:
                joined = engines > 1 or not isinstance(place, OwnRank)
                check_room(seen, Workload(one, engines, joined, spec.checkpointing is not None, stages), room)
        epochs = () if state is None else state.epochs
        if isinstance(place, OwnRank):
            if engines > 1:
                spec = dataclasses.replace(spec, scan=spec.scan.part(spec.patterns_of(0, engines)))
            with held_back():  # an interrupt must not prevent the finalizer that ends the thread
                self._set_up(None, spec, EngineClient(LocalEngine(spec, place, start), spec, epochs, start))
        else:
            make_way(place, spec.ranks)
            self._set_up(place, spec, EngineClient(ClusterEngines(place, spec, start=start), spec, epochs, start))
        if state is not None:
            self._client.annotation = Annotation.of(state)

    def _set_up(self, cluster: Cluster | None, spec: RunSpec, client: EngineClient) -> None:
        self._connect(cluster, spec, client)
        self._branches = BranchManager(client, spec.scan, cluster)
        self._stops = 0
        self._advancing: int | None = None
        self._shown_notices: set[str] = set()
        self._result: Result | None = None
        self._result_lock = threading.Lock()
        self._result_at: tuple[int, int, int] | None = None
        if cluster is not None:
            with _open_lock:
                _open.setdefault(cluster, weakref.WeakSet()).add(self)
        else:
            # On a cluster the next reconstruction ends the workers; in this process nothing else ends the thread.
            weakref.finalize(self, lambda: client.engines.close())

    # Running

    def start(self, epochs: int | None = None) -> None:
        """Run more epochs in the background and return at once.

        After `stop` the run continues at the same update, also within an epoch. With `Settings.stop` it may end before
        its last epoch; `stopped` is the reason then.

        Epochs of a scan that is being measured count from its end. Until then the run uses the patterns that have
        come, and `target` moves on with each epoch.

        Parameters
        ----------
        epochs : int, optional
            Number of epochs, in addition to those completed. None: those that remain of the stages; without stages 100.

        Raises
        ------
        ReconstructionError
            If it is running ("reconstruction.busy"), closed, or has failed.
        """
        epochs = self._remaining() if epochs is None else whole("start", epochs)
        self._end_interrupted_epoch()
        self._executor.run(lambda: self._begin(epochs))
        self._warn_of_notices()

    def _remaining(self) -> int:
        """Return the number of epochs of a run without a number: those that remain of the stages, or 100."""
        plan = self._client.spec.plan
        if not plan.stages:
            return 100
        if self.epoch >= plan.epochs:
            raise ReconstructionError(
                f"All {plan.epochs} epochs of the stages are completed; give a number of epochs to continue with the "
                "last one.",
                code="argument.missing",
            )
        return plan.epochs - self.epoch

    def run_until(self, epoch: int, update: int = 0, run: tuple[int, int] | None = None) -> None:
        """Run in the background up to an update of an epoch, and return at once.

        The loss of an engine ends the run, also with `on_failure="continue"`.

        Parameters
        ----------
        epoch : int
            Number of completed epochs at the end of the run.
        update : int
            Number of completed updates of the next epoch.
        run : tuple of int, optional
            Epochs completed at the beginning of the run that this is a part of, and its last epoch, for the schedule of
            the learning rates. None: this is the whole run.

        Raises
        ------
        ReconstructionError
            If it is already past that update ("argument.invalid-value"), running, closed, or has failed.
        """
        epoch, update = whole("run_until", epoch, 0), whole("run_until", update, 0, "updates")
        self._end_interrupted_epoch()
        self._executor.run(lambda: self._begin_to(epoch, update, run or ()))

    def _begin_to(self, epoch: int, update: int, run: tuple[int, ...]) -> None:
        self._check_idle("stop()")
        status = self._client.status()
        if (status.epoch, status.update) > (epoch, update):
            raise ReconstructionError(
                f"run_until got epoch {epoch}, update {update}, and epoch {status.epoch}, update {status.update} is "
                "completed; restore(...) returns to an earlier checkpoint.",
                code="argument.invalid-value",
            )
        self._advancing = self._client.target_epoch = None
        self._client.command(RunTo(epoch, update, run))

    def _begin(self, epochs: int, advancing: int | None = None, last: int | None = None) -> None:
        """Start a run. advancing: identifier of the thread that runs epoch by epoch, up to the epoch `last`."""
        self._check_idle("resume() or stop()")
        self._advancing = advancing
        self._client.begin(epochs, last)

    def _check_idle(self, remedy: str) -> None:
        """Raise ReconstructionError if a run is active, or it has failed or is closed."""
        if busy := self._busy():
            raise ReconstructionError(
                f"It is already {busy}, at epoch {self.epoch} of {self.target}; {remedy} it first.",
                code="reconstruction.busy",
            )
        self._check_usable()

    def pause(self) -> None:
        """Suspend the run on all engines before the same update."""
        self._executor.run(lambda: self._pause(True))

    def resume(self) -> None:
        """Continue after `pause`."""
        self._executor.run(lambda: self._pause(False))

    def _pause(self, paused: bool) -> None:
        self._check_usable()
        self._client.paused = paused
        self._client.order(PauseRun() if paused else ResumeRun())

    def stop(self) -> None:
        """End the run on all engines before the same update; `start` or `run` continues from there."""
        self._stops += 1
        self._executor.run(self._end_run)

    def _end_run(self, wait: bool = True) -> None:
        if self._client.failure is None:
            self._client.target_epoch = None  # otherwise a recovery in progress would start the run again
        self._check_usable()
        self._advancing = self._client.target_epoch = None
        self._client.order(StopRun()) if wait else self._client.command(StopRun())

    def _end_epoch_of(self, thread: int) -> None:
        if self._advancing == thread:
            self._end_run()

    def _end_interrupted_epoch(self) -> None:
        """Stop an epoch of this thread that is still running because a second interrupt aborted its clean-up."""
        if self._advancing == threading.get_ident():
            self._executor.run(self._end_run)

    def recover(self) -> None:
        """Continue after the loss of an engine, from the latest checkpoint on the remaining and on new engines.

        An interrupted run is started again. Does nothing if the reconstruction has not failed.

        Raises
        ------
        ReconstructionError
            If no engine was lost, or none is available.
        """
        self._executor.run(self._client.recover)

    def save_checkpoint(self, timeout: float = 600.0) -> Path:
        """Write a checkpoint now and wait until it is complete.

        Parameters
        ----------
        timeout : float
            Longest time to wait [s].

        Returns
        -------
        Path
            File of the checkpoint.

        Raises
        ------
        ReconstructionError
            If it could not be written ("checkpoint.failed"), or took longer than `timeout` ("checkpoint.timeout").
        ClusterError or InvalidValueError
            If the reconstruction writes no checkpoints ("checkpoint.disabled").
        """
        until = time.monotonic() + timeout
        self._check_usable()
        before = self._client.status()
        self._client.order(CheckpointRequest())
        try:
            return self._client.wait_for(lambda: checkpoint_since(before, self._client.last_status or before), until)
        except TimeoutError:
            raise ReconstructionError(
                f"The checkpoint was not written within {timeout:g} s.", code="checkpoint.timeout"
            ) from None

    def wait(self, timeout: float | None = None, progress: Callable[[], object] | None = None) -> None:
        """Wait until no run is active. An interrupt (Ctrl-C) ends only the wait; the reconstruction continues.

        Parameters
        ----------
        timeout : float, optional
            Longest time to wait [s]; None: no limit.
        progress : callable, optional
            Called four times a second, and at the end. An exception that it raises ends the wait.

        Raises
        ------
        TimeoutError
            If the run is still active after `timeout`.
        """
        self._check_usable()
        until = float("inf") if timeout is None else time.monotonic() + timeout

        def over() -> bool:
            status = self._client.last_status
            if status is not None and status.state == "closed":
                raise ReconstructionError("Its engines were closed by another process.", code="reconstruction.closed")
            return status is not None and status.applied >= self._client.sent and status.state == "ready"

        ended = False
        while not ended:
            soon = until if progress is None else min(until, time.monotonic() + PROGRESS_SECONDS)
            with contextlib.suppress(TimeoutError):
                ended = self._client.wait_for(over, soon)
            if not ended and time.monotonic() >= until:
                status = self._client.last_status
                where = "loading" if status is None else status.state
                at = "" if status is None else f", at epoch {status.epoch} of {status.target}"
                raise TimeoutError(f"Still {where} after {timeout} s{at}.")
            if progress is not None:
                progress()
        self._warn_of_notices()

    def step(self) -> Epoch:
        """Run one epoch, or the remainder of an epoch that was stopped.

        Returns
        -------
        Epoch
            Record of the epoch, with loss and time.

        Raises
        ------
        ReconstructionError
            If it was stopped meanwhile, by a click or from another thread ("reconstruction.stopped").
        """
        epoch = self._advance()
        if epoch is None:
            raise ReconstructionError(
                f"It was stopped in epoch {self.epoch + 1}; step() continues from there.",
                code="reconstruction.stopped",
            )
        return epoch

    def _advance(self, last: int | None = None) -> Epoch | None:
        """Run one epoch and return its record; None if it was stopped before its end.

        last: the last epoch of the run that it belongs to; None: it is a run of its own.
        """
        self._end_interrupted_epoch()
        done, thread = len(self._client.epochs), threading.get_ident()
        try:
            self._executor.run(lambda: self._begin(1, thread, last), short=self._cluster is None)
            self._warn_of_notices()
            self.wait()
        except BaseException:
            # An interrupted caller does not wait for a slow engine or a recovery.
            with contextlib.suppress(TimeoutError, ReconstructionError, ClusterError):
                self._executor.run(lambda: self._end_epoch_of(thread), PATIENCE_SECONDS)
            raise
        self._advancing = None
        return self._client.epochs[done] if len(self._client.epochs) > done else None

    def run(self, epochs: int | None = None) -> Iterator[Epoch]:
        """Run epoch by epoch: `for epoch in recon.run(50): ...`.

        The engines wait while the body of the loop is executed: what it changes takes effect with the next epoch, and
        `break` leaves the state of this one. `start` runs without waiting. An interrupt stops the run; `stop` or its
        button stops it and ends the loop. The next run continues at the same update. `Settings.stop` may end the loop
        earlier.

        Parameters
        ----------
        epochs : int, optional
            As for `start`.

        Returns
        -------
        iterator of Epoch
            Record of each epoch, once it is completed.
        """
        return self._run(self._remaining() if epochs is None else whole("run", epochs))

    def _run(self, epochs: int) -> Iterator[Epoch]:
        stops, last, completed = self._stops, self.epoch + epochs, 0
        while completed < epochs:
            epoch = self._advance(last)
            if epoch is None:
                return
            if epoch.number > self._client.live_epochs:
                completed += 1
            else:  # an epoch in which further patterns could come is none of the run's
                last += 1
            done = self.stopped
            yield epoch
            if done or self._stops != stops:
                return

    # Status, as last reported by the engines: within milliseconds of a change, every 0.1 s during an epoch

    @property
    def target(self) -> int:
        """Epoch at which the present run ends; assignment extends or shortens the run and is recorded in `changes`."""
        status = self.last_status()
        return status.target if status else 0

    @target.setter
    def target(self, epoch: int) -> None:
        self._executor.run(lambda: self._set_target(epoch))

    def _set_target(self, epoch: int) -> None:
        epoch = whole("target", epoch)
        if not self._busy() or self._advancing is not None:
            raise ReconstructionError(
                f"target is {epoch}, and no run is under way that could end there; start(...) begins one.",
                code="reconstruction.not-running",
            )
        if epoch <= self.epoch:
            raise ReconstructionError(
                f"target is {epoch}, and epoch {self.epoch} is completed; give a later one.",
                code="argument.invalid-value",
            )
        self._client.target_epoch = epoch - self._client.live_epochs
        self._client.order(SetTarget(epoch))

    # Inspection; engines answer between two updates

    def error_map(
        self,
        epochs: int | None = None,
        *,
        engines: int = 0,
        smoothing: float = SMOOTHING,
        area: tuple[slice, slice] | None = None,
        progress: Callable[[int, int], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> ErrorMap:
        """Map the standard error of the object by reconstructions of two halves of the scan, beside this one.

        It is `ptynb.error_map` with the present settings, and does not interrupt this reconstruction, but shares the
        processor with it.

        Parameters
        ----------
        epochs : int, optional
            Number of epochs of each half. None: as many as this reconstruction has completed.
        engines : int
            Number of engines that are started for it, and stopped at its end. 0: this process reconstructs, on the CPU
            if this reconstruction is that of a cluster.
        smoothing : float
            Width of the local average, see `ptynb.analysis.error_map` [object pixels].
        area : (slice, slice), optional
            Part (y, x) that is mapped, as for `ptynb.error_map`.
        progress, cancelled : callable, optional
            As for `ptynb.error_map`.

        Returns
        -------
        ErrorMap
            Mean of both objects and its standard error.
        """
        epochs = whole("error_map", self.epoch if epochs is None else epochs)
        with Cluster(engines) if engines else contextlib.nullcontext() as cluster:
            device = "auto" if engines or self._cluster is None else "cpu"
            extensions = pickle.loads(self._client.spec.extensions)
            begin = partial(Reconstruction, device=device, extensions=extensions, checkpointing=None)
            return map_of_halves(begin, self.scan, self.settings, cluster, epochs, smoothing, progress, cancelled, area)

    @property
    def r_factor_every(self) -> int:
        """Interval between measurements of the R-factor [epochs]; each is a pass over all patterns without gradients.

        0: only `result` measures it. Assignment takes effect before the next update.
        """
        return self._client.r_factor_every

    @r_factor_every.setter
    def r_factor_every(self, epochs: int) -> None:
        self._client.r_factor_every = every = whole("r_factor_every", epochs, 0)
        self._check_usable()
        self._executor.run(lambda: self._client.order(MeasureEvery(every)))

    # Result

    @property
    def result(self) -> Result:
        """Present object, probe, positions and record; requires a pass over all patterns for the R-factor.

        After a failure it has the state of a remaining engine, and an R-factor of NaN; with the object in tiles it is
        the last one that was taken before: `branch_result` returns that of a checkpoint. An object in tiles of more
        than 256 MB is in a file beside the checkpoints, if there are any: see `Result`.
        """
        if not self._client.closed and self._client.engines.reachable:
            self._take_result()
        if self._result is None:
            raise ReconstructionError(
                "There is no result: the run failed, or its cluster was stopped, before `result` or `save`. "
                "branch_result(branch_name) returns that of the latest checkpoint, if there is one.",
                code="reconstruction.no-result",
            ) from self._client.failure
        return dataclasses.replace(self._result, **vars(self._client.annotation))

    @property
    def title(self) -> str:
        """Title of the result and its report, one line; can be set. Checkpoints contain title and comments."""
        return self._client.annotation.title

    @title.setter
    def title(self, text: str) -> None:
        self._annotate(dataclasses.replace(self._client.annotation, title=str(text)))

    @property
    def comments(self) -> str:
        """Comments in the result and its report, in Markdown; can be set."""
        return self._client.annotation.comments

    @comments.setter
    def comments(self, text: str) -> None:
        self._annotate(dataclasses.replace(self._client.annotation, comments=str(text)))

    def _annotate(self, annotation: Annotation) -> None:
        """Set title and comments; after a failure or `close` they are only added to the result."""
        self._client.annotation = annotation
        if not self._ended():
            with contextlib.suppress(ReconstructionError):  # the next command raises it
                self._executor.run(lambda: self._client.command(Annotate(**vars(annotation))))

    def save(self, path: str | Path) -> Path:
        """Write the result (HDF5). An existing file is replaced once the new one is complete.

        Parameters
        ----------
        path : str or Path
            File to write.

        Returns
        -------
        Path
            The file.
        """
        return save_result(self.result, path)

    # Changing settings

    @property
    def settings(self) -> Settings:
        """The settings; assignment takes effect on every engine before the same update.

        Only live settings can be changed: `recon.settings = recon.settings.replace(probe={"learning_rate": 0.005})`.
        What requires a larger object or more memory than there is raises a SettingsError: positions that are refined
        from now on need a margin around the scanned area, which `reconfigure` makes.
        """
        return self._present_settings()

    @settings.setter
    def settings(self, settings: Settings) -> None:
        changed = self.settings.differences(settings)
        fixed = [name for name in changed if not Settings.is_live(name)]
        if fixed:
            raise SettingsError(
                f"{', '.join(fixed)} cannot change during a run; reconfigure(settings) pauses it, maps its state onto "
                "them, and continues.",
                code="settings.not-live",
            )
        if changed:
            self._executor.run(lambda: self._change(settings, [*changed]))

    def _change(self, settings: Settings, names: Sequence[str]) -> None:
        self._check_usable()
        self._check_new_plugins(settings)
        values = dict(flat(settings.model_dump(mode="json")))
        changed = nested({name: values[name] for name in names})
        if any(name.endswith(".learning_rate") and values[name] > 0 for name in names):
            if problem := self._client.call(0, "why_not_live", changed):
                raise SettingsError(problem, code="settings.not-live")
            if problem := self._branches.why_too_large(settings):
                raise SettingsError(problem, code="memory.insufficient")
        self._client.order(ChangeSettings(changed))
        self._client.spec = dataclasses.replace(self._client.spec, settings=settings)

    def _check_new_plugins(self, settings: Settings) -> None:
        """Raise PluginError if an engine has no plug-in, or another version of it, that only these settings use."""
        known = {*self._client.spec.plugins}
        self._client.engines.check_plugins(tuple(one for one in settings.plugins if one not in known))

    def reconfigure_error(self, settings: Settings) -> str | None:
        """Return why `reconfigure` cannot continue with these settings.

        Parameters
        ----------
        settings : Settings
            Settings to continue with.

        Returns
        -------
        str or None
            Message; None if `reconfigure` can continue.
        """
        self._present_settings()  # of the stage that has begun
        return self._branches.why_not(settings)

    def reconfigure(self, settings: Settings) -> None:
        """Continue with changes of settings that are not live: more modes or slices, another batch, optimiser, loss.

        Also with positions that are refined from now on, if the object needs a larger margin for them. If an assignment
        to `settings` suffices, nothing is interrupted.

        All engines pause before the same update, write a checkpoint, are reopened from the state converted to the new
        settings, and continue. New probe modes are weak and orthogonal to the present ones, the product of new slices
        is the previous object, and the optimiser's moments are preserved for unchanged parameters. `changes` records
        the step; the previous state is stored as a separate branch. The duration is about that of opening. If
        `reconfigure_error` returns a message, it is raised, and the run continues as before.

        Parameters
        ----------
        settings : Settings
            Settings to continue with.
        """
        try:
            self.settings = settings
        except SettingsError as error:
            if error.code != "settings.not-live":
                raise

            def work() -> None:
                self._check_new_plugins(settings)
                self._branches.reconfigure(settings)

            self._move(work)

    # Checkpoints and branches

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Checkpoints of all branches, in the order in which they were written; see `restore`."""
        return self._branches.checkpoints()

    @property
    def branches(self) -> tuple[Branch, ...]:
        """All branches, "main" first."""
        return self._branches.branches()

    @property
    def branch_name(self) -> str:
        """Name of the present branch."""
        return self._branches.name

    def restore(self, checkpoint: Which) -> None:
        """Return to a checkpoint, with its settings, and stop there.

        The record of epochs is truncated at the checkpoint; `changes` records the step. Later checkpoints and the
        present state remain on disk as a separate branch. This is also possible after a failure, such as an object
        with values that are not finite.

        Parameters
        ----------
        checkpoint : Checkpoint, int, str or Path
            One of `checkpoints`, its epoch on the present branch, or its file.

        Raises
        ------
        ReconstructionError
            If there is no such checkpoint, or the engines cannot be opened from it; nothing is changed then.
        """
        self._move(lambda: self._branches.restore(checkpoint), stops=True)

    def branch(self, name: str | None = None, checkpoint: Which | None = None) -> str:
        """Create a branch at the present state or at a checkpoint, and switch to it.

        An active run continues if the branch begins at the present state, and stops if it begins at a checkpoint, as
        with `restore`. The checkpoints of the previous branch remain; `switch_branch` returns to it.

        Parameters
        ----------
        name : str, optional
            Name of the branch. None: "branch-1" or the next unused one.
        checkpoint : Checkpoint, int, str or Path, optional
            As for `restore`; an epoch may also be on an ancestor of the present branch. None: the present state.

        Returns
        -------
        str
            Name of the branch.
        """
        return self._move(lambda: self._branches.branch(name, checkpoint), stops=checkpoint is not None)

    def switch_branch(self, name: str) -> None:
        """Switch to the newest checkpoint of another branch and stop there; the present state is saved on its branch.

        Parameters
        ----------
        name : str
            Name of the branch.
        """
        self._move(lambda: self._branches.switch_branch(name), stops=True)

    def branch_result(self, name: str) -> Result:
        """Return the result of a branch's newest checkpoint; its R-factor is NaN.

        Parameters
        ----------
        name : str
            Name of the branch. For the present branch, `result` is newer and has an R-factor.

        Returns
        -------
        Result
            Result of the branch.
        """
        return self._branches.result(name)

    def remove_branch(self, name: str) -> None:
        """Remove a branch and its checkpoints.

        Parameters
        ----------
        name : str
            Name of the branch; neither the present one nor "main".
        """
        self._branches.drop(name)

    def _move(self, work: Callable[[], Answer], stops: bool = False) -> Answer:
        """Run a function that changes the state of the engines. stops: whether it ends an active run."""

        def do() -> Answer:
            failed = stops and self._client.failure is not None  # restoring a checkpoint clears a failure
            self._check_open() if failed else self._check_usable()
            try:
                answer = work()
            finally:
                self._result_at = None
            if stops:  # only on success: otherwise the run continues as before, and so does a loop
                self._stops += 1
                self._advancing = None
            return answer

        return self._executor.run(do)

    # Ending

    def close(self, *, result: bool = True) -> None:
        """Free the engines for another reconstruction; the record remains available.

        Parameters
        ----------
        result : bool
            Whether to fetch the result first, which requires a pass over all patterns.

        Raises
        ------
        FileError
            If the object of the result is large, in tiles, and cannot be written to a file beside the checkpoints
            ("file.not-writable"); the engines are free then, too.
        """
        self._executor.run(lambda: self._close(result))

    def _close(self, result: bool = True) -> None:
        if self._client.closed:
            return
        if self._client.failure is None and self._client.engines.reachable:
            self._stops += 1
            self._end_run(wait=result)
            if result:
                try:
                    self._take_result()
                except FileError:  # its object could not be written
                    self._client.close()
                    raise
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is None or not issubclass(kind, KeyboardInterrupt):
            self.close()
            return
        with contextlib.suppress(TimeoutError, ReconstructionError, ClusterError):  # it continues in its thread
            self._executor.run(self._close, PATIENCE_SECONDS)

    def __repr__(self) -> str:
        loss = f", loss {self._client.epochs[-1].loss:.5g}" if self._client.epochs else ""
        known = self._client.last_status
        state = self._ended() or (known.state if known else "loading")
        return (
            f"<Reconstruction of {self.scan.name}: {state}, epoch {self.epoch}{loss}, "
            f"{self._client.engines.description}, batch {self.batch}>"
        )

    # Connection to the engines

    def _make_way(self) -> None:
        self._executor.wait()
        if self._client.closed or not self._client.engines.reachable:
            return
        if self._client.failure is None and self._busy():
            raise EnginesBusyError(
                f"The cluster's engines are running {self!r}; stop() or close() that one first.", code="engine.busy"
            )
        self.close()

    def _busy(self) -> str:
        """Return the state if a run is active, or an empty string."""
        state = self.state
        target = self._client.target_epoch
        if state == "loading" and target is not None and target > self.epoch - self._client.live_epochs:
            return "about to run"
        return state if state in ("running", "paused") else ""

    def _warn_of_notices(self) -> None:
        """Issue each notice of the engines once, as a warning."""
        for notice in self.notices if self.warns else ():
            if notice not in self._shown_notices:
                self._shown_notices.add(notice)
                warnings.warn(notice, PtynbWarning, stacklevel=3)

    def _take_result(self) -> None:
        with self._result_lock:  # the live view takes it in a thread, too
            self._take_new_result()

    def _take_new_result(self) -> None:
        with object_file(self._client.spec, self._client.checkpoint_folder) as file:
            if self._client.failure is None:
                try:
                    status = self._client.status()
                    now = (status.epoch, status.update, status.applied)
                    if self._result is not None and now == self._result_at and status.state != "running":
                        return
                    self._client.order(MakeResult(file))
                except ReconstructionError:
                    if self._client.failure is None:
                        raise
            data = with_object(self._result_data(), file)
        if data is not None:
            last, engines = self._client.last_status, self._client.engines
            assert last is not None, "an engine that has a result has sent a status"
            machines = dataclasses.replace(
                data.machines,  # with threads and storage of the patterns
                engines=engines.world,
                devices=engines.devices,
                kind=engines.description,
                backend=last.backend,
                batch=self.batch,
                extensions=self._client.spec.extension_names,
            )
            data = dataclasses.replace(data, plugins=(*data.plugins, *engines.launched_by))
            self._result = make_result(self.scan, data, machines, self._client.failure)
            self._result_at = (last.epoch, last.update, last.applied)

    def _result_data(self) -> Result | FileError | None:
        """Return the result data of rank 0; after a failure, of any engine that answers, since all are equal."""
        for rank in range(self._client.engines.world if self._client.failure is not None else 1):
            with contextlib.suppress(EngineLostError):
                data: Result | FileError | None = self._client.engines.call(rank, "result", timeout=600.0)
                if data is not None:
                    return data
        return None


def check_ranks(ranks: Sequence[int], cluster: Cluster | None) -> tuple[int, ...]:
    """Return the ranks as a tuple of int. Raises SettingsError if the cluster does not have them."""
    if cluster is None:
        raise SettingsError(
            f"ranks is {[*ranks]}, and no cluster is given; give one, or leave ranks out.", code="argument.missing"
        )
    known = range(len(cluster))
    if not ranks or len({*ranks}) < len(ranks) or not {*ranks} <= {*known}:
        raise SettingsError(
            f"ranks is {[*ranks]}; expected different ranks from 0 to {len(cluster) - 1}.",
            code="argument.invalid-value",
        )
    return tuple(int(rank) for rank in ranks)


def place_for(device: str, cluster: Cluster | None) -> Cluster | OwnRank:
    """Return where to reconstruct: on the engines of the cluster, else in this process, on this device."""
    if cluster is None:
        return OwnRank.alone(local_device(device))
    if device != "auto":
        raise SettingsError(
            f"device is {device!r} and a cluster is given, which has its own; give it to Cluster(...).",
            code="argument.conflict",
        )
    return cluster


def make_way(cluster: Cluster, ranks: Sequence[int] | None = None) -> None:
    """Close the reconstructions on these engines of a cluster (None: on any); their results remain available.

    Raises EnginesBusyError if one is running.
    """
    with _open_lock:
        present = [*_open.get(cluster, ())]
    for recon in present:
        own = recon._client.spec.ranks
        if ranks is None or own is None or {*ranks} & {*own}:
            recon._make_way()
