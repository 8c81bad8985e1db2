"""Flags that ranks without a kernel share: which failed first, and whether one was requested to end.

They are keys in a store at MASTER_ADDR and MASTER_PORT (env://). A rank that cannot be reached has ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, final

from ptynb.batch.rank_env import Place
from ptynb.distributed.rendezvous import await_ranks, find_store
from ptynb.exceptions import ClusterError

MEET_SECONDS = 600.0
"""Longest wait of the ranks for each other at the start [s]: pods of one job may start minutes apart."""


class Board(ABC):
    """Flags that every rank can read."""

    @abstractmethod
    def claim(self) -> bool:
        """Record that the run has failed; return whether this rank is the first, and so reports the error."""

    @property
    @abstractmethod
    def failed(self) -> bool:
        """Whether a rank has recorded a failure."""

    @abstractmethod
    def publish(self, text: str) -> None:
        """Publish what rank 0 has found: the checkpoint to continue from, or an empty text."""

    @abstractmethod
    def published(self) -> str | None:
        """Return what rank 0 has found; None: nothing yet."""

    @abstractmethod
    def introduce(self, rank: int, device: str) -> None:
        """Record the device of this rank."""

    @property
    @abstractmethod
    def devices(self) -> tuple[str, ...]:
        """Return the device of each rank, once all have recorded it; "" for one that has not."""

    @abstractmethod
    def ask_to_leave(self) -> None:
        """Record for rank 0 that a rank was requested to end."""

    @property
    @abstractmethod
    def asked_to_leave(self) -> bool:
        """Whether a rank was requested to end."""


@final
class OwnBoard(Board):
    """Flags of a single process."""

    def __init__(self) -> None:
        self._failed = self._leave = False
        self._text: str | None = None
        self._device = ""

    def claim(self) -> bool:
        first, self._failed = not self._failed, True
        return first

    @property
    def failed(self) -> bool:
        return self._failed

    def publish(self, text: str) -> None:
        self._text = text

    def published(self) -> str | None:
        return self._text

    def introduce(self, rank: int, device: str) -> None:
        self._device = device

    @property
    def devices(self) -> tuple[str, ...]:
        return (self._device,)

    def ask_to_leave(self) -> None:
        self._leave = True

    @property
    def asked_to_leave(self) -> bool:
        return self._leave


@final
class SharedBoard(Board):
    """Flags as keys in torch's store."""

    def __init__(self, place: Place, timeout: float) -> None:
        self._store: Any = find_store("env://", place.rank, place.world, timeout)
        self._world = place.world
        self._wait_for_all(place, timeout)

    def _wait_for_all(self, place: Place, timeout: float) -> None:
        self._store.set(f"here {place.rank}", "1")
        if late := await_ranks(self._store, "here", place.world, timeout):
            raise ClusterError(
                f"Ranks {late} of {place.world} did not come within {timeout:.0f} s.", code="group.join-failed"
            )

    def _has(self, key: str) -> bool:
        try:
            return bool(self._store.check([key]))
        except RuntimeError:  # the process that served the store has ended; the group notices by itself
            return False

    def claim(self) -> bool:
        try:
            self._store.set("failed", "1")
            return bool(self._store.add("claims", 1) == 1)
        except RuntimeError:
            return True

    @property
    def failed(self) -> bool:
        return self._has("failed")

    def publish(self, text: str) -> None:
        self._store.set("found", text)

    def published(self) -> str | None:
        return self._store.get("found").decode() if self._has("found") else None

    def introduce(self, rank: int, device: str) -> None:
        self._store.set(f"device {rank}", device)

    @property
    def devices(self) -> tuple[str, ...]:
        keys = [f"device {rank}" for rank in range(self._world)]
        return tuple(self._store.get(key).decode() if self._has(key) else "" for key in keys)

    def ask_to_leave(self) -> None:
        try:
            self._store.set("leave", "1")
        except RuntimeError:
            return

    @property
    def asked_to_leave(self) -> bool:
        return self._has("leave")


def meet(place: Place, timeout: float = MEET_SECONDS) -> Board:
    """Return the flags of all ranks, once all have started. Raises RuntimeError if some do not start."""
    return OwnBoard() if place.world == 1 else SharedBoard(place, timeout)
