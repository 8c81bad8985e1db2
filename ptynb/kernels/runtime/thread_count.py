"""Number of threads that share work, and a context that limits torch's own threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch


def count() -> int:
    """Return the number of threads that share work: torch's number of threads, before any `torch_alone`."""
    return getattr(_alone, "shares", 0) or torch.get_num_threads()


def is_torch_alone() -> bool:
    """Whether the calling thread is inside `torch_alone`."""
    return bool(getattr(_alone, "shares", 0))


@contextlib.contextmanager
def torch_alone(wanted: bool = True) -> Iterator[None]:
    """Run torch operations of the calling thread on this thread only, inside this context and if `wanted`.

    After each torch operation OpenMP's threads spin for milliseconds, on the cores that the shares need: an epoch on
    two cores took 1.5 times as long.
    """
    if not wanted or is_torch_alone():
        yield
        return
    before = torch.get_num_threads()
    _alone.shares = before
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _alone.shares = 0


_alone = threading.local()
