"""Base classes of frames."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ptynb.exceptions import InvalidValueError


class Frames(ABC):
    """A stack of patterns (pattern, y, x) of which any contiguous part can be read."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int]:
        """Shape (pattern, y, x)."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Type of the stored counts."""

    @abstractmethod
    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return patterns start to stop - 1 (pattern, y, x) in the stored type."""

    @abstractmethod
    def part(self, start: int, stop: int) -> Frames:
        """Return what an engine needs to read patterns start to stop - 1, with the same indices."""

    @property
    def nbytes(self) -> int:
        """Size of all patterns in memory [bytes]."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def stored_bytes(self) -> int | None:
        """Upper limit of the size of the patterns on disk [bytes]; None if unknown."""
        return None

    @property
    def in_file(self) -> bool:
        """Whether the patterns stay in a file until they are read."""
        return False

    @property
    def stored_together(self) -> int:
        """Patterns in one chunk of the file, which are decompressed together."""
        return 1

    def local(self) -> Frames:
        """Return the same patterns in a form that this process reads fastest; not for sending to others."""
        return self

    def take(self, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Read the patterns with these indices, in any order, into `out` (pattern, y, x) of the stored type."""

        def read(start: int, stop: int, target: NDArray[Any]) -> None:
            target[...] = self.read(start, stop)

        gather(indices, self.stored_together, read, out)


def gather(
    indices: NDArray[np.int64], near: int, read: Callable[[int, int, NDArray[Any]], None], out: NDArray[Any]
) -> None:
    """Read patterns by index into `out`, by calls of read(start, stop, target) for runs with steps <= `near`."""
    order = np.argsort(indices, kind="stable")
    for run in np.split(order, np.flatnonzero(np.diff(indices[order]) > near) + 1) if len(indices) else ():
        first, last = int(indices[run[0]]), int(indices[run[-1]])
        if (np.diff(indices[run]) == 1).all() and (np.diff(run) == 1).all():
            read(first, last + 1, out[run[0] : run[-1] + 1])
        else:
            covering = np.empty((last + 1 - first, *out.shape[1:]), out.dtype)
            read(first, last + 1, covering)
            out[run] = covering[indices[run] - first]


@contextmanager
def readable(path: Path, start: int, stop: int) -> Iterator[None]:
    """Convert errors of reading patterns start to stop - 1."""
    try:
        yield
    except (OSError, KeyError, MemoryError) as error:
        raise InvalidValueError(
            f"Patterns {start} to {stop - 1} can't be read from {path}: {error}. "
            "Is the file whole, and reachable from every engine under this path?",
            code="scan.patterns-unreadable",
        ) from error


class FileFrames(Frames):
    """Patterns of a file that each process opens: shared by all kinds of files."""

    file_shape: tuple[int, int, int]
    file_dtype: str

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.file_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.file_dtype)

    @property
    def in_file(self) -> bool:
        return True

    def part(self, start: int, stop: int) -> Self:
        return self
