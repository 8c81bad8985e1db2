"""Thumbnails of a reconstruction at a few epochs, which show its progress afterwards.

Rank 0 takes them between two epochs; the time for it counts for neither.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import avg_pool2d

from ptynb.data.engine_records import Thumbnail
from ptynb.physics.model import Model
from ptynb.physics.torch_steps import product_of_slices

SIDE = 256
"""Longest side [pixels]."""
MOST = 8
"""Maximum number, so that those of object and probe take 8 MB at most (`driver.memory` counts them)."""

Area = tuple[slice, slice]


def due(epoch: int) -> bool:
    """Return whether this epoch is one of 1, 2, 5, 10, 20, 50, 100 ..."""
    while epoch % 10 == 0 and epoch > 0:
        epoch //= 10
    return epoch in (1, 2, 5)


def bytes_of(object: tuple[int, int], probe: tuple[int, int]) -> int:
    """Return the maximum memory of all thumbnails [bytes]. object, probe: their shapes (y, x)."""
    pixels = 0
    for height, width in (object, probe):
        reduction = _reduction(height, width)
        pixels += (height // reduction) * (width // reduction)
    return MOST * np.dtype(np.complex64).itemsize * pixels


def thinned(moments: tuple[Thumbnail, ...]) -> tuple[Thumbnail, ...]:
    """Return the first and the newest thumbnails, `MOST` in total."""
    return moments if len(moments) <= MOST else (moments[0], *moments[-(MOST - 1) :])


@torch.no_grad()
def take(model: Model, area: Area, epoch: int) -> Thumbnail:
    """Take a thumbnail of the present state. area: the illuminated area of the object."""
    object = product_of_slices(model.object.covered(0, area))
    small, reduction = _reduced(object)
    probe, probe_reduction = _reduced(model.probe.values[0])
    corner = area[0].indices(2**62)[0], area[1].indices(2**62)[0]
    return Thumbnail(epoch, small, probe, reduction, probe_reduction, corner)


def _reduced(values: Tensor) -> tuple[NDArray[np.complex64], int]:
    """Return block averages such that no side is longer than `SIDE`, and the block size; incomplete blocks are cut."""
    reduction = _reduction(*values.shape)
    planes = torch.view_as_real(values.resolve_conj().to(torch.complex64)).movedim(-1, 0)[None]
    if reduction > 1:
        planes = avg_pool2d(planes, reduction)
    small = torch.view_as_complex(planes[0].movedim(0, -1).contiguous())
    return small.cpu().numpy().copy(), reduction


def _reduction(*sides: int) -> int:
    return max(1, -(-max(sides) // SIDE))
