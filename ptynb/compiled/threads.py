"""Work in equal shares on as many threads as torch would use.

The threads live as long as the process, wait without spinning, and come to life where they are first needed. numba's
own ones would be a second pool beside torch's, each spinning on the cores that the other needs.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator

import torch

Work = Callable[[int, int], None]
"""Does share number `share` of `shares`; has to let go of the interpreter's lock while it computes."""


def in_shares(work: Work, shares: int = 0) -> None:
    """Calls work(share, shares) for all shares at once, `count` of them if no number is given; waits for all.

    Raises what the first of them raised.
    """
    shares = shares or count()
    done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    _workers.grow(shares - 1)
    for share in range(1, shares):
        _workers.tasks.put((work, share, shares, done))
    raised = _outcome(work, 0, shares)
    for _ in range(1, shares):
        raised = done.get() or raised
    if raised is not None:
        raise raised


def count() -> int:
    """How many threads share work; torch's number, or what it was before `torch_alone`."""
    return getattr(_alone, "shares", 0) or torch.get_num_threads()


@contextlib.contextmanager
def torch_alone() -> Iterator[None]:
    """Inside, what the calling thread asks of torch is done by this thread only.

    After each of torch's operations OpenMP's threads spin for milliseconds, on the cores that shares need: an epoch on
    two cores took 1.5 times as long.
    """
    before = torch.get_num_threads()
    _alone.shares, outside = count(), getattr(_alone, "shares", 0)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _alone.shares = outside


def part(count: int, share: int, shares: int) -> tuple[int, int]:
    """The first of `count` things that a share takes, and the first that it leaves to the next."""
    return count * share // shares, count * (share + 1) // shares


_Task = tuple[Work, int, int, "queue.SimpleQueue[BaseException | None]"]


class _Workers:
    def __init__(self) -> None:
        self.tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._count = 0
        self._growing = threading.Lock()

    def grow(self, count: int) -> None:
        """Makes sure of this many threads."""
        if self._count >= count:
            return
        with self._growing:
            for number in range(self._count, count):
                threading.Thread(target=_serve, args=(self.tasks,), name=f"hot path {number}", daemon=True).start()
            self._count = max(self._count, count)


def _serve(tasks: queue.SimpleQueue[_Task]) -> None:
    while True:
        work, share, shares, done = tasks.get()
        done.put(_outcome(work, share, shares))
        # What the last task held is not to live until the next one comes.
        del work, done


def _outcome(work: Work, share: int, shares: int) -> BaseException | None:
    try:
        work(share, shares)
    except BaseException as raised:  # noqa: BLE001  # raised again where the work was asked for
        return raised
    return None


_workers = _Workers()
_alone = threading.local()


def _forget() -> None:
    global _workers
    _workers = _Workers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)  # threads do not survive a fork
