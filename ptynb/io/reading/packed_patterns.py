"""Patterns that are compressed as a whole, so all of them are read into memory at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from ptynb.data.patterns import ArrayFrames, Frames
from ptynb.io.reading.safe_reading import UNCOMPRESSED, check_room, size
from ptynb.io.reading.stack_axes import check_counts, stacked
from ptynb.progress import LINE_SECONDS, log
from ptynb.table import gigabytes

LARGE = 2**30
"""Size of patterns above which a warning is issued before they are unpacked [bytes]."""
PIECE = 2**24
"""Block size of unpacking [bytes]; between blocks Ctrl-C is handled and progress is logged."""

Unpack = Callable[["UnpackingProgress"], NDArray[Any]]
"""Type of functions that return an array, and report progress."""


class UnpackingProgress:
    """Log of the bytes that have been unpacked: a line every few seconds."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._done = what, total, 0
        self._written = time.monotonic()

    def add(self, nbytes: int) -> None:
        """Add bytes that have been unpacked."""
        self._done += nbytes
        if time.monotonic() - self._written >= LINE_SECONDS:
            self._written = time.monotonic()
            log(Console(stderr=True), f"{self._what}: {gigabytes(self._done)} of {gigabytes(self._total)} are unpacked")


@dataclass(frozen=True, eq=False)
class PackedFrames(Frames):
    """Patterns whose shape is known and whose values `unpacked` reads; `load` calls it, `info` does not.

    name: of the array in the file. order: permutation of the axes of what `unpack` returns to (pattern, y, x) or
    (row, column, y, x). needed: memory that unpacking takes [bytes].
    """

    path: Path
    name: str
    known_shape: tuple[int, int, int]
    type: np.dtype[Any]
    unpack: Unpack
    order: tuple[int, ...]
    needed: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.known_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.type.newbyteorder("=")

    def read(self, start: int, stop: int) -> NDArray[Any]:
        return self.unpacked().read(start, stop)

    def part(self, patterns: NDArray[np.int64]) -> Frames:
        return self.unpacked().part(patterns)

    def check(self) -> None:
        """Raise FileError if the patterns do not fit into memory."""
        check_room(self.needed, f"the patterns in {self.name}, to be unpacked", self.path)

    def unpacked(self) -> ArrayFrames:
        """Return all patterns in memory. Raise FileError if they do not fit."""
        self.check()
        values = self.unpack(UnpackingProgress(str(self.path), self.nbytes))
        patterns = np.ascontiguousarray(values.transpose(self.order)).reshape(self.known_shape)
        return ArrayFrames.of(patterns.astype(self.dtype, copy=False))

    @property
    def note(self) -> str:
        """Warning about large patterns; empty for others."""
        count, height, width = self.shape
        return (
            f"{count} patterns of {height} x {width}, {self.dtype}, are packed in {self.name}, and are unpacked into "
            f"{gigabytes(self.nbytes)} of memory when they are loaded; {UNCOMPRESSED}."
        )


def packed(
    path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], unpack: Unpack, order: tuple[int, ...] = ()
) -> tuple[PackedFrames, tuple[int, int] | None]:
    """Return an array of this shape and type as patterns, and the raster. Raise FileError for other axes and types.

    order: see `PackedFrames`; (): the axes have it.
    """
    stack, raster = stacked(tuple(shape[axis] for axis in order) or shape, path, name)
    check_counts(dtype, path, name)
    copies = 2 if order or not dtype.isnative else 1
    needed = copies * size(shape, dtype)
    return PackedFrames(path, name, stack, dtype, unpack, order or tuple(range(len(shape))), needed), raster
