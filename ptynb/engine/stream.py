"""Batches from where there is room for all frames: the next ones are on their way while one is computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

AHEAD = 2
"""Batches under way beside the one that is computed."""


@final
class Stream:
    """Counts of batches, made in a thread; batches that nobody announced are made when they are asked for.

    On a GPU they are made on a stream of its own, so that copies run beside the computation.
    """

    def __init__(self, begin: Callable[[NDArray[np.int64]], Callable[[], Tensor]], device: torch.device) -> None:
        """begin: called where `take` is, takes the memory; what it returns is called in the thread."""
        self._begin, self._device = begin, device
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._thread = ThreadPoolExecutor(1, "ptynb reading ahead")
        self._coming: deque[tuple[NDArray[np.int64], Future[tuple[Tensor, Any]]]] = deque()
        self._announced: Iterator[NDArray[np.int64]] = iter(())
        self._last: tuple[NDArray[np.int64], Tensor] | None = None
        self.unexpected = 0
        """Batches that had to be made while somebody waited, the first one of all not among them."""

    def follow(self, batches: Iterator[NDArray[np.int64]]) -> None:
        """Takes over which batches will be asked for from now on, in order; empty ones don't count."""
        self._coming.clear()
        self._announced = batches
        self._announce()

    def take(self, patterns: NDArray[np.int64]) -> Tensor:
        """The counts (pattern, y, x) of these patterns, on the device; not to be changed."""
        if self._last is not None and np.array_equal(self._last[0], patterns):
            return self._last[1]
        place = next((at for at, (coming, _) in enumerate(self._coming) if np.array_equal(coming, patterns)), None)
        if place is None:
            self.unexpected += 1
            made = self._submit(patterns)
        else:
            for _ in range(place):
                self._coming.popleft()
            made = self._coming.popleft()[1]
        self._announce()
        counts, copied = made.result()
        if copied is not None:
            now = torch.cuda.current_stream(self._device)
            now.wait_event(copied)
            counts.record_stream(now)
        self._last = (patterns, counts)
        return counts

    def close(self) -> None:
        """Ends the thread and lets go of all batches."""
        self._announced = iter(())
        self._thread.shutdown(cancel_futures=True)
        self._coming.clear()
        self._last = None

    def _announce(self) -> None:
        while len(self._coming) < AHEAD:
            patterns = next((batch for batch in self._announced if len(batch)), None)
            if patterns is None:
                return
            self._coming.append((patterns, self._submit(patterns)))

    def _submit(self, patterns: NDArray[np.int64]) -> Future[tuple[Tensor, Any]]:
        return self._thread.submit(self._make, self._begin(patterns))

    def _make(self, load: Callable[[], Tensor]) -> tuple[Tensor, Any]:
        """The counts, and on a GPU the event after which they are there."""
        if self._side is None:
            return load(), None
        with torch.cuda.stream(self._side):
            return load(), self._side.record_event()
