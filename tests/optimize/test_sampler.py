"""Batches are the same for any number of engines, and every engine owns what it needs of them.

A test goes through all sizes: an order costs microseconds.
"""

from itertools import pairwise, product

import numpy as np
import pytest

from ptynb.optimize.sampler import BatchSampler

SIZES = [
    (1, 1),
    (1, 16),
    (5, 16),
    (13, 1),
    (13, 4),
    (13, 5),
    (13, 13),
    (16, 16),
    (24, 16),
    (100, 7),
    (101, 100),
    (400, 16),
    (400, 256),
]
"""Patterns, and patterns a batch."""
WORLDS = [1, 2, 3, 4, 8]
EPOCHS = 4

KINDS = ["spread", "cells", "random", "compact", "interleaved"]
kinds = pytest.mark.parametrize("kind", KINDS)


def make(count, batch, kind="spread", seed=3):
    places = np.random.default_rng(count).uniform(0, 100, (count, 2))
    return BatchSampler(count, batch, seed, kind, places, bands=3)


def orders(kind):
    """Every size for every number of engines, and words that name the case."""
    for (count, batch), world in product(SIZES, WORLDS):
        yield make(count, batch, kind), world, f"{count} patterns in batches of {batch} on {world} engines"


def batches(order, number, world=1):
    """For each update the parts of all ranks."""
    table = order.epoch(number)
    return [[order.part(table, update, rank, world) for rank in range(world)] for update in range(order.updates)]


@pytest.mark.parametrize("kind", [*KINDS, "bands"])
def test_ranks_share_the_batches_of_one_engine_and_every_pattern_comes_once_an_epoch(kind):
    for order, world, case in orders(kind):
        owned = [order.owned(rank, world) for rank in range(world)]
        np.testing.assert_array_equal(np.sort(np.concatenate(owned)), np.arange(order.count), case)
        assert all((np.diff(part) > 0).all() for part in owned), case
        for number in range(EPOCHS):
            alone, together = batches(order, number), batches(order, number, world)
            np.testing.assert_array_equal(
                np.sort(np.concatenate([batch for (batch,) in alone])), np.arange(order.count), case
            )
            for (batch,), parts in zip(alone, together, strict=True):
                np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.sort(batch), case)
                assert all(np.isin(part, own).all() for part, own in zip(parts, owned, strict=True)), case


def test_spread_batches_leave_each_rank_one_part_of_the_file():
    for order, world, case in orders("spread"):
        owned = [part for part in (order.owned(rank, world) for rank in range(world)) if len(part)]
        assert all((np.diff(part) == 1).all() for part in owned), case
        assert all(before[-1] + 1 == after[0] for before, after in pairwise(owned)), case


@kinds
def test_batches_differ_by_at_most_one_pattern(kind):
    for (count, batch), number in product(SIZES, range(EPOCHS)):
        sizes = [len(parts[0]) for parts in batches(make(count, batch, kind), number)]
        case = f"{count} patterns in batches of {batch}, epoch {number}"
        assert max(sizes) - min(sizes) <= 1, case
        assert max(sizes) <= batch, case
        assert len(sizes) == -(-count // min(batch, count)), case


@pytest.mark.parametrize("kind", ["spread", "cells", "compact", "bands"])
def test_engines_hold_almost_as_much_of_a_batch_as_each_other(kind):
    # One for the lanes that don't divide by the engines, one for the lanes that leave this update out.
    for order, world, case in orders(kind):
        for number in range(EPOCHS):
            for parts in batches(order, number, world):
                sizes = [len(part) for part in parts]
                assert max(sizes) - min(sizes) <= 2, case


def test_a_compact_batch_covers_a_small_part_of_the_scan():
    y, x = np.mgrid[:20, :20]
    order = BatchSampler(400, 16, 0, "compact", np.stack([y.ravel(), x.ravel()], 1) * 2.0)
    sides = [np.ptp(order.positions[parts[0]], axis=0) for parts in batches(order, 1)]
    assert np.max(sides) <= 10
    assert np.median(np.prod(sides, axis=1)) <= 48
    assert [parts[0].tolist() for parts in batches(order, 1)] != [parts[0].tolist() for parts in batches(order, 2)]


def test_batches_of_a_band_follow_each_other():
    met = list[list[int]]()
    for order, _, case in orders("bands"):
        assert len(order.in_bands) == max(1, min(3, order.count // order.strata)), case
        edges = [np.sort(order.positions[patterns, 0])[[0, -1]] for patterns, _ in order.in_bands]
        assert all(before[1] <= after[0] for before, after in pairwise(edges)), case
        for number in range(EPOCHS):
            of_batches = [np.unique(order.band_of_pattern[parts[0]]).tolist() for parts in batches(order, number)]
            assert all(len(bands) == 1 for bands in of_batches), case
            changes = [bands for bands, before in pairwise([*of_batches, [-1]]) if bands != before]
            assert sorted(changes) == [[band] for band in range(len(order.in_bands))], f"{case}: each band once"
            met.append([band for (band,) in changes])
    assert {(0, 1), (1, 0)} <= {*map(tuple, met)}, "in another order each epoch"


def test_a_batch_from_cells_has_one_pattern_of_each_part_of_the_area():
    y, x = np.mgrid[:20, :20]
    order = BatchSampler(400, 16, 0, "cells", np.stack([y.ravel(), x.ravel()], 1) * 2.0)
    for parts in batches(order, 1):
        cells = (order.positions[parts[0]] // 10).astype(int)  # 4 x 4 cells of 5 x 5 positions
        assert len({*map(tuple, cells.tolist())}) == 16


def test_a_random_batch_is_another_one_every_epoch():
    order = make(400, 16, "random")
    assert not {tuple(parts[0]) for parts in batches(order, 1)} & {tuple(parts[0]) for parts in batches(order, 2)}


@pytest.mark.parametrize("kind", ["spread", "interleaved"])
def test_an_order_depends_on_seed_and_epoch_as_in_former_versions(kind):
    """Runs of earlier versions are repeated with their batches: numpy's permutation of one stratum after another."""
    for (count, batch), number in product(SIZES, range(EPOCHS)):
        order, random = make(count, batch, kind), np.random.default_rng([3, number])
        strata = [
            np.arange(one, count, order.strata)
            if kind == "interleaved"
            else np.arange(one * count // order.strata, (one + 1) * count // order.strata)
            for one in range(order.strata)
        ]
        short = sum(len(patterns) < order.updates for patterns in strata)
        stride = max(1, order.updates // max(short, 1))
        gap = random.integers(order.updates)
        table = order.epoch(number)
        for row, patterns in zip(table, strata, strict=True):
            expected = [*patterns[random.permutation(len(patterns))]]
            if len(patterns) < order.updates:
                expected.insert(gap % order.updates, -1)
                gap += stride
            np.testing.assert_array_equal(row, expected, f"{count} patterns in batches of {batch}, epoch {number}")
