"""Where diffraction patterns are: in memory or in a file that each engine opens by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
