"""The pixels of an object array that are an engine's own: all, or those of its tile.

What is summed or averaged over the object is summed over an engine's own pixels, and then over all engines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

BAND, DEVICE_BAND = 2**20, 2**24
"""Pixels that are averaged at a time: on a CPU what fits its cache, on a GPU few launches."""


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

    def reduced(self, seen: Callable[[tuple[slice, slice]], Tensor], area: tuple[slice, slice], block: int) -> Tensor:
        """Return means over blocks of `block` x `block` pixels of an area of the whole object (y, x), on all engines.

        seen: returns the complex values (y, x) of these rows and columns of the array. Blocks that are not whole are
        cut off, but a side of the area that is shorter than a block is one.
        """
        rows, columns = self.within(area)
        steps = [max(1, min(block, side.stop - side.start)) for side in area]
        height, width = ((side.stop - side.start) // step for side, step in zip(area, steps, strict=True))
        means = seen((slice(0, 0), slice(0, 0))).new_zeros(height, width)
        columns_seen = columns.stop - columns.start
        left = columns.start + self.origin[1] - area[1].start
        most = BAND if means.device.type == "cpu" else DEVICE_BAND
        band = -(-most // max(1, columns_seen * steps[0])) * steps[0]
        for start in range(rows.start, rows.stop if columns_seen else rows.start, band):
            top = start + self.origin[0] - area[0].start
            values = seen((slice(start, min(start + band, rows.stop)), columns))
            y, x = top // steps[0], left // steps[1]
            sums = _block_sums(values, steps, (top % steps[0], left % steps[1]))[: height - y, : width - x]
            means[y : y + sums.shape[0], x : x + sums.shape[1]] += sums
        means /= steps[0] * steps[1]
        return torch.view_as_complex(self.total(torch.view_as_real(means)))


def _block_sums(values: Tensor, steps: Sequence[int], first: Sequence[int]) -> Tensor:
    """Return sums over blocks of this size (y, x) of values (y, x), whose first pixel has this place in its block."""
    # Rows first, then columns, by slices: a sum over small axes takes five times as long.
    for axis, (step, start) in enumerate(zip(steps, first, strict=True)):
        shape = [*values.shape]
        shape[axis] = -(-(start + shape[axis]) // step)
        sums = values.new_zeros(shape)
        for place in range(min(step, values.shape[axis])):
            part = values[place::step] if axis == 0 else values[:, place::step]
            sums.narrow(axis, (start + place) // step, part.shape[axis]).add_(part)
        values = sums
    return values
