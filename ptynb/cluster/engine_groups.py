"""Groups of engines of a running cluster: the membership of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from ptynb.cluster.devices import ClusterPlan
from ptynb.distributed.group import Membership


class RunningCluster(Protocol):
    """Interface of a cluster for groups and the self-test, implemented by `ptynb.Cluster`."""

    @property
    def plan(self) -> ClusterPlan: ...  # noqa: D102 - documented at `ptynb.Cluster`, as all below

    @property
    def folder(self) -> Path | None: ...  # noqa: D102

    def __len__(self) -> int: ...

    def open_store(self, rank: int, /) -> str: ...  # noqa: D102

    def close_store(self, store: str, /) -> None: ...  # noqa: D102

    def call_all(  # noqa: D102
        self, ranks: list[int], function: Callable[..., Any], arguments: list[tuple[Any, ...]], timeout: float = ...
    ) -> list[Any]: ...


def memberships(cluster: RunningCluster, ranks: Sequence[int], store: str, timeout: float) -> list[Membership]:
    """Return the memberships of a group of engines, by rank in the group.

    ranks: ranks in the cluster. store: a new rendezvous. timeout: longest time to wait for another rank [s].
    """
    engines = [cluster.plan.engines[place] for place in ranks]
    return [
        Membership(
            rank=rank,
            world=len(engines),
            store=store,
            backend=cluster.plan.backend,
            device=engine.device,
            identity=engine.identity,
            timeout=timeout,
            engines_per_gpu=engine.engines_per_gpu,
        )
        for rank, engine in enumerate(engines)
    ]


@contextmanager
def joining(cluster: RunningCluster, count: int | None = None, timeout: float = 30.0) -> Iterator[list[Membership]]:
    """Yield memberships of the first `count` engines (None: of all) with a new store, removed without a failure.

    Raises ClusterError if the cluster is stopped.
    """
    store = cluster.open_store(0)
    yield memberships(cluster, range(len(cluster) if count is None else count), store, timeout)
    # Not after a failure, when a rank may still use it; it is removed with the folder of the cluster.
    cluster.close_store(store)
