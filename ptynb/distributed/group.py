"""How ranks cooperate: sums, broadcasts, and agreement on what happens before the next update.

One process is a group of its own (`SingleGroup`), so nothing else asks whether it is alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import re
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, final

import torch
import torch.distributed as dist

# Imported before any group exists: defaults of its functions take the group of the time of import and hold it for ever,
# its connections too, so the others would not see a rank leave. torch imports it itself, later (seen with torch 2.13).
import torch.distributed.nn.functional
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ptynb.distributed import rendezvous
from ptynb.distributed.sockets import Connections
from ptynb.distributed.timeouts import CollectiveTimeout
from ptynb.exceptions import ClusterError

KEPT_TENSORS = 16
"""More than one update's collectives outside DistributedDataParallel."""
LARGE_BYTES, KEPT_LARGE_TENSORS = 2**20, 4
"""Of tensors as large as an object only an update's own are kept: sixteen of 4096 x 4096 pixels would be 2 GB."""
ECHOES = re.compile(
    r"gloo|NCCL|ncclRemoteError|closed by peer|reset by peer|Connection closed|Broken pipe|Socket closed|pair closure"
    r"|did not join within|did not answer within|was given up"
)
"""Words of an error with which a rank only notices that another went away, or did not answer."""
NEVER = timedelta(days=365)
"""Timeout of gloo's collectives, which `CollectiveTimeout` ends earlier."""
PR_SET_TIMERSLACK, PR_GET_TIMERSLACK = 29, 30
TIMER_SLACK = 40_000_000
"""Nanoseconds. An idle engine's thread of gloo took 0.46% of a core, with this 0.11%; a group ends 0.1 s later."""
BUCKET_MEBIBYTES = 1
"""Gradients share a message up to this size. Each larger one has its own, which leaves as soon as it is there."""

# torch exports GradBucket without saying so.
Hook = Callable[[None, dist.GradBucket], torch.futures.Future[Tensor]]  # type: ignore[name-defined]
"""Sums a bucket of gradients over ranks; a communication hook of DistributedDataParallel."""


@dataclass(frozen=True, kw_only=True)
class Membership:
    """This engine's place in a group: what it needs to join.

    store: through what ranks find each other, a fresh one for every group: "file:///path" on one machine,
        "tcp://address:port" on several (`rendezvous.open_store`), or "env://" (torchrun, Kubernetes).
    device: "cpu" or "cuda:0" (each engine sees its own GPU only). identity: of the device, unlike any other's, so with
        the machine's name where there are several.
    timeout: seconds after which a rank that waits for another gives up; those in which it is stopped don't count.
    """

    rank: int
    world: int
    store: str
    backend: str
    device: str
    identity: str
    timeout: float = 30.0


class Agreed(Protocol):
    """Waits for rank 0's number."""

    def __call__(self, wake: threading.Event | None = None, meanwhile: Callable[[], None] = ...) -> int:
        """wake: set by others while this waits, each time that `meanwhile` has something to do."""


class Group(ABC):
    """The engines that reconstruct together, as one of them sees it."""

    rank: int
    world: int
    device: torch.device
    backend: str

    @abstractmethod
    def wrap(self, module: nn.Module, hook: Hook) -> nn.Module:
        """The module with gradients summed over ranks in `backward`; `hook` does it, bucket by bucket."""

    @abstractmethod
    def unreduced(self, module: nn.Module) -> AbstractContextManager[None]:
        """Inside it, `backward` of a wrapped module keeps its gradients here; a later one reduces them with its own."""

    @abstractmethod
    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, on every rank. May overwrite `tensor`."""

    @abstractmethod
    def start_sum(self, tensor: Tensor) -> Callable[[], None]:
        """Starts to sum `tensor` in place over ranks; the returned function waits for it. Work can be done between."""

    @abstractmethod
    def broadcast(self, tensor: Tensor) -> Tensor:
        """Rank 0's values, on every rank. Overwrites `tensor` elsewhere."""

    @abstractmethod
    def tell(self, message: Any) -> Any:
        """Rank 0's message, what JSON can hold, on every rank."""

    @abstractmethod
    def agree(self, number: int) -> Agreed:
        """Starts to pass on rank 0's number; the returned function waits for it. Work can be done in between."""

    @abstractmethod
    def all_equal(self, value: float) -> bool:
        """Whether every rank has exactly this value."""

    @abstractmethod
    def abort(self) -> None:
        """Called from another thread: what waits for another rank raises RuntimeError within a second.

        After it the group can only be closed. With a GPU under NCCL what was begun there waits on: end the process.
        """

    @abstractmethod
    def close(self) -> None:
        """Leaves the group; ranks that still wait for this one are told at once."""


@final
class SingleGroup(Group):
    """One process alone."""

    def __init__(self, device: torch.device) -> None:
        self.rank, self.world, self.device, self.backend = 0, 1, device, "none"

    def wrap(self, module: nn.Module, hook: Hook) -> nn.Module:
        return module

    def unreduced(self, module: nn.Module) -> AbstractContextManager[None]:
        return nullcontext()

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def start_sum(self, tensor: Tensor) -> Callable[[], None]:
        return lambda: None

    def broadcast(self, tensor: Tensor) -> Tensor:
        return tensor

    def tell(self, message: Any) -> Any:
        return message

    def agree(self, number: int) -> Agreed:
        return lambda wake=None, meanwhile=nothing: number

    def all_equal(self, value: float) -> bool:
        return True

    def abort(self) -> None:
        return None

    def close(self) -> None:
        return None


@final
class TorchGroup(Group):
    """Several processes joined by torch.distributed.

    Control messages are CPU tensors over gloo even where gradients go by NCCL: they never wait for a GPU.

    gloo's threads let go of a collective's tensor some time after `wait` has returned, and need Python's lock to do so
    if Python has let go before. `destroy_process_group` joins these threads with the lock held: a deadlock (seen with
    torch 2.13, about once in ten groups). So the last tensors are kept here until the group is gone.
    """

    def __init__(self, membership: Membership, connections: Connections) -> None:
        """Joins; returns once all ranks have.

        Raises RuntimeError if a rank does not come in time, or if two hold one device under NCCL.
        """
        self._connections, self._store = connections, membership.store
        self.rank, self.world, self.backend = membership.rank, membership.world, membership.backend
        self.device = torch.device(membership.device)
        self._recent: deque[Tensor] = deque(maxlen=KEPT_TENSORS)
        self._recent_large: deque[Tensor] = deque(maxlen=KEPT_LARGE_TENSORS)
        store = rendezvous.find_store(membership.store, membership.rank, membership.world, membership.timeout)
        connections.gather()
        connections.limit_silence(membership.timeout)
        _meet(store, membership, connections)
        with _coarse_timers():
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if membership.backend == "nccl" else "gloo",
                store=store,
                rank=membership.rank,
                world_size=membership.world,
                timeout=timedelta(seconds=membership.timeout),
            )
        connections.gather()
        # torch has no public way to give a backend its own; NCCL keeps the group's.
        dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))._set_default_timeout(NEVER)
        self._timeout = CollectiveTimeout(membership.timeout, connections.abort)

    def wrap(self, module: nn.Module, hook: Hook) -> nn.Module:
        with self._timeout.waiting():
            wrapped = DistributedDataParallel(module, gradient_as_bucket_view=True, bucket_cap_mb=BUCKET_MEBIBYTES)
        wrapped.register_comm_hook(None, hook)
        return wrapped

    def unreduced(self, module: nn.Module) -> AbstractContextManager[None]:
        return module.no_sync() if isinstance(module, DistributedDataParallel) else nullcontext()

    def _keep(self, tensor: Tensor) -> Tensor:
        (self._recent_large if tensor.nbytes > LARGE_BYTES else self._recent).append(tensor)
        return tensor

    def sum(self, tensor: Tensor) -> Tensor:
        assert tensor.is_contiguous(), "gloo reduces the memory of a view, not the view"
        with self._timeout.waiting():
            dist.all_reduce(self._keep(tensor))
        return tensor

    def start_sum(self, tensor: Tensor) -> Callable[[], None]:
        assert tensor.is_contiguous(), "gloo reduces the memory of a view, not the view"
        work = dist.all_reduce(self._keep(tensor), async_op=True)

        def wait() -> None:
            with self._timeout.waiting():
                work.wait()

        return wait

    def broadcast(self, tensor: Tensor) -> Tensor:
        with self._timeout.waiting():
            dist.broadcast(self._keep(torch.view_as_real(tensor) if tensor.is_complex() else tensor), src=0)
        return tensor

    def tell(self, message: Any) -> Any:
        text = json.dumps(message).encode() if self.rank == 0 else b""
        size = self.broadcast(torch.tensor([len(text)], dtype=torch.int64))
        letters = torch.zeros(int(size[0]), dtype=torch.uint8)
        if self.rank == 0:
            letters = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        return json.loads(self.broadcast(letters).numpy().tobytes())

    def agree(self, number: int) -> Agreed:
        box = self._keep(torch.tensor([number if self.rank == 0 else 0], dtype=torch.int64))
        work = dist.all_reduce(box, async_op=True)

        def wait(wake: threading.Event | None = None, meanwhile: Callable[[], None] = nothing) -> int:
            with self._timeout.waiting():
                if wake is not None:
                    # Another thread waits, since looking now and then takes a per cent of a core.
                    done = threading.Event()
                    threading.Thread(target=_wait, args=(work, done, wake), name="ptynb waiter", daemon=True).start()
                    while not done.is_set():
                        wake.wait()
                        wake.clear()
                        meanwhile()
                work.wait()
            return int(box[0])

        return wait

    def all_equal(self, value: float) -> bool:
        bounds = self._keep(torch.tensor([value, -value], dtype=torch.float64))
        with self._timeout.waiting():
            dist.all_reduce(bounds, op=dist.ReduceOp.MAX)
        return bool(bounds[0] == -bounds[1])

    def abort(self) -> None:
        self._connections.abort()

    def close(self) -> None:
        self._timeout.close()
        time.sleep(0.005)  # lets go of Python's lock, for threads that still wait for it
        if dist.is_initialized():
            dist.destroy_process_group()
        rendezvous.close_store(self._store)


@contextlib.contextmanager
def _coarse_timers() -> Iterator[None]:
    """Threads that are started inside may wake up to `TIMER_SLACK` later when they wait for nothing but a time.

    gloo's looks a hundred times a second whether it is to end; what it receives wakes it at once as before.
    """
    if sys.platform != "linux":
        yield
        return
    control = ctypes.CDLL(None).prctl
    before = control(PR_GET_TIMERSLACK, 0, 0, 0, 0)
    control(PR_SET_TIMERSLACK, ctypes.c_ulong(TIMER_SLACK), 0, 0, 0)
    try:
        yield
    finally:
        control(PR_SET_TIMERSLACK, ctypes.c_ulong(max(before, 1)), 0, 0, 0)


def nothing() -> None:
    """What there is to do meanwhile for who only waits."""


def _wait(work: dist.Work, done: threading.Event, wake: threading.Event) -> None:
    with contextlib.suppress(RuntimeError):  # who waits for it next hears of it
        work.wait()
    done.set()
    wake.set()


def _meet(store: Any, membership: Membership, connections: Connections) -> None:
    """Waits until every rank has come and said what it is, and checks that they fit, before torch forms the group.

    Where torch gives up forming one, its count of groups stays one too high in this process, and no later group can
    be formed with ranks that did not try (seen with torch 2.13). So all say too that they have seen all: one that was
    held up may come when others have long given up, and finds what they left in the store.
    """
    # A store whose file was removed meanwhile is waited for as long, by default for five minutes.
    store.set_timeout(timedelta(seconds=membership.timeout))
    told = json.dumps([membership.world, membership.backend, membership.identity])
    for word, value in (("rank", told), ("seen all, rank", "")):
        store.set(f"{word} {membership.rank}", value)
        _await_all(store, word, membership, connections)
    found = [json.loads(store.get(f"rank {rank}")) for rank in range(membership.world)]
    if any(entry[:2] != [membership.world, membership.backend] for entry in found):
        raise ClusterError(
            f"The engines of the group differ in world or backend; (world, backend, device) by rank: {found}.",
            code="group.join-failed",
        )
    devices = [entry[2] for entry in found]
    if membership.backend == "nccl" and len(set(devices)) < membership.world:
        raise ClusterError(
            f"Two engines hold the same GPU ({devices}); expected one GPU each: start fewer engines, or CPU engines.",
            code="gpu.too-few",
        )


def _await_all(store: Any, word: str, membership: Membership, connections: Connections) -> None:
    until = time.monotonic() + membership.timeout
    missing = set(range(membership.world))
    while missing:
        missing = {rank for rank in missing if not store.check([f"{word} {rank}"])}
        if connections.aborted:
            raise ClusterError("The group was aborted while its engines joined.", code="group.join-failed")
        if missing and time.monotonic() > until:
            raise ClusterError(
                f"The engines of ranks {sorted(missing)} did not join within {membership.timeout:g} s.",
                code="group.join-failed",
            )
        time.sleep(0.005)


def join(membership: Membership, connections: Connections | None = None) -> Group:
    """The group of this membership; waits for the others.

    connections: those made by the caller just before, who can then abort what happens here, from another thread.
    """
    if membership.world == 1:
        return SingleGroup(torch.device(membership.device))
    try:
        return TorchGroup(membership, connections or Connections())
    except BaseException:
        rendezvous.close_store(membership.store)
        raise
