"""What tiles send each other: no more than windows cover, and sums that are equal to the last bit on all engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

from ptynb.distributed.group import Group
from ptynb.optimize.object_tiles import ObjectTile, TileLayout, tile_layout
from ptynb.physics.components.builtin import Affine, Positions

WINDOW = (24, 16)
SHAPE = (150, 130)


class Post:
    """A rank of a group whose messages are delivered once all ranks have sent theirs."""

    def __init__(self, rank: int, letters: dict[tuple[int, int], Tensor]) -> None:
        self.rank, self._letters = rank, letters

    def start_exchange(self, sent: Mapping[int, Tensor], received: Mapping[int, Tensor]) -> Callable[[], None]:
        self._letters.update({(self.rank, to): one for to, one in sent.items()})

        def wait() -> None:
            for origin, one in received.items():
                one.copy_(self._letters.pop((origin, self.rank)))

        return wait


def a_layout(world: int, margin: int = 0) -> TileLayout:
    """Windows at random places all over the object."""
    places = np.random.default_rng(0).uniform(0, 1, (90, 2)) * (np.array(SHAPE) - WINDOW)
    return tile_layout(places, WINDOW, SHAPE, world, margin=margin)


def tiles_of(layout: TileLayout) -> tuple[list[ObjectTile], dict[tuple[int, int], Tensor]]:
    letters = dict[tuple[int, int], Tensor]()
    return [ObjectTile(layout, cast(Group, Post(rank, letters))) for rank in range(len(layout.held))], letters


def in_windows(layout: TileLayout, members: np.ndarray, shift: int = 0) -> list[Tensor]:
    """Random numbers (state, slice, y, x, part) of each engine in the windows of its patterns; 0 elsewhere."""
    found = []
    for rank, held in enumerate(layout.held):
        values = torch.zeros((1, 2, *SHAPE, 2))
        for top, left in layout.origins[members[layout.owner[members] == rank]] + shift:
            rows, columns = slice(max(0, top), top + WINDOW[0]), slice(max(0, left), left + WINDOW[1])
            values[:, :, rows, columns] += torch.randn(values[:, :, rows, columns].shape)
        inside = held.inside(type(held)(0, SHAPE[0], 0, SHAPE[1]))
        found.append(values)
        assert torch.equal(values.count_nonzero(), values[:, :, inside[0], inside[1]].count_nonzero())
    return found


@pytest.mark.parametrize("world", [2, 3, 5, 9, 16])
@pytest.mark.parametrize("moved", [0, 4])
def test_sums_are_those_of_all_engines_in_the_order_of_ranks(world: int, moved: int) -> None:
    torch.manual_seed(world)
    layout = a_layout(world, margin=moved)
    tiles, letters = tiles_of(layout)
    members = np.random.default_rng(1).choice(90, 20, replace=False)
    movers = [Positions(90, 4.0, torch.float32)] if moved else []
    wholes = in_windows(layout, members, moved)
    summed = torch.zeros_like(wholes[0])
    for one in wholes:
        summed += one
    parts = [
        one[:, :, tile.held.top : tile.held.bottom, tile.held.left : tile.held.right].clone()
        for one, tile in zip(wholes, tiles, strict=True)
    ]
    for tile in tiles:
        tile.begin(members, movers)
    waits = [tile.start_sum(part) for tile, part in zip(tiles, parts, strict=True)]
    for wait in waits:
        wait()
    assert not letters, "every message was received"
    for tile, part in zip(tiles, parts, strict=True):
        assert torch.equal(part, summed[:, :, tile.held.top : tile.held.bottom, tile.held.left : tile.held.right])


def test_everything_is_sent_where_windows_are_not_known() -> None:
    layout, members = a_layout(4), np.arange(90)
    affine = Affine(torch.rand(90, 2, dtype=torch.float64), torch.float32)
    for tile in tiles_of(layout)[0]:
        array = torch.zeros((1, 1, *tile.held.shape))
        whole = sum(area.shape[0] * area.shape[1] for area in tile.overlaps.values()) * array.element_size()

        def sent(tile: ObjectTile = tile, array: Tensor = array) -> int:
            before = tile.sent_bytes
            tile.start_sum(array)
            return tile.sent_bytes - before

        assert sent() == whole, "before the first update"
        tile.begin(members[:2], [])
        assert sent() < whole
        tile.begin(members[:2], [affine])
        assert sent() == whole, "which moves windows as far as it likes"
        tile.begin(None, [])
        assert sent() == whole


def test_what_is_covered_contains_each_window_once() -> None:
    layout = a_layout(3)
    for rank in range(3):
        for area in layout.overlaps(rank).values():
            covered, wanted = np.zeros(SHAPE, int), np.zeros(SHAPE, bool)
            patterns = np.arange(0, 90, 7)
            for found in layout.covered(area, patterns, 2):
                assert found.common(area) == found
                covered[found.top : found.bottom, found.left : found.right] += 1
            for top, left in layout.origins[patterns]:
                wanted[max(0, top - 2) : top + WINDOW[0] + 2, max(0, left - 2) : left + WINDOW[1] + 2] = True
            inside = np.zeros(SHAPE, bool)
            inside[area.top : area.bottom, area.left : area.right] = True
            assert covered.max() <= 1
            assert (covered[wanted & inside] == 1).all()
