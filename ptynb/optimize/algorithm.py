"""The interface of algorithms, which update the parameters in the same way on all engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ptynb.data.record import RunSpan
from ptynb.distributed.group import Group
from ptynb.loading.engine_patterns import EnginePatterns
from ptynb.optimize.object_tiles import ObjectTile
from ptynb.optimize.sampler import Sampler
from ptynb.physics.components.component import Batch, ModelComponent
from ptynb.physics.constraints import CustomConstraint
from ptynb.physics.model import Model
from ptynb.physics.streamed_object import Bands
from ptynb.settings import PART_OF_COMPONENT, Settings

FIRST_RUN = RunSpan(epoch=0, update=0, first=0, last=100, when=0.0)


@dataclass(eq=False)
class Problem:
    """The optimisation problem of an algorithm; the loop updates `epoch` (1 for the first) and `settings`.

    settings: the present ones, with lengths in pixels of the present window of the patterns.
    normaliser: divisor of the sum of the losses of all patterns; count: their number. While patterns come, both are of
    a moment at most a tenth of the patterns ago, so that recorded updates stay valid. imposed: custom constraints.
    run: the present run.
    tile: this engine's part of the object; None: it holds all of it. bands: of the scan, if batches are from bands:
    Adam then steps the rows of the object for the present one only. custom_components: the user's own.
    initial_object: (state, slice, y, x), kept if the settings restart the object.
    """

    model: Model
    shard: EnginePatterns
    order: Sampler
    group: Group
    settings: Settings
    normaliser: float
    count: int
    tile: ObjectTile | None = None
    bands: Bands | None = None
    epoch: int = 1
    run: RunSpan = FIRST_RUN
    imposed: tuple[CustomConstraint, ...] = ()
    custom_components: tuple[ModelComponent, ...] = ()
    initial_object: Tensor | None = None

    @property
    def scale(self) -> float:
        """Factor that makes the loss of a pattern a sum over its pixels in units of their mean count."""
        return self.pixels * self.count / self.normaliser

    @property
    def rate_factor(self) -> float:
        """Factor of all learning rates in this epoch."""
        return self.settings.schedule.factor(self.epoch, (self.run.first, self.run.last))

    @property
    def pixels(self) -> int:
        """Number of pixels of a pattern."""
        return self.shard.window[0] * self.shard.window[1]

    def rate(self, component: str) -> float:
        """Return the step size of a built-in or custom component in this epoch; 0 if it is frozen."""
        if component not in PART_OF_COMPONENT:
            return self.model.components[component].rate
        chosen = self.settings.part(PART_OF_COMPONENT[component])
        return chosen.learning_rate * self.rate_factor if chosen.moves(self.epoch) else 0.0

    def free(self, moving: Collection[str]) -> None:
        """Activate and optimise these components; freeze all others."""
        for name, piece in self.model.components.items():
            piece.requires_grad_(name in moving)
            piece.active = piece.active or name in moving
        if self.model.object.polar and self.settings.object.amplitude_learning_rate == 0:
            self.model.object.amplitude.requires_grad_(False)

    def own(self) -> NDArray[np.int64]:
        """Return the indices of this engine's patterns."""
        return self.shard.patterns


class Algorithm(ABC):
    """Updates of the parameters, by default one with all patterns in an epoch (`batch_algorithm`: one with each batch).

    All methods but `state` and `rows` are called on all ranks in the same order.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @property
    def updates(self) -> int:
        """Number of updates in an epoch."""
        return 1

    @abstractmethod
    def update(self, table: NDArray[np.int64], update: int) -> Tensor:
        """Perform one update; return this engine's part of the sum of losses before it, a scalar without gradient.

        table: (stratum, update), the epoch's order of patterns from `Sampler.epoch`; update: 0 for the first.
        """

    def asks(self, table: NDArray[np.int64], update: int) -> Iterator[NDArray[np.int64]]:
        """Yield the batches that `update` will request from the patterns, in order, so that they can be read ahead.

        Here all patterns of this engine, in portions; every pass over them requests the same ones.
        """
        return portions_of(self.problem)

    def prepare(self) -> None:
        """Take into account that the problem has changed: step sizes, frozen components, initial positions, sums."""
        return

    def rates(self) -> dict[str, float]:
        """Return the step size of every component that is optimised now."""
        rates = {name: self.problem.rate(name) for name in self.problem.model.components}
        return {name: rate for name, rate in rates.items() if rate > 0}

    @property
    def notices(self) -> tuple[str, ...]:
        """Messages for the user about updates that run, but more slowly than they could."""
        return ()

    def state(self) -> dict[str, Tensor | float]:
        """Return the state by "optimiser/component/parameter/key" or "algorithm/key"; tensors are not copied."""
        return {}

    def rows(self) -> dict[str, Tensor]:
        """Return the state of each of this engine's patterns (pattern, …), in their order; real."""
        return {}

    def restore(self, state: Mapping[str, Tensor | float], rows: Mapping[str, Tensor]) -> None:
        """Restore copies of `state` and `rows`, after `prepare`. Raises KeyError if an entry is missing."""
        return

    def disconnect(self) -> None:
        """Release the group; no further update follows."""
        return


def portions(problem: Problem) -> Iterator[tuple[slice, Batch]]:
    """Yield this engine's patterns as (rows, batch), in portions of its share of a batch, which bounds the memory.

    The number of portions differs between engines and may be 0: the loop's body must not wait for other engines.
    """
    first = 0
    for patterns in portions_of(problem):
        yield slice(first, first + len(patterns)), problem.shard.batch(patterns, problem.count)
        first += len(patterns)


def portions_of(problem: Problem) -> Iterator[NDArray[np.int64]]:
    """Yield the patterns of each portion."""
    return problem.shard.portions(problem.order.share(problem.group.world))
