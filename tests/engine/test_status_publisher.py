"""When the status of a worker is delivered to its session."""

from __future__ import annotations

import dataclasses
import queue
import time
from collections.abc import Iterator

import pytest

import ptynb as pt
from ptynb.data.commands import MeasureEvery, PauseRun, StartRun, StopRun
from ptynb.data.engine_records import Failure, Status
from ptynb.engine import status_publisher
from ptynb.engine.worker import Worker
from tests.cases import a_scan
from tests.engine.work import loaded
from tests.test_supervised_thread import ALONE


class Followed:
    """A worker and what it has delivered."""

    def __init__(self) -> None:
        self.worker = Worker(a_scan(), pt.Settings(batch=8), ALONE)
        loaded(self.worker)
        self.come = queue.SimpleQueue[tuple[Status, int]]()
        self.worker.follow(lambda status, known: self.come.put((status, known)))
        assert self.next()[0].state == "ready"
        time.sleep(5 * status_publisher.TOGETHER_SECONDS)
        while not self.come.empty():  # what changed while it was being followed
            self.next()

    def next(self, seconds: float = 10.0) -> tuple[Status, int]:
        return self.come.get(timeout=seconds)

    def until(self, state: str) -> list[tuple[Status, int]]:
        found = [self.next()]
        while found[-1][0].state != state:
            found.append(self.next())
        return found


@pytest.fixture
def followed() -> Iterator[Followed]:
    one = Followed()
    yield one
    one.worker.close()


def test_other_ranks_deliver_a_failure_and_nothing_else(followed: Followed) -> None:
    status, come = followed.worker.status(), list[Status]()
    publisher = status_publisher.StatusPublisher(lambda _: status, lambda one, _: come.append(one), 0, True)
    publisher.changed()
    publisher.now()
    assert come == []
    status = dataclasses.replace(status, failure=Failure(1, "ValueError: no such thing", ""))
    publisher.now()
    publisher.end()
    publisher.join(5)
    assert come == [status] * 2, "again at the end, so that one that is lost on the way is not missed"


def test_each_epoch_comes_once_and_in_its_order_and_the_end_is_the_last_status(followed: Followed) -> None:
    followed.worker.command(StartRun(30))
    told = followed.until("ready")
    assert [epoch.number for status, _ in told for epoch in status.epochs] == [*range(1, 31)]
    for status, known in told:
        assert [epoch.number for epoch in status.epochs] == [*range(known + 1, status.epoch + 1)]
    followed.worker.close()
    numbers = [status.number for status, _ in (*told, *followed.until("closed"))]
    assert numbers == sorted({*numbers})
    time.sleep(2 * status_publisher.PROGRESS_SECONDS)
    assert {followed.next(0.0)[0].state for _ in range(followed.come.qsize())} <= {"closed"}


def test_an_idle_worker_delivers_nothing_and_each_command_at_once(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(queue.Empty):
        followed.next(5 * status_publisher.PROGRESS_SECONDS)
    monkeypatch.setattr(status_publisher, "TOGETHER_SECONDS", 60.0)  # nothing waits for the others
    for number, order in enumerate((PauseRun(), StopRun(), MeasureEvery(0)), 1):
        assert followed.worker.command(order) == number
        while followed.next()[0].applied < number:
            pass


def test_progress_within_an_epoch_is_delivered(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    step = type(followed.worker._loop).step
    monkeypatch.setattr(type(followed.worker._loop), "step", lambda loop: (time.sleep(0.15), step(loop)))
    followed.worker.command(StartRun(1))
    assert len({status.update for status, _ in followed.until("ready")} - {0}) > 1


def test_another_session_that_follows_gets_everything_and_the_first_one_nothing_more(followed: Followed) -> None:
    followed.worker.command(StartRun(2))
    followed.until("ready")
    second = queue.SimpleQueue[tuple[Status, int]]()
    followed.worker.follow(lambda status, known: second.put((status, known)))
    assert [epoch.number for epoch in second.get(timeout=10)[0].epochs] == [1, 2]
    time.sleep(2 * status_publisher.TOGETHER_SECONDS)
    while not followed.come.empty():
        followed.next()
    followed.worker.command(StartRun(1))
    while second.get(timeout=10)[0].epoch < 3:
        pass
    assert followed.come.empty()
