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
    """Patterns in memory: all, or those of an engine.

    array: (held pattern, y, x). count: number of all patterns. held: indices of those in `array`, ascending; None: all.
    """

    array: NDArray[Any]
    count: int
    held: NDArray[np.int64] | None = None

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
        return self._ascending(np.arange(start, stop))

    def take(self, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        np.take(self.array, self._rows(indices), axis=0, out=out, mode="clip")

    def part(self, patterns: NDArray[np.int64]) -> ArrayFrames:
        return ArrayFrames(np.ascontiguousarray(self._ascending(patterns)), self.count, patterns)

    def sent_bytes(self, patterns: NDArray[np.int64]) -> int:
        return len(patterns) * self.array[:1].nbytes

    def _ascending(self, patterns: NDArray[np.int64]) -> NDArray[Any]:
        """Return ascending patterns, copied only where others lie between them."""
        rows = self._rows(patterns)
        first, end = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)
        return self.array[first:end] if end - first == len(rows) else self.array[rows]

    def _rows(self, patterns: NDArray[np.int64]) -> NDArray[np.int64]:
        rows = patterns if self.held is None else np.searchsorted(self.held, patterns)
        there = not len(rows) or 0 <= rows.min() <= rows.max() < len(self.array)
        own = there and (self.held is None or np.array_equal(self.held[rows], patterns))
        assert own, "patterns of another engine's part"
        return rows


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
    return PlacedFrames(Path(str(root.filename)).resolve(), places, array.shape, array.dtype.str)
