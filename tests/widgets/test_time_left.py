"""The time to the end of a run, from the rate of its last epochs."""

import dataclasses

import pytest

from ptynb.data.arrivals import Arrivals
from ptynb.data.engine_records import Epoch, Status
from ptynb.widgets.live.time_left import rough_duration, seconds_left


def status(epoch, target, update=0, stages=(), stage=0):
    return Status(
        rank=0, world=1, state="running", epoch=epoch, update=update, updates_per_epoch=10, target=target, device="cpu",
        backend="gloo", threads=1, rates={}, applied=0, stages=stages, stage=stage,
    )  # fmt: skip


def epochs(*rates):
    return tuple(Epoch(number, 0.1, 1.0, rate) for number, rate in enumerate(rates, 1))


def test_what_is_left_is_the_patterns_of_the_epochs_to_come_at_the_last_rate():
    # 7.5 epochs of 100 patterns at 50 a second
    assert seconds_left(status(2, 10, update=5), epochs(50.0, 50.0), 100, (64, 64)) == pytest.approx(15.0)


def test_the_rate_is_that_of_the_last_five_epochs_by_their_times():
    rates = (1.0, 100.0, 100.0, 100.0, 100.0, 25.0)
    # five epochs of 100 patterns took 4 * 1 s + 4 s
    assert seconds_left(status(6, 7), epochs(*rates), 100, (64, 64)) == pytest.approx(8.0 / 5)


def test_before_the_first_epoch_is_over_it_is_the_engines_rate_or_unknown():
    assert seconds_left(status(0, 4), (), 100, (64, 64)) is None
    assert seconds_left(status(0, 4), (), 100, (64, 64), measured=200.0) == pytest.approx(2.0)


@pytest.mark.parametrize(("epoch", "target"), [(5, 5), (0, 0), (5, 0)])
def test_without_a_run_there_is_nothing_left(epoch, target):
    assert seconds_left(status(epoch, target), epochs(*[50.0] * epoch), 100, (64, 64)) is None


STAGES = ({"epochs": 4, "pattern_size": [32, 32]}, {"epochs": 2, "settings": {"batch": 9}}, {"epochs": 4})


def test_patterns_of_stages_to_come_count_with_their_pixels():
    # 2 epochs of a quarter of the pixels, and 6 of whole patterns
    assert seconds_left(status(2, 10, stages=STAGES), epochs(50.0, 50.0), 100, (64, 64)) == pytest.approx(4.0 + 6 * 8.0)


def test_the_rate_of_the_stage_before_is_converted_until_there_is_one_of_the_present():
    before = epochs(*[50.0] * 4)
    assert seconds_left(status(4, 10, stages=STAGES, stage=1), before, 100, (64, 64)) == pytest.approx(6 * 8.0)
    now = epochs(*[50.0] * 4, 20.0)
    assert seconds_left(status(5, 10, stages=STAGES, stage=1), now, 100, (64, 64)) == pytest.approx(5 * 5.0)


def test_epochs_beyond_the_stages_are_as_the_last_stage():
    done = epochs(*[50.0] * 6, *[20.0] * 4)
    assert seconds_left(status(10, 12, stages=STAGES, stage=2), done, 100, (64, 64)) == pytest.approx(2 * 5.0)


def test_the_epochs_of_a_scan_that_is_being_measured_begin_after_its_end():
    coming = Arrivals(
        planned=100, arrived=40, placed=40, missing=10, late=0, duplicates=0, differing=0, outside=0, refused=0,
        damaged=0, stray=0, rate=5.0, lag=0.0, silence=0.0, series="", ended=None, admitted=40,
    )  # fmt: skip
    for arrivals, left in (
        (coming, 10.0 + 15.0),  # 50 patterns, and 7.5 epochs
        (dataclasses.replace(coming, rate=0.0), None),
        (dataclasses.replace(coming, ended="end of series"), pytest.approx(15.0)),
    ):
        now = dataclasses.replace(status(2, 10, update=5), arrivals=arrivals)
        assert seconds_left(now, epochs(50.0, 50.0), 100, (64, 64)) == left


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"), (40.4, "40 s"), (99.4, "99 s"), (99.6, "2 min"), (200, "3 min"), (99 * 60, "99 min"),
        (7800, "2 h 10 min"), (7200, "2 h"), (100 * 3600, "4 d 4 h"), (96 * 3600, "4 d"),
    ],
)  # fmt: skip
def test_a_time_is_told_in_one_or_two_units(seconds, text):
    assert rough_duration(seconds) == text
