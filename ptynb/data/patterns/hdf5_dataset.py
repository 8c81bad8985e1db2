"""Patterns in a dataset of an HDF5 file: contiguous, compressed, in a grid of rows and columns, or virtual."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.data.patterns.abstract import FileFrames, Frames, gather, readable
from ptynb.data.patterns.hdf5_filters import require_filters
from ptynb.data.patterns.raw_file import PlacedFrames

MOST_TOGETHER = 2**28
"""Largest size of rows that share chunks and are read together [bytes]; larger ones are decompressed again."""


@dataclass(frozen=True)
class HDF5Frames(FileFrames):
    """Patterns in a dataset (pattern, y, x) of an HDF5 file, or (row, column, y, x), counted row by row.

    chunk: patterns that are stored together. grid: the axes before those of the pattern, if there are several.
    sources: other files of a virtual dataset with the patterns, since HDF5 would read zeros for a missing one.
    stored: size on disk [bytes]; None if unknown.
    """

    path: Path
    dataset: str
    file_shape: tuple[int, int, int]
    file_dtype: str
    chunk: int = 1
    grid: tuple[int, ...] = ()
    sources: tuple[Path, ...] = ()
    stored: int | None = None

    @classmethod
    def of(cls, dataset: h5py.Dataset, sources: tuple[Path, ...] = ()) -> HDF5Frames:
        """Return the patterns of an open dataset of at least three axes; only its location is stored."""
        path, grid = Path(dataset.file.filename).resolve(), dataset.shape[:-2]
        shape = (math.prod(grid), *dataset.shape[-2:])
        chunk = _together(grid, dataset.chunks[:-2]) if dataset.chunks else 1
        if chunk > grid[-1] and chunk * math.prod(shape[1:]) * dataset.dtype.itemsize > MOST_TOGETHER:
            chunk = 1
        stored = None if dataset.is_virtual else dataset.id.get_storage_size()
        grid = () if len(grid) == 1 else tuple(grid)
        return cls(path, dataset.name, shape, dataset.dtype.str, chunk, grid, tuple(sources), stored)

    @property
    def stored_together(self) -> int:
        return self.chunk

    @property
    def stored_bytes(self) -> int | None:
        return self.stored

    def read(self, start: int, stop: int) -> NDArray[Any]:
        with self._open(start, stop) as dataset:
            if not self.grid:
                return dataset[start:stop]
            patterns = np.empty((stop - start, *self.shape[1:]), self.dtype)
            self._read(dataset, start, stop, patterns)
            return patterns

    def take(self, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        if len(indices):
            with self._open(int(indices.min()), int(indices.max()) + 1) as dataset:

                def read(start: int, stop: int, target: NDArray[Any]) -> None:
                    self._read(dataset, start, stop, target)

                # If chunks span several rows, reading all patterns in between would be slower.
                gather(indices, self.chunk if not self.grid or self.chunk <= self.grid[-1] else 1, read, out)

    def local(self) -> Frames:
        with self._open(0, self.shape[0]) as dataset:
            places = _places(dataset)
        return self if places is None else PlacedFrames(self.path, places, self.shape, self.dtype)

    def _read(self, dataset: h5py.Dataset, start: int, stop: int, target: NDArray[Any]) -> None:
        """Read patterns start to stop - 1, those of a grid in as few rectangles as possible."""
        if not self.grid:
            dataset.read_direct(target, np.s_[start:stop])
            return
        columns, at = self.grid[-1], start
        while at < stop:
            row, column = divmod(at, columns)
            whole = (stop - at) // columns if column == 0 and len(self.grid) == 2 else 0
            end = at + whole * columns if whole else min(stop, at + columns - column)
            if whole:
                place: tuple[Any, ...] = (slice(row, row + whole),)
            else:
                before = tuple(int(index) for index in np.unravel_index(row, self.grid[:-1]))
                place = (*before, slice(column, column + end - at))
            part = target[at - start : end - start]
            dataset.read_direct(part.reshape(whole, columns, *part.shape[1:]) if whole else part, place)
            at = end

    @contextmanager
    def _open(self, start: int, stop: int) -> Iterator[h5py.Dataset]:
        with readable(self.path, start, stop), h5py.File(self.path, "r") as file:
            for source in self.sources:
                if not source.is_file():
                    raise OSError(f"they are stored in {source}, which does not exist")
            # Raw files are in the folder of the file; HDF5 would look for them in the working folder.
            access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
            access.set_efile_prefix(b"${ORIGIN}")
            dataset = h5py.Dataset(h5py.h5d.open(file.id, self.dataset.encode(), access))
            require_filters(dataset)
            yield dataset


def _together(grid: tuple[int, ...], chunk: tuple[int, ...]) -> int:
    """Return the number of consecutive patterns in chunks that no other patterns share."""
    for axis, size in enumerate(chunk):
        if size > 1:
            return min(size, grid[axis]) * math.prod(grid[axis + 1 :])
    return 1


def _places(dataset: h5py.Dataset) -> NDArray[np.int64] | None:
    """Return the offset of each pattern of a dataset in the file [bytes]; None if patterns are not stored as a whole.

    This is the case with compression, chunks that divide patterns, data in other files, numbers with unusual bits, and
    a user block at the start of the file.
    """
    size = math.prod(dataset.shape[-2:]) * dataset.dtype.itemsize
    count = math.prod(dataset.shape[:-2])
    layout, kind = dataset.id.get_create_plist(), dataset.id.get_type()
    usual = kind.equal(h5py.h5t.py_create(dataset.dtype)) and not dataset.file.userblock_size
    if not usual or layout.get_nfilters() or layout.get_external_count():
        return None
    if layout.get_layout() == h5py.h5d.CONTIGUOUS:
        first = dataset.id.get_offset()
        return None if first is None else first + size * np.arange(count, dtype=np.int64)
    if layout.get_layout() != h5py.h5d.CHUNKED or dataset.chunks[-2:] != dataset.shape[-2:]:
        return None
    grid, chunks = dataset.shape[:-2], dataset.chunks[:-2]
    numbers = tuple(-(-side // chunk) for side, chunk in zip(grid, chunks, strict=True))
    starts = np.full(numbers, -1, dtype=np.int64)

    def note(chunk: Any) -> None:
        starts[tuple(offset // side for offset, side in zip(chunk.chunk_offset[:-2], chunks, strict=True))] = (
            chunk.byte_offset
        )

    dataset.id.chunk_iter(note)
    if (starts < 0).any():
        return None
    indices = np.unravel_index(np.arange(count, dtype=np.int64), grid)
    within = np.ravel_multi_index(tuple(index % side for index, side in zip(indices, chunks, strict=True)), chunks)
    return starts[tuple(index // side for index, side in zip(indices, chunks, strict=True))] + size * within
