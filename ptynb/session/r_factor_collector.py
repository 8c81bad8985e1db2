"""R-factors of single patterns, collected from all engines of a reconstruction."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ptynb.data.pattern_r_factors import MeasuredRFactors, PatternRFactors

MOST_AT_ONCE = 16
"""Largest number of engines that are asked at the same time."""
PORTION_SECONDS = 0.25
"""Time for which a request that waits for all patterns interrupts the updates at a time [s]."""
WAITING_SECONDS = 0.05

Ask = Callable[[int, float, str, int], MeasuredRFactors | None]
"""Asks the engine of a rank to measure for so many seconds, and for what is new after (source, total)."""


class RFactorCollector:
    """What the engines have measured up to now; each answers with what is new since its last answer."""

    def __init__(self, patterns: int) -> None:
        self._lock = threading.Lock()
        self._values = np.full(patterns, np.nan)
        self._epochs = np.full(patterns, -1, dtype=np.int64)
        self._known: dict[int, MeasuredRFactors] = {}

    def collect(self, ask: Ask, world: int, seconds: float | None) -> PatternRFactors:
        """Let the engines measure for so many seconds at most; None: until all values are later than this call."""
        with self._lock, ThreadPoolExecutor(min(world, MOST_AT_ONCE), "ptynb R-factors") as pool:
            if {*self._known} - {*range(world)}:
                self._forget()
            cost = self._ask(pool, ask, [*range(world)], seconds or 0.0)
            until = dict[str, int]()
            while seconds is None and (waiting := [rank for rank in range(world) if self._waits(rank, until)]):
                cost = max(cost, self._ask(pool, ask, waiting, PORTION_SECONDS))
                if not {*waiting} & {*self._known}:  # the engines make the next stage
                    time.sleep(WAITING_SECONDS)
            complete = len(self._known) == world and all(one.current for one in self._known.values())
            return PatternRFactors(self._values.copy(), self._epochs.copy(), complete, cost)

    def _waits(self, rank: int, until: dict[str, int]) -> bool:
        """Return whether an engine has patterns that were not measured since its first answer, stored in `until`."""
        known = self._known.get(rank)
        if known is None:
            return True
        return not known.current and known.total < until.setdefault(known.source, known.total + known.own)

    def _ask(self, pool: ThreadPoolExecutor, ask: Ask, ranks: list[int], seconds: float) -> float:
        """Ask engines at the same time, and store their answers; return the longest interruption [s]."""
        before = self._known.copy()

        def asked(rank: int) -> MeasuredRFactors | None:
            known = before.get(rank)
            return ask(rank, seconds, *(("", 0) if known is None else (known.source, known.total)))

        answers = dict(zip(ranks, pool.map(asked, ranks), strict=True))
        new = {rank: answer for rank, answer in answers.items() if answer is not None}
        others = {rank for rank, answer in new.items() if rank in before and before[rank].source != answer.source}
        if others:  # other engines, or another state on the same ones: each is asked for all its values again
            self._forget()
            # The answers of those that are the same are only what is new to what was known.
            new = {rank: answer for rank, answer in new.items() if rank in others or rank not in before}
        for rank, answer in new.items():
            self._values[answer.patterns], self._epochs[answer.patterns] = answer.values, answer.epochs
            self._known[rank] = answer
        return max((answer.cost for answer in new.values()), default=0.0)

    def _forget(self) -> None:
        self._values[:], self._epochs[:] = np.nan, -1
        self._known = {}
