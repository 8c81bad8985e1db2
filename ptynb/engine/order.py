"""Which patterns are behind which update, and which engine holds them: the same batches for any number of engines.

The scan is cut into as many contiguous lanes as a batch has patterns. An update takes one pattern of every lane, each
lane shuffled anew every epoch. So a batch is spread over the scan, it does not depend on the number of engines, and an
engine that holds a run of lanes holds one contiguous part of the file and as much of every batch as any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Order:
    """The order of `count` patterns in batches of at most `batch`, from one seed."""

    count: int
    batch: int
    seed: int

    @property
    def lanes(self) -> int:
        """Number of lanes: the largest batch."""
        return min(self.batch, self.count)

    @property
    def updates(self) -> int:
        """Updates in an epoch."""
        return -(-self.count // self.lanes)

    def owned(self, rank: int, world: int) -> tuple[int, int]:
        """First pattern of this rank, and the one behind its last."""
        return self._edge(self._lane(rank, world)), self._edge(self._lane(rank + 1, world))

    def epoch(self, number: int) -> NDArray[np.int64]:
        """(lane, update): the pattern that a lane gives to an update, or -1 for none.

        Each pattern stands there once. Lanes that are one short leave out an update, spread evenly, so that no batch
        is much smaller than the others.
        """
        random = np.random.default_rng([self.seed, number])
        table = np.full((self.lanes, self.updates), -1, dtype=np.int64)
        lengths = np.diff([self._edge(lane) for lane in range(self.lanes + 1)])
        short = np.flatnonzero(lengths < self.updates)
        stride = max(1, self.updates // max(len(short), 1))
        gaps = (random.integers(self.updates) + np.arange(len(short)) * stride) % self.updates
        gap_of = dict(zip(short.tolist(), gaps.tolist(), strict=True))
        for lane in range(self.lanes):
            patterns = self._edge(lane) + random.permutation(lengths[lane])
            if lane in gap_of:
                patterns = np.insert(patterns, gap_of[lane], -1)
            table[lane] = patterns
        return table

    def part(self, table: NDArray[np.int64], update: int, rank: int, world: int) -> NDArray[np.int64]:
        """This rank's patterns of an update; may be empty."""
        patterns = table[self._lane(rank, world) : self._lane(rank + 1, world), update]
        return patterns[patterns >= 0]

    def _lane(self, rank: int, world: int) -> int:
        return rank * self.lanes // world

    def _edge(self, lane: int) -> int:
        return lane * self.count // self.lanes
