"""An object in tiles: each engine holds the part of it that the windows of its own patterns cover.

The object's rectangle is cut recursively, each time across its longer side, so that each engine has the same number of
patterns (to one): engine n *owns* a rectangle of pixels and the patterns whose windows have their centre there. It
*holds* what those windows reach beyond that, with the margin by which positions may move: the halo, which other engines
hold, too.

An update is exact. Gradients of a pixel are summed over the engines that hold it, always in the order of their ranks,
so that all of them make the same step with the same moments, to the bit; no engine waits for another one's values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from operator import setitem
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.distributed.group import Group
from ptynb.physics.object_part import ObjectPart

PIECE_BYTES = 2**24
"""Largest size of a message with pixels of the whole object."""


class Rectangle(NamedTuple):
    """Pixels [top, bottom) x [left, right) of the whole object."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def shape(self) -> tuple[int, int]:
        """Size (y, x)."""
        return max(0, self.bottom - self.top), max(0, self.right - self.left)

    @property
    def empty(self) -> bool:
        """Whether it has no pixel."""
        return 0 in self.shape

    def common(self, other: Rectangle) -> Rectangle:
        """Return the pixels that are in both."""
        top, left = max(self.top, other.top), max(self.left, other.left)
        return Rectangle(top, min(self.bottom, other.bottom), left, min(self.right, other.right))

    def around(self, other: Rectangle) -> Rectangle:
        """Return the smallest rectangle that contains both."""
        top, left = min(self.top, other.top), min(self.left, other.left)
        return Rectangle(top, max(self.bottom, other.bottom), left, max(self.right, other.right))

    def inside(self, holder: Rectangle) -> tuple[slice, slice]:
        """Return the slices (y, x) of these pixels in the array of a rectangle that contains them."""
        return (
            slice(self.top - holder.top, self.bottom - holder.top),
            slice(self.left - holder.left, self.right - holder.left),
        )


@dataclass(frozen=True, eq=False)
class TileLayout:
    """The tiles of all engines.

    owner: rank of each pattern (pattern,). owned: disjoint, together the whole object. held: what an engine has in
    memory, its own pixels among them.
    """

    owner: NDArray[np.int64]
    owned: tuple[Rectangle, ...]
    held: tuple[Rectangle, ...]

    @property
    def largest(self) -> tuple[int, int]:
        """Size (y, x) of the largest array."""
        return max((area.shape for area in self.held), key=math.prod)


def tile_layout(
    window_positions: NDArray[np.float64],
    window: tuple[int, int],
    shape: tuple[int, int],
    world: int,
    *,
    margin: int,
    reach: int = 1,
) -> TileLayout:
    """Return the tiles of `world` engines.

    window_positions: top-left corners (pattern, yx) of the windows [pixels of the whole object]. margin: by which
    windows may move [pixels]. reach: distance of other pixels on which a pixel depends in regularizers and constraints.
    """
    owner = np.empty(len(window_positions), dtype=np.int64)
    owned = list[Rectangle]()
    centres = window_positions + np.array(window) / 2

    def cut(patterns: NDArray[np.int64], area: Rectangle, engines: int) -> None:
        if engines == 1:
            owner[patterns] = len(owned)
            owned.append(area)
            return
        along = int(np.argmax(area.shape))
        ordered = patterns[np.argsort(centres[patterns, along], kind="stable")]
        half = engines // 2
        first = len(ordered) * half // engines
        low, high = area[2 * along], area[2 * along + 1]
        edge = round(float(centres[ordered[max(0, first - 1) : first + 1], along].mean())) if len(ordered) else low
        edge = min(max(edge, low), high)
        bounds = [*area]
        bounds[2 * along + 1] = edge
        cut(ordered[:first], Rectangle(*bounds), half)
        bounds = [*area]
        bounds[2 * along] = edge
        cut(ordered[first:], Rectangle(*bounds), engines - half)

    whole = Rectangle(0, shape[0], 0, shape[1])
    cut(np.arange(len(window_positions)), whole, world)
    # One more pixel than windows reach, since positions are rounded.
    origins = np.rint(window_positions).astype(np.int64)
    held = list[Rectangle]()
    for rank, area in enumerate(owned):
        own = origins[owner == rank]
        near = area
        if not area.empty:
            near = Rectangle(area.top - reach, area.bottom + reach, area.left - reach, area.right + reach)
        if len(own):
            (top, left), (bottom, right) = own.min(0) - margin - 1, own.max(0) + np.array(window) + margin + 1
            near = near.around(Rectangle(int(top), int(bottom), int(left), int(right)))
        held.append(near.common(whole))
    return TileLayout(owner, tuple(owned), tuple(held))


@final
class ObjectTile:
    """This engine's part of the object, and the exchange of its halo with the engines that hold the same pixels."""

    def __init__(self, layout: TileLayout, group: Group) -> None:
        self.layout, self._group = layout, group
        self.held, self.owned = layout.held[group.rank], layout.owned[group.rank]
        self.sent_bytes = 0
        """Size of all messages so far."""

    @cached_property
    def overlaps(self) -> dict[int, Rectangle]:
        """What other engines hold of the pixels of this one, by rank; those without any are left out."""
        found = {rank: self.held.common(other) for rank, other in enumerate(self.layout.held)}
        return {rank: area for rank, area in found.items() if rank != self._group.rank and not area.empty}

    def sum(self, *arrays: Tensor) -> None:
        """Sum arrays (state, slice, y, x, …) over the engines that hold a pixel, in order of rank, in place."""
        received = self._exchanged(arrays)
        below = [rank for rank in received if rank < self._group.rank]
        # Sums of lower ranks first, so that each engine adds the same numbers in the same order.
        for later, rank in enumerate(below):
            for earlier in below[:later]:
                both = self.overlaps[earlier].common(self.overlaps[rank])
                if both.empty:
                    continue
                source, target = both.inside(self.overlaps[earlier]), both.inside(self.overlaps[rank])
                for one, other in zip(received[earlier], received[rank], strict=True):
                    other[_at(target)] += one[_at(source)]
                    one[_at(source)] = 0
        for rank, values in received.items():
            place = _at(self.overlaps[rank].inside(self.held))
            for array, one in zip(arrays, values, strict=True):
                array[place] += one

    def refresh(self, *arrays: Tensor) -> None:
        """Replace the halo of arrays (state, slice, y, x, …) by the values of its owners."""
        for rank, values in self._exchanged(arrays).items():
            theirs = self.overlaps[rank].common(self.layout.owned[rank])
            if theirs.empty:
                continue
            for array, one in zip(arrays, values, strict=True):
                array[_at(theirs.inside(self.held))] = one[_at(theirs.inside(self.overlaps[rank]))]

    def equal(self, *arrays: Tensor) -> bool:
        """Return whether all engines have bitwise equal values in the pixels that they share; on all engines."""
        received = self._exchanged(arrays)
        same = all(
            torch.equal(array[_at(self.overlaps[rank].inside(self.held))], one)
            for rank, values in received.items()
            for array, one in zip(arrays, values, strict=True)
        )
        return int(self._group.sum(torch.tensor([int(same)]))) == self._group.world

    @property
    def area(self) -> tuple[slice, slice]:
        """Slices (y, x) of the whole object that this engine holds."""
        return slice(self.held.top, self.held.bottom), slice(self.held.left, self.held.right)

    @cached_property
    def own(self) -> ObjectPart:
        """The pixels of the tile's array that this engine owns, and the size of the whole object."""
        areas = self.layout.owned
        bottom, right = max(area.bottom for area in areas), max(area.right for area in areas)
        origin = self.held.top, self.held.left
        return ObjectPart(*self.owned.inside(self.held), (bottom, right), origin, self._group.sum)

    def own_pixels(self, array: Tensor) -> Tensor:
        """Return a view of this engine's own pixels of an array of the tile: (state, slice, y, x, …) or (y, x)."""
        place = self.owned.inside(self.held)
        return array[place] if array.ndim < 4 else array[_at(place)]

    def gathered(self, array: Tensor) -> Tensor:
        """Return the whole (state, slice, y, x), on the CPU of rank 0; others send their own pixels, and get them back.

        Complex. Call it on all ranks.
        """
        others, shape = self._group.rank > 0, (*array.shape[:2], *self.own.shape)
        whole = self.own_pixels(array).cpu().clone() if others else torch.empty(shape, dtype=array.dtype)
        self.collect(array, partial(setitem, whole))
        return whole

    def collect(self, array: Tensor, take: Callable[[tuple[int | slice, ...], Tensor], None]) -> None:
        """Call `take` on rank 0 with the place and the values (y, x) of each piece of the whole (state, slice, y, x).

        Complex. Call it on all ranks; others send their own pixels. An error of `take` ends it on all ranks, and is
        raised on rank 0.
        """
        rank, exchange, error = self._group.rank, self._group.exchange, None
        for owner, state, number, area in self._places(array):
            values = array.new_empty(area.shape if rank in (0, owner) else 0)
            if rank == owner:
                values.copy_(array[(state, number, *area.inside(self.held))])
            piece = torch.view_as_real(values)
            if rank == owner != 0:
                exchange({0: piece}, {})
            elif rank == 0:
                exchange({}, {owner: piece} if owner else {})
                try:
                    take((state, number, slice(area.top, area.bottom), slice(area.left, area.right)), values.cpu())
                except Exception as raised:  # noqa: BLE001 - it is raised below, once the other ranks know
                    error = raised
            # All of them go on together, so that none waits longer than one piece takes.
            if int(self._group.sum(torch.tensor([int(error is not None)]))):
                break
        if error is not None:
            raise error

    def _places(self, array: Tensor) -> Iterator[tuple[int, int, int, Rectangle]]:
        """Yield owner, state, slice and area of each piece of the whole, of at most `PIECE_BYTES`."""
        planes = product(range(array.shape[0]), range(array.shape[1]))
        for (state, number), (owner, area) in product(planes, enumerate(self.layout.owned)):
            step = max(1, PIECE_BYTES // max(1, area.shape[1] * array.itemsize))
            for top in range(area.top, area.bottom, step) if not area.empty else ():
                yield owner, state, number, Rectangle(top, min(top + step, area.bottom), area.left, area.right)

    def _exchanged(self, arrays: tuple[Tensor, ...]) -> dict[int, list[Tensor]]:
        """Return copies of the pixels of other engines, by rank, ascending."""
        sent, received = dict[int, Tensor](), dict[int, Tensor]()
        places = {rank: _at(area.inside(self.held)) for rank, area in self.overlaps.items()}
        for rank, place in places.items():
            sent[rank] = torch.cat([array[place].reshape(-1) for array in arrays])
            received[rank] = torch.empty_like(sent[rank])
            self.sent_bytes += sent[rank].nbytes
        self._group.exchange(sent, received)
        answers = dict[int, list[Tensor]]()
        for rank, place in places.items():
            shapes = [array[place].shape for array in arrays]
            pieces = received[rank].split([shape.numel() for shape in shapes])
            answers[rank] = [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]
        return answers


def _at(place: tuple[slice, slice]) -> tuple[slice, ...]:
    """Return the index of these rows and columns of an array (state, slice, y, x, …)."""
    return slice(None), slice(None), *place
