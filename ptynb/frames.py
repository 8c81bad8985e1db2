"""Where diffraction patterns are: in memory or in a file that each engine opens by itself."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

    @property
    def in_file(self) -> bool:
        """Whether the patterns stay in a file until they are read."""
        return False

    @property
    def stored_together(self) -> int:
        """Patterns in one chunk of the file: to read one of them, all are decompressed."""
        return 1

    def local(self) -> Frames:
        """The same patterns, as a process that is going to read many of them reads them best; not to be sent on."""
        return self

    def take(self, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Reads the patterns with these indices, in any order, into `out` (pattern, y, x) of the stored type."""

        def read(start: int, stop: int, target: NDArray[Any]) -> None:
            target[...] = self.read(start, stop)

        _gather(indices, self.stored_together, read, out)


def _gather(
    indices: NDArray[np.int64], near: int, read: Callable[[int, int, NDArray[Any]], None], out: NDArray[Any]
) -> None:
    """Patterns with these indices into `out`, by reads (start, stop, target) of runs with steps of at most `near`."""
    order = np.argsort(indices, kind="stable")
    for run in np.split(order, np.flatnonzero(np.diff(indices[order]) > near) + 1) if len(indices) else ():
        first, last = int(indices[run[0]]), int(indices[run[-1]])
        if (np.diff(indices[run]) == 1).all() and (np.diff(run) == 1).all():
            read(first, last + 1, out[run[0] : run[-1] + 1])
        else:
            covering = np.empty((last + 1 - first, *out.shape[1:]), out.dtype)
            read(first, last + 1, covering)
            out[run] = covering[indices[run] - first]


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

    def take(self, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        rows = indices - self.first
        assert not len(rows) or 0 <= rows.min() <= rows.max() < len(self.array), "patterns of another engine's part"
        np.take(self.array, rows, axis=0, out=out, mode="clip")

    def part(self, start: int, stop: int) -> ArrayFrames:
        return ArrayFrames(np.ascontiguousarray(self.read(start, stop)), self.count, start)


@dataclass(frozen=True)
class AbsentFrames(Frames):
    """Patterns of which only this much is known: they were in the memory of a process that has ended."""

    known_shape: tuple[int, int, int]
    known_dtype: str

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.known_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.known_dtype)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        raise ValueError(
            "The patterns were in the memory of a notebook that has ended, and in no file; make the scan again, and go "
            "on with ptynb.resume(state, scan)."
        )

    def part(self, start: int, stop: int) -> Frames:
        return self


@dataclass(frozen=True)
class HDF5Frames(Frames):
    """Patterns in a dataset (pattern, y, x) of an HDF5 file; `chunk` of them are stored together."""

    path: Path
    dataset: str
    file_shape: tuple[int, int, int]
    file_dtype: str
    chunk: int = 1

    @classmethod
    def of(cls, dataset: h5py.Dataset) -> HDF5Frames:
        """The patterns of an open dataset; only its place is kept."""
        path, chunk = Path(dataset.file.filename).resolve(), dataset.chunks[0] if dataset.chunks else 1
        return cls(path, dataset.name, dataset.shape, dataset.dtype.str, chunk)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.file_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.file_dtype)

    @property
    def in_file(self) -> bool:
        return True

    @property
    def stored_together(self) -> int:
        return self.chunk

    def read(self, start: int, stop: int) -> NDArray[Any]:
        with self._open(start, stop) as dataset:
            return dataset[start:stop]

    def take(self, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        if len(indices):
            with self._open(int(indices.min()), int(indices.max()) + 1) as dataset:

                def read(start: int, stop: int, target: NDArray[Any]) -> None:
                    dataset.read_direct(target, np.s_[start:stop])

                _gather(indices, self.chunk, read, out)

    def part(self, start: int, stop: int) -> HDF5Frames:
        return self

    def local(self) -> Frames:
        with self._open(0, self.shape[0]) as dataset:
            places = _places(dataset)
        return self if places is None else PlacedFrames(self.path, places, self.shape, self.dtype)

    @contextmanager
    def _open(self, start: int, stop: int) -> Iterator[h5py.Dataset]:
        with _readable(self.path, start, stop), h5py.File(self.path, "r") as file:
            yield file[self.dataset]


@dataclass(frozen=True, eq=False)
class PlacedFrames(Frames):
    """Patterns that lie whole and uncompressed in a file, at known places: read without a library in between.

    They are read rather than mapped into memory: as fast (0.37 and 0.45 ms for a batch of 32 patterns of 256 x 256),
    and where the file is cut short meanwhile there is an error, not the end of the process.

    places: (pattern,) [bytes from the start of the file].
    """

    path: Path
    places: NDArray[np.int64]
    file_shape: tuple[int, int, int]
    type: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.file_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.type

    @property
    def in_file(self) -> bool:
        return True

    def read(self, start: int, stop: int) -> NDArray[Any]:
        patterns = np.empty((stop - start, *self.shape[1:]), self.type)
        self.take(np.arange(start, stop), patterns)
        return patterns

    def take(self, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        if not len(indices):
            return
        size = self.shape[1] * self.shape[2] * self.type.itemsize
        octets = out.reshape(-1).view(np.uint8).data
        ends = [*(np.flatnonzero(np.diff(self.places[indices]) != size) + 1).tolist(), len(indices)]
        begin = 0
        with (
            _readable(self.path, int(indices.min()), int(indices.max()) + 1),
            self.path.open("rb", buffering=0) as file,
        ):
            for end in ends:
                file.seek(int(self.places[indices[begin]]))
                done = begin * size
                while done < end * size:
                    got = file.readinto(octets[done : end * size])
                    if not got:
                        raise OSError("the file ends before they do")
                    done += got
                begin = end

    def part(self, start: int, stop: int) -> PlacedFrames:
        return self


def frames_of(array: NDArray[Any]) -> Frames:
    """The patterns (pattern, y, x) of an array: in memory, or in their file where numpy has mapped it into memory.

    So engines open the file of `np.load(..., mmap_mode="r")` by themselves, and its patterns need not fit in memory.
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


@contextmanager
def _readable(path: Path, start: int, stop: int) -> Iterator[None]:
    """Turns what goes wrong inside into a sentence about patterns start to stop - 1."""
    try:
        yield
    except (OSError, KeyError) as error:
        raise ValueError(
            f"Patterns {start} to {stop - 1} can't be read from {path}: {error}. "
            "Is the file whole, and reachable from every engine under this path?"
        ) from error


def _places(dataset: h5py.Dataset) -> NDArray[np.int64] | None:
    """Where each pattern of a dataset begins in the file [bytes]; None where they don't lie there whole, as they are.

    So it is with compression, chunks that cut patterns, data in other files, numbers of unusual bits, a block of the
    user's at the file's start.
    """
    size = int(np.prod(dataset.shape[1:])) * dataset.dtype.itemsize
    layout, kind = dataset.id.get_create_plist(), dataset.id.get_type()
    usual = kind.equal(h5py.h5t.py_create(dataset.dtype)) and not dataset.file.userblock_size
    if not usual or layout.get_nfilters() or layout.get_external_count():
        return None
    if layout.get_layout() == h5py.h5d.CONTIGUOUS:
        first = dataset.id.get_offset()
        return None if first is None else first + size * np.arange(len(dataset), dtype=np.int64)
    if layout.get_layout() != h5py.h5d.CHUNKED or dataset.chunks[1:] != dataset.shape[1:]:
        return None
    together = dataset.chunks[0]
    starts = np.full(-(-len(dataset) // together), -1, dtype=np.int64)

    def note(chunk: Any) -> None:
        starts[chunk.chunk_offset[0] // together] = chunk.byte_offset

    dataset.id.chunk_iter(note)
    if (starts < 0).any():
        return None
    pattern = np.arange(len(dataset), dtype=np.int64)
    return starts[pattern // together] + size * (pattern % together)


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

    def take(self, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        order = np.argsort(indices, kind="stable")
        wanted = indices[order]
        stored = np.empty((len(wanted), *self.source.shape[1:]), self.source.dtype)
        self.source.take(wanted, stored)
        # The function is told where a run begins, so it sees runs without gaps.
        for run in np.split(np.arange(len(wanted)), np.flatnonzero(np.diff(wanted) != 1) + 1) if len(wanted) else ():
            out[order[run]] = self.function(stored[run], int(wanted[run[0]]))

    @property
    def in_file(self) -> bool:
        return self.source.in_file

    @property
    def stored_together(self) -> int:
        return self.source.stored_together

    def part(self, start: int, stop: int) -> TransformedFrames:
        return dataclasses.replace(self, source=self.source.part(start, stop))

    def local(self) -> TransformedFrames:
        return dataclasses.replace(self, source=self.source.local())


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

    @property
    def in_file(self) -> bool:
        return self.source.in_file

    def read(self, start: int, stop: int) -> NDArray[Any]:
        patterns = np.empty((len(self.indices[start:stop]), *self.shape[1:]), self.dtype)
        self.source.take(self.indices[start:stop], patterns)
        return patterns

    def take(self, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        self.source.take(self.indices[indices], out)

    def local(self) -> SelectedFrames:
        return SelectedFrames(self.source.local(), self.indices)

    def part(self, start: int, stop: int) -> Frames:
        if isinstance(self.source, ArrayFrames):
            # Only the selected ones go to an engine, not those in between.
            return ArrayFrames(self.read(start, stop), len(self.indices), start)
        wanted = self.indices[start:stop]
        if not len(wanted):
            return self
        return SelectedFrames(self.source.part(int(wanted.min()), int(wanted.max()) + 1), self.indices)
