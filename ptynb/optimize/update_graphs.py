"""CUDA graphs of updates: all kernels of an update, recorded once and launched together.

An update of a small batch is a few dozen kernels of microseconds, whose launches one by one take ten times as long. A
graph reads and writes the same memory in every replay: the indices of the patterns are copied into a tensor of the
graph, learning rates are read from the device (`optimizers.rate_on_device`), and parameters and moments are changed in
place. Whatever else enters an update as a number of Python is part of the recording, so `clear` has to be called when
it changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.physics.components.component import pinned

WARM_UP = 3
"""Updates without a graph before one is recorded: they create moments, transforms' plans and compiled kernels."""
RECORDERS: dict[str, Callable[[torch.device], Any]] = {}
"""Makes a recorder of graphs for a type of device, with the interface of `CudaRecorder`; tests add one."""


@final
class CudaRecorder:
    """Records and replays work on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._side = torch.cuda.Stream(device)
        self._graph: torch.cuda.CUDAGraph | None = None

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Run what is inside on another stream, as recording does: autograd keeps the stream of a parameter."""
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side):
            yield
        torch.cuda.current_stream().wait_stream(self._side)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record what is inside, without executing it."""
        self._graph = torch.cuda.CUDAGraph()
        # Other threads read events of the GPU meanwhile (time limits of the process group, batches read ahead).
        with torch.cuda.graph(self._graph, stream=self._side, capture_error_mode="thread_local"):
            yield

    def replay(self) -> None:
        """Execute what was recorded."""
        assert self._graph is not None
        self._graph.replay()


RECORDERS["cuda"] = CudaRecorder


@dataclass
class _Update:
    """The update of batches of one size: number of executions without a graph, and the graph's tensors."""

    recorder: Any
    executed: int = 0
    patterns: Tensor | None = None
    loss: Tensor | None = None
    gradients: list[tuple[Tensor, Tensor | None]] = field(default_factory=list)


@final
class UpdateGraphs:
    """The graphs of the updates of a run, one for each size of a batch: the last batch of an epoch may be smaller."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._make_recorder = device, RECORDERS.get(device.type)
        self._updates = dict[tuple[int, ...], _Update]()
        self.notices: tuple[str, ...] = ()
        """Why updates are not recorded, once it failed."""

    @property
    def possible(self) -> bool:
        """Whether updates on this device can be recorded, and none failed to be."""
        return self._make_recorder is not None and not self.notices

    def clear(self) -> None:
        """Forget all graphs, before updates whose recording would differ."""
        self._updates.clear()

    def run(
        self,
        sizes: tuple[int, ...],
        patterns: NDArray[np.int64],
        compute: Callable[[Tensor], Tensor],
        parameters: Iterable[Tensor],
    ) -> Tensor:
        """Execute an update, from the fourth one of these sizes on by a graph, and return the sum of its losses.

        sizes: numbers of patterns on which the update depends. patterns: indices of the batch (pattern,).
        compute: performs the update for these indices, a tensor (pattern,)
        int64 on the device, and returns the sum of losses, a scalar; it does not read any tensor on the host.
        parameters: those whose `grad` the update sets.
        """
        assert self._make_recorder is not None
        update = self._updates.get(sizes)
        if update is None:
            update = self._updates[sizes] = _Update(self._make_recorder(self._device))
        indices = pinned(torch.from_numpy(patterns), self._device)
        if update.loss is None and update.executed == WARM_UP:
            self._record(update, indices, compute, parameters)
        if update.loss is None or update.patterns is None:
            update.executed += 1
            with update.recorder.aside():
                return compute(indices.to(self._device, non_blocking=True))
        update.patterns.copy_(indices, non_blocking=True)
        update.recorder.replay()
        for parameter, gradient in update.gradients:
            parameter.grad = gradient
        return update.loss

    def _record(
        self, update: _Update, indices: Tensor, compute: Callable[[Tensor], Tensor], parameters: Iterable[Tensor]
    ) -> None:
        """Record an update; if this is impossible, note why, and execute it and all others without graphs."""
        update.patterns = indices.to(self._device)
        try:
            with update.recorder.recording():
                loss = compute(update.patterns)
        except RuntimeError as error:
            self._updates.clear()
            update.executed = 0
            reason = str(error).splitlines()[0].rstrip(".")
            self.notices = (
                f"The update cannot be recorded as a CUDA graph and runs without one, more slowly for small batches: "
                f"{reason}. A component or constraint of your own that reads a tensor on the host (.item(), .cpu(), "
                "float(...), a mask as an index) is the usual reason.",
            )
            return
        update.loss = loss
        update.gradients = [(parameter, parameter.grad) for parameter in parameters]
