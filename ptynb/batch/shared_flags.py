"""Flags that ranks without a kernel share: which failed first, and whether one was requested to end.

They are keys in a store at MASTER_ADDR and MASTER_PORT (env://), or of this process if it is the only rank.
"""

from __future__ import annotations

import contextlib

from torch.distributed import HashStore, Store  # type: ignore[attr-defined]  # public, but not declared as exported

from ptynb.batch.rank_env import Place
from ptynb.distributed.rendezvous import await_ranks, find_store
from ptynb.exceptions import ClusterError

MEET_SECONDS = 600.0
"""Longest wait of the ranks for each other at the start [s]: pods of one job may start minutes apart."""


class Board:
    """Flags that every rank can read, once all have started. After the end of the store's process none is set.

    devices: identity of the device of each rank.
    """

    def __init__(self, place: Place, device: str, timeout: float = MEET_SECONDS) -> None:
        """device: that of this rank. Raises RuntimeError if some ranks do not start."""
        one = place.world == 1
        self._store: Store = HashStore() if one else find_store("env://", place.rank, place.world, timeout)
        self._first = False
        """Whether this rank was the first that failed."""
        self._store.set(f"device {place.rank}", device)
        if late := await_ranks(self._store, "device", place.world, timeout):
            raise ClusterError(
                f"Ranks {late} of {place.world} did not come within {timeout:.0f} s.", code="group.join-failed"
            )
        self.devices = tuple(self._store.get(f"device {rank}").decode() for rank in range(place.world))

    def _has(self, key: str) -> bool:
        try:
            return bool(self._store.check([key]))
        except RuntimeError:  # the process that served the store has ended; the group notices by itself
            return False

    def claim(self) -> bool:
        """Record that the run has failed; return whether this rank is the first, and so reports the error."""
        try:
            self._first = self._store.add("failed", 1) == 1
        except RuntimeError:
            self._first = True
        return self._first

    @property
    def failed(self) -> bool:
        """Whether another rank has recorded a failure."""
        return not self._first and self._has("failed")

    def publish(self, text: str) -> None:
        """Publish what all ranks are to open, on rank 0."""
        self._store.set("run", text)

    def published(self) -> str | None:
        """Return what all ranks are to open; None: not known yet. Raises ClusterError if rank 0 has ended."""
        try:
            return self._store.get("run").decode() if self._store.check(["run"]) else None
        except RuntimeError:
            raise ClusterError("Rank 0 has ended before the run began.", code="engine.lost") from None

    def ask_to_leave(self) -> None:
        """Record that a rank was requested to end."""
        with contextlib.suppress(RuntimeError):
            self._store.set("leave", "1")

    @property
    def asked_to_leave(self) -> bool:
        """Whether a rank was requested to end."""
        return self._has("leave")
