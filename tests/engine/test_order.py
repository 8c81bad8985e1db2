from itertools import pairwise

import numpy as np
import pytest

from ptynb.engine.order import Order

CASES = [
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
WORLDS = [1, 2, 3, 4, 8]
EPOCHS = 4

cases = pytest.mark.parametrize(("count", "batch"), CASES)
worlds = pytest.mark.parametrize("world", WORLDS)


def batches(order, number, world=1):
    """For each update the parts of all ranks."""
    table = order.epoch(number)
    return [[order.part(table, update, rank, world) for rank in range(world)] for update in range(order.updates)]


@worlds
@cases
def test_every_pattern_comes_once_an_epoch(count, batch, world):
    order = Order(count, batch, seed=3)
    for number in range(EPOCHS):
        met = np.concatenate([part for parts in batches(order, number, world) for part in parts])
        np.testing.assert_array_equal(np.sort(met), np.arange(count))


@worlds
@cases
def test_the_batches_are_those_of_one_engine(count, batch, world):
    order = Order(count, batch, seed=3)
    for number in range(EPOCHS):
        for alone, parts in zip(batches(order, number), batches(order, number, world), strict=True):
            np.testing.assert_array_equal(np.concatenate(parts), alone[0])


@worlds
@cases
def test_owned_ranges_follow_each_other_and_cover_all(count, batch, world):
    order = Order(count, batch, seed=3)
    ranges = [order.owned(rank, world) for rank in range(world)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == count
    assert all(start <= stop for start, stop in ranges)
    assert all(before[1] == after[0] for before, after in pairwise(ranges))


@worlds
@cases
def test_a_part_is_what_its_rank_owns(count, batch, world):
    order = Order(count, batch, seed=3)
    for number in range(EPOCHS):
        for parts in batches(order, number, world):
            for rank, part in enumerate(parts):
                start, stop = order.owned(rank, world)
                assert ((start <= part) & (part < stop)).all()


@cases
def test_batches_differ_by_at_most_one_pattern(count, batch):
    for number in range(EPOCHS):
        sizes = [len(parts[0]) for parts in batches(Order(count, batch, seed=3), number)]
        assert max(sizes) - min(sizes) <= 1
        assert max(sizes) <= batch
        assert len(sizes) == -(-count // min(batch, count))


@worlds
@cases
def test_engines_hold_almost_as_much_of_a_batch_as_each_other(count, batch, world):
    # One for the lanes that don't divide by the engines, one for the lanes that leave this update out.
    for number in range(EPOCHS):
        for parts in batches(Order(count, batch, seed=3), number, world):
            sizes = [len(part) for part in parts]
            assert max(sizes) - min(sizes) <= 2


@pytest.mark.parametrize("world", [2, 3])
def test_thirteen_patterns_over_engines(world):
    order = Order(13, 4, seed=0)
    assert [order.owned(rank, world) for rank in range(world)] == {
        2: [(0, 6), (6, 13)],
        3: [(0, 3), (3, 6), (6, 13)],
    }[world]
    sizes = sorted(sum(len(part) for part in parts) for parts in batches(order, 1, world))
    assert sizes == [3, 3, 3, 4]


def test_a_batch_is_spread_over_the_scan():
    order = Order(400, 16, seed=0)
    for parts in batches(order, 0):
        np.testing.assert_array_equal(np.sort(parts[0]) // 25, np.arange(16))


@cases
def test_a_seed_gives_one_order(count, batch):
    for number in range(EPOCHS):
        one, other = (Order(count, batch, seed=3).epoch(number) for _ in range(2))
        np.testing.assert_array_equal(one, other)


def test_epochs_and_seeds_differ():
    tables = [Order(100, 7, seed).epoch(number) for seed in range(3) for number in range(4)]
    assert len({table.tobytes() for table in tables}) == 12


def test_epochs_do_not_need_the_ones_before():
    order = Order(100, 7, seed=1)
    later = order.epoch(5)
    for number in range(5):
        order.epoch(number)
    np.testing.assert_array_equal(order.epoch(5), later)
