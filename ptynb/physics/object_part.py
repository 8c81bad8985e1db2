"""The pixels of an object array that are an engine's own: all, or those of its tile.

What is summed or averaged over the object is summed over an engine's own pixels, and then over all engines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad


class ObjectPart(NamedTuple):
    """The pixels of an object array that are an engine's own, of an object of which others have other tiles.

    shape: (y, x) of the whole object. origin: its pixel (y, x) that is the first of the array. total: collective call
    that sums a tensor over all engines.
    """

    rows: slice
    columns: slice
    shape: tuple[int, int]
    origin: tuple[int, int] = (0, 0)
    total: Callable[[Tensor], Tensor] = lambda tensor: tensor

    @classmethod
    def whole(cls, values: Tensor) -> Self:
        """Return that of an engine that has the whole object (…, y, x)."""
        height, width = values.shape[-2:]
        return cls(slice(0, height), slice(0, width), (height, width))

    @property
    def is_whole(self) -> bool:
        """Whether the engine has the whole object."""
        return (self.rows.stop - self.rows.start, self.columns.stop - self.columns.start) == self.shape

    def of(self, values: Tensor) -> Tensor:
        """Return the own pixels of an array (…, y, x)."""
        return values[..., self.rows, self.columns]

    def within(self, area: tuple[slice, slice]) -> tuple[slice, slice]:
        """Return slices (y, x) of the array for those own pixels that are in an area of the whole object."""
        sides = []
        for own, wanted, first in zip((self.rows, self.columns), area, self.origin, strict=True):
            start = max(own.start, wanted.start - first)
            sides.append(slice(start, max(start, min(own.stop, wanted.stop - first))))
        return sides[0], sides[1]

    def mean(self, values: Tensor, less: int = 0) -> Tensor:
        """Return this engine's share of the mean over the whole object, whose sides have `less` values fewer."""
        number = values[..., 0, 0].numel() * (self.shape[0] - less) * (self.shape[1] - less)
        return self.of(values).sum() / number

    def reduced(self, values: Tensor, area: tuple[slice, slice], block: int) -> Tensor:
        """Return means over blocks of `block` x `block` pixels of an area of the whole object, on all engines.

        values: complex (y, x), those of `within(area)`. Blocks that are not whole are cut off.
        """
        height, width = ((side.stop - side.start) // block for side in area)
        firsts = [
            own.start + first - side.start
            for own, first, side in zip(self.within(area), self.origin, area, strict=True)
        ]
        before, after = [first % block for first in firsts], list[int]()
        for place, side in zip(before, values.shape, strict=True):
            after.append(-(place + side) % block)
        planes = pad(torch.view_as_real(values).movedim(-1, 0), (before[1], after[1], before[0], after[0]))
        sums = avg_pool2d(planes[None], block, divisor_override=1)[0] if values.numel() else planes[:, :0, :0]
        means = values.real.new_zeros((2, height, width))
        top, left = (first // block for first in firsts)
        whole = sums[:, : height - top, : width - left] / block**2
        means[:, top : top + whole.shape[1], left : left + whole.shape[2]] = whole
        return torch.view_as_complex(self.total(means).movedim(0, -1).contiguous())
