"""Groups of a running cluster's engines: what each of them needs in order to join the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ptynb.engine.group import Membership

if TYPE_CHECKING:  # it imports the self-test, which imports this
    from ptynb.driver.cluster import Cluster


def memberships(cluster: Cluster, ranks: Sequence[int], store: str, timeout: float) -> list[Membership]:
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
def joining(cluster: Cluster, count: int | None = None, timeout: float = 30.0) -> Iterator[list[Membership]]:
    """Memberships of the first `count` engines (None: of all), with a store of their own, removed where nothing failed.

    Raises ClusterError where the cluster is stopped.
    """
    store = cluster.open_store(0)
    yield memberships(cluster, range(len(cluster) if count is None else count), store, timeout)
    # Not after a failure, when a rank may still be looking for others in it; the cluster's folder takes it along.
    cluster.close_store(store)
