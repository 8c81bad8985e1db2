"""An engine's patterns where they are stored, and how they become counts as the model wants them.

Reading is bounded by the disk: one thread reads the next piece while another makes counts of the last, in as few passes
as there can be, over pieces that stay in the processor's cache.
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
"""Patterns are read in pieces of about this size: two of them are the memory beside what is kept."""
INTEGERS = {torch.uint8: 2**8 - 1, torch.uint16: 2**16 - 1, torch.int32: 2**31 - 1}
"""What counts are held as where they are integers, and the largest one that fits."""


def narrowest(stored: np.dtype[Any], working: torch.dtype) -> torch.dtype:
    """What to keep patterns of this type as, to begin with: for integers the smallest one, which may prove too small.

    working: the model's real type.
    """
    if not np.issubdtype(stored, np.integer):
        return torch.float32 if stored.itemsize <= 4 else working
    return torch.uint8 if stored.itemsize == 1 else torch.uint16


@final
class PatternReader:
    """Patterns of a scan as counts (pattern, y, x) in the order of the model, checked, bad pixels 0."""

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
        """This type, or the next one that has all of these counts as well as the working type has them."""
        if dtype.is_floating_point or self.frames.dtype.itemsize <= 2:
            return dtype
        most = stored.max(initial=0)
        fitting = [one for one, limit in INTEGERS.items() if one.itemsize >= dtype.itemsize and most <= limit]
        return fitting[0] if fitting else self.working

    def pieces(self, patterns: NDArray[np.int64]) -> Iterator[tuple[slice, NDArray[Any]]]:
        """(rows, patterns as they are stored) of all `patterns`, ascending, piece by piece, read ahead by a thread.

        Checked and without bad pixels. An array is overwritten by the one after the next.
        """
        rows = self._cut(patterns)
        most = max((part.stop - part.start for part in rows), default=0)
        buffers = [np.empty((most, *self.window), self.frames.dtype) for _ in range(min(2, len(rows)))]

        def read(number: int) -> NDArray[Any]:
            part = rows[number]
            stored = buffers[number % 2][: part.stop - part.start]
            self.frames.take(patterns[part], stored)
            return stored

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
        """Reads these patterns, in this order, into `counts` (pattern, y, x), on the CPU; not checked again.

        To be called by one thread at a time.
        """
        if len(self._buffer) < len(patterns):
            # Kept for the next batch: new memory costs page faults, 0.1 of 0.3 ms for 16 patterns of 128 x 128.
            self._buffer = np.empty((len(patterns), *self.window), self.frames.dtype)
        stored = self._buffer[: len(patterns)]
        self.frames.take(patterns, stored)
        self._clean(stored)
        if self.scan.clip_negative:
            np.maximum(stored, 0, out=stored)
        self.arrange(stored, counts)

    @property
    def plain(self) -> bool:
        """Whether the stored numbers are such that loops can be compiled for them."""
        return readable_by_loops(self.frames.dtype)

    def stored(self, file: int) -> PatternLayout:
        """How the patterns lie in their open file."""
        size = self.window[0] * self.window[1] * self.frames.dtype.itemsize
        clip = self.scan.clip_negative and not np.issubdtype(self.frames.dtype, np.unsignedinteger)
        good = np.empty((0, 0), bool) if self._bad is None else ~self._bad
        return PatternLayout(file, size, self._shifts, good, clip)

    def arrange(self, stored: NDArray[Any], counts: Tensor, total: NDArray[np.float64] | None = None) -> None:
        """Puts stored patterns into `counts` (pattern, y, x), on the CPU, in its type and in the order of the model.

        Adds them to `total` (y, x), where it is given.
        """
        arrange(stored, self._shifts, counts.numpy(), total)

    def _cut(self, patterns: NDArray[np.int64]) -> list[slice]:
        """Rows of pieces; what the file stores together is not cut, so that nothing is read or decompressed twice."""
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
        """Refuses what is not finite or negative; two reductions find out without memory beside."""
        if np.issubdtype(stored.dtype, np.unsignedinteger):
            return
        low, high = stored.min(), stored.max()
        if np.isfinite(low) and np.isfinite(high) and (low >= 0 or self.scan.clip_negative):
            if low < 0:
                np.maximum(stored, 0, out=stored)
            return
        for pattern in patterns.tolist():
            self.scan.counts(pattern, pattern + 1)  # says which, where, and what to do
        raise AssertionError("the patterns changed while they were read")


def shifted(scan: Scan) -> bool:
    """Whether the file's centred patterns lie in Fourier space, where the model has zero frequency at index 0."""
    return scan.is_far_field and scan.centred
