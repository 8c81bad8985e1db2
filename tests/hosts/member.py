"""Runs on a host and does what the test says, line by line: a rank, as `tests.hosts.test_group` sees it."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from ptynb.cluster.addresses import environment_towards

CONTROLLER = "10.77.0.1"
os.environ.update(environment_towards(CONTROLLER))

import torch  # noqa: E402 - the environment comes first, as in an engine

from ptynb.distributed import rendezvous  # noqa: E402
from ptynb.distributed.group import Group, Membership, join  # noqa: E402
from ptynb.distributed.sockets import Connections, _sockets  # noqa: E402


class Member:
    """Each method is a command; what it returns goes back as JSON."""

    def __init__(self) -> None:
        self._group: Group | None = None
        self._connections: Connections | None = None
        self._told: list[Any] = []
        self._thread: threading.Thread | None = None

    def open_store(self, address: str | None = None) -> str:
        return rendezvous.open_store(address)

    def join(self, rank: int, world: int, store: str, timeout: float = 30.0) -> list[str | float]:
        membership = Membership(
            rank=rank, world=world, store=store, backend="gloo", device="cpu", identity=f"CPU {rank}", timeout=timeout
        )
        self._connections = Connections()
        started = time.monotonic()
        try:
            self._group = join(membership, self._connections)
        except (RuntimeError, ValueError) as error:
            return [str(error), time.monotonic() - started]
        return []

    def join_in_background(self, *arguments: Any) -> None:
        self._thread = threading.Thread(target=lambda: self._told.append(self.join(*arguments)))
        self._thread.start()

    def sum(self, values: list[float], repeats: int) -> list[float]:
        """Of a large complex tensor, made of the values again and again; its first values."""
        assert self._group is not None
        total = self._group.sum(torch.tensor(values * repeats, dtype=torch.complex128))
        assert bool((total.reshape(repeats, -1) == total[: len(values)]).all())
        return total[: len(values)].real.tolist()

    def sum_in_background(self) -> None:
        """Again and again, by both ways, until it raises."""
        self._thread = threading.Thread(target=self._sum_on)
        self._thread.start()

    def _sum_on(self) -> None:
        assert self._group is not None
        try:
            while True:
                self._group.sum(torch.ones(1000))
                self._group.start_sum(torch.ones(1000))()
        except RuntimeError as error:
            self._told.append([str(error), time.monotonic()])

    def abort(self) -> None:
        assert self._connections is not None
        self._aborted = time.monotonic()
        self._connections.abort()

    def ended(self, seconds: float) -> list[Any] | None:
        """What the thread in the background raised, and how long after `abort` if there was one; None: it waits."""
        assert self._thread is not None
        self._thread.join(seconds)
        if self._thread.is_alive():
            return None
        text, moment = self._told.pop()
        return [text, moment - getattr(self, "_aborted", 0.0)]

    def close(self) -> None:
        assert self._group is not None
        self._group.close()
        self._group = self._connections = None

    def held(self) -> dict[str, int]:
        return {"threads": len(os.listdir("/proc/self/task")), "sockets": len(_sockets())}


def main() -> None:
    torch.set_num_threads(1)
    member = Member()
    print("READY", flush=True)
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        print("ANSWER", json.dumps(getattr(member, method)(*arguments)), flush=True)


if __name__ == "__main__":
    main()
