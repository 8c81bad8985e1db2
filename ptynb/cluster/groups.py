"""Groups of a running cluster's engines: what each of them needs in order to join the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from ptynb.cluster.devices import ClusterPlan
from ptynb.distributed.group import Membership


class RunningCluster(Protocol):
    """What groups and the self-test need of a cluster, which imports both; `ptynb.Cluster` has it."""

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
    """By rank of the group, of the engines at these places (ranks of the cluster).

    store: a fresh one. timeout: seconds after which a rank that waits for another gives up.
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
        )
        for rank, engine in enumerate(engines)
    ]


@contextmanager
def joining(cluster: RunningCluster, count: int | None = None, timeout: float = 30.0) -> Iterator[list[Membership]]:
    """Memberships of the first `count` engines (None: of all), with a store of their own, removed where nothing failed.

    Raises ClusterError where the cluster is stopped.
    """
    store = cluster.open_store(0)
    yield memberships(cluster, range(len(cluster) if count is None else count), store, timeout)
    # Not after a failure, when a rank may still be looking for others in it; the cluster's folder takes it along.
    cluster.close_store(store)
