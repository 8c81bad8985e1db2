"""Reconstruction: what a user holds. Sends commands to rank 0, follows the record, and never computes."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, get_args

import cloudpickle
import torch

from ptynb.cluster.cluster import Cluster
from ptynb.cluster.interrupts import PATIENCE_SECONDS, Errands, held_back
from ptynb.data.provenance import Machines
from ptynb.data.record import Words
from ptynb.data.scan import Scan
from ptynb.data.snapshot import Epoch, Result, Status
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
from ptynb.planning.memory_check import check_room, room_for
from ptynb.planning.memory_model import Workload
from ptynb.session.branching import BranchManager
from ptynb.session.checkpoint_ops import CheckpointMixin
from ptynb.session.engine_client import EngineClient
from ptynb.session.engines import ClusterEngines, Engines, LocalEngine
from ptynb.session.inspection import InspectionMixin
from ptynb.session.run_result import make_result, names_of
from ptynb.session.run_status import StatusMixin
from ptynb.session.spec import OnFailure, Opening
from ptynb.settings import Checkpointing, Settings
from ptynb.settings.validation import MOST_EPOCHS
from ptynb.text import quoted

Answer = TypeVar("Answer")

CHECKPOINTING = Checkpointing()
FOLLOW_SECONDS = 0.1
"""How often the record is fetched while nobody waits for it."""
IDLE_FOLLOW_SECONDS, IDLE_LOOK_SECONDS = 2.0, 0.5
"""How often it is fetched while nothing runs, and how often it is looked whether the engines' processes live."""


_open: weakref.WeakKeyDictionary[Cluster, weakref.WeakSet[Reconstruction]] = weakref.WeakKeyDictionary()
"""The reconstructions that hold a cluster's engines, or had them."""
_open_lock = threading.Lock()


class Reconstruction(StatusMixin, InspectionMixin, CheckpointMixin):
    """A reconstruction of a scan on the engines of a cluster, or in this process.

    scan: from `load`, `Scan.from_arrays` or `simulate`. settings: `Settings()` unless given.
    cluster: whose engines reconstruct; None: this process does.
    device: of this process where there is no cluster: "auto" (a GPU if there is one), "cpu", "cuda".
    timeout: seconds after which engines give up waiting for each other; those in which they are stopped don't count.
    extensions: pieces of the forward model (`ModelComponent`) and constraints (`CustomConstraint`) of your own, beside
    ptynb's.
    checkpointing: how often the state is kept in files, and where (see `Checkpointing`); None: never. `ptynb.resume`
        goes on from one.
    ranks: those of the cluster's engines that reconstruct; None: all of them. Several reconstructions can be at work
        on different engines of one cluster.
    on_failure: what happens when an engine is lost: "pause" leaves it to `recover`, "continue" goes on by itself, from
        the last kept state, on the engines that are left and fresh ones; a line in `changes` tells.

    title (one line) and comments (Markdown) are yours to set; they go into the result and its report.

    The engines begin to read the scan at once. A new reconstruction on a cluster takes its engines over from the one
    that had them, whose result is kept.
    """

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
        """One that goes on from a state; arguments: those of `_open` before `start`."""
        recon = cls.__new__(cls)
        recon._open(*arguments, start=start, epochs=state.epochs)
        recon._link.words = Words.of(state)
        return recon

    @classmethod
    def _joined(cls, cluster: Cluster, engines: Engines, opening: Opening, status: Status) -> Self:
        """One that is open on the cluster's engines already."""
        recon = cls.__new__(cls)
        recon._set_up(cluster, opening, EngineClient(engines, opening))
        with contextlib.suppress(ReconstructionError):  # an engine was lost meanwhile: it is `recover` that goes on
            recon._link.fetch()
            recon._link.r_factor_every, measured = recon._call(0, "measured")
            recon._link.r_factors = dict(measured)
            recon._link.words = recon._call(0, "words")
        if status.state not in ("ready", "closed"):
            recon._link.wanted, recon._link.suspended = status.target, status.state == "paused"
        return recon

    def _open(
        self,
        scan: Scan,
        settings: Settings,
        cluster: Cluster | None,
        device: str,
        timeout: float,
        extensions: Sequence[Any],
        keep: Checkpointing | None,
        on_failure: OnFailure,
        ranks: Sequence[int] | None = None,
        *,
        start: Path | None,
        epochs: Sequence[Epoch] = (),
    ) -> None:
        if cluster is not None and device != "auto":
            raise SettingsError(f"device is {device!r}, and a cluster has its own; give it to Cluster(...).")
        if on_failure not in get_args(OnFailure):
            raise SettingsError(f"on_failure is {on_failure!r}; expected 'pause' or 'continue'.")
        confined = None if ranks is None else check_ranks(ranks, cluster)
        engines = 1 if cluster is None else len(confined or cluster)
        check_together(scan, settings)
        check_shares(scan, settings, engines)
        _check_extensions(extensions)
        local = "cpu" if cluster is not None else _local_device(device)  # with a cluster CUDA is not even asked for
        held = 0 if cluster is None else cluster.held_bytes() * engines / len(cluster)
        room = room_for(local != "cpu") if cluster is None else room_for(cluster.plan.on_gpu, held)
        check_room(scan, Workload(settings, engines, cluster is not None, keep is not None), room)
        if cluster is not None:
            make_way(cluster, confined)
        opening = Opening(
            scan, settings, cloudpickle.dumps(tuple(extensions)), keep, timeout, on_failure, time.time(), confined
        )
        if cluster is not None:
            opened: Engines = ClusterEngines(cluster, opening, start=start)
            self._set_up(cluster, opening, EngineClient(opened, opening, epochs, start))
            return
        with held_back():  # or nobody would ever end its thread
            self._set_up(cluster, opening, EngineClient(LocalEngine(opening, local, start), opening, epochs, start))

    def _set_up(self, cluster: Cluster | None, opening: Opening, link: EngineClient) -> None:
        self.scan, self._settings, self._cluster, self._link = opening.scan, opening.settings, cluster, link
        self._places = opening.ranks
        self._lines = BranchManager(link, opening.scan, cluster)
        self._folder = None if cluster is None else cluster.folder
        self._stops = 0
        self._errands = Errands("ptynb order")
        self._advancing: int | None = None
        self._told: set[str] = set()
        self._result: Result | None = None
        self._result_at: tuple[int, int, int] | None = None
        self._closed = False
        if cluster is not None:
            with _open_lock:
                _open.setdefault(cluster, weakref.WeakSet()).add(self)
        else:
            # Nobody else would ever end its thread; on a cluster the next reconstruction does.
            weakref.finalize(self, _close_last, link)
        self._follow()

    def _follow(self) -> None:
        threading.Thread(target=_follow, args=(weakref.ref(self),), name="ptynb follower", daemon=True).start()

    # Driving

    def start(self, epochs: int = 100) -> None:
        """Trains that many more epochs in the background and returns at once.

        After `stop` it goes on exactly where it stopped, in the middle of an epoch too.
        """
        epochs = _whole("start", epochs)
        self._end_what_was_cut()
        self._errands.run(lambda: self._begin(epochs))
        self._tell()

    def run_until(self, epoch: int, update: int = 0) -> None:
        """Trains in the background until so many epochs, and updates of the next one, are completed; returns at once.

        Raises ReconstructionError where it is farther already. A lost engine ends it, whatever `on_failure` says.
        """
        epoch, update = _whole("run_until", epoch, 0), _whole("run_until", update, 0, "updates")
        self._end_what_was_cut()
        self._errands.run(lambda: self._begin_to(epoch, update))

    def _begin_to(self, epoch: int, update: int) -> None:
        if busy := self._busy():
            raise ReconstructionError(f"It is already {busy}, at epoch {self.epoch} of {self.target}; stop() it first.")
        self._alive()
        status = self._fetch()
        if (status.epoch, status.update) > (epoch, update):
            raise ReconstructionError(
                f"{epoch} epochs and {update} updates are to be reached, and {status.epoch} and {status.update} are "
                "completed; restore leads to an earlier state."
            )
        self._advancing = self._link.wanted = None
        self._link.command("reach", [epoch, update])

    def _begin(self, epochs: int, advancing: int | None = None) -> None:
        """advancing: the thread that advances epoch by epoch."""
        if busy := self._busy():
            raise ReconstructionError(
                f"It is already {busy}, at epoch {self.epoch} of {self.target}; resume() or stop() it first."
            )
        self._alive()
        self._advancing = advancing
        self._link.begin(epochs)

    def pause(self) -> None:
        """Holds all engines before the same update."""
        self._errands.run(lambda: self._hold(True))

    def resume(self) -> None:
        """Goes on after `pause`."""
        self._errands.run(lambda: self._hold(False))

    def _hold(self, suspended: bool) -> None:
        self._alive()
        self._link.suspended = suspended
        self._link.order("pause" if suspended else "resume")

    def stop(self) -> None:
        """Ends the run on all engines before the same update; `start` or `run` can go on from there."""
        self._stops += 1
        self._errands.run(self._end_run)

    def _end_run(self) -> None:
        if self._link.failure is None:
            self._link.wanted = None  # what a recovery that is under way would begin again
        self._alive()
        self._advancing = self._link.wanted = None
        self._link.order("stop")

    def _end_epoch_of(self, thread: int) -> None:
        if self._advancing == thread:
            self._end_run()

    def _end_what_was_cut(self) -> None:
        """An epoch of this thread's that goes on, since interrupts cut short what would have stopped it too."""
        if self._advancing == threading.get_ident():
            self._errands.run(self._end_run)

    def recover(self) -> None:
        """Goes on after an engine was lost: from the last kept state, on the engines that are left and fresh ones.

        A run that was under way is taken up again. Raises ReconstructionError where nothing was lost, or nothing is
        left; does nothing where nothing failed.
        """
        self._errands.run(self._recover)

    def _recover(self) -> None:
        if self._link.failure is not None:
            self._link.recover()
            self._follow()

    def keep(self, timeout: float = 600.0) -> Path:
        """Keeps the state now, and returns the file once it is whole.

        Raises ReconstructionError where that fails or takes longer than `timeout` seconds, ValueError without
        `checkpointing`.
        """
        kept, failed = self._fetch().keeps
        self._link.order("keep")
        until = time.monotonic() + timeout
        while True:
            status = self._fetch()
            if status.kept is not None and status.keeps[0] != kept:
                return Path(status.kept)
            if status.keeps[1] > failed:
                raise ReconstructionError(status.notices[-1])
            if time.monotonic() > until:
                raise ReconstructionError(f"The state was not kept within {timeout:g} s.")
            time.sleep(0.01)

    def wait(self, timeout: float | None = None) -> None:
        """Waits until it is idle. Raises TimeoutError after `timeout` seconds, ReconstructionError if it failed.

        An interrupt (Ctrl-C) ends the waiting only; the reconstruction goes on.
        """
        until = None if timeout is None else time.monotonic() + timeout
        pause = 0.002
        while True:
            status = self._fetch(within=pause)  # the follower asks too
            if status.applied >= self._link.sent and status.state == "ready":
                self._tell()
                return
            if until is not None and time.monotonic() > until:
                raise TimeoutError(
                    f"Still {status.state} after {timeout} s, at epoch {status.epoch} of {status.target}."
                )
            time.sleep(pause)
            pause = min(1.5 * pause, FOLLOW_SECONDS)

    def step(self) -> Epoch:
        """One epoch (or the rest of one that was stopped), and its record.

        Raises ReconstructionError if it is stopped meanwhile, by a click or from another thread.
        """
        epoch = self._advance()
        if epoch is None:
            raise ReconstructionError(f"It was stopped in epoch {self.epoch + 1}; step goes on from there.")
        return epoch

    def _advance(self) -> Epoch | None:
        """One epoch; None if it was stopped before its end."""
        self._end_what_was_cut()
        done, thread = len(self._link.epochs), threading.get_ident()
        try:
            self._errands.run(lambda: self._begin(1, thread))
            self._tell()
            expected = 0.9 * self._link.epochs[-1].seconds if self._link.epochs else 0.0
            time.sleep(min(expected, 1.0))
            self.wait()
        except BaseException:
            # Whoever was interrupted does not wait for a slow engine, or a recovery.
            with contextlib.suppress(TimeoutError, ReconstructionError, ClusterError):
                self._errands.run(lambda: self._end_epoch_of(thread), PATIENCE_SECONDS)
            raise
        self._advancing = None
        return self._link.epochs[done] if len(self._link.epochs) > done else None

    def run(self, epochs: int) -> Iterator[Epoch]:
        """Trains epoch by epoch: `for epoch in recon.run(50): ...`.

        The engines wait while the loop's body runs. An interrupt stops them, and so does `stop` or its button, which
        ends the loop; running again goes on where they stopped.
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

    # Looking

    @property
    def state(self) -> str:
        """ "loading", "ready", "running", "paused", "recovering", "failed" or "closed"."""
        if self._link.failure is not None:
            return "failed"
        if self._closed:
            return "closed"
        if self._link.recovering:
            return "recovering"
        self._errands.wait()  # what an interrupt made nobody wait for
        status = self._fetch()
        if status.applied < self._link.sent and status.state != "loading":
            self._link.caught_up()
            status = self._fetch()
        return status.state

    @property
    def target(self) -> int:
        """Epoch at which the present run ends; assigning another makes it longer or shorter, and `changes` tells."""
        status = self.last_status()
        return status.target if status else 0

    @target.setter
    def target(self, epoch: int) -> None:
        self._errands.run(lambda: self._aim(epoch))

    def _aim(self, epoch: int) -> None:
        epoch = _whole("target", epoch)
        if not self._busy() or self._advancing is not None:
            raise ReconstructionError(f"No run is under way that could end at epoch {epoch}; start(...) begins one.")
        if epoch <= self.epoch:
            raise ReconstructionError(f"target is {epoch}, and epoch {self.epoch} is completed; give a later one.")
        self._link.wanted = epoch
        self._link.order("target", epoch)

    @property
    def closed(self) -> bool:
        """Whether `close` was called, by the user or by another reconstruction on the same cluster."""
        return self._closed

    @property
    def cluster(self) -> Cluster | None:
        """Whose engines reconstruct; None: this process does."""
        return self._cluster

    @property
    def batch(self) -> str:
        """The effective batch, and what it is made of where each engine has its own."""
        return batch_text(self._settings, self._link.engines.world, len(self.scan))

    def status(self) -> tuple[Status, ...]:
        """Where each engine stands, by rank; asks them all now."""
        return tuple(self._call(rank, "status", 10**9) for rank in range(self._link.engines.world))

    @property
    def result(self) -> Result:
        """Object, probe, positions and the whole record as they are now; costs a pass over all patterns.

        After a failure: the state that an engine still holds, with an R-factor that is not a number.
        """
        if not self._closed and self._cluster_alive():
            self._take_result()
        if self._result is None:
            raise ReconstructionError(
                "Nothing was kept: it failed early, or its cluster was stopped before `result` or `save`."
            ) from self._link.failure
        return dataclasses.replace(self._result, **vars(self._link.words))

    @property
    def title(self) -> str:
        """Of the result and its report, one line; yours to set. It is kept with the states, as the comments are."""
        return self._link.words.title

    @title.setter
    def title(self, text: str) -> None:
        self._say(dataclasses.replace(self._link.words, title=str(text)))

    @property
    def comments(self) -> str:
        """On the result and in its report, text in Markdown; yours to set."""
        return self._link.words.comments

    @comments.setter
    def comments(self, text: str) -> None:
        self._say(dataclasses.replace(self._link.words, comments=str(text)))

    def _say(self, words: Words) -> None:
        """Once it has failed or is closed, they go into the result alone."""
        self._link.words = words
        if not self._closed and self._link.failure is None:
            with contextlib.suppress(ReconstructionError):  # which is told where something is to be done
                self._errands.run(lambda: self._link.command("words", vars(words)))

    def save(self, path: str | Path) -> Path:
        """Writes the result (HDF5). An existing file is replaced once the new one is whole."""
        return save_result(self.result, path)

    # Changing

    @property
    def settings(self) -> Settings:
        """The settings; assigning takes effect on every engine before the same update.

        Only what is marked live may change: `recon.settings = recon.settings.replace(probe={"learning_rate": 0.005})`.
        """
        return self._settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        changed = self._settings.differences(settings)
        fixed = [name for name in changed if not Settings.is_live(name)]
        if fixed:
            raise SettingsError(
                f"{', '.join(fixed)} can't change while a reconstruction runs; reconfigure(settings) holds it, maps "
                "its state onto them, and goes on."
            )
        if changed:
            self._errands.run(lambda: self._change(settings))

    def _change(self, settings: Settings) -> None:
        self._alive()
        self._link.order("settings", settings.model_dump(mode="json"))
        self._settings = settings
        self._link.settings_are(settings)

    def _move(self, work: Callable[[], Answer], stops: bool = False) -> Answer:
        """To another state: whatever is known of the present one holds no more."""

        def do() -> Answer:
            failed = stops and self._link.failure is not None  # what begins at a kept state can leave a failure behind
            self._there() if failed else self._alive()
            try:
                answer = work()
            finally:
                self._settings, self._result_at = self._link.opening.settings, None
            if failed:
                self._follow()
            if stops:  # not where it was refused: it goes on as before then, and so does a loop
                self._stops += 1
                self._advancing = None
            return answer

        return self._errands.run(do)

    def close(self, *, result: bool = True) -> None:
        """Frees the engines for another reconstruction; the record stays readable.

        result: whether the result is kept, which costs a pass over all patterns.
        """
        self._errands.run(lambda: self._close(result))

    def _close(self, result: bool = True) -> None:
        if self._closed:
            return
        if self._link.failure is None and self._cluster_alive():
            self._stops += 1
            self._end_run()
            if result:
                self._take_result()
        self._closed = True
        self._link.activity.set()
        if self._cluster_alive():
            self._link.engines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is None or not issubclass(kind, KeyboardInterrupt):
            self.close()
            return
        with contextlib.suppress(
            TimeoutError, ReconstructionError, ClusterError
        ):  # it goes on without being waited for
            self._errands.run(self._close, PATIENCE_SECONDS)

    def __repr__(self) -> str:
        loss = f", loss {self._link.epochs[-1].loss:.5g}" if self._link.epochs else ""
        known = self._link.statuses.get(0)
        state = "failed" if self._link.failure else "closed" if self._closed else known.state if known else "loading"
        return (
            f"<Reconstruction of {self.scan.name}: {state}, epoch {self.epoch}{loss}, "
            f"{self._link.engines.description}, batch {self.batch}>"
        )

    # How it follows the engines

    def _cluster_alive(self) -> bool:
        """Whether the engines it was opened on still run: a cluster that was started again has others."""
        return self._cluster is None or (self._cluster.running and self._cluster.folder == self._folder)

    def _make_way(self) -> None:
        self._errands.wait()
        if self._closed or not self._cluster_alive():
            return
        if self._link.failure is None and self._busy():
            raise EnginesBusyError(f"The cluster's engines are at work for {self!r}; stop() or close() that one first.")
        self.close()

    def _busy(self) -> str:
        """What it is doing, or nothing: an empty string."""
        state = self.state
        wanted = self._link.wanted
        if state == "loading" and wanted is not None and wanted > self.epoch:
            return "about to run"
        return state if state in ("running", "paused") else ""

    def _loaded(self) -> None:
        while self._fetch().state == "loading":
            time.sleep(0.02)

    def _alive(self) -> None:
        self._link.alive()
        self._there()

    def _there(self) -> None:
        """Raises ReconstructionError where there is nothing any more that could be asked."""
        if self._closed:
            raise ReconstructionError("It is closed; make a new Reconstruction.")
        if not self._cluster_alive():
            raise ReconstructionError(
                "Its cluster was stopped, and what the engines held is gone; start() the cluster, and make a new "
                f"Reconstruction{self._way_on()}."
            )

    def _way_on(self) -> str:
        kept = self.latest_checkpoint
        return "" if kept is None else f", or go on with ptynb.resume({str(kept)!r})"

    def _call(self, rank: int, method: str, *arguments: Any) -> Any:
        self._alive()
        return self._link.call(rank, method, *arguments)

    def _order(self, kind: str, value: Any) -> None:
        def give() -> None:
            self._alive()
            self._link.order(kind, value)

        self._errands.run(give)

    def _fetch(self, within: float = 0.0) -> Status:
        self._alive()
        return self._link.fetch(within)

    def _tell(self) -> None:
        """Warns, once each, of what went wrong on the engines without stopping anything."""
        for notice in self.notices:
            if notice not in self._told:
                self._told.add(notice)
                warnings.warn(notice, PtynbWarning, stacklevel=3)

    def _take_result(self) -> None:
        if self._link.failure is None:
            try:
                status = self._fetch()
                now = (status.epoch, status.update, status.applied)
                if self._result is not None and now == self._result_at and status.state != "running":
                    return
                self._link.order("evaluate")
            except ReconstructionError:
                if self._link.failure is None:
                    raise
        kept = self._kept()
        if kept is not None:
            status = self._link.statuses[0]
            machines = self._machines(kept, status)
            self._result = make_result(self.scan, kept, machines, self._link.failure)
            self._result_at = (status.epoch, status.update, status.applied)

    def _machines(self, kept: Result, status: Status) -> Machines:
        engines = self._link.engines
        return Machines(
            engines=engines.world,
            threads=kept.machines.threads,
            devices=engines.devices,
            kind=engines.description,
            backend=status.backend,
            frames=kept.machines.frames,
            batch=self.batch,
            extensions=names_of(self._link.opening.extensions),
        )

    def _kept(self) -> Result | None:
        """What rank 0 holds; after a failure what any engine still holds, since all hold the same."""
        for rank in range(self._link.engines.world if self._link.failure is not None else 1):
            try:
                kept: Result | None = self._link.engines.call(rank, "result", timeout=600.0)
            except EngineLostError:
                continue
            if kept is not None:
                return kept
        return None


def _whole(what: str, number: int, least: int = 1, of: str = "epochs") -> int:
    """A number of epochs as Python has it: numpy's own do not travel to other engines."""
    try:
        found = operator.index(number)
    except TypeError:
        found = None
    if found is None or isinstance(number, bool):
        raise ReconstructionError(f"{what} got {quoted(number)}; expected a whole number of {of}.")
    if not least <= found <= MOST_EPOCHS:
        raise ReconstructionError(f"{what} got {quoted(found)} {of}; expected at least {least}, at most {MOST_EPOCHS}.")
    return found


def check_ranks(ranks: Sequence[int], cluster: Cluster | None) -> tuple[int, ...]:
    """Ranks of a cluster's engines. Raises SettingsError where there are none of these."""
    if cluster is None:
        raise SettingsError(f"ranks is {[*ranks]}, and there is no cluster whose engines these could be; give one.")
    known = range(len(cluster))
    if not ranks or len({*ranks}) < len(ranks) or not {*ranks} <= {*known}:
        raise SettingsError(f"ranks is {[*ranks]}; expected different ranks from 0 to {len(cluster) - 1}.")
    return tuple(int(place) for place in ranks)


def make_way(cluster: Cluster, ranks: Sequence[int] | None = None) -> None:
    """Ends what is open on these engines of the cluster, on any of them for None; its result is kept.

    Raises EnginesBusyError where one of them is at work.
    """
    with _open_lock:
        found = [*_open.get(cluster, ())]
    for recon in found:
        if ranks is None or recon._places is None or {*ranks} & {*recon._places}:
            recon._make_way()


def _follow(reference: weakref.ref[Reconstruction]) -> None:
    """Keeps the record of a reconstruction fresh until it is closed, has failed, or nobody holds it any more."""
    pause = FOLLOW_SECONDS
    while True:
        recon = reference()
        if recon is None or recon._closed or recon.failure is not None:
            return
        activity = recon._link.activity
        del recon
        if activity.wait(pause):
            time.sleep(FOLLOW_SECONDS)  # what was commanded is obeyed by then
        recon = reference()
        if recon is None or recon._closed or recon.failure is not None:
            return
        activity.clear()
        idle = recon._link.idle
        try:
            recon._fetch(within=IDLE_FOLLOW_SECONDS if idle else FOLLOW_SECONDS)
        except ReconstructionError:
            return  # kept as recon.failure: shown by the view, raised at the next call
        except ClusterError:
            pass  # an answer that came too late, or a cluster that stops just now: the next round tells
        pause = IDLE_LOOK_SECONDS if idle else FOLLOW_SECONDS
        del recon


def _close_last(link: EngineClient) -> None:
    link.engines.close()


def _check_extensions(extensions: Sequence[Any]) -> None:
    for extension in extensions:
        if not isinstance(extension, ModelComponent | CustomConstraint):
            raise SettingsError(
                f"extensions holds {extension!r:.80}; expected instances of ptynb.ModelComponent or "
                "ptynb.CustomConstraint "
                "(an instance, not the class)."
            )


def _local_device(device: str) -> str:
    if device not in ("auto", "cpu", "cuda"):
        raise SettingsError(f"device is {device!r}; expected 'auto', 'cpu' or 'cuda'.")
    if device == "cuda" and not torch.cuda.is_available():
        raise SettingsError("device is 'cuda', and torch finds no GPU. Use device='cpu', or run 'ptynb doctor'.")
    return "cuda:0" if device != "cpu" and torch.cuda.is_available() else "cpu"
