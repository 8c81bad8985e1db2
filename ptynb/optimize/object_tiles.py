"""An object in tiles: each engine holds the part of it that the windows of its own patterns cover.

The object's rectangle is cut recursively, each time across its longer side, so that each engine has the same number of
patterns (to one): engine n *owns* a rectangle of pixels and the patterns whose windows have their centre there. It
*holds* what those windows reach beyond that, with the margin by which positions may move: the halo, which other engines
hold, too.

An update is exact. Gradients of a pixel are summed over the engines that hold it, always in the order of their ranks,
so that all of them make the same step with the same moments, to the bit; no engine waits for another one's values. An
engine sends what the windows of its patterns cover of the pixels that another one holds, too: all engines know these
windows, and elsewhere its gradients are 0. Of an object of 4096 x 4096 on two engines, in batches of 16 windows of 256
x 256, these are 0.1 to 0.3 MB an update; all pixels that both hold are 7.1 MB, what windows cover of the whole 10.3 MB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from ptynb.optimize.covered_region import Region, touched_blocks
from ptynb.physics.components.builtin import ObjectPart, Positions
from ptynb.physics.components.component import ModelComponent

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
    memory, its own pixels among them. origins: top-left corners (pattern, yx) of the windows; window: their size
    (y, x); margin: by which they may move [pixels]; reach: distance of other pixels on which one depends. axes: 0 (y)
    or 1 (x) across which each cut is, in the order of the cuts.
    """

    owner: NDArray[np.int64]
    owned: tuple[Rectangle, ...]
    held: tuple[Rectangle, ...]
    origins: NDArray[np.int64]
    window: tuple[int, int]
    margin: int
    reach: int
    axes: tuple[int, ...]

    @property
    def largest(self) -> tuple[int, int]:
        """Size (y, x) of the largest array."""
        return max((area.shape for area in self.held), key=math.prod)

    def overlaps(self, rank: int) -> dict[int, Rectangle]:
        """Return what other engines hold of the pixels of this one, by rank; those without any are left out."""
        found = {other: self.held[rank].common(area) for other, area in enumerate(self.held) if other != rank}
        return {other: area for other, area in found.items() if not area.empty}

    @property
    def most_shared(self) -> int:
        """Return the largest number of pixels that an engine sends if it sends all that others hold, too."""
        overlaps = [self.overlaps(rank).values() for rank in range(len(self.held))]
        return max(sum(math.prod(area.shape) for area in areas) for areas in overlaps)

    def covered(self, area: Rectangle, patterns: NDArray[np.int64], margin: int) -> list[Rectangle]:
        """Return disjoint rectangles of an area that windows of these patterns reach, if they move by `margin`."""
        corners, shape = self.origins[patterns] - (area.top, area.left), area.shape
        reach = np.array(self.window) + margin
        near = corners[((corners > -reach) & (corners < np.array(shape) + margin)).all(1)]
        if not len(near):
            return []
        found = Region(shape, touched_blocks(near, self.window, shape, margin)).rectangles
        return [
            Rectangle(area.top + top, area.top + bottom, area.left + left, area.left + right)
            for top, bottom, left, right in found
        ]


def tile_layout(
    window_positions: NDArray[np.float64],
    window: tuple[int, int],
    shape: tuple[int, int],
    world: int,
    *,
    margin: int,
    reach: int = 1,
    like: TileLayout | None = None,
) -> TileLayout:
    """Return the tiles of `world` engines.

    window_positions: top-left corners (pattern, yx) of the windows [pixels of the whole object]. margin: by which
    windows may move [pixels]. reach: distance of other pixels on which a pixel depends in regularizers and constraints.
    like: tiles of the same patterns with other windows, whose patterns each engine gets.
    """
    owner = np.empty(len(window_positions), dtype=np.int64) if like is None else like.owner
    owned, axes = list[Rectangle](), list[int]()
    centres = window_positions + np.array(window) / 2

    def cut(patterns: NDArray[np.int64], area: Rectangle, engines: int) -> None:
        if engines == 1:
            owner[patterns] = len(owned)
            owned.append(area)
            return
        half = engines // 2
        along = int(np.argmax(area.shape)) if like is None else like.axes[len(axes)]
        axes.append(along)
        if like is None:
            ordered = patterns[np.argsort(centres[patterns, along], kind="stable")]
            lower, upper = np.split(ordered, [len(ordered) * half // engines])
        else:
            first = owner[patterns] < len(owned) + half
            lower, upper = patterns[first], patterns[~first]
        nearest = centres[lower, along].max(initial=-np.inf), centres[upper, along].min(initial=np.inf)
        known = [float(one) for one in nearest if np.isfinite(one)]
        low, high = area[2 * along], area[2 * along + 1]
        edge = min(max(round(sum(known) / len(known)), low), high) if known else low
        bounds = [*area]
        bounds[2 * along + 1] = edge
        cut(lower, Rectangle(*bounds), half)
        bounds = [*area]
        bounds[2 * along] = edge
        cut(upper, Rectangle(*bounds), engines - half)

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
    return TileLayout(owner, tuple(owned), tuple(held), origins, window, margin, reach, tuple(axes))


@final
class ObjectTile:
    """This engine's part of the object, and the exchange of its halo with the engines that hold the same pixels."""

    def __init__(self, layout: TileLayout, group: Group) -> None:
        self.layout, self._group = layout, group
        self.held, self.owned = layout.held[group.rank], layout.owned[group.rank]
        self.overlaps = layout.overlaps(group.rank)
        self.sent_bytes = 0
        """Size of all messages so far."""
        everything = {rank: [area] for rank, area in self.overlaps.items()}
        self._summed = self._everything = everything, everything

    def begin(self, members: NDArray[np.int64] | None, movers: Iterable[ModelComponent]) -> None:
        """Determine what is sent and received by the sums of an update: that which windows cover.

        members: patterns of all engines, outside whose windows arrays are 0; None: arrays differ from 0 everywhere.
        movers: components that move windows. Only those by `Positions` have a limit, which all engines know.
        """
        layout, movers = self.layout, [*movers]
        self._summed = self._everything
        if members is None or not all(isinstance(one, Positions) for one in movers):
            return
        # One more pixel, since positions are rounded.
        owner, margin = layout.owner[members], 1 + (layout.margin if movers else 0)
        own = members[owner == self._group.rank]
        sent = {rank: layout.covered(area, own, margin) for rank, area in self.overlaps.items()}
        received = {rank: layout.covered(area, members[owner == rank], margin) for rank, area in self.overlaps.items()}
        self._summed = sent, received

    def sum(self, *arrays: Tensor) -> None:
        """Sum arrays (state, slice, y, x, …) over the engines that hold a pixel, in order of rank, in place."""
        self.start_sum(*arrays)()

    def start_sum(self, *arrays: Tensor) -> Callable[[], None]:
        """Start `sum`; the returned function completes it."""
        if not arrays:  # a frozen object
            return lambda: None
        wait = self._start_exchange(arrays, *self._summed)

        def complete() -> None:
            received = wait()
            below = [rank for rank in received if rank < self._group.rank]
            # Sums of lower ranks first, so that each engine adds the same numbers in the same order.
            for later, rank in enumerate(below):
                for earlier in below[:later]:
                    for (area, values), (other_area, others) in product(received[earlier], received[rank]):
                        both = area.common(other_area)
                        if both.empty:
                            continue
                        source, target = _at(both.inside(area)), _at(both.inside(other_area))
                        for one, other in zip(values, others, strict=True):
                            other[target] += one[source]
                            one[source] = 0
            for area, values in (piece for pieces in received.values() for piece in pieces):
                for array, one in zip(arrays, values, strict=True):
                    array[_at(area.inside(self.held))] += one

        return complete

    def refresh(self, *arrays: Tensor) -> None:
        """Replace the halo of arrays (state, slice, y, x, …) by the values of its owners."""
        for halo, values in self._from_owners(arrays):
            halo.copy_(values)

    def agree(self, *arrays: Tensor) -> float:
        """As `refresh`; return the largest change that it made, relative to the largest value, over all engines.

        It is that of rounding: a loop over vectors rounds the rest of an array differently on some processors, and that
        is other pixels on each engine.
        """
        found = [torch.zeros(2, dtype=torch.float64, device=arrays[0].device)]
        for halo, values in self._from_owners(arrays):
            found.append(torch.stack([(halo - values).abs().max(), values.abs().max()]).double())
            halo.copy_(values)
        change, largest = self._group.largest(torch.stack(found).amax(0)).tolist()
        return change / largest if largest else 0.0

    def _from_owners(self, arrays: tuple[Tensor, ...]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield parts of the halo of arrays, and the values that their owners have."""
        owned = self.layout.owned
        sent = {rank: [area.common(self.owned)] for rank, area in self.overlaps.items()}
        received = {rank: [area.common(owned[rank])] for rank, area in self.overlaps.items()}
        for pieces in self._start_exchange(arrays, sent, received)().values():
            for area, values in pieces:
                for array, one in zip(arrays, values, strict=True):
                    yield array[_at(area.inside(self.held))], one

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

    def gathered(self, own: Tensor) -> Tensor:
        """Return the whole array on the CPU of rank 0, from the own pixels of each engine; others get theirs back.

        own: (state, slice, y, x, …) or (y, x). Call it on all ranks.
        """
        if self._group.rank:
            self.collect(own, lambda place, values: None)
            return own.detach().cpu().clone()
        axis = _first_axis(own)
        shape = *own.shape[:axis], *self.own.shape, *own.shape[axis + 2 :]
        whole = torch.empty(shape, dtype=own.dtype)
        self.collect(own, partial(setitem, whole))
        return whole

    def collect(self, own: Tensor, take: Callable[[tuple[int | slice, ...], Tensor], None]) -> None:
        """Call `take` on rank 0 with the place in the whole array and the values (y, x, …) of each piece, on the CPU.

        own: this engine's own pixels, (state, slice, y, x, …) or (y, x). Call it on all ranks; others send their
        pixels. An error of `take` ends it on all ranks, and is raised on rank 0.
        """
        rank, exchange, error = self._group.rank, self._group.exchange, None
        further = own.shape[_first_axis(own) + 2 :]
        for owner, plane, area in self._pieces(own):
            values = own.new_empty((*area.shape, *further) if rank in (0, owner) else 0)
            if rank == owner:
                here: tuple[int | slice, ...] = (*plane, *area.inside(self.owned))
                values.copy_(own[here])
            piece = torch.view_as_real(values) if own.is_complex() else values
            if rank == owner != 0:
                exchange({0: piece}, {})
            elif rank == 0:
                exchange({}, {owner: piece} if owner else {})
                try:
                    take((*plane, slice(area.top, area.bottom), slice(area.left, area.right)), values.cpu())
                except Exception as raised:  # noqa: BLE001 - it is raised below, once the other ranks know
                    error = raised
            # All of them go on together, so that none waits longer than one piece takes.
            if int(self._group.sum(torch.tensor([int(error is not None)]))):
                break
        if error is not None:
            raise error

    def _pieces(self, own: Tensor) -> Iterator[tuple[int, tuple[int, ...], Rectangle]]:
        """Yield owner, indices before (y, x), and area of each piece of the whole, of about `PIECE_BYTES` at most."""
        axis = _first_axis(own)
        of_pixel = own.itemsize * math.prod(own.shape[axis + 2 :])
        for plane, (owner, area) in product(np.ndindex(own.shape[:axis]), enumerate(self.layout.owned)):
            step = max(1, PIECE_BYTES // max(1, area.shape[1] * of_pixel))
            for top in range(area.top, area.bottom, step) if not area.empty else ():
                yield owner, plane, Rectangle(top, min(top + step, area.bottom), area.left, area.right)

    def _start_exchange(
        self, arrays: tuple[Tensor, ...], sent: Mapping[int, list[Rectangle]], received: Mapping[int, list[Rectangle]]
    ) -> Callable[[], dict[int, list[tuple[Rectangle, list[Tensor]]]]]:
        """Start to send what is in these areas, by rank; the returned function waits, and returns what has come."""
        messages, coming = dict[int, Tensor](), dict[int, Tensor]()
        pieces = dict[int, list[tuple[Rectangle, list[Tensor]]]]()
        for rank, areas in sent.items():
            if found := [area for area in areas if not area.empty]:
                messages[rank], parts = self._message(arrays, found)
                for area, values in parts:
                    for array, one in zip(arrays, values, strict=True):
                        one.copy_(array[_at(area.inside(self.held))])
                self.sent_bytes += messages[rank].nbytes
        for rank, areas in received.items():
            if found := [area for area in areas if not area.empty]:
                coming[rank], pieces[rank] = self._message(arrays, found)
        wait = self._group.start_exchange(messages, coming)

        def received_pieces() -> dict[int, list[tuple[Rectangle, list[Tensor]]]]:
            wait()
            return pieces

        return received_pieces

    def _message(
        self, arrays: tuple[Tensor, ...], areas: list[Rectangle]
    ) -> tuple[Tensor, list[tuple[Rectangle, list[Tensor]]]]:
        """Return a flat message for what is in these areas, and views of it for each area and array."""
        shapes = [array[_at(area.inside(self.held))].shape for area in areas for array in arrays]
        message = arrays[0].new_empty(sum(shape.numel() for shape in shapes))
        parts = message.split([shape.numel() for shape in shapes])
        views = iter([part.view(shape) for part, shape in zip(parts, shapes, strict=True)])
        return message, [(area, [next(views) for _ in arrays]) for area in areas]


def _first_axis(array: Tensor) -> int:
    """Return the axis of y of an array (state, slice, y, x, …) or (y, x)."""
    return 0 if array.ndim < 4 else 2


def _at(place: tuple[slice, slice]) -> tuple[slice, ...]:
    """Return the index of these rows and columns of an array (state, slice, y, x, …)."""
    return slice(None), slice(None), *place
