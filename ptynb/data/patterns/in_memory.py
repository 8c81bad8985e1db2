"""Patterns in memory, or in a file that numpy maps into memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data.patterns.frames import Frames, PlacedFrames
from ptynb.exceptions import InvalidValueError


@dataclass(frozen=True, eq=False)
class ArrayFrames(Frames):
    """Patterns in memory; `first` is the index of the first one."""

    array: NDArray[Any]
    count: int
    first: int = 0

    @classmethod
    def of(cls, array: NDArray[Any]) -> ArrayFrames:
        """Return all patterns of `array` (pattern, y, x)."""
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

    def take(self, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        rows = indices - self.first
        assert not len(rows) or 0 <= rows.min() <= rows.max() < len(self.array), "patterns of another engine's part"
        np.take(self.array, rows, axis=0, out=out, mode="clip")

    def part(self, start: int, stop: int) -> ArrayFrames:
        return ArrayFrames(np.ascontiguousarray(self.read(start, stop)), self.count, start)


@dataclass(frozen=True)
class AbsentFrames(Frames):
    """Patterns that were in the memory of a process that has ended; only shape and type are known."""

    known_shape: tuple[int, int, int]
    known_dtype: str

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.known_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.known_dtype)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        raise InvalidValueError(
            "The patterns were only in the memory of a notebook that has ended; create the scan again and call "
            "ptynb.resume(checkpoint, scan).",
            code="scan.patterns-lost",
        )

    def part(self, start: int, stop: int) -> Frames:
        return self


def frames_of(array: NDArray[Any]) -> Frames:
    """Return the patterns (pattern, y, x) of an array: in memory, or in the file that numpy has mapped into memory.

    Engines open the file of `np.load(..., mmap_mode="r")` themselves, so the patterns need not fit in memory.
    """
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    mapped = isinstance(root, np.memmap) and root.filename is not None and root.mode in ("r", "r+")
    if not mapped or array.ndim != 3 or not array.flags.c_contiguous or not array.size:
        return ArrayFrames.of(array)
    assert isinstance(root, np.memmap)
    first = root.offset + array.ctypes.data - root.ctypes.data
    places = first + array[0].nbytes * np.arange(len(array), dtype=np.int64)
    return PlacedFrames(Path(str(root.filename)).resolve(), places, array.shape, array.dtype)
