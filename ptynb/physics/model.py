"""The parameters of a reconstruction as a thin module over `farfield`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from ptynb.physics.farfield import far_field_loss, intensities
from ptynb.physics.losses import Loss


@dataclass(frozen=True, eq=False)
class Batch:
    """One engine's patterns of an update: corners (pattern, yx) int64 on the CPU, the rest on the device."""

    corners: Tensor
    ramps: Tensor
    prepared: Tensor

    def __len__(self) -> int:
        return len(self.corners)


@final
class FarField(nn.Module):
    """One slice, incoherent probe modes, far field.

    Parameters are real views, (y, x, 2) and (mode, y, x, 2), since complex ones are not reduced right by every backend.
    The probe is stored in units of its root-mean-square amplitude at the start, so that one step size means the same
    for any number of counts.
    """

    def __init__(self, object: Tensor, probe: Tensor, mask: Tensor | None, loss: Loss) -> None:
        """object (y, x) and probe (mode, y, x), complex, on the model's device; mask (y, x) or None."""
        super().__init__()
        scale = probe.abs().square().sum(0).mean().sqrt()
        self.object_parts = nn.Parameter(torch.view_as_real(object).clone())
        self.probe_parts = nn.Parameter(torch.view_as_real(probe / scale).clone())
        # Plain attributes, not buffers: they never change, and DistributedDataParallel would send buffers every time.
        self.probe_scale = scale
        self.mask = mask
        self.loss = loss

    @property
    def object(self) -> Tensor:
        """The object (y, x), complex."""
        return torch.view_as_complex(self.object_parts)

    @property
    def probe(self) -> Tensor:
        """The probe (mode, y, x), complex, in square roots of counts."""
        return torch.view_as_complex(self.probe_parts) * self.probe_scale

    def forward(self, batch: Batch) -> Tensor:
        """The loss of these patterns, a sum (scalar)."""
        return far_field_loss(self.object, self.probe, batch.corners, batch.ramps, batch.prepared, self.mask, self.loss)

    @torch.no_grad()
    def intensities(self, batch: Batch) -> Tensor:
        """Modelled patterns [counts], (pattern, y, x) in FFT order."""
        return intensities(self.object, self.probe, batch.corners, batch.ramps)
