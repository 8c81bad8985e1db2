"""Where diffraction patterns are: in memory or in a file that each engine opens by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray


class Frames(ABC):
    """A stack of patterns (pattern, y, x) of which any contiguous part can be read."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int]:
        """(pattern, y, x)."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Type of the stored counts."""

    @abstractmethod
    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Patterns start to stop - 1 as an array (pattern, y, x) of the stored type."""

    @abstractmethod
    def part(self, start: int, stop: int) -> Frames:
        """What an engine needs to read patterns start to stop - 1: the same indices stay valid."""


@dataclass(frozen=True, eq=False)
class ArrayFrames(Frames):
    """Patterns held in memory; `first` is the index of the first pattern held."""

    array: NDArray[Any]
    count: int
    first: int = 0

    @classmethod
    def of(cls, array: NDArray[Any]) -> ArrayFrames:
        """All of `array` (pattern, y, x)."""
        return cls(array, len(array))

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.count, self.array.shape[1], self.array.shape[2])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def read(self, start: int, stop: int) -> NDArray[Any]:
        assert self.first <= start <= stop <= self.first + len(self.array), "patterns of another engine's part"
        return self.array[start - self.first : stop - self.first]

    def part(self, start: int, stop: int) -> ArrayFrames:
        return ArrayFrames(np.ascontiguousarray(self.read(start, stop)), self.count, start)


@dataclass(frozen=True)
class HDF5Frames(Frames):
    """Patterns in a dataset (pattern, y, x) of an HDF5 file."""

    path: Path
    dataset: str
    file_shape: tuple[int, int, int]
    file_dtype: str

    @classmethod
    def of(cls, dataset: h5py.Dataset) -> HDF5Frames:
        """The patterns of an open dataset; only its place is kept."""
        return cls(Path(dataset.file.filename).resolve(), dataset.name, dataset.shape, dataset.dtype.str)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.file_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.file_dtype)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        try:
            with h5py.File(self.path, "r") as file:
                return file[self.dataset][start:stop]
        except (OSError, KeyError) as error:
            raise ValueError(
                f"Patterns {start} to {stop - 1} can't be read from {self.path} ({self.dataset}): {error}. "
                "Is the file whole, and reachable from every engine under this path?"
            ) from error

    def part(self, start: int, stop: int) -> HDF5Frames:
        return self


@dataclass(frozen=True, eq=False)
class TransformedFrames(Frames):
    """Patterns that a function changes each time they are read; nothing is read before.

    function: makes patterns of `window` pixels out of those of `source`, given also the index of the first one. It
    has to be one that can be pickled: a function of a module, or a `functools.partial` of one.
    """

    source: Frames
    function: Callable[[NDArray[Any], int], NDArray[Any]]
    window: tuple[int, int]
    type: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.source.shape[0], *self.window)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.type

    def read(self, start: int, stop: int) -> NDArray[Any]:
        patterns = self.function(self.source.read(start, stop), start)
        assert patterns.shape == (stop - start, *self.window), "the function changes the patterns in another way"
        return patterns.astype(self.type, copy=False)

    def part(self, start: int, stop: int) -> TransformedFrames:
        return TransformedFrames(self.source.part(start, stop), self.function, self.window, self.type)


@dataclass(frozen=True, eq=False)
class SelectedFrames(Frames):
    """Some patterns of other frames, in a given order: pattern i is pattern `indices[i]` of `source`."""

    source: Frames
    indices: NDArray[np.int64]

    @classmethod
    def of(cls, source: Frames, indices: NDArray[np.int64]) -> SelectedFrames:
        """The patterns with these indices (pattern,), each in [0, patterns of the source)."""
        chosen = np.array(indices, dtype=np.int64)
        if chosen.ndim != 1 or (chosen.size and not 0 <= chosen.min() <= chosen.max() < source.shape[0]):
            raise ValueError(
                f"The indices of the selected patterns have shape {chosen.shape} and lie in [{chosen.min(initial=0)}, "
                f"{chosen.max(initial=0)}]; expected one dimension, from 0 to {source.shape[0] - 1}."
            )
        return cls(source, chosen)

    @property
    def shape(self) -> tuple[int, int, int]:
        return (len(self.indices), *self.source.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    def read(self, start: int, stop: int) -> NDArray[Any]:
        wanted = self.indices[start:stop]
        patterns = np.empty((len(wanted), *self.shape[1:]), self.dtype)
        order = np.argsort(wanted, kind="stable")
        # One read for what lies close together: the patterns in between cost less than another read.
        for run in np.split(order, np.flatnonzero(np.diff(wanted[order]) > 8) + 1) if len(wanted) else ():
            first, last = int(wanted[run[0]]), int(wanted[run[-1]])
            patterns[run] = self.source.read(first, last + 1)[wanted[run] - first]
        return patterns

    def part(self, start: int, stop: int) -> Frames:
        if isinstance(self.source, ArrayFrames):
            # Only the selected ones go to an engine, not those in between.
            return ArrayFrames(self.read(start, stop), len(self.indices), start)
        wanted = self.indices[start:stop]
        if not len(wanted):
            return self
        return SelectedFrames(self.source.part(int(wanted.min()), int(wanted.max()) + 1), self.indices)
