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
from ptynb.io.reading.safe_reading import UNCOMPRESSED, check_room
from ptynb.progress import LINE_SECONDS, log
from ptynb.table import gigabytes

LARGE = 2**30
"""Size of patterns above which a warning is issued before they are unpacked [bytes]."""
PIECE = 2**24
"""Block size of unpacking [bytes]; between blocks Ctrl-C is handled and progress is logged."""

Unpack = Callable[["UnpackingProgress"], NDArray[Any]]
"""Type of functions that return the patterns (pattern, y, x), and report progress."""


class UnpackingProgress:
    """Log of the bytes that have been unpacked: a line every few seconds."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._done = what, total, 0
        self._written = time.monotonic()

    def add(self, octets: int) -> None:
        """Add bytes that have been unpacked."""
        self._done += octets
        if time.monotonic() - self._written >= LINE_SECONDS:
            self._written = time.monotonic()
            log(Console(stderr=True), f"{self._what}: {gigabytes(self._done)} of {gigabytes(self._total)} are unpacked")


@dataclass(frozen=True, eq=False)
class PackedFrames(Frames):
    """Patterns whose shape is known and whose values `unpacked` reads; `load` calls it, `info` does not.

    name: of the array in the file. needed: memory that unpacking takes [bytes].
    """

    path: Path
    name: str
    known_shape: tuple[int, int, int]
    type: np.dtype[Any]
    unpack: Unpack
    needed: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (pattern, y, x)."""
        return self.known_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the stored counts."""
        return self.type

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return patterns start to stop - 1; all of them are unpacked first."""
        return self.unpacked().read(start, stop)

    def part(self, patterns: NDArray[np.int64]) -> Frames:
        """Return the patterns in memory."""
        return self.unpacked().part(patterns)

    def check(self) -> None:
        """Raise FileError if the patterns do not fit into memory."""
        check_room(self.needed, f"the patterns in {self.name}, to be unpacked", self.path)

    def unpacked(self) -> ArrayFrames:
        """Return all patterns in memory. Raise FileError if they do not fit."""
        self.check()
        return ArrayFrames.of(self.unpack(UnpackingProgress(str(self.path), self.nbytes)))

    @property
    def note(self) -> str:
        """Warning about large patterns; empty for others."""
        count, height, width = self.shape
        return (
            f"{count} patterns of {height} x {width}, {self.dtype}, are packed in {self.name}, and are unpacked into "
            f"{gigabytes(self.nbytes)} of memory when they are loaded; {UNCOMPRESSED}."
        )
