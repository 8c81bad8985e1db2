"""One engine's patterns, read once and kept the way the hot path wants them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.engine.group import Group
from ptynb.physics.losses import Loss, WeightedSum
from ptynb.physics.piece import Batch
from ptynb.scan import Scan

READ_BYTES = 2**26
"""Patterns are read and prepared in pieces of about this size, with little memory beside what is kept."""


@dataclass(frozen=True, eq=False)
class Totals:
    """Over all patterns of all engines: mean pattern (y, x) float64 in the order of the model [counts]."""

    mean_pattern: Tensor

    @property
    def counts(self) -> float:
        """Mean counts of a pattern."""
        return float(self.mean_pattern.sum())


def read_counts(scan: Scan, patterns: NDArray[np.int64], dtype: torch.dtype) -> Tensor:
    """These patterns (pattern, y, x) in the order of the model, checked, bad pixels 0."""
    counts = np.concatenate([scan.counts(first, last + 1) for first, last in runs_of(patterns)])
    if _shifted(scan):
        counts = np.fft.ifftshift(counts, axes=(-2, -1))
    return torch.from_numpy(np.ascontiguousarray(counts.astype(np.float64 if dtype == torch.float64 else np.float32)))


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
    """This engine's patterns: their counts, the way the loss wants them, and how to make a batch of some."""

    def __init__(self, scan: Scan, patterns: NDArray[np.int64], group: Group, dtype: torch.dtype) -> None:
        """patterns: their indices in the whole scan, in order."""
        self.patterns, self.group = patterns, group
        self.window = scan.window
        self._row_of = np.full(len(scan), -1, dtype=np.int64)
        self._row_of[patterns] = np.arange(len(patterns))
        self.prepared = torch.empty((len(patterns), *scan.window), dtype=dtype)
        self._total = torch.zeros(scan.window, dtype=torch.float64)
        for part in self._pieces():
            counts = read_counts(scan, patterns[part], dtype)
            self._total += counts.sum(0, dtype=torch.float64)
            self.prepared[part] = counts

    def _pieces(self) -> Iterator[slice]:
        step = max(1, READ_BYTES // (4 * self.window[0] * self.window[1]))
        for first in range(0, len(self), step):
            yield slice(first, min(first + step, len(self)))

    def __len__(self) -> int:
        return len(self.patterns)

    def totals(self, count: int) -> Totals:
        """Totals of all `count` patterns of the group."""
        mean = (self.group.sum(self._total.to(self.group.device)) / count).cpu()
        if not mean.any():
            raise ValueError(f"All {count} patterns are empty: no pixel has a count above 0.")
        return Totals(mean)

    def prepare(self, loss: Loss, before: Loss | None = None) -> float:
        """Turns counts (or what the loss `before` kept of them) into what the loss needs, on the device.

        Returns the normaliser of all engines; a sum of losses learns those of its members.
        """
        normaliser = sum(
            (loss.normaliser(self._counts(part, before)) for part in self._pieces()),
            torch.zeros((), dtype=torch.float64, device=self.prepared.device),
        )
        for part in self._pieces():
            self.prepared[part] = loss.prepare(self._counts(part, before))
        self.prepared = self.prepared.to(self.group.device)
        all_engines = self.group.sum(normaliser.to(self.group.device))
        if isinstance(loss, WeightedSum):
            loss.set_units(all_engines)
            return float(all_engines[0])
        return float(all_engines)

    def _counts(self, part: slice, before: Loss | None) -> Tensor:
        return self.prepared[part] if before is None else before.counts(self.prepared[part])

    def batch(self, patterns: NDArray[np.int64], members: int) -> Batch:
        """These patterns (indices of the whole scan) as the model takes them; `members` over all engines together."""
        rows = torch.from_numpy(self._row_of[patterns])
        return Batch(
            patterns=torch.from_numpy(patterns).to(self.group.device),
            prepared=self.prepared[rows.to(self.prepared.device)],
            members=members,
            total=self.group.sum,
        )
