"""The order of patterns that come while they are used: each at once, then in turn, and once all are there in epochs."""

from collections import Counter

import numpy as np
import pytest

from ptynb.optimize.live_sampler import LiveSampler
from ptynb.optimize.sampler import BatchSampler

SIZES = [(1, 1), (13, 4), (37, 8), (100, 7), (101, 100)]


def begun(count, batch, first, seed=3):
    order = LiveSampler(BatchSampler(count, batch, seed, "interleaved"))
    order.admit(np.asarray(first))
    return order


def next_batch(order, table, update):
    order.fill(table, update)
    batch = table[:, update]
    return batch[batch >= 0]


@pytest.mark.parametrize(("count", "batch"), SIZES)
@pytest.mark.parametrize("seed", range(3))
def test_a_pattern_is_in_the_first_batches_after_it_came_and_then_in_turn(count, batch, seed):
    random = np.random.default_rng(seed)
    numbers = random.permutation(count)
    first = int(random.integers(1, count + 1))
    order, coming = begun(count, batch, np.sort(numbers[:first]), seed), numbers[first:]
    uses: Counter[int] = Counter()
    new = set(order.members.tolist())
    epoch = 0
    while len(coming) or new or epoch < 10:
        epoch += 1
        table = order.begin_epoch(epoch)
        assert table.shape[1] == -(-order.count // min(batch, count))
        for update in range(order.updates):
            known = order.members.copy()
            taken = next_batch(order, table, update)
            assert len(set(taken.tolist())) == len(taken) == min(batch, order.count)
            assert set(taken.tolist()) <= set(known.tolist())
            # Those that are new come first, as many as there is room for.
            assert len(new & set(taken.tolist())) == min(len(new), len(taken))
            new -= set(taken.tolist())
            uses.update(taken.tolist())
            if len(coming) and random.random() < 0.3:
                here, coming = np.sort(coming[:3]), coming[3:]
                order.admit(here)
                new |= set(here.tolist())
    assert set(uses) == set(range(count))
    rounds = [order._next() for _ in range(10 * -(-count // min(batch, count)))]
    turns = Counter(np.concatenate(rounds).tolist())
    assert max(turns.values()) - min(turns.get(number, 0) for number in range(count)) <= 2


def test_all_patterns_at_once_are_the_interleaved_order():
    for count, batch in SIZES:
        order, ordinary = begun(count, batch, np.arange(count)), BatchSampler(count, batch, 3, "interleaved")
        order.ended = True
        for number in range(1, 4):
            np.testing.assert_array_equal(order.begin_epoch(number), ordinary.epoch(number))
        for world in (1, 2, 3):
            np.testing.assert_array_equal(order.owner(world), ordinary.owner(world))
        assert not order.open
        assert order.state() == {}


def test_after_the_end_every_pattern_that_came_is_in_an_epoch_once():
    came = np.array([0, 1, 2, 5, 6, 7, 11, 12, 30, 36])
    order = begun(37, 4, came)
    table = order.begin_epoch(1)
    order.ended = True
    for update in range(order.updates):  # the epoch that has begun is completed as it began
        assert len(next_batch(order, table, update)) == 4
    table = order.begin_epoch(2)
    assert sorted(table[table >= 0].tolist()) == came.tolist()
    assert not order.open


def test_the_first_patterns_are_distributed_over_engines():
    order = begun(1000, 16, np.arange(64))
    for world in (2, 3, 4):
        held = np.bincount(order.owner(world)[:64], minlength=world)
        assert np.ptp(held) <= 5
        table = order.begin_epoch(1)
        for update in range(order.updates):
            order.fill(table, update)
            parts = [len(order.part(table, update, rank, world)) for rank in range(world)]
            assert sum(parts) == 16
            assert min(parts) > 0


def test_an_order_continues_from_its_state():
    order, patterns = begun(50, 8, np.arange(20)), np.arange(20, 29)
    table = order.begin_epoch(1)
    order.fill(table, 0)
    order.admit(patterns)
    order.fill(table, 1)
    state = order.state()
    again = begun(50, 8, np.arange(20))
    again.admit(patterns)
    resumed = again.resume_epoch(state)
    ahead = [batch for batch, _ in zip(order.upcoming(), range(5), strict=False)]
    for update in range(2, 3):
        order.fill(table, update)
        again.fill(resumed, update)
        np.testing.assert_array_equal(table[:, update], resumed[:, update])
        np.testing.assert_array_equal(table[:, update], ahead[0])
    assert again.used == order.used == 24
    for number in range(2, 6):
        one, other = order.begin_epoch(number), again.begin_epoch(number)
        for update in range(order.updates):
            order.fill(one, update)
            again.fill(other, update)
        np.testing.assert_array_equal(one, other)
