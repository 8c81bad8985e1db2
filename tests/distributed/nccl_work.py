"""Ranks of a group by NCCL on a machine without a GPU, for processes of `tests.engine.ranks`.

Gloo is real, as on GPUs. In the place of NCCL is torch's backend "fake" for the device "cuda", with the functions of
ProcessGroupNCCL that are used, and a kernel that ends when the others have come or when it is aborted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeProcessGroup
from torch.testing._internal.distributed import fake_pg as fake_pg  # registers the backend

from ptynb.distributed.group import Membership, TorchGroup, join
from ptynb.distributed.sockets import Connections

ON_GPU = SimpleNamespace(device=torch.device("cuda:0"), nbytes=2**24, is_contiguous=lambda: True)
"""A tensor on a GPU, as far as a group looks at it."""


class Kernel:
    """An all-reduce by NCCL as torch's Work: `wait` returns at once."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def is_completed(self) -> bool:
        return self.ended.is_set()

    def wait(self) -> bool:
        return True


@dataclasses.dataclass
class Nccl:
    """What was asked of it."""

    asked: dict[str, Any] = dataclasses.field(default_factory=dict)
    kernels: list[Kernel] = dataclasses.field(default_factory=list)
    timeouts: list[timedelta] = dataclasses.field(default_factory=list)
    aborts: int = 0

    def abort(self, *_: Any) -> None:
        self.aborts += 1
        for kernel in self.kernels:
            kernel.ended.set()


@contextlib.contextmanager
def pretended(nccl: Nccl) -> Iterator[None]:
    """Context in which groups by NCCL can be formed."""
    form, reduce = dist.init_process_group, dist.all_reduce

    def init_process_group(backend: str, **options: Any) -> None:
        nccl.asked = {"backend": backend, **options}
        form(backend.replace("nccl", "fake"), **{**options, "device_id": None})

    def all_reduce(tensor: Any, **options: Any) -> Any:
        if tensor is not ON_GPU:
            return reduce(tensor, **options)
        nccl.kernels.append(Kernel())
        return nccl.kernels[-1]

    def set_timeout(_: FakeProcessGroup, value: timedelta) -> None:
        nccl.timeouts.append(value)

    with (
        mock.patch.object(dist, "init_process_group", init_process_group),
        mock.patch.object(dist, "all_reduce", all_reduce),
        mock.patch.object(FakeProcessGroup, "abort", nccl.abort),
        mock.patch.object(FakeProcessGroup, "_set_default_timeout", set_timeout, create=True),
    ):
        yield


def by_nccl(membership: Membership) -> Membership:
    return dataclasses.replace(membership, backend="nccl", device="cuda:0", identity=f"GPU-{membership.rank}")


def formed(membership: Membership) -> tuple[dict[str, Any], list[timedelta], int]:
    """How torch is asked to form the group, NCCL's timeouts, and its aborts when the group is closed in order."""
    nccl = Nccl()
    with pretended(nccl):
        group = join(by_nccl(membership))
        assert group.agree(5)() == 5
        group.start_sum(ON_GPU)()
        nccl.kernels[-1].ended.set()
        assert not group._recent_large, "only gloo has threads that need the lock"
        group.close()
    nccl.asked.pop("store")
    return nccl.asked, nccl.timeouts, nccl.aborts


def kept_for_gloo(membership: Membership) -> int:
    """The number of large tensors that a group by gloo keeps, also of a GPU that several engines share."""
    group = TorchGroup(dataclasses.replace(membership, device="cuda:0"), Connections())
    with mock.patch.object(dist, "all_reduce", return_value=Kernel()):
        group.start_sum(ON_GPU)()
    kept = len(group._recent_large)
    group.close()
    return kept


def waits_in_vain(membership: Membership, how: str) -> tuple[float, str, str, int, bool]:
    """A sum on the GPU in which another rank does not take part; rank 1 is silent, has left, or is given up.

    Returns the seconds until the host's wait has ended, the error and its code of the next agreement, the number of
    aborts, and whether the group could be closed and another one be formed.
    """
    nccl, connections = Nccl(), Connections()
    with pretended(nccl):
        group = join(by_nccl(membership), connections)
        group.broadcast_object("together")
        began = time.monotonic()
        if how == "left" and membership.rank == 1:
            connections.close()  # as before the end of a process: gloo may not notice it in a later collective
            group.close()
            return 0.0, "", "", nccl.aborts, not dist.is_initialized()
        agreed = group.agree(1)
        group.start_sum(ON_GPU)()
        if how == "given up":
            threading.Timer(0.3, connections.abort).start()
        ended = nccl.kernels[-1].ended.wait(30)  # what a number from the GPU waits for
        seconds = time.monotonic() - began
        text = code = ""
        try:
            agreed()
            group.agree(2)()
        except RuntimeError as error:
            text, code = str(error), getattr(error, "code", "")
        group.close()
    return seconds, text, code, nccl.aborts, ended and not dist.is_initialized()
