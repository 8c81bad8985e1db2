"""Tiles of an object: equal numbers of patterns, and each engine holds all that its windows and neighbours need."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from ptynb.optimize.object_tiles import Rectangle, TileLayout, tile_layout

SHAPE, WINDOW, MARGIN = (700, 500), (64, 48), 5


def scan_of(kind: str, count: int = 1500) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Corners of windows: random, a raster with a gap, all in one corner, or along a line."""
    random = np.random.default_rng(1)
    room = np.array(SHAPE) - np.array(WINDOW) - 2 * MARGIN
    places = {
        "random": random.uniform(0, 1, (count, 2)),
        "gap": random.uniform(0, 0.3, (count, 2)) + 0.7 * random.integers(0, 2, (count, 2)),
        "corner": random.beta(1, 12, (count, 2)),
        "line": np.linspace(0, 1, count)[:, None] * np.array([[0.0, 1.0]]),
    }[kind]
    return MARGIN + places * room


def layout_of(kind: str, world: int, reach: int = 1) -> TileLayout:
    return tile_layout(scan_of(kind), WINDOW, SHAPE, world, margin=MARGIN, reach=reach)


def pixels(areas: tuple[Rectangle, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """How many of these areas have each pixel."""
    found = np.zeros(SHAPE, np.int64)
    for area in areas:
        found[area.top : area.bottom, area.left : area.right] += 1
    return found


@pytest.mark.parametrize("world", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("kind", ["random", "gap", "corner", "line"])
def test_engines_have_equal_numbers_of_patterns_and_own_every_pixel_once(kind: str, world: int) -> None:
    layout = layout_of(kind, world)
    counts = np.bincount(layout.owner, minlength=world)
    assert counts.max() - counts.min() <= 1 + np.log2(world)
    assert (pixels(layout.owned) == 1).all()


@pytest.mark.parametrize("reach", [1, 41])
@pytest.mark.parametrize("kind", ["random", "gap", "corner", "line"])
def test_an_engine_holds_the_windows_of_its_patterns_wherever_they_may_move(kind: str, reach: int) -> None:
    corners, layout = scan_of(kind), layout_of(kind, 6, reach)
    for rank, (held, owned) in enumerate(zip(layout.held, layout.owned, strict=True)):
        own = corners[layout.owner == rank]
        for moved in (-MARGIN, MARGIN):
            first = np.rint(own + moved)
            assert (first.min(0) >= (held.top, held.left)).all()
            assert (first.max(0) + WINDOW <= (held.bottom, held.right)).all()
        if not owned.empty:
            near = Rectangle(owned.top - reach, owned.bottom + reach, owned.left - reach, owned.right + reach)
            inside = near.common(Rectangle(0, SHAPE[0], 0, SHAPE[1]))
            assert held.around(inside) == held


def test_1000_patterns_on_8_engines_differ_by_two_percent_at_most_and_memory_falls() -> None:
    layout = tile_layout(scan_of("random", 1000), WINDOW, SHAPE, 8, margin=MARGIN)
    counts = np.bincount(layout.owner)
    assert counts.max() / counts.mean() <= 1.02
    assert np.prod(layout.largest) < 0.4 * np.prod(SHAPE)


def test_windows_of_one_place_leave_engines_without_pixels_or_patterns_out() -> None:
    layout = tile_layout(np.full((3, 2), 100.0), WINDOW, SHAPE, 5, margin=MARGIN)
    assert sorted(np.bincount(layout.owner, minlength=5)) == [0, 0, 1, 1, 1]
    assert (pixels(layout.owned) == 1).all()
    for one, other in combinations(layout.owned, 2):
        assert one.common(other).empty


@pytest.mark.parametrize("world", [2, 3, 8])
@pytest.mark.parametrize("kind", ["random", "gap", "corner", "line"])
def test_tiles_of_cropped_patterns_have_the_same_patterns(kind: str, world: int) -> None:
    """Pixels are twice as large, along y more: other sides are longer, and edges are rounded otherwise."""
    whole, corners = layout_of(kind, world), scan_of(kind) / (2.3, 2.0)
    window, shape = (30, 30), (330, 300)
    cropped = tile_layout(corners, window, shape, world, margin=MARGIN, like=whole)
    assert np.array_equal(cropped.owner, whole.owner)
    for rank, held in enumerate(cropped.held):
        own = np.rint(corners[whole.owner == rank])
        if len(own):
            assert (own.min(0) >= (held.top, held.left)).all()
            assert (own.max(0) + window <= (held.bottom, held.right)).all()
    counted = np.zeros(shape, np.int64)
    for area in cropped.owned:
        counted[area.top : area.bottom, area.left : area.right] += 1
    assert (counted == 1).all()
