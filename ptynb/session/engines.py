"""Engines of one reconstruction as its session uses them: engines of a cluster, or this process."""

from __future__ import annotations

import contextlib
import pickle
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, final

from ptynb.cluster.accelerators import device_name
from ptynb.cluster.cluster import Cluster
from ptynb.cluster.engine_groups import memberships
from ptynb.distributed.group import Membership, nothing
from ptynb.engine import run_registry
from ptynb.engine.status_publisher import Deliver
from ptynb.engine.worker import Worker
from ptynb.exceptions import ClusterError, EngineLostError, PluginError, SettingsError
from ptynb.plugins import Plugin
from ptynb.session.run_spec import RunSpec
from ptynb.text import counted

FOLLOW_SECONDS = 60.0
"""Time limit for the answer of rank 0 to `follow` [s]."""
FOLLOW_OTHER_SECONDS = 2.0
"""The same of each other rank [s], which need not be followed: one may be suspended."""
ABANDON_SECONDS = 5.0
"""Time limit for the end of a worker of a failed reconstruction [s]."""

ChangeNote = tuple[str, str, str]
"""Name, old value and new value of an entry in `changes`."""


class Engines(ABC):
    """The workers of one reconstruction, by rank."""

    name: str
    world: int
    description: str
    devices: tuple[str, ...]

    @abstractmethod
    def call(self, rank: int, method: str, *arguments: Any, timeout: float = 60.0) -> Any:
        """Call a method of the worker of this rank. Raises EngineLostError if its engine is lost."""

    @abstractmethod
    def follow(self, receive: Deliver, known: int, ended: Callable[[], None] = nothing) -> None:
        """Call `receive` with the status of rank 0 now and after each change, from other threads, until `close`.

        Of other ranks it is called with a failure. known: number of epochs whose records are not sent. ended: called at
        once at the end of a rank's worker or process, where this can be known. Replaces the functions of an earlier
        call. Raises EngineLostError for rank 0.
        """

    @abstractmethod
    def unfollow(self) -> None:
        """End `follow`."""

    @property
    def launched_by(self) -> tuple[Plugin, ...]:
        """The plug-in that started the engines, if one did."""
        return ()

    def check_plugins(self, used: tuple[Plugin, ...]) -> None:  # noqa: B027 - those of this process are checked already
        """Raise PluginError if one of these plug-ins is missing on an engine, or is another version there."""

    @property
    @abstractmethod
    def reachable(self) -> bool:
        """Whether the engines were not stopped, with their cluster."""

    @abstractmethod
    def lost(self) -> str:
        """Return why one of the engines is lost; empty if none is."""

    @abstractmethod
    def suspended(self, rank: int) -> str:
        """Return a message if a signal suspends the process of this rank or of the controller; empty otherwise."""

    @abstractmethod
    def stacks(self, rank: int) -> str:
        """Return the stacks of this rank's training threads, or why they are not available."""

    @abstractmethod
    def logs(self) -> list[Path]:
        """Return the log files of the cluster's processes."""

    @abstractmethod
    def close(self) -> None:
        """End the workers and free their memory."""

    @abstractmethod
    def abandon(self) -> None:
        """End the workers after the loss of an engine; kill the process of a worker that does not end."""

    @abstractmethod
    def replaced(self, spec: RunSpec, start: Path | None, why: str, note: ChangeNote | None = None) -> Engines:
        """Open new workers after one was lost or failed, on the remaining engines and on new ones.

        start: the checkpoint to continue from; None: start from the beginning. why: reason for the record of changes.
        note: entry for that record instead of the one about the number of engines. Raises ClusterError, or
        SettingsError if the engines refuse the settings.
        """

    @abstractmethod
    def reopened(self, spec: RunSpec, start: Path, note: ChangeNote | None) -> Engines:
        """Open new workers in place of these closed ones, on the same engines, from this checkpoint.

        note: entry for the record of changes. Raises ClusterError, or SettingsError if the engines refuse the settings.
        """


@dataclass(frozen=True)
class OwnRank:
    """This process as an engine: alone, or as rank 0 of a group of processes that another launcher started.

    description: of all engines. devices: of all ranks. one_host: whether all ranks are on this host. announce: called
    with what the other ranks are to open, too. lost: returns why another rank is lost; empty if none is.
    """

    membership: Membership
    description: str
    devices: tuple[str, ...]
    one_host: bool = True
    announce: Callable[[RunSpec, Path | None], None] = lambda spec, start: None
    lost: Callable[[], str] = lambda: ""

    @classmethod
    def alone(cls, device: str) -> OwnRank:
        """Return that of a process that reconstructs alone. device: as torch names it."""
        identity = device_name(device)
        membership = Membership(rank=0, world=1, store="", backend="none", device=device, identity=identity)
        return cls(membership, f"this process on {identity}", (identity,))


@final
class LocalEngine(Engines):
    """The worker of rank 0 in a thread of this process; others, if there are any, are in processes of their own."""

    def __init__(self, spec: RunSpec, own: OwnRank, start: Path | None = None, note: ChangeNote | None = None) -> None:
        self._own = own
        self.name, self.world = secrets.token_hex(4), own.membership.world
        self.description, self.devices = own.description, own.devices
        own.announce(spec, start)
        extensions = pickle.loads(spec.extensions)  # copies, as on the engines of a cluster
        self._worker = Worker(
            spec.scan, spec.settings, own.membership, extensions, spec.checkpointing, start, note, spec.plan
        )

    def call(self, rank: int, method: str, *arguments: Any, timeout: float = 60.0) -> Any:
        if rank:
            raise EngineLostError(f"Rank {rank} is a process that answers no requests.", code="engine.no-answer")
        return getattr(self._worker, method)(*arguments)

    def follow(self, receive: Deliver, known: int, ended: Callable[[], None] = nothing) -> None:
        self._worker.follow(receive, known)

    def unfollow(self) -> None:
        """Do nothing: it ends with the worker."""

    @property
    def reachable(self) -> bool:
        return True

    def lost(self) -> str:
        return self._own.lost()

    def suspended(self, rank: int) -> str:
        return ""

    def stacks(self, rank: int) -> str:
        return run_registry.stacks()

    def logs(self) -> list[Path]:
        return []

    def close(self) -> None:
        if self.lost():  # the worker may wait for that rank
            try:
                self._worker.abandon(ABANDON_SECONDS)
            except TimeoutError:  # or only write its last checkpoint
                if self._worker.status().state not in ("failed", "closed"):
                    raise
        self._worker.close()
        self._worker.release()

    def abandon(self) -> None:
        with contextlib.suppress(TimeoutError):
            self.close()

    def replaced(self, spec: RunSpec, start: Path | None, why: str, note: ChangeNote | None = None) -> Engines:
        self.abandon()
        return LocalEngine(spec, self._own, start, note or ("engines", why, self.description))

    def reopened(self, spec: RunSpec, start: Path, note: ChangeNote | None) -> Engines:
        return LocalEngine(spec, self._own, start, note)


@final
class ClusterEngines(Engines):
    """One worker on each of several engines of a cluster, joined in a group.

    ranks: ranks in the cluster, in the order of the ranks in the group; None: those of `spec`, or all after lost
    engines are replaced.
    """

    _store: str

    def __init__(
        self,
        cluster: Cluster,
        spec: RunSpec,
        ranks: list[int] | None = None,
        start: Path | None = None,
        note: ChangeNote | None = None,
    ) -> None:
        if cluster.folder is None:
            raise ClusterError("The cluster is stopped; start() it first.", code="cluster.stopped")
        end_forgotten(cluster, ranks or spec.ranks)
        if ranks is None and spec.ranks is None:
            cluster.complete()
        if ranks is None:
            ranks = [*range(len(cluster))] if spec.ranks is None else [*spec.ranks]
        self._set_up(cluster, secrets.token_hex(4), ranks)
        self.check_plugins(spec.plugins)
        self._store = cluster.open_store(self._ranks[0])
        remembered = spec.without_patterns()
        arguments = [
            (
                self.name,
                remembered,
                spec.scan.part(spec.patterns_of(rank, self.world)),
                spec.settings,
                spec.extensions,
                membership,
                spec.checkpointing,
                start,
                note,
            )
            for rank, membership in enumerate(memberships(cluster, self._ranks, self._store, spec.timeout))
        ]
        try:
            answers = cluster.call_all(self._ranks, run_registry.open_worker, arguments, timeout=600.0)
        except ClusterError:
            self.abandon()  # the other workers are waiting for the lost one
            raise
        if refused := next(filter(None, answers), None):
            self.abandon()
            raise SettingsError(refused[0], code=refused[1], fields=refused[2])

    @classmethod
    def joined(cls, cluster: Cluster, name: str, ranks: list[int]) -> ClusterEngines:
        """Connect to the workers that are open under this name on these engines."""
        engines = cls.__new__(cls)
        engines._set_up(cluster, name, ranks)
        engines._store = ""
        return engines

    def _set_up(self, cluster: Cluster, name: str, ranks: list[int]) -> None:
        self._cluster, self._folder, self.name, self._ranks = cluster, cluster.folder, name, ranks
        self._launched_by = cluster.launched_by
        self._end_following: Callable[[], None] = nothing
        self.world = len(ranks)
        self.devices = tuple(cluster.plan.engines[rank].identity for rank in ranks)
        self.description = f"{counted(self.world, 'engine')} on {cluster.plan.engines[0].kind}"

    @property
    def launched_by(self) -> tuple[Plugin, ...]:
        return self._launched_by

    def check_plugins(self, used: tuple[Plugin, ...]) -> None:
        if not used:
            return
        answers = self._cluster.call_all(self._ranks, run_registry.check_plugins, [(used,)] * len(self._ranks))
        for rank, problem in zip(self._ranks, answers, strict=True):
            if problem:
                raise PluginError(f"On the engine of rank {rank}: {problem[0]}", code=problem[1])

    def call(self, rank: int, method: str, *arguments: Any, timeout: float = 60.0) -> Any:
        return self._cluster.caller.call_worker(self._ranks[rank], (self.name, method, *arguments), timeout)

    def follow(self, receive: Deliver, known: int, ended: Callable[[], None] = nothing) -> None:
        self.unfollow()
        follow = self._cluster.caller.follow_worker
        with contextlib.ExitStack() as followed:
            followed.callback(follow(self._ranks[0], (self.name, known), receive, ended, FOLLOW_SECONDS))
            for rank in self._ranks[1:]:
                with contextlib.suppress(ClusterError):  # the checks whether the processes live find it, too
                    followed.callback(follow(rank, (self.name, 10**9), receive, ended, FOLLOW_OTHER_SECONDS))
            self._end_following = followed.pop_all().close

    def unfollow(self) -> None:
        self._end_following()

    @property
    def reachable(self) -> bool:
        return self._cluster.running and self._cluster.folder == self._folder

    def lost(self) -> str:
        return next(filter(None, (self._cluster.why_lost(rank) for rank in self._ranks)), "")

    def suspended(self, rank: int) -> str:
        return self._cluster.suspended(self._ranks[rank])

    def stacks(self, rank: int) -> str:
        try:
            stacks: str = self._cluster.call(self._ranks[rank], run_registry.stacks, timeout=2.0)
        except ClusterError as error:
            return self.suspended(rank) or str(error)
        return stacks

    def logs(self) -> list[Path]:
        return self._cluster.logs()

    def close(self) -> None:
        try:
            if self.reachable:
                alive = self._cluster.alive()
                ranks = [rank for rank in self._ranks if rank in alive]
                with contextlib.suppress(EngineLostError):  # the engine has ended, and its worker with it
                    self._cluster.call_all(ranks, run_registry.close_worker, [(self.name,)] * len(ranks))
        finally:
            self.unfollow()
            self._cluster.close_store(self._store)

    def replaced(self, spec: RunSpec, start: Path | None, why: str, note: ChangeNote | None = None) -> Engines:
        if self._cluster.ended_from_outside:
            raise ClusterError(
                "The cluster was ended by 'ptynb stop'; start a new one, and resume(...) from the latest checkpoint.",
                code="cluster.stopped",
            )
        self.abandon()
        self._cluster.replace_lost()
        ranks = [rank for rank in self._cluster.alive() if spec.ranks is None or rank in spec.ranks]
        if not ranks:
            of = "the cluster" if spec.ranks is None else f"ranks={[*spec.ranks]}"
            raise ClusterError(
                f"No engine of {of} is left; stop() the cluster, and start a new one.", code="engine.lost"
            )
        now = "1 engine continues" if len(ranks) == 1 else f"{len(ranks)} engines continue"
        return ClusterEngines(self._cluster, spec, ranks, start, note or ("engines", why, now))

    def reopened(self, spec: RunSpec, start: Path, note: ChangeNote | None) -> Engines:
        return ClusterEngines(self._cluster, spec, self._ranks, start, note)

    def abandon(self) -> None:
        for rank in sorted({*self._cluster.alive()} & {*self._ranks}):
            try:
                self._cluster.call(
                    rank, run_registry.abandon_worker, self.name, ABANDON_SECONDS, timeout=ABANDON_SECONDS + 2
                )
            except ClusterError:
                self._cluster.kill(rank)
        self.unfollow()
        self._cluster.close_store(self._store)


def end_forgotten(cluster: Cluster, ranks: Sequence[int] | None) -> None:
    """End reconstructions that no kernel uses and that have workers on these engines (None: any), on all their engines.

    A worker of rank above 0 waits for a command of rank 0 in its group, so it cannot be ended alone.
    """
    alive = cluster.alive()
    chosen = alive if ranks is None else [rank for rank in alive if rank in ranks]
    names = chain.from_iterable(cluster.call_all(chosen, run_registry.open_names, [()] * len(chosen)))
    for name in sorted({*names}):
        forgotten = ClusterEngines.joined(cluster, name, alive)
        try:
            forgotten.close()
        except ClusterError:
            forgotten.abandon()
