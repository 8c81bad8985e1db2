"""Algorithms that make an update with each batch: each engine measures its patterns, and all make the same step."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ptynb.kernels.runtime import buffers
from ptynb.optimize.algorithm import Algorithm, Problem
from ptynb.optimize.update_graphs import UpdateGraphs

Sums = TypeVar("Sums")


class BatchAlgorithm(Algorithm, Generic[Sums]):
    """An update is `begin`, `measure` and `step`; the last two are recorded as a CUDA graph where they can be.

    With several engines, whose sums no graph can hold, only `measure` is recorded.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._graphs = UpdateGraphs(problem)

    @property
    def updates(self) -> int:
        """One update per batch."""
        return self.problem.order.updates

    @property
    def notices(self) -> tuple[str, ...]:
        """Why updates are not recorded as a CUDA graph, if that failed."""
        return self._graphs.notices

    @abstractmethod
    def begin(self, members: NDArray[np.int64], update: int) -> None:
        """Prepare an update, outside of a graph. members: patterns of the batch on all engines."""

    @abstractmethod
    def measure(self, own: NDArray[np.int64], members: int, indices: Tensor | None) -> Sums:
        """Return what the step needs of this engine's patterns `own`. members: number of patterns on all engines.

        indices: `own` on the device, if they are there already.
        """

    @abstractmethod
    def step(
        self, sums: Sums, own: NDArray[np.int64], members: NDArray[np.int64], indices: Tensor | None, release: bool
    ) -> Tensor:
        """Sum over engines and make the step; return the sum of this engine's losses before it.

        own: this engine's patterns, which `sums` are of. members: those of all engines; indices: these on the device,
        if they are there already. release: whether memory of `sums` may be reused: not that of a graph, which has it
        for its next execution.
        """

    def parts(self, own: NDArray[np.int64]) -> Sequence[NDArray[np.int64]]:
        """Return these patterns as `measure` requests them, in its order."""
        return [own]

    @property
    def recordable(self) -> bool:
        """Whether a graph can hold `measure`."""
        return True

    @property
    def step_recordable(self) -> bool:
        """Whether a graph can hold `step`, with one engine."""
        return True

    recorded_parameters: Sequence[Tensor] = ()
    """Parameters whose `grad` is set by `measure`."""

    def asks(self, table: NDArray[np.int64], update: int) -> Iterator[NDArray[np.int64]]:
        """Yield the parts of this engine's patterns of an update."""
        group = self.problem.group
        yield from self.parts(self.problem.order.part(table, update, group.rank, group.world))

    def update(self, table: NDArray[np.int64], update: int) -> Tensor:
        """Perform one step with the whole batch over all engines."""
        problem, graphs, group = self.problem, self._graphs, self.problem.group
        members = table[:, update][table[:, update] >= 0]
        own = members if group.world == 1 else problem.order.part(table, update, group.rank, group.world)
        self.begin(members, update)
        measure = functools.partial(self.measure, own, len(members))
        sizes, parameters = (len(own), len(members)), self.recorded_parameters
        if not (len(own) and graphs.possible and problem.shard.in_place and self.recordable):
            return self.step(measure(None), own, members, None, True)
        if group.world == 1 and self.step_recordable:

            def whole(indices: Tensor) -> Tensor:
                return self.step(measure(indices), own, members, indices, True)

            return graphs.run(sizes, own, whole, parameters)
        return self.step(graphs.run(sizes, own, measure, parameters), own, members, None, False)

    def disconnect(self) -> None:
        """Release graphs and buffers."""
        self._graphs.clear()
        buffers.forget()
