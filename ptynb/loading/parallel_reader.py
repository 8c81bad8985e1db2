"""Batches out of a file by the threads that compute, when they are asked for."""

from __future__ import annotations

import os
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.data.patterns import PlacedFrames
from ptynb.kernels import parallel_unpack, thread_count
from ptynb.loading.pattern_reader import Source
from ptynb.loading.prefetch import Ahead


@final
class Direct(Ahead[NDArray[np.int64]]):
    """Counts of patterns that lie in a file as they are, for a CPU; the system is told which come next.

    Where all cores compute, a thread that reads beside them takes their time and makes them wait for each other: up to
    a third of an epoch, with batches of 16 patterns of 128 x 128 on two cores.
    """

    def __init__(self, source: Source, kind: torch.dtype) -> None:
        """kind: the type of the counts."""
        super().__init__()
        assert isinstance(source.frames, PlacedFrames)
        self._source, self._kind, self._frames = source, kind, source.frames
        self._scratch = np.empty((0, *source.window), source.frames.dtype)
        self._unsaid = list[NDArray[np.int64]]()
        self._stored = source.stored(os.open(source.frames.path, os.O_RDONLY))

    @staticmethod
    def possible(source: Source, device: torch.device) -> bool:
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
