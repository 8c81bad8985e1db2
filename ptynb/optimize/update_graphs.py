"""CUDA graphs of updates: all kernels of an update, recorded once and launched together.

An update of a small batch is a few dozen kernels of microseconds, whose launches one by one take ten times as long. A
graph reads and writes the same memory in every replay: the indices of the patterns are copied into a tensor of the
graph, learning rates are read from the device (`optimizers.rate_on_device`), and parameters and moments are changed in
place. Whatever else enters an update as a number of Python is part of the recording: `clear_if_changed` compares the
settings. Each graph knows the memory that it reads besides its own, and is not replayed once some of that was released,
as other tensors have taken its place (`_MemoryRead`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ptynb.loading.device_memory import WHOLE_GPU
from ptynb.optimize.algorithm import Problem
from ptynb.physics.components.component import pinned
from ptynb.settings import Settings

Result = TypeVar("Result")

WARM_UP = 3
"""Updates without a graph before one is recorded: they create moments, transforms' plans and compiled kernels."""
RATES_AND_EPOCHS = ("learning_rate", "amplitude_learning_rate", "start_epoch", "end_epoch")
"""Settings of a part that are not part of a recorded update."""
MOST_GRAPHS = 4
"""Sizes of batches whose updates are recorded. Several engines with random batches have dozens of sizes, and each graph
keeps its gradients."""
MOST_RECORDED, MOST_KEPT = 2**25, 2**27
"""Pixels of the waves of a batch in one slice, and in all slices, above which its update is not recorded: kernels of
the former take the GPU longer than their launches take the host, and a graph keeps the memory of all its arrays."""
RECORDERS: dict[str, Callable[[torch.device], Any]] = {}
"""Makes a recorder of graphs for a type of device, with the interface of `CudaRecorder`; tests add one."""


@final
class CudaRecorder:
    """Records work on a GPU as graphs, all on one stream and in one pool of memory.

    Graphs that are replayed one after the other can share the memory of what they need only meanwhile.
    """

    def __init__(self, device: torch.device) -> None:
        self._side = torch.cuda.Stream(device)
        self._pool: Any = None

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Run what is inside on the stream on which updates are recorded.

        Autograd accumulates the gradient of a parameter on the stream where the parameter was first used.
        """
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side):
            yield
        torch.cuda.current_stream().wait_stream(self._side)

    @contextlib.contextmanager
    def recording(self) -> Iterator[torch.cuda.CUDAGraph]:
        """Record what is inside, without executing it, in the graph that is given; its `replay` executes it.

        Like `torch.cuda.graph`, but after an error the stream is that of before, and torch's memory can be used.
        """
        graph = torch.cuda.CUDAGraph()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        with WHOLE_GPU:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            with torch.cuda.stream(self._side):
                # Other threads read events of the GPU meanwhile (time limits of the process group, batches read ahead).
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    yield graph
                finally:
                    self._end(graph, self._pool)

    def _end(self, graph: torch.cuda.CUDAGraph, pool: Any) -> None:
        try:
            graph.capture_end()
        except RuntimeError:
            # torch 2.11 goes on to allocate for the recording, and empty_cache() then fails: pytorch issue 180395.
            device, functions = self._side.device_index, torch._C
            with contextlib.suppress(RuntimeError, AttributeError):
                functions._cuda_endAllocateToPool(device, pool)
                functions._cuda_releasePool(device, pool)
            raise

    @staticmethod
    def memory(tensor: Tensor) -> tuple[int, Callable[[], bool]]:
        """Return the address of a tensor's memory, and a function that returns whether it has been released since."""
        storage = tensor.untyped_storage()
        return storage.data_ptr(), StorageWeakRef(storage).expired

    def forget(self) -> None:
        """Use other memory from now on, after all graphs were deleted: torch deletes a pool with the last of them."""
        self._pool = None


RECORDERS["cuda"] = CudaRecorder


def can_be_recorded(settings: Settings, window: tuple[int, int], patterns: int) -> bool:
    """Whether the update of a batch of so many patterns is small enough to be recorded. window: (y, x) [pixels]."""
    modes = settings.probe.modes * settings.object.modes * settings.fly_scan.steps
    waves = patterns * math.prod(window) * modes
    return waves <= MOST_RECORDED and waves * settings.slices.count <= MOST_KEPT


@final
class _MemoryRead(TorchDispatchMode):
    """Context that notes which memory the operations inside read on a device, other than what they have made."""

    def __init__(self, device: torch.device, memory: Callable[[Tensor], tuple[int, Callable[[], bool]]]) -> None:
        super().__init__()
        self._type, self._memory = device.type, memory
        self._made = set[int]()
        self._read = dict[int, Callable[[], bool]]()
        """Address -> whether it has been released."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        read = {address: released for address, released in self._places((args, kwargs)) if address not in self._made}
        self._read = read | self._read
        # Operations of the package compute with conjugated views, which torch ignores inside of a mode.
        with _without_excluding("Conjugate"), _without_excluding("Negative"):
            result = operation(*args, **kwargs)
        self._made.update({address for address, _ in self._places(result)} - self._read.keys())
        return result

    def _places(self, values: Any) -> Iterator[tuple[int, Callable[[], bool]]]:
        for one in tree_leaves(values):
            if isinstance(one, Tensor) and one.device.type == self._type and one.numel():
                yield self._memory(one)

    @property
    def released(self) -> bool:
        """Whether some of this memory has been released."""
        return any(released() for released in self._read.values())


def _without_excluding(key: str) -> contextlib.AbstractContextManager[None]:
    return torch._C._SetExcludeDispatchKeyGuard(getattr(torch._C.DispatchKey, key), False)


@dataclass
class _Update:
    """The update of batches of one size: number of executions without a graph, and the graph with its tensors."""

    executed: int = 0
    graph: Any = None
    """What `recording` gave; None: not recorded."""
    memory: _MemoryRead | None = None
    """What the graph reads."""
    patterns: Tensor | None = None
    """Indices of the batch, which the graph reads."""
    result: Any = None
    gradients: list[tuple[Tensor, Tensor | None]] = field(default_factory=list)


@final
class UpdateGraphs:
    """The graphs of the updates of a run, one for each size of a batch: the last batch of an epoch may be smaller."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self._device = problem, problem.group.device
        make = RECORDERS.get(self._device.type)
        self._recorder = None if make is None else make(self._device)
        self._updates = dict[tuple[int, ...], _Update]()
        self._recorded_for: tuple[Any, ...] | None = None
        self.notices: tuple[str, ...] = ()
        """Why updates are not recorded, once it failed."""

    @property
    def possible(self) -> bool:
        """Whether updates on this device can be recorded, and none failed to be.

        Those of a component of the user's are only if it says so: what it reads from Python would be part of the graph.
        """
        if self._recorder is None or self.notices:
            return False
        return all(component.recordable for component in self._problem.custom_components if component.active)

    def clear(self) -> None:
        """Forget all graphs, before updates whose recording would differ."""
        self._updates.clear()
        if self._recorder is not None:
            self._recorder.forget()

    def clear_if_changed(self, *further: Any) -> None:
        """Forget all graphs if a number that is part of them has changed since the last call.

        These are the settings, but for rates, which are read from the device, and for what acts between updates; which
        components are active; and whatever else a recording depends on: `further`.
        """
        problem = self._problem
        settings = problem.settings.model_dump(exclude={"schedule", "stop", "constraints"})
        for part in settings.values():
            if isinstance(part, dict):
                for name in RATES_AND_EPOCHS:
                    part.pop(name, None)
        active = [name for name, component in problem.model.components.items() if component.active]
        recorded_for = settings, active, problem.normaliser, problem.count, *further
        if recorded_for != self._recorded_for:
            self._recorded_for = recorded_for
            self.clear()

    def run(
        self,
        sizes: tuple[int, ...],
        patterns: NDArray[np.int64],
        compute: Callable[[Tensor], Result],
        parameters: Iterable[Tensor] = (),
    ) -> Result:
        """Execute an update, from the fourth one of these sizes on by a graph, and return its result.

        sizes: numbers of patterns on which the update depends. patterns: indices of the batch (pattern,).
        compute: performs the update for these indices, a tensor (pattern,) int64 on the device; it does not read any
        tensor on the host. Of what it returns, every execution by the graph has the tensors of the recording, with
        other numbers.
        parameters: those whose `grad` the update sets.
        """
        recorder = self._recorder
        assert recorder is not None
        indices = pinned(torch.from_numpy(patterns), self._device)
        update = self._updates.setdefault(sizes, _Update())
        if update.memory is not None and update.memory.released:
            self.clear()
            update = self._updates.setdefault(sizes, _Update())
        if update.graph is None and update.executed == WARM_UP and self._worth_recording(len(patterns)):
            self._record(recorder, update, indices, compute, parameters)
        if update.graph is None or update.patterns is None:
            update.executed += 1
            with recorder.aside():
                return compute(indices.to(self._device, non_blocking=True))
        update.patterns.copy_(indices, non_blocking=True)
        update.graph.replay()
        for parameter, gradient in update.gradients:
            parameter.grad = gradient
        result: Result = update.result
        return result

    def _worth_recording(self, patterns: int) -> bool:
        """Whether another update of so many patterns is to be recorded."""
        recorded = sum(update.graph is not None for update in self._updates.values())
        return recorded < MOST_GRAPHS and can_be_recorded(self._problem.settings, self._problem.shard.window, patterns)

    def _record(
        self,
        recorder: Any,
        update: _Update,
        indices: Tensor,
        compute: Callable[[Tensor], Any],
        parameters: Iterable[Tensor],
    ) -> None:
        """Record an update; if this is impossible, note why, and execute it and all others without graphs."""
        patterns, memory = indices.to(self._device), _MemoryRead(self._device, recorder.memory)
        try:
            with recorder.recording() as graph, memory:
                result = compute(patterns)
        except RuntimeError as error:
            self.clear()
            reason = str(error).splitlines()[0].rstrip(".")
            advice = (
                ""
                if isinstance(error, torch.OutOfMemoryError)
                else " A component of your own that reads a tensor on the host (.item(), .cpu(), float(...), a mask as "
                "an index) is the usual reason."
            )
            self.notices = (
                "The update cannot be recorded as a CUDA graph and runs without one, more slowly for small batches: "
                f"{reason}.{advice}",
            )
            return
        update.graph, update.patterns, update.result, update.memory = graph, patterns, result, memory
        update.gradients = [(parameter, parameter.grad) for parameter in parameters]
