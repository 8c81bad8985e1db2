"""CUDA graphs of updates: all kernels of an update, recorded once and launched together.

An update of a small batch is a few dozen kernels of microseconds, whose launches one by one take ten times as long. A
graph reads and writes the same memory in every replay: the indices of the patterns are copied into a tensor of the
graph, learning rates are read from the device (`optimizers.rate_on_device`), and parameters and moments are changed in
place. Whatever else enters an update as a number of Python is part of the recording: `clear_if_changed` compares the
settings, and `clear` has to be called when other tensors take the place of those that were recorded.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.exceptions import PtynbWarning
from ptynb.optimize.algorithm import Problem
from ptynb.physics.components.component import pinned

WARM_UP = 3
"""Updates without a graph before one is recorded: they create moments, transforms' plans and compiled kernels."""
RATES_AND_EPOCHS = ("learning_rate", "amplitude_learning_rate", "start_epoch", "end_epoch")
"""Settings of a part that are not part of a recorded update."""
Result = TypeVar("Result")
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
    """Indices of the batch, which the graph reads; None: not recorded."""
    result: Any = None
    gradients: list[tuple[Tensor, Tensor | None]] = field(default_factory=list)


@final
class UpdateGraphs:
    """The graphs of the updates of a run, one for each size of a batch: the last batch of an epoch may be smaller."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._make_recorder = device, RECORDERS.get(device.type)
        self._updates = dict[tuple[int, ...], _Update]()
        self._failed = False
        self._recorded_for: tuple[Any, ...] | None = None

    @property
    def possible(self) -> bool:
        """Whether updates on this device can be recorded, and none failed to be."""
        return self._make_recorder is not None and not self._failed

    def clear(self) -> None:
        """Forget all graphs, before updates whose recording would differ."""
        self._updates.clear()

    def clear_if_changed(self, problem: Problem, *further: Any) -> None:
        """Forget all graphs if a number that is part of them has changed since the last call.

        These are the settings, but for rates, which are read from the device, and for what acts between updates; which
        components are active; and whatever else a recording depends on: `further`.
        """
        settings = problem.settings.model_dump(exclude={"schedule", "stop", "constraints"})
        for part in settings.values():
            if isinstance(part, dict):
                for name in RATES_AND_EPOCHS:
                    part.pop(name, None)
        active = [name for name, component in problem.model.parts.items() if component.active]
        recorded_for = settings, active, problem.normaliser, *further
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
        assert self._make_recorder is not None
        update = self._updates.get(sizes)
        if update is None:
            update = self._updates[sizes] = _Update(self._make_recorder(self._device))
        indices = pinned(torch.from_numpy(patterns), self._device)
        if update.patterns is None and update.executed == WARM_UP:
            self._record(update, indices, compute, parameters)
        if update.patterns is None:
            update.executed += 1
            with update.recorder.aside():
                return compute(indices.to(self._device, non_blocking=True))
        update.patterns.copy_(indices, non_blocking=True)
        update.recorder.replay()
        for parameter, gradient in update.gradients:
            parameter.grad = gradient
        result: Result = update.result
        return result

    def _record(
        self, update: _Update, indices: Tensor, compute: Callable[[Tensor], Any], parameters: Iterable[Tensor]
    ) -> None:
        """Record an update; if this is impossible, warn once, and execute it and all others without graphs."""
        patterns = indices.to(self._device)
        try:
            with update.recorder.recording():
                result = compute(patterns)
        except RuntimeError as error:
            self._failed = True
            self._updates.clear()
            update.executed = 0
            reason = str(error).splitlines()[0].rstrip(".")
            warnings.warn(
                f"The update cannot be recorded as a CUDA graph and runs without one, more slowly for small batches: "
                f"{reason}. A component or constraint of your own that reads a tensor on the host (.item(), .cpu(), "
                "float(...), a mask as an index) is the usual reason.",
                PtynbWarning,
                stacklevel=2,
            )
            return
        update.patterns, update.result = patterns, result
        update.gradients = [(parameter, parameter.grad) for parameter in parameters]
