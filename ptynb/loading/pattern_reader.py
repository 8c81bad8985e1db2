"""Reads stored patterns and converts them to counts in the pixel order of the model.

Reading is limited by the disk: one thread reads the next chunk while another converts the last one, in few passes over
chunks that fit in the cache of the processor.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.data.scan import Scan
from ptynb.kernels.parallel_unpack import PatternLayout
from ptynb.kernels.unpack import arrange, readable_by_loops

PIECE_BYTES = 2**23
"""Patterns are read in chunks of about this size; two of them are allocated beside the stored patterns."""
INTEGERS = {torch.uint8: 2**8 - 1, torch.uint16: 2**16 - 1, torch.int32: 2**31 - 1}
"""Types in which integer counts are stored, and the largest count of each."""


def narrowest(stored: np.dtype[Any], working: torch.dtype) -> torch.dtype:
    """Return the initial type in which to store patterns of this type; for integers a small one, which may be widened.

    working: the model's real type.
    """
    if not np.issubdtype(stored, np.integer):
        return torch.float32 if stored.itemsize <= 4 else working
    return torch.uint8 if stored.itemsize == 1 else torch.uint16


@final
class PatternReader:
    """Reads patterns of a scan as counts (pattern, y, x) in the pixel order of the model, checked, bad pixels 0."""

    def __init__(self, scan: Scan, working: torch.dtype) -> None:
        """working: the model's real type."""
        self.scan, self.working = scan, working
        self.frames = scan.frames.local()
        self.window = scan.pattern_shape
        height, width = scan.pattern_shape
        self._shifts = (height // 2, width // 2) if shifted(scan) else (0, 0)
        everywhere = scan.mask is None or bool(scan.mask.all())
        self._buffer = np.empty((0, *self.window), self.frames.dtype)
        self._bad = None if scan.mask is None or everywhere else ~scan.mask

    def wide_enough(self, dtype: torch.dtype, stored: NDArray[Any]) -> torch.dtype:
        """Return this type, or the next one that represents all of these counts as exactly as the working type."""
        if dtype.is_floating_point or self.frames.dtype.itemsize <= 2:
            return dtype
        largest = stored.max(initial=0)
        fitting = [one for one, limit in INTEGERS.items() if one.itemsize >= dtype.itemsize and largest <= limit]
        return fitting[0] if fitting else self.working

    def chunks(self, patterns: NDArray[np.int64]) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Yield chunks (rows, stored patterns) of all `patterns`, ascending, read ahead by a thread.

        Counts are checked, and bad pixels are 0. An array is overwritten by the chunk after the next.
        """
        rows = self._cut(patterns)
        largest = max((part.stop - part.start for part in rows), default=0)
        buffers = [np.empty((largest, *self.window), self.frames.dtype) for _ in range(min(2, len(rows)))]

        def read(number: int) -> NDArray[Any]:
            part = rows[number]
            stored = buffers[number % 2][: part.stop - part.start]
            self.frames.take(patterns[part], stored)
            return stored

        if len(rows) == 1:  # as with the few patterns that come of a scan between two updates: no thread
            stored = read(0)
            self._clean(stored)
            self._check(stored, patterns)
            yield rows[0], stored
            return
        with ThreadPoolExecutor(1, "ptynb reading") as reader:
            coming = [reader.submit(read, number) for number in range(min(1, len(rows)))]
            for number, part in enumerate(rows):
                stored = coming.pop().result()
                if number + 1 < len(rows):
                    coming.append(reader.submit(read, number + 1))
                self._clean(stored)
                self._check(stored, patterns[part])
                yield part, stored

    def batch(self, patterns: NDArray[np.int64], counts: Tensor) -> None:
        """Read these patterns, in this order, into `counts` (pattern, y, x), on the CPU; by one thread at a time."""
        if len(self._buffer) < len(patterns):
            # Reused for the next batch: new memory costs page faults, 0.1 of 0.3 ms for 16 patterns of 128 x 128.
            self._buffer = np.empty((len(patterns), *self.window), self.frames.dtype)
        stored = self._buffer[: len(patterns)]
        self.frames.take(patterns, stored)
        self._clean(stored)
        if self.scan.clip_negative:
            np.maximum(stored, 0, out=stored)
        self.arrange(stored, counts)

    @property
    def plain(self) -> bool:
        """Whether compiled loops support the stored type."""
        return readable_by_loops(self.frames.dtype)

    def stored(self, file: int) -> PatternLayout:
        """Return the layout of the patterns in their open file."""
        size = self.window[0] * self.window[1] * self.frames.dtype.itemsize
        clip = self.scan.clip_negative and not np.issubdtype(self.frames.dtype, np.unsignedinteger)
        good = np.empty((0, 0), bool) if self._bad is None else ~self._bad
        return PatternLayout(file, size, self._shifts, good, clip)

    def arrange(self, stored: NDArray[Any], counts: Tensor, total: NDArray[np.float64] | None = None) -> None:
        """Convert stored patterns to `counts` (pattern, y, x), on the CPU, and add them to `total` (y, x) if given."""
        arrange(stored, self._shifts, counts.numpy(), total)

    def _cut(self, patterns: NDArray[np.int64]) -> list[slice]:
        """Return the rows of each chunk; chunks of the file are not split, so that none is decompressed twice."""
        at_most = max(1, PIECE_BYTES // (self.window[0] * self.window[1] * self.frames.dtype.itemsize))
        chunks = patterns // self.frames.stored_together
        edges = [0, *(np.flatnonzero(np.diff(chunks)) + 1).tolist(), len(patterns)]
        cuts = [0]
        for before, edge in itertools.pairwise(edges):
            if edge - cuts[-1] > at_most and before > cuts[-1]:
                cuts.append(before)
        return [
            slice(first, last) for first, last in zip(cuts, [*cuts[1:], len(patterns)], strict=True) if last > first
        ]

    def _clean(self, stored: NDArray[Any]) -> None:
        if self._bad is not None:
            np.copyto(stored, 0, where=self._bad)

    def _check(self, stored: NDArray[Any], patterns: NDArray[np.int64]) -> None:
        """Raise ScanError for counts that are negative or not finite; two reductions need no further memory."""
        if np.issubdtype(stored.dtype, np.unsignedinteger):
            return
        low, high = stored.min(), stored.max()
        if np.isfinite(low) and np.isfinite(high) and (low >= 0 or self.scan.clip_negative):
            if low < 0:
                np.maximum(stored, 0, out=stored)
            return
        for pattern in patterns.tolist():
            self.scan.counts(pattern, pattern + 1)  # raises the error that names pattern and pixel
        raise AssertionError("the patterns changed while they were read")


def shifted(scan: Scan) -> bool:
    """Return whether patterns are centred in Fourier space, while the model has the zero frequency at index 0."""
    return scan.is_far_field and scan.centred
