"""Reconstruction: what a user holds. Sends commands to rank 0, follows the record, and never computes."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import torch

from ptynb.driver.cluster import Cluster, EngineLostError
from ptynb.driver.devices import ClusterError
from ptynb.driver.engines import ClusterEngines, Engines, LocalEngine
from ptynb.driver.memory import Asked
from ptynb.driver.outcome import find_cause, make_result
from ptynb.driver.room import check_room, room_for
from ptynb.driver.shares import batch_text, check_shares
from ptynb.engine.worker import Command
from ptynb.io.result import save_result
from ptynb.physics.build import check_together
from ptynb.physics.piece import Imposed, Piece
from ptynb.scan import Scan
from ptynb.settings import Settings, SettingsError
from ptynb.snapshot import Change, Epoch, Kept, PictureRequest, Pictures, Result, Snapshot, Status

FOLLOW_SECONDS = 0.1
"""How often the record is fetched while nobody waits for it."""

_open: weakref.WeakKeyDictionary[Cluster, weakref.ref[Reconstruction]] = weakref.WeakKeyDictionary()
"""The reconstruction that holds a cluster's engines."""


class ReconstructionError(RuntimeError):
    """A reconstruction that failed or can't do what was asked; with rank and traceback where an engine raised."""


class Reconstruction:
    """A reconstruction of a scan on the engines of a cluster, or in this process.

    scan: from `load`, `Scan.from_arrays` or `simulate`. settings: `Settings()` unless given.
    cluster: whose engines reconstruct; None: this process does.
    device: of this process where there is no cluster: "auto" (a GPU if there is one), "cpu", "cuda".
    timeout: seconds after which engines give up waiting for each other.
    extensions: pieces of the forward model (`Piece`) and constraints (`Imposed`) of your own, beside ptynb's.

    The engines begin to read the scan at once. A new reconstruction on a cluster takes the engines over from the one
    before it, whose result is kept.
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
    ) -> None:
        self.scan = scan
        self._settings = settings or Settings()
        self._cluster = cluster
        self._folder = None if cluster is None else cluster.folder
        if cluster is not None and device != "auto":
            raise SettingsError(f"device is {device!r}, and a cluster has its own; give it to Cluster(...).")
        engines = 1 if cluster is None else len(cluster)
        check_shares(scan, self._settings, engines)
        check_together(scan, self._settings)
        _check_extensions(extensions)
        local = "cpu" if cluster is not None else _local_device(device)  # with a cluster CUDA is not even asked for
        room = room_for(local != "cpu") if cluster is None else room_for(cluster.plan.on_gpu, cluster.held_bytes())
        check_room(scan, Asked(self._settings, engines, cluster is not None), room)
        self._lock = threading.RLock()
        self._epochs: list[Epoch] = []
        self._statuses: dict[int, Status] = {}
        self._sent = 0
        self._stops = 0
        self._started = False
        self._failure: ReconstructionError | None = None
        self._result: Result | None = None
        self._result_at: tuple[int, int, int] | None = None
        self._closed = False
        if cluster is not None:
            holder = _open.get(cluster)
            if (before := holder() if holder else None) is not None:
                before._make_way()
        self._engines: Engines = (
            LocalEngine(scan, self._settings, tuple(extensions), local)
            if cluster is None
            else ClusterEngines(cluster, scan, self._settings, tuple(extensions), timeout)
        )
        if cluster is not None:
            _open[cluster] = weakref.ref(self)
        else:
            # Nobody else would ever end its thread; on a cluster the next reconstruction does.
            weakref.finalize(self, self._engines.close)
        self._follower = threading.Thread(target=_follow, args=(weakref.ref(self),), name="ptynb follower", daemon=True)
        self._follower.start()

    # Driving

    def start(self, epochs: int = 100) -> None:
        """Trains that many more epochs in the background and returns at once.

        After `stop` it goes on exactly where it stopped, in the middle of an epoch too.
        """
        if epochs < 1:
            raise ReconstructionError(f"start got {epochs} epochs; expected at least 1.")
        if busy := self._busy():
            raise ReconstructionError(
                f"It is already {busy}, at epoch {self.epoch} of {self.target}; resume() or stop() it first."
            )
        self._command("start", epochs)
        self._started = True

    def pause(self) -> None:
        """Holds all engines before the same update."""
        self._obeyed(self._command("pause"))

    def resume(self) -> None:
        """Goes on after `pause`."""
        self._obeyed(self._command("resume"))

    def stop(self) -> None:
        """Ends the run on all engines before the same update; `start` or `run` can go on from there."""
        self._stops += 1
        self._obeyed(self._command("stop"))

    def wait(self, timeout: float | None = None) -> None:
        """Waits until it is idle. Raises TimeoutError after `timeout` seconds, ReconstructionError if it failed.

        An interrupt (Ctrl-C) ends the waiting only; the reconstruction goes on.
        """
        until = None if timeout is None else time.monotonic() + timeout
        pause = 0.002
        while True:
            status = self._fetch()
            if status.applied >= self._sent and status.state == "ready":
                return
            if until is not None and time.monotonic() > until:
                raise TimeoutError(
                    f"Still {status.state} after {timeout} s, at epoch {status.epoch} of {status.target}."
                )
            time.sleep(pause)
            pause = min(1.5 * pause, 0.05)

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
        done = len(self._epochs)
        self.start(1)
        try:
            expected = 0.9 * self._epochs[-1].seconds if self._epochs else 0.0
            time.sleep(min(expected, 1.0))
            self.wait()
        except BaseException:
            if self._failure is None:
                self.stop()
            raise
        return self._epochs[done] if len(self._epochs) > done else None

    def run(self, epochs: int) -> Iterator[Epoch]:
        """Trains epoch by epoch: `for epoch in recon.run(50): ...`.

        The engines wait while the loop's body runs. An interrupt stops them, and so does `stop` or its button, which
        ends the loop; running again goes on where they stopped.
        """
        if epochs < 1:
            raise ReconstructionError(f"run got {epochs} epochs; expected at least 1.")
        return self._run(epochs)

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
        """ "loading", "ready", "running", "paused", "failed" or "closed"."""
        if self._failure is not None:
            return "failed"
        if self._closed:
            return "closed"
        status = self._fetch()
        if status.applied < self._sent and status.state != "loading":
            self._obeyed(self._sent)
            status = self._fetch()
        return status.state

    @property
    def epoch(self) -> int:
        """Epochs completed."""
        return len(self._epochs)

    @property
    def target(self) -> int:
        """Epoch at which the present run ends."""
        status = self._statuses.get(0)
        return status.target if status else 0

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The record of all epochs completed, as far as it has come here (at most 0.1 s ago)."""
        return tuple(self._epochs)

    @property
    def changes(self) -> tuple[Change, ...]:
        """Settings changed so far, with the epoch and update before which all engines took them over."""
        status = self._statuses.get(0)
        return status.changes if status else ()

    @property
    def failure(self) -> ReconstructionError | None:
        """What ended it, if something did."""
        return self._failure

    @property
    def closed(self) -> bool:
        """Whether `close` was called, by the user or by another reconstruction on the same cluster."""
        return self._closed

    @property
    def engines(self) -> str:
        """What reconstructs: number and kind of engines, the backend between them, and whether frames are on disk."""
        status = self._statuses.get(0)
        joined = f", {status.backend}" if status and status.world > 1 else ""
        streamed = ", frames read from disk" if status and status.frames == "disk" else ""
        return f"{self._engines.description}{joined}{streamed}"

    @property
    def batch(self) -> str:
        """The effective batch, and what it is made of where each engine has its own."""
        return batch_text(self._settings, self._engines.world, len(self.scan))

    def status(self) -> tuple[Status, ...]:
        """Where each engine stands, by rank; asks them all now."""
        return tuple(self._call(rank, "status", 10**9) for rank in range(self._engines.world))

    def last_status(self) -> Status | None:
        """Where rank 0 stood at most 0.1 s ago; asks nobody."""
        return self._statuses.get(0)

    def snapshot(self, size: int = 512) -> Snapshot:
        """A preview of object and probe from rank 0, the object reduced to at most `size` pixels a side."""
        if size < 1:
            raise ReconstructionError(f"snapshot got a size of {size} pixels; expected at least 1.")
        self._loaded()
        snapshot: Snapshot = self._call(0, "snapshot", size)
        return snapshot

    def pictures(self, request: PictureRequest) -> Pictures | None:
        """Pictures for a screen, made on rank 0; None while the engines are still loading."""
        pictures: Pictures | None = self._call(0, "pictures", request)
        return pictures

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
            ) from self._failure
        return self._result

    def save(self, path: str | Path) -> Path:
        """Writes the result (HDF5). An existing file is replaced once the new one is whole."""
        return save_result(self.result, path)

    # Changing

    @property
    def settings(self) -> Settings:
        """The settings; assigning takes effect on every engine before the same update.

        Only what is marked live may change: `recon.settings = recon.settings.replace(probe={"rate": 0.005})`.
        """
        return self._settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        changed = self._settings.differences(settings)
        fixed = [name for name in changed if not Settings.is_live(name)]
        if fixed:
            raise SettingsError(
                f"{', '.join(fixed)} can't change in a reconstruction that has begun; "
                "make a new Reconstruction with these settings."
            )
        if changed:
            self._obeyed(self._command("settings", settings.model_dump(mode="json")))
            self._settings = settings

    def close(self) -> None:
        """Keeps the result and frees the engines for another reconstruction; the record stays readable."""
        if self._closed:
            return
        if self._failure is None and self._cluster_alive():
            self.stop()
            self._take_result()
        with self._lock:
            self._closed = True
        if self._cluster_alive():
            self._engines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        loss = f", loss {self._epochs[-1].loss:.5g}" if self._epochs else ""
        known = self._statuses.get(0)
        state = "failed" if self._failure else "closed" if self._closed else known.state if known else "loading"
        return (
            f"<Reconstruction of {self.scan.name}: {state}, epoch {self.epoch}{loss}, {self._engines.description}, "
            f"batch {self.batch}>"
        )

    # How it follows the engines

    def _cluster_alive(self) -> bool:
        """Whether the engines it was opened on still run: a cluster that was started again has others."""
        return self._cluster is None or (self._cluster.running and self._cluster.folder == self._folder)

    def _make_way(self) -> None:
        if self._closed or not self._cluster_alive():
            return
        if self._failure is None and self._busy():
            raise ReconstructionError(
                f"The cluster's engines are at work for {self!r}; stop() or close() that one first."
            )
        self.close()

    def _busy(self) -> str:
        """What it is doing, or nothing: an empty string."""
        state = self.state
        if state == "loading" and self._started:
            return "about to run"
        return state if state in ("running", "paused") else ""

    def _command(self, kind: Any, value: Any = None) -> int:
        self._alive()
        number: int = self._call(0, "command", Command(kind, value))
        with self._lock:
            self._sent = max(self._sent, number)
        return number

    def _obeyed(self, number: int) -> None:
        pause = 0.001
        while self._fetch().applied < number:
            time.sleep(pause)
            pause = min(1.5 * pause, 0.02)

    def _loaded(self) -> None:
        while self._fetch().state == "loading":
            time.sleep(0.02)

    def _alive(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise ReconstructionError("It is closed; make a new Reconstruction.")
        if not self._cluster_alive():
            raise ReconstructionError(
                "Its cluster was stopped, and what the engines held is gone; "
                "start() the cluster and make a new Reconstruction."
            )

    def _call(self, rank: int, method: str, *arguments: Any) -> Any:
        self._alive()
        try:
            return self._engines.call(rank, method, *arguments)
        except EngineLostError as error:
            self._fail(error)
            raise self._failure or error from None

    def _fetch(self) -> Status:
        """Rank 0's status, with the records of new epochs taken over. Raises what ended the reconstruction."""
        with self._lock:
            status: Status = self._call(0, "status", len(self._epochs))
            self._epochs += status.epochs
            self._statuses[0] = status
        if status.failure is not None:
            self._fail(None)
            self._alive()
        return status

    def _fail(self, lost: Exception | None) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = ReconstructionError(find_cause(self._engines, lost))

    def _take_result(self) -> None:
        if self._failure is None:
            try:
                status = self._fetch()
                now = (status.epoch, status.update, status.applied)
                if self._result is not None and now == self._result_at and status.state != "running":
                    return
                self._obeyed(self._command("evaluate"))
            except ReconstructionError:
                if self._failure is None:
                    raise
        kept = self._kept()
        if kept is not None:
            status = self._statuses[0]
            self._result = make_result(
                self.scan, kept, self._engines.description, status.backend, self.batch, self._failure
            )
            self._result_at = (status.epoch, status.update, status.applied)

    def _kept(self) -> Kept | None:
        """What rank 0 holds; after a failure what any engine still holds, since all hold the same."""
        for rank in range(self._engines.world if self._failure is not None else 1):
            try:
                kept: Kept | None = self._engines.call(rank, "result", timeout=600.0)
            except EngineLostError:
                continue
            if kept is not None:
                return kept
        return None


def _follow(reference: weakref.ref[Reconstruction]) -> None:
    """Keeps the record of a reconstruction fresh until it is closed, has failed, or nobody holds it any more."""
    while True:
        time.sleep(FOLLOW_SECONDS)
        recon = reference()
        if recon is None or recon._closed or recon._failure is not None:
            return
        try:
            recon._fetch()
        except ReconstructionError:
            return  # kept as recon.failure: shown by the view, raised at the next call
        except ClusterError:
            pass  # an answer that came too late, or a cluster that stops just now: the next round tells
        del recon


def _check_extensions(extensions: Sequence[Any]) -> None:
    for extension in extensions:
        if not isinstance(extension, Piece | Imposed):
            raise SettingsError(
                f"extensions holds {extension!r:.80}; expected instances of ptynb.Piece or ptynb.Imposed "
                "(an instance, not the class)."
            )


def _local_device(device: str) -> str:
    if device not in ("auto", "cpu", "cuda"):
        raise SettingsError(f"device is {device!r}; expected 'auto', 'cpu' or 'cuda'.")
    if device == "cuda" and not torch.cuda.is_available():
        raise SettingsError("device is 'cuda', and torch finds no GPU. Use device='cpu', or run 'ptynb doctor'.")
    return "cuda:0" if device != "cpu" and torch.cuda.is_available() else "cpu"
