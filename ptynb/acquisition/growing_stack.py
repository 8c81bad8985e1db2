"""Datasets that grow, or are filled, while they are read.

A dataset's shape does not say what is written: one of a fixed size has fill values where nothing is, and a growing one
may be longer for a moment than its last chunk is in the file. So a pattern counts as written when its chunk has an
address; of several patterns in a chunk, when it is not all fill values; or, where the file has a dataset of unique ids,
when its id is not 0.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.acquisition.compression import Packed
from ptynb.acquisition.messages import MOST_PATTERNS, image_shape
from ptynb.exceptions import AcquisitionError
from ptynb.io.hdf5_file import packed_at_most

AHEAD = 64
"""Patterns behind the last one that are looked for at each look; fewer are missing in a row."""
GAPS_AGAIN = 0.5
"""Time after which patterns that were left out are looked for again [s]."""
MOST_POSITIONS = 2**16
"""Most positions that are read in one go."""
BITSHUFFLE, LZ4 = 32008, 2
"""HDF5's number of the filter, and its option for LZ4."""


class GrowingStack:
    """Patterns (pattern, y, x), of which `seen` have been returned. first: number of the first pattern."""

    def __init__(
        self, dataset: h5py.Dataset, first: int, path: Path, *, in_writing: bool, uid: h5py.Dataset | None
    ) -> None:
        if dataset.ndim != 3 or dataset.dtype.kind not in "iuf" or dataset.is_virtual or dataset.external:
            raise AcquisitionError(
                f"{path} has patterns of shape {dataset.shape} and type {dataset.dtype} at {dataset.name}; expected "
                "real numbers (pattern, y, x) in the file itself.",
                code="acquisition.failed",
            )
        if len(dataset) > MOST_PATTERNS or (uid is not None and uid.nbytes > 8 * MOST_PATTERNS):
            raise AcquisitionError(
                f"{path} claims {len(dataset)} patterns at {dataset.name}; at most {MOST_PATTERNS} are possible.",
                code="acquisition.failed",
            )
        if in_writing and dataset.chunks is None:
            raise AcquisitionError(
                f"{path} stores {dataset.name} without chunks, which cannot be read while it is written; write it with "
                "chunks of a pattern each.",
                code="acquisition.failed",
            )
        self.dataset, self.first, self.seen = dataset, first, set[int]()
        self.window = image_shape(*dataset.shape[1:])
        self.dtype = dataset.dtype
        self._path, self._uid, self._in_writing = path, uid, in_writing
        self._together = dataset.chunks[0] if dataset.chunks else 1
        self._whole = dataset.chunks is not None and tuple(dataset.chunks) == (1, *self.window)
        self._direct = self._whole and _is_bslz4(dataset)
        self._high = 0
        self._gaps: set[int] = set()
        self._gaps_at = 0.0
        self._was_read = False
        self._rest: Iterator[int] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether there will be no more patterns: those of a dataset that does not grow, or of a closed file, came."""
        return self._was_read or (self.dataset.maxshape[0] is not None and len(self.seen) >= len(self.dataset))

    def news(self) -> Iterator[tuple[int, Packed]]:
        """Yield (number, counts) of patterns that were written since; each once."""
        if self._in_writing:
            self.dataset.refresh()
        uids = None
        if self._uid is not None:
            if self._in_writing:
                self._uid.refresh()
            uids = self._uid[: len(self.dataset)]
        for index in self._candidates(uids):
            if index not in self.seen and (uids is not None or self._is_written(index)):
                packed = self._read(index)
                self.seen.add(index)
                self._gaps.discard(index)
                if index >= self._high:
                    self._gaps.update(range(self._high, index))
                    self._high = index + 1
                yield self.first + index, packed
        self._was_read = not self._in_writing

    def _candidates(self, uids: NDArray[Any] | None) -> Iterable[int]:
        """Return the patterns that may have been written since."""
        if uids is not None:
            fresh: list[int] = np.flatnonzero(uids).tolist()
            return fresh
        if not self._in_writing:
            self._rest = self._rest or self._stored()
            return self._rest
        ahead = range(self._high, min(len(self.dataset), self._high + max(AHEAD, self._together)))
        now = time.monotonic()
        if now - self._gaps_at <= GAPS_AGAIN:
            return ahead
        self._gaps_at = now
        return [*sorted(self._gaps), *ahead]

    def _stored(self) -> Iterator[int]:
        """Yield the patterns that a closed file has: those with a chunk."""
        if self.dataset.chunks is None:
            yield from range(len(self.dataset))
            return
        firsts: set[int] = set()
        self.dataset.id.chunk_iter(lambda chunk: firsts.add(chunk.chunk_offset[0]))
        for first in sorted(firsts):
            yield from range(first, min(first + self._together, len(self.dataset)))

    def _is_written(self, index: int) -> bool:
        if self.dataset.chunks is None or not self._has_chunk(index):
            return self.dataset.chunks is None
        if self._together == 1:
            return True
        return bool((self.dataset[index] != self.dataset.fillvalue).any())

    def _has_chunk(self, index: int) -> bool:
        """Return whether the first chunk of a pattern is in the file (and, with several, the last)."""
        for corner in ((index, 0, 0), (index, self.window[0] - 1, self.window[1] - 1)):
            place = tuple(at - at % side for at, side in zip(corner, self.dataset.chunks, strict=True))
            chunk = self.dataset.id.get_chunk_info_by_coord(place)
            if chunk.byte_offset is None:
                return False
            size = int(np.prod(self.dataset.chunks)) * self.dtype.itemsize
            if chunk.size > packed_at_most(size):
                raise AcquisitionError(
                    f"{self._path} has {chunk.size} bytes for the chunk at {place}, whose numbers take {size}; it is "
                    "damaged.",
                    code="acquisition.failed",
                )
            if self._whole:
                break
        return True

    def _read(self, index: int) -> Packed:
        if self._direct:
            mask, raw = self.dataset.id.read_direct_chunk((index, 0, 0))
            return Packed(raw, self.window, self.dtype, "none" if mask else "h5bslz4")
        counts = np.empty(self.window, self.dtype.newbyteorder("<"))
        self.dataset.read_direct(counts, np.s_[index])
        return Packed(counts.reshape(-1).view(np.uint8).data, self.window, counts.dtype)


class GrowingPositions:
    """Positions in one dataset (pattern, yx), or two (pattern,), of which the first `sent` were returned."""

    def __init__(
        self, datasets: Sequence[h5py.Dataset], scales: Sequence[float], path: Path, *, in_writing: bool
    ) -> None:
        shapes: list[tuple[int, ...]] = [tuple(item.shape or ()) for item in datasets]  # None of one with nothing in it
        together = len(datasets) == 1 and len(shapes[0]) == 2 and shapes[0][1] == 2
        if not together and not (len(datasets) == 2 and all(len(shape) == 1 for shape in shapes)):
            raise AcquisitionError(
                f"{path} has positions of shape {' and '.join(map(str, shapes))}; expected (pattern, 2), or two of "
                "(pattern,).",
                code="acquisition.no-positions",
            )
        if any(item.dtype.kind not in "iuf" for item in datasets):
            raise AcquisitionError(f"{path} has positions that are not real numbers.", code="acquisition.no-positions")
        self._datasets, self._scales, self._in_writing = datasets, scales, in_writing
        self.sent = 0

    def news(self) -> tuple[int, NDArray[np.float64]]:
        """Return the number of the first position that was written since, and all of these (pattern, yx)."""
        if self._in_writing:
            for item in self._datasets:
                item.refresh()
        stop, first = min(len(item) for item in self._datasets), self.sent
        stop = min(stop, first + MOST_POSITIONS)
        if stop <= first:
            return first, np.empty((0, 2))
        columns = [
            np.asarray(item[first:stop], dtype=np.float64).reshape(stop - first, -1) * scale
            for item, scale in zip(self._datasets, self._scales, strict=True)
        ]
        values: NDArray[np.float64] = np.column_stack(columns)
        if self._in_writing:
            # Of what is written together the last part may not be there yet: fill values at the end wait.
            fills = np.array([float(item.fillvalue or 0) for item in self._datasets])
            blank = ((values == fills) | np.isnan(values)).all(1)
            values = values[: len(values) - int(np.argmin(blank[::-1]) if not blank.all() else len(blank))]
        self.sent += len(values)
        return first, values


def _is_bslz4(dataset: h5py.Dataset) -> bool:
    layout = dataset.id.get_create_plist()
    if layout.get_nfilters() != 1:
        return False
    number, _, options, _ = layout.get_filter(0)
    return number == BITSHUFFLE and len(options) >= 5 and options[4] == LZ4
