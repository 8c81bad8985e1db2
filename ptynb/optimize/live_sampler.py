"""The order of the patterns of a scan that is reconstructed while it is measured.

While patterns come, an update takes those first that were in no batch yet, so that a new one is used at once. The rest
of the batch is taken from a round over all patterns that were there when the round began, shuffled in interleaved
strata. So those of the others come first that were used least. The order follows from the patterns, the updates before
which they came, and the seed. An epoch has as many updates as the patterns at its
start need; it is not aligned with the rounds.

Once no more patterns come, epochs are those of a `BatchSampler` of the patterns that are there. If they were all there
before the first update, it is the order of an ordinary scan with `batch_sampling="interleaved"`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import final

import numpy as np
from numpy.typing import NDArray

from ptynb.optimize.sampler import BatchSampler, Sampler

ROUNDS = 2
"""Separates the random numbers of rounds from those of the epochs."""


@final
class LiveSampler(Sampler):
    """The order of the patterns that have been admitted, of planned ones."""

    def __init__(self, plan: BatchSampler) -> None:
        """plan: the order of all planned patterns, interleaved."""
        assert plan.kind == "interleaved"
        self._plan, self.batch, self._seed = plan, plan.batch, plan.seed
        self._whole: BatchSampler | None = None
        """The order once no more patterns come."""
        self.members = np.zeros(0, dtype=np.int64)
        """Numbers of the admitted patterns, ascending."""
        self._new = np.zeros(0, dtype=np.int64)
        """Those in no batch yet, in the order in which they came."""
        self._round = np.zeros(0, dtype=np.int64)
        """Those left of the present round, in order."""
        self._rounds = 0
        self._updates = 0
        self.used = 0
        """Number of patterns in the batches of the present epoch, some perhaps more than once."""
        self.ended = False
        """Whether no more patterns come, from the next epoch on."""

    @property
    def count(self) -> int:  # type: ignore[override]
        """Number of admitted patterns."""
        return len(self.members)

    @property
    def planned(self) -> int:
        """Number of planned patterns."""
        return self._plan.count

    @property
    def open(self) -> bool:
        """Whether the present epoch is one of those in which further patterns may come."""
        return self._whole is None

    @property
    def strata(self) -> int:
        """The largest batch."""
        return self._plan.strata

    @property
    def updates(self) -> int:
        """Number of updates of the present epoch."""
        return self._updates

    def owner(self, world: int) -> NDArray[np.int64]:
        """Return the rank of each planned pattern (pattern,)."""
        return self._plan.owner(world)

    def admit(self, patterns: NDArray[np.int64]) -> None:
        """Add patterns, which the next updates use first."""
        assert not self.ended, "no more patterns were expected"
        self.members = np.sort(np.concatenate([self.members, patterns]))
        self._new = np.concatenate([self._new, patterns])

    def epoch(self, number: int) -> NDArray[np.int64]:
        """Return the table (stratum, update) of an epoch, which is empty as long as further patterns may come."""
        if self._whole is None:
            return np.full((self.strata, -(-self.count // self.strata)), -1, dtype=np.int64)
        table = self._whole.epoch(number)
        return table if self.count == self.planned else np.where(table < 0, -1, self.members[table])

    def begin_epoch(self, number: int) -> NDArray[np.int64]:
        """Begin an epoch, and return its table."""
        if self.ended and self._whole is None:
            self._whole = BatchSampler(self.count, self.batch, self._seed, "interleaved")
        table = self.epoch(number)
        self._updates, self.used = table.shape[1], 0
        return table

    def resume_epoch(self, state: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
        """Continue in an epoch in which further patterns may come, and return its table. state: from `state`."""
        self._new, self._round = state["new"], state["round"]
        self._rounds, self._updates, self.used = state["numbers"].tolist()
        return np.full((self.strata, self._updates), -1, dtype=np.int64)

    def fill(self, table: NDArray[np.int64], update: int) -> None:
        """Enter the batch of the next update into the table, if it is not there."""
        if self._whole is None:
            batch = self._next()
            self.used += len(batch)
            table[: len(batch), update] = batch

    def upcoming(self) -> Iterator[NDArray[np.int64]]:
        """Yield the batches (pattern,) to come, as long as no other patterns come."""
        ahead = copy.copy(self)
        while ahead._whole is None:
            yield ahead._next()

    def _next(self) -> NDArray[np.int64]:
        """Return the patterns of the next update, each once."""
        size = min(self.strata, self.count)
        chosen, self._new = self._new[:size], self._new[size:]
        while len(chosen) < size:
            if not len(self._round):
                self._begin_round(chosen)
            needed = size - len(chosen)
            chosen, self._round = np.concatenate([chosen, self._round[:needed]]), self._round[needed:]
        return chosen

    def _begin_round(self, chosen: NDArray[np.int64]) -> None:
        """Begin a round over all members, with those last that are in the present batch already."""
        self._rounds += 1
        random = np.random.default_rng([ROUNDS, self._seed, self._rounds])
        table = BatchSampler(self.count, self.batch, self._seed, "interleaved").strata_shuffled(random).T.ravel()
        shuffled = self.members[table[table >= 0]]
        again = np.isin(shuffled, chosen)
        self._round = np.concatenate([shuffled[~again], shuffled[again]])

    def state(self) -> dict[str, NDArray[np.int64]]:
        """Return what the further order depends on, besides patterns and epoch; empty once none come any more."""
        if self._whole is not None:
            return {}
        numbers = np.array([self._rounds, self._updates, self.used], dtype=np.int64)
        return {"new": self._new.copy(), "round": self._round.copy(), "numbers": numbers}
