"""What an algorithm is: it takes the parameters from one update to the next, on all engines alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ptynb.distributed.group import Group
from ptynb.loading.engine_patterns import EnginePatterns
from ptynb.optimize.sampler import BatchSampler
from ptynb.physics.constraints import CustomConstraint
from ptynb.physics.model import Model
from ptynb.settings import PART_OF_COMPONENT, Settings


@dataclass(eq=False)
class Problem:
    """What an algorithm works on. `settings` and `epoch` (1 for the first) are kept up to date by the loop.

    normaliser: what the sum of the patterns' losses is divided by. imposed: constraints of the user's.
    """

    model: Model
    shard: EnginePatterns
    order: BatchSampler
    group: Group
    settings: Settings
    normaliser: float
    epoch: int = 1
    imposed: tuple[CustomConstraint, ...] = ()

    @property
    def scale(self) -> float:
        """Makes the loss of one pattern a sum over its pixels in units of the mean count of a pixel: a pure number."""
        return self.pixels * self.order.count / self.normaliser

    @property
    def pixels(self) -> int:
        """Pixels of a pattern."""
        return self.shard.window[0] * self.shard.window[1]

    def rate(self, component: str) -> float:
        """The step size in this epoch of a component, ptynb's own or a piece of the user's; 0 where it is frozen."""
        if component not in PART_OF_COMPONENT:
            return self.model.parts[component].rate
        chosen = self.settings.part(PART_OF_COMPONENT[component])
        return chosen.learning_rate * self.settings.schedule.factor(self.epoch) if chosen.moves(self.epoch) else 0.0

    def free(self, moving: Collection[str]) -> None:
        """Lets these parts move, wakes those that slept, and freezes all others."""
        for name, piece in self.model.parts.items():
            piece.requires_grad_(name in moving)
            piece.active = piece.active or name in moving
        if self.model.object.polar and self.settings.object.amplitude_learning_rate == 0:
            self.model.object.amplitude.requires_grad_(False)

    def own(self) -> NDArray[np.int64]:
        """This engine's patterns."""
        return self.shard.patterns


class Algorithm(ABC):
    """Updates of the parameters. Every method is called on all ranks in the same order, but for `state` and `rows`."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @property
    @abstractmethod
    def updates(self) -> int:
        """Updates in an epoch."""

    @abstractmethod
    def update(self, table: NDArray[np.int64], update: int) -> Tensor:
        """One update. Returns this engine's part of the sum of losses before it, a scalar without gradient.

        table: (lane, update), the epoch's order of patterns; update: 0 for the epoch's first.
        """

    def asks(self, table: NDArray[np.int64], update: int) -> Iterator[NDArray[np.int64]]:
        """The patterns of which `update` will ask the shard for a batch, in order, so that they can be read ahead."""
        group = self.problem.group
        yield self.problem.order.part(table, update, group.rank, group.world)

    def prepare(self) -> None:
        """Takes over settings and epoch from the problem: rates, and what is frozen.

        Called when one of them changes; nothing to do for those that ask the problem at each update.
        """
        return

    @abstractmethod
    def rates(self) -> dict[str, float]:
        """The step size of every part that moves now."""

    def settle(self) -> None:
        """Makes parameters equal on all engines, where updates let them differ."""
        return

    @property
    def equal(self) -> bool:
        """Whether all engines have the same parameters now, so that `state` is that of any of them."""
        return True

    def state(self) -> dict[str, Tensor | float]:
        """What the next updates depend on beside the model, by "optimiser/part/parameter/key" or "algorithm/key".

        The tensors themselves, not copies.
        """
        return {}

    def rows(self) -> dict[str, Tensor]:
        """What this engine keeps of each of its patterns (pattern, …), in their order; real."""
        return {}

    def restore(self, state: Mapping[str, Tensor | float], rows: Mapping[str, Tensor]) -> None:
        """Takes over copies of what `state` and `rows` said, after `prepare`. Raises KeyError where something lacks."""
        return

    def disconnect(self) -> None:
        """Lets go of the group; no further update is made."""
        return
