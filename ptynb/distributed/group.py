"""Process groups: sums, broadcasts, and agreement of all ranks before an update.

A single process is a group too (`SingleGroup`), so that callers need no special case.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, final

import torch
import torch.distributed as dist

# Imported before any group exists: defaults of its functions refer to the group at the time of import, with its
# connections, so the other ranks would not notice that a rank has left. torch imports it later (seen with torch 2.13).
import torch.distributed.nn.functional
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ptynb.distributed import nccl, rendezvous
from ptynb.distributed.process_end import end_process
from ptynb.distributed.shared_memory import SharedMemory, place_of_process
from ptynb.distributed.sockets import Connections
from ptynb.distributed.timeouts import ABORT_SECONDS, CollectiveTimeout
from ptynb.exceptions import ClusterError
from ptynb.polling import wait_until
from ptynb.private_folder import keep_code_private
from ptynb.supervised_thread import SupervisedThread

KEPT_TENSORS = 16
"""Number of tensors kept: more than the collectives of one update outside DistributedDataParallel."""
LARGE_BYTES, KEPT_LARGE_TENSORS = 2**20, 4
"""Number of large tensors that are kept, as in one update: sixteen of 4096 x 4096 pixels would take 2 GB."""
ECHOES = re.compile(
    r"gloo|NCCL|ncclRemoteError|closed by peer|reset by peer|Connection closed|Broken pipe|Socket closed|pair closure"
    r"|did not join within|did not answer within|was given up"
)
"""Parts of error messages that are only consequences of another rank's end or silence."""
OWN_CAUSES = re.compile(
    r"out of memory|Cuda failure|CUDA error|unhandled cuda error|ncclUnhandledCudaError|Duplicate GPU"
    r"|Cannot allocate memory|No space left on device|Too many open files",
    re.IGNORECASE,
)
"""Parts of messages of NCCL and gloo about a failure of this rank itself."""
NEVER = timedelta(days=365)
"""Timeout of torch's collectives, which `CollectiveTimeout` ends earlier."""
CLOSE_SECONDS = 2.0
"""How long a group that is closed waits for collectives on the GPU [s]: milliseconds, unless another rank is lost."""
PR_SET_TIMERSLACK, PR_GET_TIMERSLACK = 29, 30
TIMER_SLACK = 40_000_000
"""Nanoseconds. An idle engine's gloo thread took 0.46% of a core, with this value 0.11%; a group ends 0.1 s later."""
BUCKET_MEBIBYTES = 1
"""Gradients are sent together up to this size; a larger one is sent alone, as soon as it is computed."""

# GradBucket is public in torch but not declared as exported.
Hook = Callable[[None, dist.GradBucket], torch.futures.Future[Tensor]]  # type: ignore[name-defined]
"""Sums a bucket of gradients over ranks; a communication hook of DistributedDataParallel."""


@dataclass(frozen=True, kw_only=True)
class Membership:
    """Membership of an engine in a group: the parameters for joining.

    store: rendezvous of the ranks, a new one for every group: "file:///path" on one machine,
        "tcp://address:port" on several (`rendezvous.open_store`), or "env://" (torchrun, Kubernetes).
    device: "cpu" or "cuda:0" (only its own GPU is visible to an engine). identity: of the device, unique in the group,
        so it includes the machine's name if there are several machines.
    engines_per_gpu: number of engines that share the device's memory, in this group or beside it.
    timeout: longest time to wait for another rank [s]; time in which the process is suspended is not counted.
    """

    rank: int
    world: int
    store: str
    backend: str
    device: str
    identity: str
    timeout: float = 30.0
    engines_per_gpu: int = 1


class Agreed(Protocol):
    """Waits for rank 0's number."""

    def __call__(self, wake: threading.Event | None = None, meanwhile: Callable[[], None] = ...) -> int:
        """wake: set by another thread during the wait, each time that `meanwhile` is to be called."""


class Group(ABC):
    """A group of engines that reconstruct together."""

    rank: int
    world: int
    device: torch.device
    backend: str
    engines_per_gpu: int
    """Number of engines that share the memory of this one's device."""

    @abstractmethod
    def wrap(self, module: nn.Module, hook: Hook) -> nn.Module:
        """Return the module with gradients summed over ranks by `hook`, bucket by bucket, in `backward`."""

    @abstractmethod
    def unreduced(self, module: nn.Module) -> AbstractContextManager[None]:
        """Context in which `backward` of a wrapped module keeps gradients local; a later one reduces both."""

    @abstractmethod
    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum over ranks, on every rank. May overwrite `tensor`."""

    @abstractmethod
    def start_sum(self, tensor: Tensor) -> Callable[[], None]:
        """Start the sum of `tensor` over ranks, in place; the returned function waits for it."""

    def exchange(self, sent: Mapping[int, Tensor], received: Mapping[int, Tensor]) -> None:
        """Send a tensor to each of some ranks, and receive one from each of others."""
        self.start_exchange(sent, received)()

    @abstractmethod
    def start_exchange(self, sent: Mapping[int, Tensor], received: Mapping[int, Tensor]) -> Callable[[], None]:
        """Start to send and to receive tensors by rank, contiguous and not empty; the returned function waits."""

    @abstractmethod
    def largest(self, tensor: Tensor) -> Tensor:
        """Return the largest values over ranks, on every rank. May overwrite `tensor`."""

    @abstractmethod
    def broadcast(self, tensor: Tensor) -> Tensor:
        """Return rank 0's values on every rank. Overwrites `tensor` on the others."""

    @abstractmethod
    def broadcast_object(self, message: Any) -> Any:
        """Return rank 0's message, which must be serializable as JSON, on every rank."""

    @abstractmethod
    def agree(self, number: int) -> Agreed:
        """Start the broadcast of rank 0's number; the returned function waits for it and returns it."""

    @abstractmethod
    def all_equal(self, value: float) -> bool:
        """Return whether all ranks have exactly the same value."""

    @abstractmethod
    def abort(self) -> None:
        """Make waits for other ranks raise RuntimeError within a second; called from another thread.

        Afterwards the group can only be closed. With NCCL, what is on the GPU may be invalid after the error.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave the group; ranks that wait for this one get an error at once."""


@final
class SingleGroup(Group):
    """Group of a single process."""

    def __init__(self, device: torch.device, engines_per_gpu: int = 1) -> None:
        self.rank, self.world, self.device, self.backend = 0, 1, device, "none"
        self.engines_per_gpu = engines_per_gpu

    def wrap(self, module: nn.Module, hook: Hook) -> nn.Module:
        return module

    def unreduced(self, module: nn.Module) -> AbstractContextManager[None]:
        return nullcontext()

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def start_sum(self, tensor: Tensor) -> Callable[[], None]:
        return lambda: None

    def start_exchange(self, sent: Mapping[int, Tensor], received: Mapping[int, Tensor]) -> Callable[[], None]:
        return lambda: None

    def largest(self, tensor: Tensor) -> Tensor:
        return tensor

    def broadcast(self, tensor: Tensor) -> Tensor:
        return tensor

    def broadcast_object(self, message: Any) -> Any:
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
    """Group of several processes, by torch.distributed.

    Control messages are CPU tensors over gloo also if gradients are exchanged by NCCL: they never wait for a GPU. Both
    are ended by the same limit (`CollectiveTimeout`), and by `abort`.

    gloo's threads release a collective's tensor some time after `wait` has returned, and need Python's lock (GIL) for
    it if Python has released it before. `destroy_process_group` joins these threads while it has the lock: a deadlock
    (seen with torch 2.13, about once in ten groups). Therefore the last tensors are kept until the group is closed.
    """

    def __init__(self, membership: Membership, connections: Connections) -> None:
        """Join the group; returns once all ranks have joined.

        Raises RuntimeError if a rank does not join in time, or if two ranks use one device under NCCL.
        """
        self._connections, self._store = connections, membership.store
        self.rank, self.world, self.backend = membership.rank, membership.world, membership.backend
        self.device = torch.device(membership.device)
        self._nccl: nccl.Abort | None = None
        self._recent: deque[Tensor] = deque(maxlen=KEPT_TENSORS)
        self._recent_large: deque[Tensor] = deque(maxlen=KEPT_LARGE_TENSORS)
        store = rendezvous.find_store(membership.store, membership.rank, membership.world, membership.timeout)
        connections.gather()
        connections.limit_silence(membership.timeout)
        devices = _meet(store, membership, connections)
        self.engines_per_gpu = max(membership.engines_per_gpu, devices.count(membership.identity))
        by_nccl = membership.backend == "nccl"
        if by_nccl:
            nccl.set_environment()
        self._timeout = CollectiveTimeout(membership.timeout, connections.abort)
        try:
            self._form(store, membership, by_nccl)
        except BaseException:
            self._timeout.close()
            raise
        self._shared: SharedMemory | None = None
        if membership.backend == "gloo":
            try:
                self._shared = self._open_shared_memory()
            except BaseException:
                self.close()
                raise

    def _form(self, store: Any, membership: Membership, by_nccl: bool) -> None:
        """Let torch form the group, and the GPUs connect."""
        connecting = nccl.Connecting()
        if by_nccl:
            self._timeout.watch(connecting)
        try:
            with _coarse_timers():
                dist.init_process_group(
                    "cpu:gloo,cuda:nccl" if by_nccl else "gloo",
                    store=store,
                    rank=membership.rank,
                    world_size=membership.world,
                    timeout=timedelta(seconds=membership.timeout),
                    # NCCL connects now and not in the first collective, and torch guesses no GPU from the rank.
                    device_id=self.device if by_nccl else None,
                )
        finally:
            connecting.done()
        self._connections.gather()
        # torch has no public function to set a backend's own timeout.
        get_backend = dist.distributed_c10d._get_default_group()._get_backend
        for device in {torch.device("cpu"), self.device}:
            get_backend(device)._set_default_timeout(NEVER)
        if by_nccl:
            backend: Any = get_backend(self.device)
            self._nccl = nccl.Abort(backend)
            self._connections.on_abort(self._nccl.start)

    def _open_shared_memory(self) -> SharedMemory | None:
        """Return memory shared by all ranks; None if they are not all on one machine, or its system refuses it."""
        place = place_of_process()
        if not self._all(self.broadcast_object(place) == place != ""):
            return None
        shared = SharedMemory.open(self)
        return shared if self._all(shared is not None) else None

    def _all(self, answer: bool) -> bool:
        """Return whether the answer is True on all ranks."""
        return int(self.sum(torch.tensor([answer], dtype=torch.int64))) == self.world

    def wrap(self, module: nn.Module, hook: Hook) -> nn.Module:
        keep_code_private("TORCHINDUCTOR_CACHE_DIR")  # the wrapper makes the folder, and nothing else is in it
        with self._timeout.waiting():
            wrapped = DistributedDataParallel(module, gradient_as_bucket_view=True, bucket_cap_mb=BUCKET_MEBIBYTES)
        wrapped.register_comm_hook(None, hook)
        return wrapped

    def unreduced(self, module: nn.Module) -> AbstractContextManager[None]:
        return module.no_sync() if isinstance(module, DistributedDataParallel) else nullcontext()

    def _keep(self, tensor: Tensor) -> Tensor:
        if self._nccl is not None and tensor.device.type == "cuda":
            return tensor  # NCCL has no threads that release it; torch keeps it until it has been summed
        (self._recent_large if tensor.nbytes > LARGE_BYTES else self._recent).append(tensor)
        return tensor

    def sum(self, tensor: Tensor) -> Tensor:
        self.start_sum(tensor)()
        return tensor

    def start_sum(self, tensor: Tensor) -> Callable[[], None]:
        assert tensor.is_contiguous(), "gloo reduces the memory of a view, not the view"
        shared = self._shared
        if shared is not None and tensor.device.type == "cpu" and tensor.numel() > 1:
            return lambda: shared.sum(tensor)
        work = self._watched(tensor, dist.all_reduce(self._keep(tensor), async_op=True))

        def wait() -> None:
            with self._timeout.waiting():
                work.wait()

        return wait

    def _watched(self, tensor: Tensor, work: dist.Work) -> dist.Work:
        """Return the collective of this tensor, watched if the host does not wait for it."""
        if self._nccl is not None and tensor.device.type == "cuda":
            self._timeout.watch(work)
        return work

    def start_exchange(self, sent: Mapping[int, Tensor], received: Mapping[int, Tensor]) -> Callable[[], None]:
        by_host = self._nccl is None  # gloo sends and receives memory of the host only
        coming = {rank: one.cpu() if by_host else one for rank, one in received.items()}
        leaving = {rank: one.cpu() if by_host else one for rank, one in sent.items()}
        messages = [dist.P2POp(dist.isend, self._keep(one), rank) for rank, one in leaving.items()]
        messages += [dist.P2POp(dist.irecv, self._keep(one), rank) for rank, one in coming.items()]
        # NCCL returns one work for all of them.
        works = dist.batch_isend_irecv(messages) if messages else []
        for work, message in zip(works, messages, strict=False):
            self._watched(message.tensor, work)

        def wait() -> None:
            with self._timeout.waiting():
                for work in works:
                    work.wait()
            for rank, one in received.items():
                if coming[rank] is not one:
                    one.copy_(coming[rank])

        return wait

    def largest(self, tensor: Tensor) -> Tensor:
        with self._timeout.waiting():
            self._watched(tensor, dist.all_reduce(self._keep(tensor), op=dist.ReduceOp.MAX, async_op=True)).wait()
        return tensor

    def barrier(self) -> None:
        """Wait until all ranks have come here."""
        with self._timeout.waiting():
            dist.all_reduce(self._keep(torch.zeros(1)))

    def broadcast(self, tensor: Tensor) -> Tensor:
        real = self._keep(torch.view_as_real(tensor) if tensor.is_complex() else tensor)
        with self._timeout.waiting():
            self._watched(real, dist.broadcast(real, src=0, async_op=True)).wait()
        return tensor

    def broadcast_object(self, message: Any) -> Any:
        text = json.dumps(message).encode() if self.rank == 0 else b""
        size = self.broadcast(torch.tensor([len(text)], dtype=torch.int64))
        letters = torch.zeros(int(size[0]), dtype=torch.uint8)
        if self.rank == 0:
            letters = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        return json.loads(self.broadcast(letters).numpy().tobytes())

    def agree(self, number: int) -> Agreed:
        box = self._keep(torch.tensor([number if self.rank == 0 else 0], dtype=torch.int64))
        work = dist.all_reduce(box, async_op=True)
        self._timeout.agree(work)

        def wait(wake: threading.Event | None = None, meanwhile: Callable[[], None] = nothing) -> int:
            with self._timeout.waiting():
                if wake is not None:
                    # Another thread waits for the message, since polling takes a per cent of a core.
                    done = threading.Event()
                    SupervisedThread("ptynb waiter", _wait, work, done, wake).start()
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
        if self._nccl is not None:
            self._end_on_gpu(self._nccl)
            self._nccl = None
        self._connections.on_abort(None)
        self._timeout.close()
        time.sleep(0.005)  # releases Python's lock, for threads that still wait for it
        if dist.is_initialized():
            dist.destroy_process_group()
        self._shared = None
        rendezvous.close_store(self._store)

    def _end_on_gpu(self, abort: nccl.Abort) -> None:
        """Let collectives on the GPU end, or end them: `destroy_process_group` would wait for them without limit."""
        wait_until(lambda: abort.started or not self._timeout.on_gpu, CLOSE_SECONDS, 0.01)
        if (abort.started or self._timeout.on_gpu) and not abort.wait(ABORT_SECONDS):
            end_process(f"NCCL did not leave the group within {ABORT_SECONDS:g} s; this process ends.")


@contextlib.contextmanager
def _coarse_timers() -> Iterator[None]:
    """Let timers of threads that are started inside this context fire up to `TIMER_SLACK` late.

    gloo's thread checks a hundred times a second whether to end; received data still wakes it at once.
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
    """Do nothing: the default of `meanwhile`."""


def _wait(work: dist.Work, done: threading.Event, wake: threading.Event) -> None:
    try:
        with contextlib.suppress(RuntimeError):  # the next wait raises the error
            work.wait()
    finally:
        done.set()
        wake.set()


def _meet(store: Any, membership: Membership, connections: Connections) -> list[str]:
    """Wait until all ranks have joined, described themselves and are compatible, before torch forms a group.

    Returns the identity of each rank's device.

    If torch fails to form a group, its count of groups stays one too high in this process, and no later group can be
    formed with ranks that did not try (seen with torch 2.13). Therefore each rank also confirms that it has found all
    others: a late one may join after the others gave up, and find their entries in the store.
    """
    # The wait for a store whose file was removed has the same limit; by default it is five minutes.
    store.set_timeout(timedelta(seconds=membership.timeout))
    description = json.dumps([membership.world, membership.backend, membership.identity])
    for word, value in (("rank", description), ("seen all, rank", "")):
        store.set(f"{word} {membership.rank}", value)
        _await_all(store, word, membership, connections)
    descriptions = [json.loads(store.get(f"rank {rank}")) for rank in range(membership.world)]
    if any(entry[:2] != [membership.world, membership.backend] for entry in descriptions):
        raise ClusterError(
            f"The engines of the group differ in world or backend; (world, backend, device) by rank: {descriptions}.",
            code="group.join-failed",
        )
    devices: list[str] = [entry[2] for entry in descriptions]
    if membership.backend == "nccl" and len(set(devices)) < membership.world:
        raise ClusterError(
            f"Two engines hold the same GPU ({devices}); expected one GPU each: start fewer engines, or CPU engines.",
            code="gpu.too-few",
        )
    return devices


def _await_all(store: Any, word: str, membership: Membership, connections: Connections) -> None:
    def check() -> None:
        if connections.aborted:
            raise ClusterError("The group was aborted while its engines joined.", code="group.join-failed")

    if late := rendezvous.await_ranks(store, word, membership.world, membership.timeout, 0.005, check):
        raise ClusterError(
            f"The engines of ranks {late} did not join within {membership.timeout:g} s.",
            code="group.join-failed",
        )


def is_echo(message: str, of_group: bool = False) -> bool:
    """Return whether an error is only a consequence of another rank's end or silence, by its message.

    of_group: whether torch.distributed raised it, so that it is one unless the message names a cause.
    """
    return OWN_CAUSES.search(message) is None and (of_group or ECHOES.search(message) is not None)


def join(membership: Membership, connections: Connections | None = None) -> Group:
    """Return the group of this membership; waits for the other ranks.

    connections: created by the caller just before, so that another thread can abort this call.
    """
    if membership.world == 1:
        return SingleGroup(torch.device(membership.device), membership.engines_per_gpu)
    try:
        return TorchGroup(membership, connections or Connections())
    except BaseException:
        rendezvous.close_store(membership.store)
        raise
