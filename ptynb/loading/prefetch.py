"""Batches that are read ahead, from a file or host memory, while the present one is computed."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.data.patterns import PlacedFrames
from ptynb.kernels import parallel_unpack, thread_count
from ptynb.loading.pattern_reader import PatternReader

AHEAD = 2
"""Batches under way beside the one that is computed."""
Begun = TypeVar("Begun")
"""What there is of a batch while it is under way."""


class Prefetch(ABC, Generic[Begun]):
    """Counts of batches that are begun some time before they are asked for; the others, when they are."""

    def __init__(self) -> None:
        self._coming: deque[tuple[bytes, Begun]] = deque()
        self._announced: Iterator[NDArray[np.int64]] = iter(())
        self._last: tuple[bytes, Tensor] | None = None
        self.unexpected = 0
        """Batches that nobody announced."""

    def follow(self, batches: Iterator[NDArray[np.int64]]) -> None:
        """Takes over which batches will be asked for from now on, in order; empty ones don't count."""
        self._coming.clear()
        self._announced = batches
        self._announce()

    def take(self, patterns: NDArray[np.int64]) -> Tensor:
        """The counts (pattern, y, x) of these patterns, on the device; not to be changed."""
        asked = patterns.tobytes()
        if self._last is not None and self._last[0] == asked:
            return self._last[1]
        place = next((at for at, (coming, _) in enumerate(self._coming) if coming == asked), None)
        if place is None:
            self.unexpected += 1
            begun = self._begin(patterns)
        else:
            for _ in range(place):
                self._coming.popleft()
            begun = self._coming.popleft()[1]
        self._announce()
        counts = self._end(begun)
        self._last = asked, counts
        return counts

    def close(self) -> None:
        """Lets go of all batches."""
        self._announced = iter(())
        self._coming.clear()
        self._last = None

    def _announce(self) -> None:
        while len(self._coming) < AHEAD:
            patterns = next((batch for batch in self._announced if len(batch)), None)
            if patterns is None:
                return
            self._coming.append((patterns.tobytes(), self._begin(patterns)))

    @abstractmethod
    def _begin(self, patterns: NDArray[np.int64]) -> Begun:
        """Sees to it that these patterns come."""

    @abstractmethod
    def _end(self, begun: Begun) -> Tensor:
        """Their counts, once they are there."""


@final
class ThreadPrefetch(Prefetch[Future[tuple[Tensor, Any]]]):
    """Counts of batches, made in a thread.

    On a GPU they are made on a stream of its own, so that copies run beside the computation.
    """

    def __init__(self, begin: Callable[[NDArray[np.int64]], Callable[[], Tensor]], device: torch.device) -> None:
        """begin: called where `take` is, takes the memory; what it returns is called in the thread."""
        super().__init__()
        self._take_memory, self._device = begin, device
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._thread = ThreadPoolExecutor(1, "ptynb reading ahead")

    def close(self) -> None:
        """Ends the thread, too."""
        self._thread.shutdown(cancel_futures=True)
        super().close()

    def _begin(self, patterns: NDArray[np.int64]) -> Future[tuple[Tensor, Any]]:
        return self._thread.submit(self._make, self._take_memory(patterns))

    def _end(self, begun: Future[tuple[Tensor, Any]]) -> Tensor:
        counts, copied = begun.result()
        if copied is not None:
            now = torch.cuda.current_stream(self._device)
            now.wait_event(copied)
            counts.record_stream(now)
        return counts

    def _make(self, load: Callable[[], Tensor]) -> tuple[Tensor, Any]:
        """The counts, and on a GPU the event after which they are there."""
        if self._side is None:
            return load(), None
        with torch.cuda.stream(self._side):
            return load(), self._side.record_event()


@final
class ParallelPrefetch(Prefetch[NDArray[np.int64]]):
    """Counts of patterns that lie in a file as they are, for a CPU; the system is told which come next.

    Where all cores compute, a thread that reads beside them takes their time and makes them wait for each other: up to
    a third of an epoch, with batches of 16 patterns of 128 x 128 on two cores.
    """

    def __init__(self, source: PatternReader, kind: torch.dtype) -> None:
        """kind: the type of the counts."""
        super().__init__()
        assert isinstance(source.frames, PlacedFrames)
        self._source, self._kind, self._frames = source, kind, source.frames
        self._scratch = np.empty((0, *source.window), source.frames.dtype)
        self._unsaid = list[NDArray[np.int64]]()
        self._stored = source.stored(os.open(source.frames.path, os.O_RDONLY))

    @staticmethod
    def possible(source: PatternReader, device: torch.device) -> bool:
        """Whether batches of these patterns can be had so."""
        able = device.type == "cpu" and isinstance(source.frames, PlacedFrames) and source.plain
        return able and parallel_unpack.possible()

    def close(self) -> None:
        """Closes the file, too."""
        super().close()
        if self._stored.file >= 0:
            os.close(self._stored.file)
            self._stored = self._stored._replace(file=-1)

    def _begin(self, patterns: NDArray[np.int64]) -> NDArray[np.int64]:
        self._unsaid.append(patterns)
        return patterns

    def _end(self, begun: NDArray[np.int64]) -> Tensor:
        if len(self._scratch) != thread_count.count():
            self._scratch = np.empty((thread_count.count(), *self._source.window), self._frames.dtype)
        counts = torch.empty((len(begun), *self._source.window), dtype=self._kind)
        places, coming = (
            self._frames.places[patterns] for patterns in (begun, np.concatenate([begun[:0], *self._unsaid]))
        )
        self._unsaid.clear()
        if not parallel_unpack.read(self._stored, places, coming, self._scratch, counts.numpy()):
            self._source.batch(begun, counts)  # says what is wrong
        return counts
