"""Batches that are read ahead, from a file or host memory, while the present one is computed."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.data.patterns import PlacedFrames
from ptynb.kernels import parallel_unpack
from ptynb.kernels.runtime import thread_count
from ptynb.loading.pattern_reader import PatternReader
from ptynb.loading.transfer import Copied, Transfer

AHEAD = 2
"""Batches that are read ahead of the present one."""
Pending = TypeVar("Pending")
"""A batch that is being read."""


class Prefetch(ABC, Generic[Pending]):
    """Counts of batches, read ahead in the announced order; other batches are read when they are taken."""

    def __init__(self) -> None:
        self._queue: deque[tuple[bytes, Pending]] = deque()
        self._announced: Iterator[NDArray[np.int64]] = iter(())
        self._last: tuple[bytes, Tensor] | None = None
        self.unexpected = 0
        """Number of batches that were not announced."""

    def follow(self, batches: Iterator[NDArray[np.int64]]) -> None:
        """Set the batches to come, in order; empty ones are skipped."""
        self._queue.clear()
        self._announced = batches
        self._announce()

    def take(self, patterns: NDArray[np.int64]) -> Tensor:
        """Return the counts (pattern, y, x) of these patterns, on the device; read-only."""
        key = patterns.tobytes()
        if self._last is not None and self._last[0] == key:
            return self._last[1]
        index = next((at for at, (coming, _) in enumerate(self._queue) if coming == key), None)
        if index is None:
            self.unexpected += 1
            pending = self._begin(patterns)
        else:
            for _ in range(index):
                self._queue.popleft()
            pending = self._queue.popleft()[1]
        self._announce()
        counts = self._end(pending)
        self._last = key, counts
        return counts

    def close(self) -> None:
        """Drop all batches."""
        self._announced = iter(())
        self._queue.clear()
        self._last = None

    def _announce(self) -> None:
        while len(self._queue) < AHEAD:
            patterns = next((batch for batch in self._announced if len(batch)), None)
            if patterns is None:
                return
            self._queue.append((patterns.tobytes(), self._begin(patterns)))

    @abstractmethod
    def _begin(self, patterns: NDArray[np.int64]) -> Pending:
        """Start to read these patterns."""

    @abstractmethod
    def _end(self, pending: Pending) -> Tensor:
        """Wait for the counts and return them."""


Begin = Callable[[NDArray[np.int64]], Callable[[], tuple[Tensor, Copied | None]]]
"""Allocates memory for a batch; the function that it returns reads it, and returns the end of its copy, if any."""


@final
class ThreadPrefetch(Prefetch[Future[tuple[Tensor, Copied | None]]]):
    """Batches read by a thread, and copied to another device beside its computation."""

    def __init__(self, begin: Begin, transfer: Transfer | None = None) -> None:
        """begin: called by the calling thread; what it returns, by the reading one. transfer: by which it copies."""
        super().__init__()
        self._prepare_read, self._transfer = begin, transfer
        self._thread = ThreadPoolExecutor(1, "ptynb reading ahead")

    def close(self) -> None:
        """Stop the thread, too."""
        self._thread.shutdown(cancel_futures=True)
        super().close()

    def _begin(self, patterns: NDArray[np.int64]) -> Future[tuple[Tensor, Copied | None]]:
        return self._thread.submit(self._prepare_read(patterns))

    def _end(self, pending: Future[tuple[Tensor, Copied | None]]) -> Tensor:
        counts, copied = pending.result()
        if copied is not None and self._transfer is not None:
            self._transfer.join(counts, copied)
        return counts


@final
class ParallelPrefetch(Prefetch[NDArray[np.int64]]):
    """Uncompressed patterns read by the computing threads of a CPU; the system is advised of the next batches.

    If all cores compute, a reading thread would compete with them: this took up to a third of an epoch with batches of
    16 patterns of 128 x 128 on two cores.
    """

    def __init__(self, reader: PatternReader, kind: torch.dtype) -> None:
        """kind: the type of the counts."""
        super().__init__()
        assert isinstance(reader.frames, PlacedFrames)
        self._reader, self._kind, self._frames = reader, kind, reader.frames
        self._scratch = np.empty((0, *reader.window), reader.frames.dtype)
        self._unannounced = list[NDArray[np.int64]]()
        self._stored = reader.stored(os.open(reader.frames.path, os.O_RDONLY))

    @staticmethod
    def possible(reader: PatternReader, device: torch.device) -> bool:
        """Return whether these patterns can be read this way."""
        able = device.type == "cpu" and isinstance(reader.frames, PlacedFrames) and reader.plain
        return able and parallel_unpack.possible()

    def close(self) -> None:
        """Close the file, too."""
        super().close()
        if self._stored.file >= 0:
            os.close(self._stored.file)
            self._stored = self._stored._replace(file=-1)

    def _begin(self, patterns: NDArray[np.int64]) -> NDArray[np.int64]:
        self._unannounced.append(patterns)
        return patterns

    def _end(self, pending: NDArray[np.int64]) -> Tensor:
        if len(self._scratch) != thread_count.count():
            self._scratch = np.empty((thread_count.count(), *self._reader.window), self._frames.dtype)
        counts = torch.empty((len(pending), *self._reader.window), dtype=self._kind)
        offsets, coming = (
            self._frames.places[patterns] for patterns in (pending, np.concatenate([pending[:0], *self._unannounced]))
        )
        self._unannounced.clear()
        if not parallel_unpack.read(self._stored, offsets, coming, self._scratch, counts.numpy()):
            self._reader.batch(pending, counts)  # raises the error that describes it
        return counts
