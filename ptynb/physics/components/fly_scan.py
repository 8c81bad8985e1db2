"""Fly scans: the sample moves during the exposure, so that a pattern is an incoherent sum over positions.

With the displacement v_j of the position during the exposure, whose middle r_j is,

    M_j = 1/n Σ_k M(r_j + t_k v_j),   t_k = (k + ½) / n - ½

Each of the n positions is a probe mode shifted along the motion. Pelz et al., Appl. Phys. Lett. 105, 251101 (2014);
Clark et al., Phys. Rev. Lett. 112, 113901 (2014); Huang et al., Sci. Rep. 5, 9074 (2015).
"""

from __future__ import annotations

import math
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.physics.components.component import Batch, ModelComponent
from ptynb.physics.hotpath import moved_probes
from ptynb.physics.torch_steps import shift_ramps


class _Motion(ModelComponent):
    """Probe modes shifted along the motion of each pattern. They follow all other changes of the probe."""

    name = "fly_scan"

    def __init__(self, motion: Tensor, steps: int) -> None:
        """motion: displacement (pattern, yx) of the position during the exposure [object pixels]."""
        super().__init__()
        self.steps, self.motion = steps, motion
        self._times = (torch.arange(steps, dtype=motion.dtype, device=motion.device) + 0.5) / steps - 0.5

    def shifts(self, batch: Batch) -> Tensor:
        """Return t_k v_j (pattern · step, yx) [object pixels]."""
        return (self.motion[batch.patterns][:, None] * self._times[:, None]).flatten(0, 1)

    def illuminate(self, probes: Tensor, batch: Batch) -> Tensor:
        """Return the modes (pattern, step · mode, y, x), each at all steps, with 1/n of its power."""
        probes = probes if len(probes) == 1 else probes.repeat_interleave(self.steps, 0)
        moved = moved_probes(probes / math.sqrt(self.steps), self.shifts(batch))
        return moved.reshape(len(batch), -1, *moved.shape[-2:])

    def arrays(self) -> dict[str, Tensor]:
        """Return `motion` (pattern, yx) [object pixels]."""
        return {"motion": self.motion}


@final
class FlyScan(_Motion):
    """Motion during the exposure in the far field, where a shift of probe and object together has no effect."""


@final
class NearFieldFlyScan(_Motion):
    """Motion during the exposure in the near field, where the detector is fixed to the probe."""

    def exit_wave(self, waves: Tensor, batch: Batch) -> Tensor:
        """Shift the waves of each step back, so that the object moves and not the probe."""
        ramps = shift_ramps(self.shifts(batch), (waves.shape[-2], waves.shape[-1])).conj()
        ramps = ramps.view(len(batch), 1, self.steps, 1, *waves.shape[-2:])
        by_step = waves.unflatten(2, (self.steps, -1))
        return torch.fft.ifft2(torch.fft.fft2(by_step) * ramps).flatten(2, 3)


def motion_between(positions: NDArray[np.float64], fraction: float) -> NDArray[np.float64]:
    """Return the displacement of each position during its exposure (pattern, yx): a fraction of the way to the next.

    A step that differs from the one before by more than the length of either leads to another line of the scan: the
    last pattern of a line moves as the one before it. A single position does not move.
    """
    if len(positions) == 1:
        return np.zeros_like(positions)
    steps = np.diff(positions, axis=0)
    lengths = np.linalg.norm(steps, axis=1)
    turns = np.linalg.norm(np.diff(steps, axis=0), axis=1) > np.maximum(lengths[1:], lengths[:-1])
    source, leaves = np.arange(len(positions)), False
    for index, turn in enumerate(turns.tolist(), start=1):
        leaves = turn and not leaves  # the step behind one to another line is the first of that line
        source[index] = index - 1 if leaves else index
    source[-1] = source[-2]
    motion: NDArray[np.float64] = fraction * steps[source]
    return motion
