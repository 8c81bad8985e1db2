"""Reconstruction: the session that a user holds. Sends commands to rank 0, follows the record, and never computes."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar, get_args

import cloudpickle
import torch

from ptynb.cluster.cluster import Cluster
from ptynb.data.provenance import Machines
from ptynb.data.record import Words
from ptynb.data.scan import Scan
from ptynb.data.snapshot import (
    Array,
    Branch,
    Change,
    Checkpoint,
    Epoch,
    Health,
    PatternPair,
    Pictures,
    RenderRequest,
    Result,
    Snapshot,
    Status,
)
from ptynb.exceptions import (
    ClusterError,
    EngineLostError,
    EnginesBusyError,
    PtynbWarning,
    ReconstructionError,
    SettingsError,
)
from ptynb.io.checkpoint_file import ReconstructionState
from ptynb.io.result_file import save_result
from ptynb.optimize.batching import batch_text, check_shares
from ptynb.physics.components.component import ModelComponent
from ptynb.physics.constraints import CustomConstraint
from ptynb.physics.model_builder import check_together
from ptynb.planning.memory import Workload, check_room, room_for
from ptynb.serial_executor import PATIENCE_SECONDS, SerialExecutor, held_back
from ptynb.session.branching import BranchManager, Which
from ptynb.session.engine_client import EngineClient
from ptynb.session.engines import ClusterEngines, Engines, LocalEngine
from ptynb.session.run_result import make_result, names_of
from ptynb.session.run_spec import OnFailure, RunSpec
from ptynb.settings import Checkpointing, Settings
from ptynb.settings.validation import MOST_EPOCHS
from ptynb.text import quoted

Answer = TypeVar("Answer")

CHECKPOINTING = Checkpointing()
FOLLOW_SECONDS = 0.1
"""How often the record is fetched in the background."""
IDLE_FOLLOW_SECONDS, IDLE_LOOK_SECONDS = 2.0, 0.5
"""How often it is fetched while nothing runs, and how often the engines' processes are checked."""
HEALTH_SECONDS = 1.0
"""How long an engine has to answer `health`."""
MOST_AT_ONCE = 16
"""Engines that are asked for their health at the same time."""

_open: weakref.WeakKeyDictionary[Cluster, weakref.WeakSet[Reconstruction]] = weakref.WeakKeyDictionary()
"""The reconstructions that were opened on a cluster."""
_open_lock = threading.Lock()


class Reconstruction:
    """A reconstruction of a scan on the engines of a cluster, or in this process.

    The engines begin to read the scan at once. A new reconstruction on a cluster takes its engines over from the one
    that had them, whose result stays available.

    Parameters
    ----------
    scan : Scan
        From `load`, `Scan.from_arrays` or `simulate`.
    settings : Settings, optional
        Default: `Settings()`.
    cluster : Cluster, optional
        Its engines reconstruct. None: this process does.
    device : {"auto", "cpu", "cuda"}
        Of this process, where there is no cluster; "auto": a GPU if there is one.
    timeout : float
        Time after which engines give up waiting for each other [s], without the time in which they are suspended.
    extensions : sequence of ModelComponent or CustomConstraint
        Your own components of the forward model and constraints.
    checkpointing : Checkpointing, optional
        How often checkpoints are written, and where; `ptynb.resume` continues from one. None: never.
    on_failure : {"pause", "continue"}
        What happens when an engine is lost. "pause": `recover` continues. "continue": it continues by itself from the
        latest checkpoint, on the remaining and on new engines; `changes` records it.
    ranks : sequence of int, optional
        Engines of the cluster that reconstruct; None: all. Several reconstructions can run on different engines of one
        cluster.

    Attributes
    ----------
    title, comments : str
        One line, and text in Markdown; yours to set. They go into the result and its report.

    Raises
    ------
    SettingsError
        An argument is invalid, or settings and scan do not fit together.
    EnginesBusyError
        The engines are running another reconstruction.
    ClusterError
        The cluster is stopped, or lost an engine that could not be replaced.
    """

    scan: Scan

    def __init__(
        self,
        scan: Scan,
        settings: Settings | None = None,
        cluster: Cluster | None = None,
        *,
        device: str = "auto",
        timeout: float = 30.0,
        extensions: Sequence[Any] = (),
        checkpointing: Checkpointing | None = CHECKPOINTING,
        on_failure: OnFailure = "pause",
        ranks: Sequence[int] | None = None,
    ) -> None:
        self._open(
            scan,
            settings or Settings(),
            cluster,
            device,
            timeout,
            extensions,
            checkpointing,
            on_failure,
            ranks,
            start=None,
        )

    @classmethod
    def _from_state(cls, start: Path, state: ReconstructionState, *arguments: Any) -> Self:
        """Continue from a checkpoint; arguments: those of `_open` before `start`."""
        recon = cls.__new__(cls)
        recon._open(*arguments, start=start, epochs=state.epochs)
        recon._client.words = Words.of(state)
        return recon

    @classmethod
    def _joined(cls, cluster: Cluster, engines: Engines, spec: RunSpec, status: Status) -> Self:
        """Connect to a reconstruction that is open on the cluster's engines."""
        recon = cls.__new__(cls)
        recon._set_up(cluster, spec, EngineClient(engines, spec))
        with contextlib.suppress(ReconstructionError):  # an engine was lost meanwhile: `recover` continues
            recon._client.fetch()
            recon._client.r_factor_every, measured = recon._call(0, "measured")
            recon._client.r_factors = dict(measured)
            recon._client.words = recon._call(0, "words")
        if status.state not in ("ready", "closed"):
            recon._client.target_epoch, recon._client.paused = status.target, status.state == "paused"
        return recon

    def _open(
        self,
        scan: Scan,
        settings: Settings,
        cluster: Cluster | None,
        device: str,
        timeout: float,
        extensions: Sequence[Any],
        checkpointing: Checkpointing | None,
        on_failure: OnFailure,
        ranks: Sequence[int] | None = None,
        *,
        start: Path | None,
        epochs: Sequence[Epoch] = (),
    ) -> None:
        if cluster is not None and device != "auto":
            raise SettingsError(
                f"device is {device!r} and a cluster is given, which has its own; give it to Cluster(...).",
                code="argument.conflict",
            )
        if on_failure not in get_args(OnFailure):
            raise SettingsError(
                f"on_failure is {on_failure!r}; expected 'pause' or 'continue'.", code="argument.invalid-value"
            )
        chosen = None if ranks is None else check_ranks(ranks, cluster)
        engines = 1 if cluster is None else len(chosen or cluster)
        check_together(scan, settings)
        check_shares(scan, settings, engines)
        _check_extensions(extensions)
        local = "cpu" if cluster is not None else _local_device(device)  # with a cluster the kernel never touches CUDA
        reused = 0 if cluster is None else cluster.held_bytes() * engines / len(cluster)
        room = room_for(local != "cpu") if cluster is None else room_for(cluster.plan.on_gpu, reused)
        check_room(scan, Workload(settings, engines, cluster is not None, checkpointing is not None), room)
        if cluster is not None:
            make_way(cluster, chosen)
        spec = RunSpec(
            scan,
            settings,
            cloudpickle.dumps(tuple(extensions)),
            checkpointing,
            timeout,
            on_failure,
            time.time(),
            chosen,
        )
        if cluster is not None:
            engine_group: Engines = ClusterEngines(cluster, spec, start=start)
            self._set_up(cluster, spec, EngineClient(engine_group, spec, epochs, start))
            return
        with held_back():  # an interrupt must not separate the thread from what ends it
            self._set_up(cluster, spec, EngineClient(LocalEngine(spec, local, start), spec, epochs, start))

    def _set_up(self, cluster: Cluster | None, spec: RunSpec, client: EngineClient) -> None:
        self.scan, self._settings, self._cluster, self._client = spec.scan, spec.settings, cluster, client
        self._ranks = spec.ranks
        self._branches = BranchManager(client, spec.scan, cluster)
        self._folder = None if cluster is None else cluster.folder
        self._stops = 0
        self._executor = SerialExecutor("ptynb command")
        self._advancing: int | None = None
        self._shown_notices: set[str] = set()
        self._pattern_rank: tuple[int, int] | None = None
        """The pattern that was requested last, and the rank that has it."""
        self._health: tuple[Health, ...] = ()
        self._result: Result | None = None
        self._result_at: tuple[int, int, int] | None = None
        self._closed = False
        if cluster is not None:
            with _open_lock:
                _open.setdefault(cluster, weakref.WeakSet()).add(self)
        else:
            # On a cluster the next reconstruction ends the workers; here nothing else would end the thread.
            weakref.finalize(self, _close_last, client)
        self._follow()

    def _follow(self) -> None:
        threading.Thread(target=_follow, args=(weakref.ref(self),), name="ptynb follower", daemon=True).start()

    # Running

    def start(self, epochs: int = 100) -> None:
        """Run more epochs in the background and return at once.

        After `stop` it continues exactly where it stopped, in the middle of an epoch too.

        Parameters
        ----------
        epochs : int
            Number of epochs, in addition to those completed.

        Raises
        ------
        ReconstructionError
            It is running ("reconstruction.busy"), closed, or has failed.
        """
        epochs = _whole("start", epochs)
        self._end_interrupted_epoch()
        self._executor.run(lambda: self._begin(epochs))
        self._warn_of_notices()

    def run_until(self, epoch: int, update: int = 0) -> None:
        """Run in the background until this epoch is completed, and so many updates of the next one; return at once.

        A lost engine ends the run, also with `on_failure="continue"`.

        Parameters
        ----------
        epoch : int
            Epochs completed at the end of the run.
        update : int
            Updates of the epoch after it.

        Raises
        ------
        ReconstructionError
            It is past that update already ("argument.invalid-value"), running, closed, or has failed.
        """
        epoch, update = _whole("run_until", epoch, 0), _whole("run_until", update, 0, "updates")
        self._end_interrupted_epoch()
        self._executor.run(lambda: self._begin_to(epoch, update))

    def _begin_to(self, epoch: int, update: int) -> None:
        if busy := self._busy():
            raise ReconstructionError(
                f"It is already {busy}, at epoch {self.epoch} of {self.target}; stop() it first.",
                code="reconstruction.busy",
            )
        self._check_usable()
        status = self._fetch()
        if (status.epoch, status.update) > (epoch, update):
            raise ReconstructionError(
                f"run_until got epoch {epoch}, update {update}, and epoch {status.epoch}, update {status.update} is "
                "completed; restore(...) returns to an earlier checkpoint.",
                code="argument.invalid-value",
            )
        self._advancing = self._client.target_epoch = None
        self._client.command("reach", [epoch, update])

    def _begin(self, epochs: int, advancing: int | None = None) -> None:
        """advancing: the thread that runs epoch by epoch."""
        if busy := self._busy():
            raise ReconstructionError(
                f"It is already {busy}, at epoch {self.epoch} of {self.target}; resume() or stop() it first.",
                code="reconstruction.busy",
            )
        self._check_usable()
        self._advancing = advancing
        self._client.begin(epochs)

    def pause(self) -> None:
        """Suspend the run on all engines before the same update."""
        self._executor.run(lambda: self._pause(True))

    def resume(self) -> None:
        """Continue after `pause`."""
        self._executor.run(lambda: self._pause(False))

    def _pause(self, paused: bool) -> None:
        self._check_usable()
        self._client.paused = paused
        self._client.order("pause" if paused else "resume")

    def stop(self) -> None:
        """End the run on all engines before the same update; `start` or `run` continues from there."""
        self._stops += 1
        self._executor.run(self._end_run)

    def _end_run(self) -> None:
        if self._client.failure is None:
            self._client.target_epoch = None  # or a recovery that is under way would start the run again
        self._check_usable()
        self._advancing = self._client.target_epoch = None
        self._client.order("stop")

    def _end_epoch_of(self, thread: int) -> None:
        if self._advancing == thread:
            self._end_run()

    def _end_interrupted_epoch(self) -> None:
        """Stop an epoch of this thread that still runs because a second interrupt cut its clean-up short."""
        if self._advancing == threading.get_ident():
            self._executor.run(self._end_run)

    def recover(self) -> None:
        """Continue after an engine was lost: from the latest checkpoint, on the remaining and on new engines.

        A run that was under way is started again. Does nothing where nothing failed.

        Raises
        ------
        ReconstructionError
            No engine was lost, or none can be had.
        """
        self._executor.run(self._recover)

    def _recover(self) -> None:
        if self._client.failure is not None:
            self._client.recover()
            self._follow()

    def save_checkpoint(self, timeout: float = 600.0) -> Path:
        """Write a checkpoint now, and return its file once it is complete.

        Parameters
        ----------
        timeout : float
            Longest time to wait [s].

        Returns
        -------
        Path
            The checkpoint's file.

        Raises
        ------
        ReconstructionError
            It could not be written ("checkpoint.failed"), or took longer than `timeout` ("checkpoint.timeout").
        ClusterError or InvalidValueError
            The reconstruction writes no checkpoints ("checkpoint.disabled").
        """
        written, failed = self._fetch().keeps
        self._client.order("keep")
        until = time.monotonic() + timeout
        while True:
            status = self._fetch()
            if status.kept is not None and status.keeps[0] != written:
                return Path(status.kept)
            if status.keeps[1] > failed:
                raise ReconstructionError(status.notices[-1], code="checkpoint.failed")
            if time.monotonic() > until:
                raise ReconstructionError(
                    f"The checkpoint was not written within {timeout:g} s.", code="checkpoint.timeout"
                )
            time.sleep(0.01)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until no run is under way. An interrupt (Ctrl-C) ends the waiting only; the reconstruction continues.

        Parameters
        ----------
        timeout : float, optional
            Longest time to wait [s]; None: no limit.

        Raises
        ------
        TimeoutError
            After `timeout` seconds.
        ReconstructionError
            It has failed, or is closed.
        """
        until = None if timeout is None else time.monotonic() + timeout
        pause = 0.002
        while True:
            status = self._fetch(within=pause)  # the follower fetches it too
            if status.applied >= self._client.sent and status.state == "ready":
                self._warn_of_notices()
                return
            if until is not None and time.monotonic() > until:
                raise TimeoutError(
                    f"Still {status.state} after {timeout} s, at epoch {status.epoch} of {status.target}."
                )
            time.sleep(pause)
            pause = min(1.5 * pause, FOLLOW_SECONDS)

    def step(self) -> Epoch:
        """Run one epoch, or the rest of one that was stopped.

        Returns
        -------
        Epoch
            Its record: loss, time.

        Raises
        ------
        ReconstructionError
            It was stopped meanwhile, by a click or from another thread ("reconstruction.stopped").
        """
        epoch = self._advance()
        if epoch is None:
            raise ReconstructionError(
                f"It was stopped in epoch {self.epoch + 1}; step() continues from there.",
                code="reconstruction.stopped",
            )
        return epoch

    def _advance(self) -> Epoch | None:
        """One epoch; None if it was stopped before its end."""
        self._end_interrupted_epoch()
        done, thread = len(self._client.epochs), threading.get_ident()
        try:
            self._executor.run(lambda: self._begin(1, thread))
            self._warn_of_notices()
            expected = 0.9 * self._client.epochs[-1].seconds if self._client.epochs else 0.0
            time.sleep(min(expected, 1.0))
            self.wait()
        except BaseException:
            # An interrupted caller does not wait for a slow engine, or a recovery.
            with contextlib.suppress(TimeoutError, ReconstructionError, ClusterError):
                self._executor.run(lambda: self._end_epoch_of(thread), PATIENCE_SECONDS)
            raise
        self._advancing = None
        return self._client.epochs[done] if len(self._client.epochs) > done else None

    def run(self, epochs: int) -> Iterator[Epoch]:
        """Run epoch by epoch: `for epoch in recon.run(50): ...`.

        The engines wait while the loop's body runs. An interrupt stops them, and so does `stop` or its button, which
        ends the loop; running again continues where they stopped.

        Parameters
        ----------
        epochs : int
            Number of epochs, in addition to those completed.

        Returns
        -------
        iterator of Epoch
            Each epoch's record, once it is completed.
        """
        return self._run(_whole("run", epochs))

    def _run(self, epochs: int) -> Iterator[Epoch]:
        stops = self._stops
        for _ in range(epochs):
            epoch = self._advance()
            if epoch is None:
                return
            yield epoch
            if self._stops != stops:
                return

    # Status: as the engines reported it at most 0.1 s ago, unless stated otherwise

    @property
    def state(self) -> str:
        """ "loading", "ready", "running", "paused", "recovering", "failed" or "closed"; asks rank 0 now."""
        if self._client.failure is not None:
            return "failed"
        if self._closed:
            return "closed"
        if self._client.recovering:
            return "recovering"
        self._executor.wait()  # for work that an interrupted caller did not wait for
        status = self._fetch()
        if status.applied < self._client.sent and status.state != "loading":
            self._client.caught_up()
            status = self._fetch()
        return status.state

    @property
    def epoch(self) -> int:
        """Number of epochs completed."""
        return len(self._client.epochs)

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The records of all epochs completed."""
        return tuple(self._client.epochs)

    @property
    def changes(self) -> tuple[Change, ...]:
        """Settings changed so far, with the epoch and update before which all engines applied them."""
        status = self.last_status()
        return status.changes if status else ()

    @property
    def failure(self) -> ReconstructionError | None:
        """The error that ended it, if any."""
        return self._client.failure

    @property
    def notices(self) -> tuple[str, ...]:
        """Problems that stopped nothing, such as a full disk; each once."""
        status = self.last_status()
        return status.notices if status else ()

    @property
    def latest_checkpoint(self) -> Path | None:
        """The newest checkpoint's file, from which `recover` and `ptynb.resume` continue."""
        status = self.last_status()
        return None if status is None or status.kept is None else Path(status.kept)

    @property
    def can_recover(self) -> bool:
        """Whether it failed in a way after which `recover` can continue."""
        return self._client.failure is not None and self._client.can_recover

    @property
    def recovering(self) -> bool:
        """Whether it is being opened again after an engine was lost."""
        return self._client.recovering

    @property
    def engines(self) -> str:
        """Number and kind of engines, the backend between them, and whether patterns are read from disk."""
        status = self.last_status()
        joined = f", {status.backend}" if status and status.world > 1 else ""
        streamed = ", frames read from disk" if status and status.frames == "disk" else ""
        return f"{self._client.engines.description}{joined}{streamed}"

    @property
    def batch(self) -> str:
        """The effective batch, and its parts where each engine has its own."""
        return batch_text(self._settings, self._client.engines.world, len(self.scan))

    @property
    def closed(self) -> bool:
        """Whether `close` was called, by the user or by another reconstruction on the same cluster."""
        return self._closed

    @property
    def cluster(self) -> Cluster | None:
        """The cluster whose engines reconstruct; None: this process does."""
        return self._cluster

    def last_status(self) -> Status | None:
        """Rank 0's status of at most 0.1 s ago, without a request.

        Returns
        -------
        Status or None
            None before rank 0 has answered for the first time.
        """
        return self._client.statuses.get(0)

    def status(self) -> tuple[Status, ...]:
        """Request the status of each engine now.

        Returns
        -------
        tuple of Status
            By rank.
        """
        return tuple(self._call(rank, "status", 10**9) for rank in range(self._client.engines.world))

    @property
    def target(self) -> int:
        """Epoch at which the present run ends; assigning makes the run longer or shorter, and `changes` records it."""
        status = self.last_status()
        return status.target if status else 0

    @target.setter
    def target(self, epoch: int) -> None:
        self._executor.run(lambda: self._set_target(epoch))

    def _set_target(self, epoch: int) -> None:
        epoch = _whole("target", epoch)
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
        self._client.target_epoch = epoch
        self._client.order("target", epoch)

    # Inspection: engines answer between two updates

    def snapshot(self, size: int = 512) -> Snapshot:
        """Request a preview of object and probe from rank 0.

        Parameters
        ----------
        size : int
            Longest side of the object's preview [pixels]; a larger object is reduced.

        Returns
        -------
        Snapshot
            Object (y, x) and probe (mode, y, x), complex.
        """
        if size < 1:
            raise ReconstructionError(
                f"snapshot got a size of {size} pixels; expected at least 1.", code="argument.invalid-value"
            )
        self._wait_until_loaded()
        snapshot: Snapshot = self._call(0, "snapshot", size)
        return snapshot

    def pictures(self, request: RenderRequest | None = None) -> Pictures | None:
        """Request pictures for a screen, rendered on rank 0.

        Parameters
        ----------
        request : RenderRequest, optional
            What to render, and at which size.

        Returns
        -------
        Pictures or None
            None while the engines are loading.
        """
        self._check_usable()
        return self._client.look(request or RenderRequest())

    def value_at(self, name: str, y: int, x: int, request: RenderRequest | None = None) -> complex | float:
        """Return the exact value at pixel (y, x) of a picture's array, without reduction and grey levels.

        Parameters
        ----------
        name : str
            Of the picture: "amplitude", "phase", "complex", "probe 1" ...
        y, x : int
            Pixel of the array.
        request : RenderRequest, optional
            As for the pictures.

        Returns
        -------
        complex or float
            Complex for pictures in colours.

        Raises
        ------
        ClusterError or InvalidValueError
            There is no such picture or pixel.
        """
        self._wait_until_loaded()
        value: complex | float = self._call(0, "value_at", name, y, x, request or RenderRequest())
        return value

    def pattern(self, index: int) -> PatternPair:
        """Request a measured diffraction pattern and the modelled one, from the engine that has it.

        Parameters
        ----------
        index : int
            Of the pattern, in the whole scan.

        Returns
        -------
        PatternPair
            Both patterns (y, x), centred [counts].
        """
        if not 0 <= index < len(self.scan):
            raise ReconstructionError(
                f"pattern got {index}; expected 0 to {len(self.scan) - 1}.", code="argument.invalid-value"
            )
        self._wait_until_loaded()
        ranks = [*range(self._client.engines.world)]
        if self._pattern_rank is not None and self._pattern_rank[0] == index and self._pattern_rank[1] in ranks:
            ranks.insert(0, self._pattern_rank[1])
        for rank in ranks:
            pair: PatternPair | None = self._call(rank, "pattern", index)
            if pair is not None:
                self._pattern_rank = index, rank
                return pair
        raise ReconstructionError(f"No engine has pattern {index}; this is a bug of ptynb.", code="engine.failed")

    @property
    def positions(self) -> tuple[Array, Array]:
        """Top-left corners of the probe windows at the start and now, (pattern, yx) float64 [object pixels]."""
        self._wait_until_loaded()
        positions: tuple[Array, Array] = self._call(0, "positions")
        return positions

    def health(self) -> tuple[Health, ...]:
        """Request speed, memory, load and temperature of each engine.

        Does not wait for an engine that is busy: its last answer is returned, with `answered` False.

        Returns
        -------
        tuple of Health
            By rank.
        """
        ranks = range(self._client.engines.world)
        before = {one.rank: one for one in self._health}
        with ThreadPoolExecutor(min(len(ranks), MOST_AT_ONCE), "ptynb health") as pool:
            self._health = tuple(pool.map(lambda rank: self._request_health(rank, before.get(rank)), ranks))
        return self._health

    def _request_health(self, rank: int, before: Health | None) -> Health:
        try:
            health: Health = self._client.engines.call(rank, "health", timeout=HEALTH_SECONDS)
        except ClusterError:
            known = before or Health(rank, host="", device="", state="unknown")
            return dataclasses.replace(known, answered=False)
        return health

    @property
    def r_factors(self) -> tuple[tuple[int, float], ...]:
        """(epochs completed, amplitude R-factor over all patterns), as far as measured: see `r_factor_every`."""
        return tuple(sorted(self._client.r_factors.items()))

    @property
    def r_factor_every(self) -> int:
        """Epochs from one measurement of the R-factor to the next, each a pass over all patterns without gradients.

        0: only with `result`. Assigning takes effect before the next update.
        """
        return self._client.r_factor_every

    @r_factor_every.setter
    def r_factor_every(self, epochs: int) -> None:
        if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 0:
            raise ReconstructionError(
                f"r_factor_every is {epochs!r}; expected a number of epochs, or 0 for never.",
                code="argument.invalid-value",
            )
        self._client.r_factor_every = epochs
        self._executor.run(lambda: self._set_r_factor_every(epochs))

    def _set_r_factor_every(self, epochs: int) -> None:
        self._check_usable()
        self._client.order("measure", epochs)

    # Result

    @property
    def result(self) -> Result:
        """Object, probe, positions and the whole record of now; costs a pass over all patterns.

        After a failure: the state that an engine still has, with an R-factor of NaN.
        """
        if not self._closed and self._cluster_alive():
            self._take_result()
        if self._result is None:
            raise ReconstructionError(
                "There is no result: the run failed early, or its cluster was stopped before `result` or `save`.",
                code="reconstruction.no-result",
            ) from self._client.failure
        return dataclasses.replace(self._result, **vars(self._client.words))

    @property
    def title(self) -> str:
        """Title of the result and its report, one line; yours to set. Checkpoints contain it and the comments."""
        return self._client.words.title

    @title.setter
    def title(self, text: str) -> None:
        self._set_words(dataclasses.replace(self._client.words, title=str(text)))

    @property
    def comments(self) -> str:
        """Comments in the result and its report, text in Markdown; yours to set."""
        return self._client.words.comments

    @comments.setter
    def comments(self, text: str) -> None:
        self._set_words(dataclasses.replace(self._client.words, comments=str(text)))

    def _set_words(self, words: Words) -> None:
        """Once it has failed or is closed, they go into the result alone."""
        self._client.words = words
        if not self._closed and self._client.failure is None:
            with contextlib.suppress(ReconstructionError):  # which the next command raises
                self._executor.run(lambda: self._client.command("words", vars(words)))

    def save(self, path: str | Path) -> Path:
        """Write the result (HDF5). An existing file is replaced once the new one is complete.

        Parameters
        ----------
        path : str or Path
            Of the file.

        Returns
        -------
        Path
            The same.

        Raises
        ------
        FileError
            It cannot be written.
        ReconstructionError
            There is no result.
        """
        return save_result(self.result, path)

    # Changing settings

    @property
    def settings(self) -> Settings:
        """The settings; assigning takes effect on every engine before the same update.

        Only those marked live may change: `recon.settings = recon.settings.replace(probe={"learning_rate": 0.005})`.
        """
        return self._settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        changed = self._settings.differences(settings)
        fixed = [name for name in changed if not Settings.is_live(name)]
        if fixed:
            raise SettingsError(
                f"{', '.join(fixed)} cannot change during a run; reconfigure(settings) pauses it, maps its state onto "
                "them, and continues.",
                code="settings.not-live",
            )
        if changed:
            self._executor.run(lambda: self._change(settings))

    def _change(self, settings: Settings) -> None:
        self._check_usable()
        self._client.order("settings", settings.model_dump(mode="json"))
        self._settings = settings
        self._client.spec = dataclasses.replace(self._client.spec, settings=settings)

    def reconfigure_error(self, settings: Settings) -> str | None:
        """Return why `reconfigure` cannot continue with these settings.

        Parameters
        ----------
        settings : Settings
            To continue with.

        Returns
        -------
        str or None
            None where it can.
        """
        return self._branches.why_not(settings)

    def reconfigure(self, settings: Settings) -> None:
        """Continue with settings that are not live: more modes or slices, another batch, optimiser, loss.

        Pauses all engines before the same update, writes a checkpoint, opens them again from the state mapped onto the
        new settings, and continues: new probe modes are faint and orthogonal to the present ones, slices multiply to
        the object before, the optimiser's moments stay for the parameters that stay. `changes` records it; the state
        before is kept as a branch of its own. Takes about as long as opening did.

        Parameters
        ----------
        settings : Settings
            To continue with.

        Raises
        ------
        ReconstructionError
            With the text of `reconfigure_error`; the run continues as before.
        """
        if all(Settings.is_live(name) for name in self.settings.differences(settings)):
            self.settings = settings
        else:
            self._move(lambda: self._branches.reconfigure(settings))

    # Checkpoints and branches

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The checkpoints of all branches, in the order in which they were written; see `restore`."""
        return self._branches.checkpoints()

    @property
    def branches(self) -> tuple[Branch, ...]:
        """The branches, "main" first."""
        return self._branches.branches()

    @property
    def branch_name(self) -> str:
        """Name of the present branch."""
        return self._branches.name

    def restore(self, checkpoint: Which) -> None:
        """Return to a checkpoint, with its settings, and stop there.

        The record of epochs ends with it; `changes` records the step. Later checkpoints stay on disk as a branch of
        their own, and so does the present state. It is possible after a failure too, such as an object that is not
        finite any more.

        Parameters
        ----------
        checkpoint : Checkpoint, int, str or Path
            One of `checkpoints`, its epoch on the present branch, or its file.

        Raises
        ------
        ReconstructionError
            There is no such checkpoint, or the engines cannot be opened from it; nothing is changed then.
        """
        self._move(lambda: self._branches.restore(checkpoint), stops=True)

    def branch(self, name: str | None = None, checkpoint: Which | None = None) -> str:
        """Begin a branch at the present state, or at a checkpoint, and switch to it.

        At the present state a run continues; at a checkpoint it stops, as after `restore`. The previous branch keeps
        its checkpoints, and `switch_branch` returns to it.

        Parameters
        ----------
        name : str, optional
            Of the branch; None: "branch-1" or the next free one.
        checkpoint : Checkpoint, int, str or Path, optional
            As for `restore`; an epoch may be one of the branches that the present one came from.

        Returns
        -------
        str
            The branch's name.

        Raises
        ------
        ReconstructionError
            As for `restore`.
        """
        return self._move(lambda: self._branches.branch(name, checkpoint), stops=checkpoint is not None)

    def switch_branch(self, name: str) -> None:
        """Go to the newest checkpoint of another branch, and stop there; the present state is kept on its own branch.

        Parameters
        ----------
        name : str
            Of the branch.

        Raises
        ------
        ReconstructionError
            As for `restore`.
        """
        self._move(lambda: self._branches.switch_branch(name), stops=True)

    def branch_result(self, name: str) -> Result:
        """Return the result of a branch's newest checkpoint; its R-factor is NaN.

        Parameters
        ----------
        name : str
            Of the branch. For the present one `result` is newer, and has an R-factor.

        Returns
        -------
        Result
            As `result`.
        """
        return self._branches.result(name)

    def remove_branch(self, name: str) -> None:
        """Remove a branch and its checkpoints.

        Parameters
        ----------
        name : str
            Of the branch; neither the present one nor "main".

        Raises
        ------
        ReconstructionError
            It cannot be removed, or does not exist.
        """
        self._branches.drop(name)

    def _move(self, work: Callable[[], Answer], stops: bool = False) -> Answer:
        """Do work after which the engines have another state. stops: whether no run continues after it."""

        def do() -> Answer:
            failed = stops and self._client.failure is not None  # a checkpoint can lead out of a failure
            self._check_open() if failed else self._check_usable()
            try:
                answer = work()
            finally:
                self._settings, self._result_at = self._client.spec.settings, None
            if failed:
                self._follow()
            if stops:  # not where it was refused: the run continues as before then, and so does a loop
                self._stops += 1
                self._advancing = None
            return answer

        return self._executor.run(do)

    # Ending

    def close(self, *, result: bool = True) -> None:
        """Free the engines for another reconstruction; the record stays readable.

        Parameters
        ----------
        result : bool
            Whether to take the result first, which costs a pass over all patterns.
        """
        self._executor.run(lambda: self._close(result))

    def _close(self, result: bool = True) -> None:
        if self._closed:
            return
        if self._client.failure is None and self._cluster_alive():
            self._stops += 1
            self._end_run()
            if result:
                self._take_result()
        self._closed = True
        self._client.activity.set()
        if self._cluster_alive():
            self._client.engines.close()

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
        known = self._client.statuses.get(0)
        state = "failed" if self._client.failure else "closed" if self._closed else known.state if known else "loading"
        return (
            f"<Reconstruction of {self.scan.name}: {state}, epoch {self.epoch}{loss}, "
            f"{self._client.engines.description}, batch {self.batch}>"
        )

    # Connection to the engines

    def _cluster_alive(self) -> bool:
        """Whether the engines it was opened on still run; a cluster that was started again has new ones."""
        return self._cluster is None or (self._cluster.running and self._cluster.folder == self._folder)

    def _make_way(self) -> None:
        self._executor.wait()
        if self._closed or not self._cluster_alive():
            return
        if self._client.failure is None and self._busy():
            raise EnginesBusyError(
                f"The cluster's engines are running {self!r}; stop() or close() that one first.", code="engine.busy"
            )
        self.close()

    def _busy(self) -> str:
        """The state of a run that is under way, or an empty string."""
        state = self.state
        target = self._client.target_epoch
        if state == "loading" and target is not None and target > self.epoch:
            return "about to run"
        return state if state in ("running", "paused") else ""

    def _wait_until_loaded(self) -> None:
        while self._fetch().state == "loading":
            time.sleep(0.02)

    def _check_usable(self) -> None:
        """Wait for a recovery. Raises ReconstructionError where the run has failed, or is closed."""
        self._client.alive()
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise ReconstructionError("It is closed; make a new Reconstruction.", code="reconstruction.closed")
        if not self._cluster_alive():
            path = self.latest_checkpoint
            resume = "" if path is None else f", or continue with ptynb.resume({str(path)!r})"
            raise ReconstructionError(
                "Its cluster was stopped, and the engines' state is lost; start() the cluster, and make a new "
                f"Reconstruction{resume}.",
                code="cluster.stopped",
            )

    def _call(self, rank: int, method: str, *arguments: Any) -> Any:
        self._check_usable()
        return self._client.call(rank, method, *arguments)

    def _fetch(self, within: float = 0.0) -> Status:
        self._check_usable()
        return self._client.fetch(within)

    def _warn_of_notices(self) -> None:
        """Show each notice of the engines once, as a warning."""
        for notice in self.notices:
            if notice not in self._shown_notices:
                self._shown_notices.add(notice)
                warnings.warn(notice, PtynbWarning, stacklevel=3)

    def _take_result(self) -> None:
        if self._client.failure is None:
            try:
                status = self._fetch()
                now = (status.epoch, status.update, status.applied)
                if self._result is not None and now == self._result_at and status.state != "running":
                    return
                self._client.order("evaluate")
            except ReconstructionError:
                if self._client.failure is None:
                    raise
        data = self._result_data()
        if data is not None:
            status, engines = self._client.statuses[0], self._client.engines
            machines = Machines(
                engines=engines.world,
                threads=data.machines.threads,
                devices=engines.devices,
                kind=engines.description,
                backend=status.backend,
                frames=data.machines.frames,
                batch=self.batch,
                extensions=names_of(self._client.spec.extensions),
            )
            self._result = make_result(self.scan, data, machines, self._client.failure)
            self._result_at = (status.epoch, status.update, status.applied)

    def _result_data(self) -> Result | None:
        """From rank 0; after a failure from any engine that answers, since all have the same."""
        for rank in range(self._client.engines.world if self._client.failure is not None else 1):
            try:
                data: Result | None = self._client.engines.call(rank, "result", timeout=600.0)
            except EngineLostError:
                continue
            if data is not None:
                return data
        return None


def _whole(what: str, number: int, least: int = 1, of: str = "epochs") -> int:
    """A number of epochs as Python's int: numpy's own are not sent to engines."""
    try:
        value = operator.index(number)
    except TypeError:
        value = None
    if value is None or isinstance(number, bool):
        raise ReconstructionError(
            f"{what} got {quoted(number)}; expected a whole number of {of}.", code="argument.invalid-type"
        )
    if not least <= value <= MOST_EPOCHS:
        raise ReconstructionError(
            f"{what} got {quoted(value)} {of}; expected at least {least}, at most {MOST_EPOCHS}.",
            code="argument.invalid-value",
        )
    return value


def check_ranks(ranks: Sequence[int], cluster: Cluster | None) -> tuple[int, ...]:
    """Return ranks of a cluster's engines. Raises SettingsError where it has no such ranks."""
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


def make_way(cluster: Cluster, ranks: Sequence[int] | None = None) -> None:
    """Close the reconstructions on these engines of the cluster (None: on any); their results are kept.

    Raises EnginesBusyError where one is running.
    """
    with _open_lock:
        present = [*_open.get(cluster, ())]
    for recon in present:
        if ranks is None or recon._ranks is None or {*ranks} & {*recon._ranks}:
            recon._make_way()


def _follow(reference: weakref.ref[Reconstruction]) -> None:
    """Fetch the record of a reconstruction until it is closed, has failed, or is garbage."""
    pause = FOLLOW_SECONDS
    while True:
        recon = reference()
        if recon is None or recon._closed or recon.failure is not None:
            return
        activity = recon._client.activity
        del recon
        if activity.wait(pause):
            time.sleep(FOLLOW_SECONDS)  # the command is applied by then
        recon = reference()
        if recon is None or recon._closed or recon.failure is not None:
            return
        activity.clear()
        idle = recon._client.idle
        try:
            recon._fetch(within=IDLE_FOLLOW_SECONDS if idle else FOLLOW_SECONDS)
        except ReconstructionError:
            return  # it is recon.failure: shown by the view, raised at the next call
        except ClusterError:
            pass  # a late answer, or a cluster that is being stopped: the next round shows which
        pause = IDLE_LOOK_SECONDS if idle else FOLLOW_SECONDS
        del recon


def _close_last(client: EngineClient) -> None:
    client.engines.close()


def _check_extensions(extensions: Sequence[Any]) -> None:
    for extension in extensions:
        if not isinstance(extension, ModelComponent | CustomConstraint):
            raise SettingsError(
                f"extensions has {extension!r:.80}; expected instances of ptynb.ModelComponent or "
                "ptynb.CustomConstraint (an instance, not the class).",
                code="argument.invalid-type",
            )


def _local_device(device: str) -> str:
    if device not in ("auto", "cpu", "cuda"):
        raise SettingsError(f"device is {device!r}; expected 'auto', 'cpu' or 'cuda'.", code="argument.invalid-value")
    if device == "cuda" and not torch.cuda.is_available():
        raise SettingsError(
            "device is 'cuda', and torch finds no GPU. Use device='cpu', or run 'ptynb doctor'.", code="gpu.not-found"
        )
    return "cuda:0" if device != "cpu" and torch.cuda.is_available() else "cpu"
