"""The engines of one reconstruction as its session sees them: those of a cluster, or this very process."""

from __future__ import annotations

import contextlib
import copy
import secrets
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, final

import cloudpickle
import torch

from ptynb.driver.cluster import Cluster, EngineLostError
from ptynb.driver.devices import ClusterError, counted
from ptynb.engine import worker
from ptynb.engine.group import Membership
from ptynb.engine.order import Order
from ptynb.engine.worker import Worker
from ptynb.scan import Scan
from ptynb.settings import Settings


class Engines(ABC):
    """Workers of one reconstruction, by rank."""

    world: int
    description: str

    @abstractmethod
    def call(self, rank: int, method: str, *arguments: Any, timeout: float = 60.0) -> Any:
        """Calls a method of the worker of this rank. Raises EngineLostError when its engine is gone."""

    @abstractmethod
    def close(self) -> None:
        """Ends the workers and frees their memory."""


@final
class LocalEngine(Engines):
    """A single worker in a thread of this process."""

    def __init__(self, scan: Scan, settings: Settings, extensions: tuple[Any, ...], device: str) -> None:
        identity = torch.cuda.get_device_name(0) if device.startswith("cuda") else "CPU"
        self.world, self.description = 1, f"this process on {identity}"
        membership = Membership(rank=0, world=1, store=Path(), backend="none", device=device, identity=identity)
        self._worker = Worker(scan, settings, membership, copy.deepcopy(extensions))

    def call(self, rank: int, method: str, *arguments: Any, timeout: float = 60.0) -> Any:
        return getattr(self._worker, method)(*arguments)

    def close(self) -> None:
        self._worker.close()


@final
class ClusterEngines(Engines):
    """One worker on each engine of a cluster, joined in a group."""

    def __init__(
        self, cluster: Cluster, scan: Scan, settings: Settings, extensions: tuple[Any, ...], timeout: float
    ) -> None:
        if cluster.folder is None:
            raise ClusterError("The cluster is stopped; start() it first.")
        plan = cluster.plan
        self._cluster = cluster
        self._name = secrets.token_hex(4)
        self.world = len(cluster)
        self.description = f"{counted(self.world, 'engine')} on {plan.engines[0].kind}"
        order = Order.of(scan, settings, self.world)
        self._store = cluster.folder / f"group-{self._name}"
        arguments = [
            (
                self._name,
                scan.part(order.owned(engine.rank, self.world)),
                settings,
                cloudpickle.dumps(extensions),
                Membership(
                    rank=engine.rank,
                    world=self.world,
                    store=self._store,
                    backend=plan.backend,
                    device=engine.device,
                    identity=engine.identity,
                    timeout=timeout,
                ),
            )
            for engine in plan.engines
        ]
        cluster.call_all(list(range(self.world)), worker.open_worker, arguments, timeout=600.0)

    def call(self, rank: int, method: str, *arguments: Any, timeout: float = 60.0) -> Any:
        return self._cluster.call(rank, worker.call_worker, self._name, method, *arguments, timeout=timeout)

    def close(self) -> None:
        if self._cluster.running:
            ranks = self._cluster.alive()
            with contextlib.suppress(EngineLostError):  # it left meanwhile, and its worker with it
                self._cluster.call_all(ranks, worker.close_worker, [(self._name,)] * len(ranks))
        self._store.unlink(missing_ok=True)
