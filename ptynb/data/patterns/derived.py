"""Frames derived from others: changed when read, a selection, several in sequence, or those that have come."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ptynb.data.arrivals import FRAME, SCAN_NAME, Acquisition
from ptynb.data.patterns.frames import Frames
from ptynb.exceptions import InvalidValueError, ScanError


@dataclass(frozen=True, eq=False)
class DerivedFrames(Frames):
    """Patterns of other frames, `source`, with their type and place: base of those that derive from one."""

    source: Frames

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    @property
    def in_file(self) -> bool:
        return self.source.in_file

    @property
    def stored_bytes(self) -> int | None:
        return self.source.stored_bytes

    def part(self, patterns: NDArray[np.int64]) -> Self:
        return dataclasses.replace(self, source=self.source.part(self._of_source(patterns)))

    def sent_bytes(self, patterns: NDArray[np.int64]) -> int:
        return self.source.sent_bytes(self._of_source(patterns))

    def _of_source(self, patterns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the patterns of the source that these are read from, ascending."""
        return patterns


@dataclass(frozen=True, eq=False)
class TransformedFrames(DerivedFrames):
    """Patterns that a function changes each time they are read.

    function: returns patterns of `window` pixels from those of `source` and the index of the first one. It has to be
    picklable: a function of a module, or a `functools.partial` of one.
    """

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
        assert patterns.shape == (stop - start, *self.window), "the function returned patterns of another shape"
        return patterns.astype(self.type, copy=False)

    def take(self, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        order = np.argsort(indices, kind="stable")
        wanted = indices[order]
        stored = np.empty((len(wanted), *self.source.shape[1:]), self.source.dtype)
        self.source.take(wanted, stored)
        # The function takes the index of the first pattern, so it is called for runs without gaps.
        for run in np.split(np.arange(len(wanted)), np.flatnonzero(np.diff(wanted) != 1) + 1) if len(wanted) else ():
            out[order[run]] = self.function(stored[run], int(wanted[run[0]]))

    @property
    def stored_together(self) -> int:
        return self.source.stored_together

    def local(self) -> TransformedFrames:
        return dataclasses.replace(self, source=self.source.local())


@dataclass(frozen=True, eq=False)
class SelectedFrames(DerivedFrames):
    """Some patterns of other frames, in a given order: pattern i is pattern `indices[i]` of `source`."""

    indices: NDArray[np.int64]

    @classmethod
    def of(cls, source: Frames, indices: NDArray[np.int64]) -> SelectedFrames:
        """Select patterns by their indices (pattern,), each in [0, patterns of the source)."""
        chosen = np.array(indices, dtype=np.int64)
        if chosen.ndim != 1 or (chosen.size and not 0 <= chosen.min() <= chosen.max() < source.shape[0]):
            raise InvalidValueError(
                f"The indices of the selected patterns have shape {chosen.shape} and lie in [{chosen.min(initial=0)}, "
                f"{chosen.max(initial=0)}]; expected one dimension, from 0 to {source.shape[0] - 1}.",
                code="argument.invalid-value",
            )
        return cls(source, chosen)

    @property
    def shape(self) -> tuple[int, int, int]:
        return (len(self.indices), *self.source.shape[1:])

    def read(self, start: int, stop: int) -> NDArray[Any]:
        patterns = np.empty((len(self.indices[start:stop]), *self.shape[1:]), self.dtype)
        self.source.take(self.indices[start:stop], patterns)
        return patterns

    def take(self, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        self.source.take(self.indices[indices], out)

    def local(self) -> SelectedFrames:
        return SelectedFrames(self.source.local(), self.indices)

    def _of_source(self, patterns: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.unique(self.indices[patterns])


@dataclass(frozen=True, eq=False)
class ArrivingFrames(DerivedFrames):
    """Patterns of a scan that is being measured, of which those that have come can be read.

    What reads patterns in this process passes here: a file has zeros where nothing came, which nobody is to take for
    counts. Engines, which know what came, read the `local` ones.
    """

    acquisition: Acquisition

    def read(self, start: int, stop: int) -> NDArray[Any]:
        self._check(np.arange(start, stop))
        return self.source.read(start, stop)

    def take(self, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        self._check(indices)
        self.source.take(indices, out)

    def local(self) -> Frames:
        return self.source.local()

    def _check(self, indices: NDArray[np.int64]) -> None:
        index = self.acquisition.index()
        came = index.states() & FRAME != 0
        absent = indices[~came[indices]]
        if len(absent):
            has_not = "has not come yet" if index.ended is None else "never came"
            raise ScanError(
                f"Pattern {int(absent.min())} {has_not} ({int(came.sum())} of {len(came)} have), of a scan that is "
                f"measured; expected a complete one: {self.acquisition.folder / SCAN_NAME}, loaded after its end.",
                code="scan.live",
            )


@dataclass(frozen=True, eq=False)
class StackedFrames(Frames):
    """Patterns of several frames of the same window in sequence, as stored in several files."""

    parts: tuple[Frames, ...]

    @classmethod
    def of(cls, parts: Sequence[Frames]) -> Frames:
        """Return the patterns of all parts in sequence; of one part, that part."""
        windows, types = {part.shape[1:] for part in parts}, {part.dtype for part in parts}
        if len(windows) != 1 or len(types) != 1:
            raise InvalidValueError(
                f"The parts of the scan have patterns of {' and '.join(f'{y} x {x}' for y, x in sorted(windows))} "
                f"pixels and of type {' and '.join(sorted(map(str, types)))}; expected one size and one type.",
                code="array.shape-mismatch",
            )
        return parts[0] if len(parts) == 1 else cls(tuple(parts))

    @functools.cached_property
    def starts(self) -> NDArray[np.int64]:
        """(part + 1,): index of the first pattern of each part, and the total number."""
        return np.cumsum([0, *(part.shape[0] for part in self.parts)], dtype=np.int64)

    @property
    def path(self) -> Path | None:
        """File of the first part."""
        return getattr(self.parts[0], "path", None)

    @property
    def shape(self) -> tuple[int, int, int]:
        return (int(self.starts[-1]), *self.parts[0].shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.parts[0].dtype

    @property
    def in_file(self) -> bool:
        return any(part.in_file for part in self.parts)

    @property
    def stored_bytes(self) -> int | None:
        known = [part.stored_bytes for part in self.parts]
        return sum(size for size in known if size is not None) if all(size is not None for size in known) else None

    @property
    def stored_together(self) -> int:
        # Chunks are valid for the whole sequence only if all parts begin with a chunk.
        together = self.parts[0].stored_together
        even = all(part.stored_together == together for part in self.parts)
        return together if even and not (self.starts[1:-1] % together).any() else 1

    def read(self, start: int, stop: int) -> NDArray[Any]:
        patterns = np.empty((stop - start, *self.shape[1:]), self.dtype)
        self.take(np.arange(start, stop), patterns)
        return patterns

    def take(self, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        owner = np.searchsorted(self.starts, indices, side="right") - 1
        for number in np.unique(owner).tolist():
            rows = np.flatnonzero(owner == number)
            wanted = np.asarray(indices)[rows] - self.starts[number]
            if rows[-1] - rows[0] == len(rows) - 1:
                self.parts[number].take(wanted, out[rows[0] : rows[-1] + 1])
            else:
                patterns = np.empty((len(rows), *self.shape[1:]), self.dtype)
                self.parts[number].take(wanted, patterns)
                out[rows] = patterns

    def part(self, patterns: NDArray[np.int64]) -> StackedFrames:
        return StackedFrames(tuple(part.part(own) for part, own in self._by_part(patterns)))

    def sent_bytes(self, patterns: NDArray[np.int64]) -> int:
        return sum(part.sent_bytes(own) for part, own in self._by_part(patterns))

    def _by_part(self, patterns: NDArray[np.int64]) -> Iterator[tuple[Frames, NDArray[np.int64]]]:
        """Yield each part, and those of these patterns (ascending) that it has, by its indices."""
        own = np.split(patterns, np.searchsorted(patterns, self.starts[1:-1]))
        for part, indices, first in zip(self.parts, own, self.starts[:-1], strict=True):
            yield part, indices - first

    def local(self) -> StackedFrames:
        return StackedFrames(tuple(part.local() for part in self.parts))
