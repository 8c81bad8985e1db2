"""Time limits that don't count the time in which a process is stopped."""

from __future__ import annotations

import threading
import time

import pytest

from ptynb.distributed import timeouts
from ptynb.distributed.timeouts import CollectiveTimeout, RunningTime


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(timeouts, "time", made)
    return made


def test_a_pause_longer_than_between_two_looks_counts_as_one(clock: Clock) -> None:
    running = RunningTime(most_pause=2.0)
    for expected in (1.5, 3.0, 4.5):
        clock.now += 1.5
        assert running.seconds == expected
    clock.now += 3600
    assert running.seconds == 6.5
    running.restart()
    assert running.seconds == 0.0


class Collective:
    """A wait that an abort ends, as gloo does; the first aborts are lost."""

    def __init__(self, lost: int = 0) -> None:
        self._lost, self._ended = lost, threading.Event()

    def abort(self) -> None:
        self._lost -= 1
        if self._lost < 0:
            self._ended.set()

    def wait(self, seconds: float) -> None:
        if self._ended.wait(seconds):
            raise RuntimeError("Connection closed by peer")


def test_a_collective_that_takes_too_long_is_ended_though_an_abort_gets_lost() -> None:
    collective = Collective(lost=2)
    limit = CollectiveTimeout(0.4, collective.abort)
    began = time.monotonic()
    with (
        pytest.raises(RuntimeError, match=r"Another engine did not answer within 0\.4 s \(Connection closed by peer\)"),
        limit.waiting(),
    ):
        collective.wait(60)
    assert time.monotonic() - began >= 0.4
    limit.close()


def test_one_that_ends_in_time_and_one_that_fails_by_itself_are_left_alone() -> None:
    collective = Collective()
    limit = CollectiveTimeout(0.4, collective.abort)
    for _ in range(3):
        with limit.waiting():
            collective.wait(0.2)
    with pytest.raises(RuntimeError, match=r"^something else$"), limit.waiting():
        raise RuntimeError("something else")
    time.sleep(0.6)
    with limit.waiting():
        collective.wait(0.1)
    limit.close()
