"""Loss and gradients of probes and object in one section, pattern by pattern, since patterns are independent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ptynb.kernels import parallel_sections
from ptynb.kernels.cpu_steps import Cross, Move, array, near_field, seen
from ptynb.kernels.hotpath_types import Detection, Illumination
from ptynb.kernels.runtime.buffers import empty, give_back


class Descent:
    """`physics.chain.Descent`, compiled."""

    def __init__(self, given: Illumination, detection: Detection, wanted: Sequence[bool]) -> None:
        """wanted: which gradients of `hotpath.varied` to compute; those at the detector are computed with any other."""
        of_object, of_probes, of_shifts, *self.at_detector = wanted
        self.move = Move(given.probes, given.shifts, of_probes, of_shifts, alone=True)
        moved = self.move.moving.moved
        self.cross = Cross(given.object, given.window_origins, moved, given.kernel, of_object, alone=True)
        self.near = near_field(given.propagator, self.move, self.cross)
        rows = np.arange(len(given.window_origins)) if detection.rows is None else array(detection.rows)
        at_detector = detection.mask, detection.weights, detection.background
        self.seen = seen(detection.stored, rows, *at_detector, moved.real.dtype)
        self.comparison = detection.floor, detection.damping, detection.loss == "poisson"
        self.backwards = of_object or of_probes or of_shifts

    def value(self) -> Tensor:
        """Return the loss, a scalar float64."""
        moving, crossing = self.move.moving, self.cross.crossing
        intensity = empty((len(moving.totals), *moving.moved.shape[-2:]), moving.moved.real)
        values = np.empty(len(crossing.window_origins))
        rest = self.seen, *self.comparison, self.backwards, values
        parallel_sections.misfit(moving, crossing, self.near, intensity, *rest, shares=len(moving.totals))
        give_back(intensity)
        return torch.tensor(values.sum())

    def gradients(self, factor: float, probe_factor: float | None = None) -> tuple[Tensor | None, ...]:
        """Return the requested gradients, times `factor`, else None; those of the probes times `probe_factor`."""
        moving, crossing = self.move.moving, self.cross.crossing
        of_probes = factor if probe_factor is None else probe_factor
        found = self.cross.gradient(factor), *self.move.gradients(of_probes, factor, self.near)
        room = [moving.moved] if self.move.shared else []
        room += [] if self.near is None else [self.near.spectra]
        give_back(crossing.waves, crossing.arriving, crossing.changes, moving.totals, *room)
        of_weights, of_background = self.at_detector
        scale = self.seen.of_weights.dtype.type(factor)
        return (
            *found,
            torch.from_numpy(self.seen.of_weights * scale) if of_weights else None,
            torch.from_numpy(self.seen.of_background.sum(0) * scale) if of_background else None,
        )
