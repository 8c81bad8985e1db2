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

kinds = pytest.mark.parametrize("kind", ["spread", "random", "compact", "interleaved"])


def make(count, batch, kind="spread", seed=3):
    places = np.random.default_rng(count).uniform(0, 100, (count, 2))
    return BatchSampler(count, batch, seed, kind, places)


def orders(kind):
    """Every size for every number of engines, and words that name the case."""
    for (count, batch), world in product(SIZES, WORLDS):
        yield make(count, batch, kind), world, f"{count} patterns in batches of {batch} on {world} engines"


def batches(order, number, world=1):
    """For each update the parts of all ranks."""
    table = order.epoch(number)
    return [[order.part(table, update, rank, world) for rank in range(world)] for update in range(order.updates)]


@kinds
def test_every_pattern_comes_once_an_epoch(kind):
    for order, world, case in orders(kind):
        for number in range(EPOCHS):
            met = np.concatenate([part for parts in batches(order, number, world) for part in parts])
            np.testing.assert_array_equal(np.sort(met), np.arange(order.count), case)


@kinds
def test_the_batches_are_those_of_one_engine(kind):
    for order, world, case in orders(kind):
        for number in range(EPOCHS):
            for alone, parts in zip(batches(order, number), batches(order, number, world), strict=True):
                np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.sort(alone[0]), case)


@kinds
def test_what_ranks_own_is_disjoint_and_covers_all(kind):
    for order, world, case in orders(kind):
        owned = [order.owned(rank, world) for rank in range(world)]
        np.testing.assert_array_equal(np.sort(np.concatenate(owned)), np.arange(order.count), case)
        assert all((np.diff(part) > 0).all() for part in owned), case


def test_spread_batches_leave_each_rank_one_part_of_the_file():
    for order, world, case in orders("spread"):
        owned = [part for part in (order.owned(rank, world) for rank in range(world)) if len(part)]
        assert all((np.diff(part) == 1).all() for part in owned), case
        assert all(before[-1] + 1 == after[0] for before, after in pairwise(owned)), case


@kinds
def test_a_part_is_what_its_rank_owns(kind):
    for order, world, case in orders(kind):
        owned = [order.owned(rank, world) for rank in range(world)]
        for number in range(EPOCHS):
            for parts in batches(order, number, world):
                assert all(np.isin(part, own).all() for part, own in zip(parts, owned, strict=True)), case


@kinds
def test_batches_differ_by_at_most_one_pattern(kind):
    for (count, batch), number in product(SIZES, range(EPOCHS)):
        sizes = [len(parts[0]) for parts in batches(make(count, batch, kind), number)]
        case = f"{count} patterns in batches of {batch}, epoch {number}"
        assert max(sizes) - min(sizes) <= 1, case
        assert max(sizes) <= batch, case
        assert len(sizes) == -(-count // min(batch, count)), case


@pytest.mark.parametrize("kind", ["spread", "compact"])
def test_engines_hold_almost_as_much_of_a_batch_as_each_other(kind):
    # One for the lanes that don't divide by the engines, one for the lanes that leave this update out.
    for order, world, case in orders(kind):
        for number in range(EPOCHS):
            for parts in batches(order, number, world):
                sizes = [len(part) for part in parts]
                assert max(sizes) - min(sizes) <= 2, case


@pytest.mark.parametrize("world", [2, 3])
def test_thirteen_patterns_over_engines(world):
    order = BatchSampler(13, 4, seed=0)
    owned = [order.owned(rank, world) for rank in range(world)]
    assert [(part[0], part[-1] + 1) for part in owned] == {
        2: [(0, 6), (6, 13)],
        3: [(0, 3), (3, 6), (6, 13)],
    }[world]
    sizes = sorted(sum(len(part) for part in parts) for parts in batches(order, 1, world))
    assert sizes == [3, 3, 3, 4]


def test_a_compact_batch_covers_a_small_part_of_the_scan():
    y, x = np.mgrid[:20, :20]
    order = BatchSampler(400, 16, 0, "compact", np.stack([y.ravel(), x.ravel()], 1) * 2.0)
    sides = [np.ptp(order.positions[parts[0]], axis=0) for parts in batches(order, 1)]
    assert np.max(sides) <= 10
    assert np.median(np.prod(sides, axis=1)) <= 48
    assert [parts[0].tolist() for parts in batches(order, 1)] != [parts[0].tolist() for parts in batches(order, 2)]


def test_a_random_batch_is_another_one_every_epoch():
    order = make(400, 16, "random")
    assert not {tuple(parts[0]) for parts in batches(order, 1)} & {tuple(parts[0]) for parts in batches(order, 2)}


def test_a_batch_is_spread_over_the_scan():
    order = BatchSampler(400, 16, seed=0)
    for parts in batches(order, 0):
        np.testing.assert_array_equal(np.sort(parts[0]) // 25, np.arange(16))


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


def test_epochs_and_seeds_differ():
    tables = [BatchSampler(100, 7, seed).epoch(number) for seed in range(3) for number in range(4)]
    assert len({table.tobytes() for table in tables}) == 12


def test_epochs_do_not_need_the_ones_before():
    order = BatchSampler(100, 7, seed=1)
    later = order.epoch(5)
    for number in range(5):
        order.epoch(number)
    np.testing.assert_array_equal(order.epoch(5), later)
