"""One engine's patterns, read once and kept the way the hot path wants them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.engine.group import Group
from ptynb.physics.farfield import shift_ramps
from ptynb.physics.losses import Loss
from ptynb.physics.model import Batch
from ptynb.scan import ObjectFrame, Scan

READ_BYTES = 2**26
"""Patterns are read and prepared in pieces of about this size, with little memory beside what is kept."""


@dataclass(frozen=True, eq=False)
class Totals:
    """Over all patterns of all engines: mean pattern (y, x) float64 in FFT order [counts]."""

    mean_pattern: Tensor

    @property
    def counts(self) -> float:
        """Mean counts of a pattern."""
        return float(self.mean_pattern.sum())


def read_counts(scan: Scan, start: int, stop: int, dtype: torch.dtype) -> Tensor:
    """Patterns start to stop - 1 (pattern, y, x) in FFT order, checked, bad pixels 0."""
    counts = scan.counts(start, stop)
    if scan.centred:
        counts = np.fft.ifftshift(counts, axes=(-2, -1))
    return torch.from_numpy(np.ascontiguousarray(counts.astype(np.float64 if dtype == torch.float64 else np.float32)))


def detector_mask(scan: Scan, dtype: torch.dtype) -> Tensor | None:
    """The mask (y, x) in FFT order, 1 where the detector works; None where it works everywhere."""
    if scan.mask is None or scan.mask.all():
        return None
    mask = np.fft.ifftshift(scan.mask) if scan.centred else scan.mask
    return torch.from_numpy(np.ascontiguousarray(mask)).to(dtype)


class Shard:
    """Patterns first to stop - 1 of the scan: their counts, where they are, and how to make a batch of some."""

    def __init__(self, scan: Scan, start: int, stop: int, frame: ObjectFrame, dtype: torch.dtype) -> None:
        self.start, self.stop = start, stop
        self.dtype = dtype
        places = scan.positions[start:stop] - np.asarray(frame.origin)
        corners = np.rint(places)
        self.corners = torch.from_numpy(corners.astype(np.int64))
        self.shifts = torch.from_numpy(places - corners).to(dtype)
        self.window = scan.window
        self.prepared = torch.empty((stop - start, *scan.window), dtype=dtype)
        self._total = torch.zeros(scan.window, dtype=torch.float64)
        for part in self._pieces():
            counts = read_counts(scan, start + part.start, start + part.stop, dtype)
            self._total += counts.sum(0, dtype=torch.float64)
            self.prepared[part] = counts

    def _pieces(self) -> Iterator[slice]:
        step = max(1, READ_BYTES // (4 * self.window[0] * self.window[1]))
        for first in range(0, len(self), step):
            yield slice(first, min(first + step, len(self)))

    def __len__(self) -> int:
        return self.stop - self.start

    def totals(self, group: Group, count: int) -> Totals:
        """Totals of all `count` patterns of the group."""
        mean = (group.sum(self._total.to(group.device)) / count).cpu()
        if not mean.any():
            raise ValueError(f"All {count} patterns are empty: no pixel has a count above 0.")
        return Totals(mean)

    def prepare(self, loss: Loss, group: Group) -> float:
        """Turns counts into what the loss needs, moves all to the device; returns the normaliser of all engines."""
        normaliser = torch.zeros((), dtype=torch.float64)
        for part in self._pieces():
            normaliser += loss.normaliser(self.prepared[part])
            self.prepared[part] = loss.prepare(self.prepared[part])
        self.prepared = self.prepared.to(group.device)
        self.shifts = self.shifts.to(group.device)
        return float(group.sum(normaliser.to(group.device)))

    def batch(self, patterns: NDArray[np.int64]) -> Batch:
        """These patterns (indices of the whole scan) as the model takes them."""
        local = torch.from_numpy(patterns - self.start)
        return Batch(
            corners=self.corners[local],
            ramps=shift_ramps(self.shifts[local.to(self.shifts.device)], self.window),
            prepared=self.prepared[local.to(self.prepared.device)],
        )
