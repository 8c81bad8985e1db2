"""The engines of one reconstruction as its session sees them: those of a cluster, or this very process."""

from __future__ import annotations

import contextlib
import pickle
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, final

import torch

from ptynb.cluster.cluster import Cluster
from ptynb.cluster.devices import counted
from ptynb.cluster.groups import memberships
from ptynb.distributed.group import Membership
from ptynb.engine import registry
from ptynb.engine.worker import Worker
from ptynb.exceptions import ClusterError, EngineLostError, SettingsError
from ptynb.optimize.sampler import BatchSampler
from ptynb.session.spec import Opening

ENDING_SECONDS = 5.0
"""How long the engines of a reconstruction that failed are given to end it by themselves."""

ChangeNote = tuple[str, str, str]
"""Name, old and new of a line in the record of changes."""


class Engines(ABC):
    """Workers of one reconstruction, by rank."""

    name: str
    world: int
    description: str
    devices: tuple[str, ...]

    @abstractmethod
    def call(self, rank: int, method: str, *arguments: Any, timeout: float = 60.0) -> Any:
        """Calls a method of the worker of this rank. Raises EngineLostError when its engine is gone."""

    @abstractmethod
    def lost(self) -> str:
        """Why one of the engines is known to be gone; empty while all are there."""

    @abstractmethod
    def held(self, rank: int) -> str:
        """A sentence where a signal is known to hold this rank's process, or the way to it; empty where none does."""

    @abstractmethod
    def stacks(self, rank: int) -> str:
        """Where this rank is in the code, or why that can't be told."""

    @abstractmethod
    def logs(self) -> list[Path]:
        """The files that the cluster's processes write to."""

    @abstractmethod
    def close(self) -> None:
        """Ends the workers and frees their memory."""

    @abstractmethod
    def abandon(self) -> None:
        """The same where one of them may be lost; one that does not end is itself ended."""

    @abstractmethod
    def again(self, opening: Opening, start: Path | None, why: str, note: ChangeNote | None = None) -> Engines:
        """New workers in the place of these, after one was lost or failed: on engines that are left, or on fresh ones.

        start: the state to go on from; None: from the beginning. why: for the record. note: instead of a line that
        says how many go on. Raises ClusterError, or SettingsError where the engines refuse.
        """

    @abstractmethod
    def anew(self, opening: Opening, start: Path, note: ChangeNote | None) -> Engines:
        """New workers in the place of these, which were closed: on the same engines, from this state.

        note: for the record. Raises ClusterError, or SettingsError where the engines refuse.
        """


@final
class LocalEngine(Engines):
    """A single worker in a thread of this process."""

    def __init__(
        self, opening: Opening, device: str, start: Path | None = None, note: ChangeNote | None = None
    ) -> None:
        identity = torch.cuda.get_device_name(0) if device.startswith("cuda") else "CPU"
        self.name, self.world, self.description = secrets.token_hex(4), 1, f"this process on {identity}"
        self._device, self.devices = device, (identity,)
        membership = Membership(rank=0, world=1, store="", backend="none", device=device, identity=identity)
        extensions = pickle.loads(opening.extensions)  # this process's own copies
        self._worker = Worker(opening.scan, opening.settings, membership, extensions, opening.keep, start, note)

    def call(self, rank: int, method: str, *arguments: Any, timeout: float = 60.0) -> Any:
        return getattr(self._worker, method)(*arguments)

    def lost(self) -> str:
        return ""

    def held(self, rank: int) -> str:
        return ""

    def stacks(self, rank: int) -> str:
        return registry.stacks()

    def logs(self) -> list[Path]:
        return []

    def close(self) -> None:
        self._worker.close()

    def abandon(self) -> None:
        with contextlib.suppress(TimeoutError):
            self.close()

    def again(self, opening: Opening, start: Path | None, why: str, note: ChangeNote | None = None) -> Engines:
        self.abandon()
        return LocalEngine(opening, self._device, start, note or ("engines", why, self.description))

    def anew(self, opening: Opening, start: Path, note: ChangeNote | None) -> Engines:
        return LocalEngine(opening, self._device, start, note)


@final
class ClusterEngines(Engines):
    """One worker on each of some engines of a cluster, joined in a group.

    ranks: the cluster's, in the order of the group's; None: those that the opening is confined to, or all of
        them, lost ones replaced.
    """

    _store: str

    def __init__(
        self,
        cluster: Cluster,
        opening: Opening,
        ranks: list[int] | None = None,
        start: Path | None = None,
        note: ChangeNote | None = None,
    ) -> None:
        if cluster.folder is None:
            raise ClusterError("The cluster is stopped; start() it first.")
        end_forgotten(cluster, ranks or opening.ranks)
        if ranks is None and opening.ranks is None:
            cluster.complete()
        if ranks is None:
            ranks = [*range(len(cluster))] if opening.ranks is None else [*opening.ranks]
        self._set_up(cluster, secrets.token_hex(4), ranks)
        order = BatchSampler.of(opening.scan, opening.settings, self.world)
        self._store = cluster.open_store(self._places[0])
        remembered = opening.for_memory()
        arguments = [
            (
                self.name,
                remembered,
                opening.scan.part(order.owned(rank, self.world)),
                opening.settings,
                opening.extensions,
                membership,
                opening.keep,
                start,
                note,
            )
            for rank, membership in enumerate(memberships(cluster, self._places, self._store, opening.timeout))
        ]
        try:
            answers = cluster.call_all(self._places, registry.open_worker, arguments, timeout=600.0)
        except ClusterError:
            self.abandon()  # those that were opened wait for one that is lost
            raise
        if refused := next(filter(None, answers), ""):
            self.abandon()
            raise SettingsError(refused)

    @classmethod
    def joined(cls, cluster: Cluster, name: str, ranks: list[int]) -> ClusterEngines:
        """The workers that are open under this name on these engines already."""
        engines = cls.__new__(cls)
        engines._set_up(cluster, name, ranks)
        engines._store = ""
        return engines

    def _set_up(self, cluster: Cluster, name: str, ranks: list[int]) -> None:
        self._cluster, self.name, self._places = cluster, name, ranks
        self.world = len(ranks)
        self.devices = tuple(cluster.plan.engines[place].identity for place in ranks)
        self.description = f"{counted(self.world, 'engine')} on {cluster.plan.engines[0].kind}"

    def call(self, rank: int, method: str, *arguments: Any, timeout: float = 60.0) -> Any:
        place = self._places[rank]
        return self._cluster.call(place, registry.call_worker, self.name, method, *arguments, timeout=timeout)

    def lost(self) -> str:
        return next(filter(None, (self._cluster.why_lost(place) for place in self._places)), "")

    def held(self, rank: int) -> str:
        return self._cluster.held(self._places[rank])

    def stacks(self, rank: int) -> str:
        try:
            found: str = self._cluster.call(self._places[rank], registry.stacks, timeout=2.0)
        except ClusterError as error:
            return self.held(rank) or str(error)
        return found

    def logs(self) -> list[Path]:
        return self._cluster.logs()

    def close(self) -> None:
        if self._cluster.running:
            here = self._cluster.alive()
            ranks = [place for place in self._places if place in here]
            with contextlib.suppress(EngineLostError):  # it left meanwhile, and its worker with it
                self._cluster.call_all(ranks, registry.close_worker, [(self.name,)] * len(ranks))
        self._cluster.close_store(self._store)

    def again(self, opening: Opening, start: Path | None, why: str, note: ChangeNote | None = None) -> Engines:
        if self._cluster.ended_from_outside:
            raise ClusterError(
                "The cluster was ended by 'ptynb stop'; start a new one, and resume() from the last state."
            )
        self.abandon()
        self._cluster.replace_lost()
        places = [place for place in self._cluster.alive() if opening.ranks is None or place in opening.ranks]
        if not places:
            of = "the cluster" if opening.ranks is None else f"the ranks {[*opening.ranks]} it was confined to"
            raise ClusterError(f"No engine of {of} is left; stop() the cluster, and start a new one.")
        now = "1 engine goes on" if len(places) == 1 else f"{len(places)} engines go on"
        return ClusterEngines(self._cluster, opening, places, start, note or ("engines", why, now))

    def anew(self, opening: Opening, start: Path, note: ChangeNote | None) -> Engines:
        return ClusterEngines(self._cluster, opening, self._places, start, note)

    def abandon(self) -> None:
        for place in sorted({*self._cluster.alive()} & {*self._places}):
            try:
                self._cluster.call(
                    place, registry.abandon_worker, self.name, ENDING_SECONDS, timeout=ENDING_SECONDS + 2
                )
            except ClusterError:
                self._cluster.kill(place)
        self._cluster.close_store(self._store)


def end_forgotten(cluster: Cluster, ranks: Sequence[int] | None) -> None:
    """Ends what is open on these engines of a cluster (None: on any) and nobody holds any more, on all of its engines.

    A worker that is not its group's first waits for the first one's word, so it can't be ended alone.
    """
    alive = cluster.alive()
    asked = alive if ranks is None else [place for place in alive if place in ranks]
    for name in sorted({*chain.from_iterable(cluster.call_all(asked, registry.open_names, [()] * len(asked)))}):
        forgotten = ClusterEngines.joined(cluster, name, alive)
        try:
            forgotten.close()
        except ClusterError:
            forgotten.abandon()
