"""One engine's patterns, read once and kept the way the hot path wants them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.engine.group import Group
from ptynb.physics.losses import Sums
from ptynb.physics.piece import Batch
from ptynb.scan import Scan

READ_BYTES = 2**26
"""Patterns are read and prepared in pieces of about this size, with little memory beside what is kept."""
INTEGERS = {torch.uint8: 2**8 - 1, torch.uint16: 2**16 - 1, torch.int32: 2**31 - 1}
"""What counts are held as where they are integers, and the largest one that fits."""
NUMPY = {
    torch.uint8: np.uint8,
    torch.uint16: np.uint16,
    torch.int32: np.int32,
    torch.float32: np.float32,
    torch.float64: np.float64,
}


@dataclass(frozen=True, eq=False)
class Totals:
    """Over all patterns of all engines: mean pattern (y, x) float64 in the order of the model [counts], and sums."""

    mean_pattern: Tensor
    sums: Sums


def read_counts(scan: Scan, patterns: NDArray[np.int64]) -> NDArray[Any]:
    """These patterns (pattern, y, x) in the order of the model, checked, bad pixels 0."""
    counts = np.concatenate([scan.counts(first, last + 1) for first, last in runs_of(patterns)])
    return np.fft.ifftshift(counts, axes=(-2, -1)) if _shifted(scan) else counts


def exact_type(counts: NDArray[Any], working: torch.dtype) -> torch.dtype:
    """The smallest type that has these counts, none of them negative, as well as the working type has them."""
    if not np.issubdtype(counts.dtype, np.integer):
        return torch.float32 if counts.dtype.itemsize <= 4 else working
    most = counts.max(initial=0)
    for dtype, limit in INTEGERS.items():
        if most <= limit:
            return dtype
    return working


def detector_mask(scan: Scan, dtype: torch.dtype) -> Tensor | None:
    """The mask (y, x) in the order of the model, 1 where the detector works; None where it works everywhere."""
    if scan.mask is None or scan.mask.all():
        return None
    mask = np.fft.ifftshift(scan.mask) if _shifted(scan) else scan.mask
    return torch.from_numpy(np.ascontiguousarray(mask)).to(dtype)


def runs_of(patterns: NDArray[np.int64]) -> list[tuple[int, int]]:
    """(first, last) of each run of consecutive indices, in order."""
    breaks = np.flatnonzero(np.diff(patterns) != 1) + 1
    return [(int(run[0]), int(run[-1])) for run in np.split(patterns, breaks) if len(run)]


def _shifted(scan: Scan) -> bool:
    """Whether the file's centred patterns lie in Fourier space, where the model has zero frequency at index 0."""
    return scan.fourier and scan.centred


class Shard:
    """This engine's patterns, held as counts of the smallest exact type, and how to make a batch of some."""

    def __init__(self, scan: Scan, patterns: NDArray[np.int64], group: Group, dtype: torch.dtype) -> None:
        """patterns: their indices in the whole scan, in order. dtype: real, of the model."""
        self.patterns, self.group, self.dtype = patterns, group, dtype
        self.window = scan.window
        self._row_of = np.full(len(scan), -1, dtype=np.int64)
        self._row_of[patterns] = np.arange(len(patterns))
        self.held = torch.empty((len(patterns), *scan.window), dtype=torch.uint8, device=group.device)
        self._total = torch.zeros(scan.window, dtype=torch.float64)
        self._squares = torch.zeros((), dtype=torch.float64)
        for part in self._pieces():
            counts = read_counts(scan, patterns[part])
            held = exact_type(counts, dtype)
            if held.itemsize > self.held.dtype.itemsize or held.is_floating_point:
                self.held = self.held.to(held)
            values = torch.from_numpy(counts.astype(np.float64))
            self._total += values.sum(0)
            self._squares += values.square_().sum()
            self.held[part] = torch.from_numpy(counts.astype(NUMPY[self.held.dtype])).to(group.device)

    def _pieces(self) -> Iterator[slice]:
        step = max(1, READ_BYTES // (4 * self.window[0] * self.window[1]))
        for first in range(0, len(self), step):
            yield slice(first, min(first + step, len(self)))

    def __len__(self) -> int:
        return len(self.patterns)

    def totals(self, count: int) -> Totals:
        """Totals of all `count` patterns of the group."""
        everything = self.group.sum(torch.cat([self._total.reshape(-1), self._squares[None]]).to(self.group.device))
        total, squares = everything[:-1].reshape(self.window).cpu(), float(everything[-1])
        if not total.any():
            raise ValueError(f"All {count} patterns are empty: no pixel has a count above 0.")
        return Totals(total / count, Sums(float(total.sum()), squares))

    def batch(self, patterns: NDArray[np.int64], members: int) -> Batch:
        """These patterns (indices of the whole scan) as the model takes them; `members` over all engines together."""
        rows = torch.from_numpy(self._row_of[patterns]).to(self.group.device)
        return Batch(
            patterns=torch.from_numpy(patterns).to(self.group.device),
            counts=selected(self.held, rows).to(self.dtype),
            members=members,
            total=self.group.sum,
        )


def selected(held: Tensor, rows: Tensor) -> Tensor:
    """These rows. torch has no index_select of uint16 on every device, so its bits are taken for those of int16."""
    if held.dtype == torch.uint16:
        return held.view(torch.int16).index_select(0, rows).view(torch.uint16)
    return held.index_select(0, rows)
