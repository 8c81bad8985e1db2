"""Time limits that don't count the time in which a process is stopped."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
import torch

from ptynb.distributed import timeouts
from ptynb.distributed.timeouts import CollectiveTimeout, RunningTime
from ptynb.exceptions import ClusterError


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


class Kernel:
    """A collective by NCCL: the host does not wait for it, and the GPU does until the others come or it is aborted."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def is_completed(self) -> bool:
        return self.ended.is_set()

    def wait(self) -> None:
        """Only lets later work on the GPU wait."""


class Agreement(Collective):
    """A collective on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.completed = False

    def is_completed(self) -> bool:
        return self.completed

    def wait(self, seconds: float = 60.0) -> None:
        super().wait(seconds)


def test_a_collective_on_the_gpu_that_no_wait_of_the_host_notices_is_ended() -> None:
    kernel, aborts = Kernel(), list[float]()

    def abort() -> None:
        aborts.append(time.monotonic())
        kernel.ended.set()

    limit = CollectiveTimeout(0.4, abort)
    began = time.monotonic()
    with limit.waiting():
        limit.watch(kernel)
        kernel.wait()
    assert limit.on_gpu
    assert kernel.ended.wait(5), "what a number from the GPU waits for"
    assert 0.4 < aborts[0] - began < 1.5
    assert not limit.on_gpu
    with pytest.raises(ClusterError, match=r"did not answer within 0\.4 s") as told, limit.waiting():
        pass  # succeeds for the host, but what was summed up is not valid
    assert told.value.code == "group.no-answer"
    limit.close()


def test_collectives_on_the_gpu_that_end_are_left_alone_however_many_there_are() -> None:
    aborts = list[int]()
    limit = CollectiveTimeout(0.3, lambda: aborts.append(1))
    until = time.monotonic() + 1.2
    while time.monotonic() < until:  # the newest one is under way at each check
        kernel = Kernel()
        with limit.waiting():
            limit.watch(kernel)
        time.sleep(0.05)
        kernel.ended.set()
    assert aborts == []
    assert not limit.expired
    time.sleep(0.2)
    assert limit._newest is None, "no tensor is held by a collective that has ended"
    limit.close()


def test_a_collective_on_the_gpu_is_ended_at_once_if_another_rank_has_left() -> None:
    """The host would only notice after it has waited for the GPU."""
    kernel, agreement = Kernel(), Agreement()
    limit = CollectiveTimeout(0.8, kernel.ended.set)
    limit.agree(agreement)
    limit.watch(kernel)
    agreement.abort()
    agreement.completed = True
    assert kernel.ended.wait(0.75)
    assert not limit.expired, "the error of the agreement says what happened"
    limit.close()


def test_a_gpu_that_is_lost_is_not_waited_for() -> None:
    class Lost(Kernel):
        def is_completed(self) -> bool:
            raise torch.AcceleratorError("CUDA error: unspecified launch failure")

    aborts = list[int]()
    limit = CollectiveTimeout(0.2, lambda: aborts.append(1))
    limit.watch(Lost())
    time.sleep(0.6)
    assert aborts == []
    limit.close()


def test_the_process_ends_where_an_abort_does_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where ncclCommAbort hangs, or the GPUs do not even connect."""
    monkeypatch.setattr(timeouts, "ABORT_SECONDS", 0.3)
    ended = threading.Event()
    messages = list[str]()

    def end(message: str) -> None:
        messages.append(message)
        ended.set()

    limit = CollectiveTimeout(0.2, lambda: None, end)
    limit.watch(Kernel())
    assert ended.wait(5)
    assert "within 0.2 s" in messages[0]
    limit.close()


def test_a_process_that_is_ended_leaves_a_message_in_its_log() -> None:
    program = (
        "import sys; sys.stderr = None; from ptynb.distributed.process_end import end_process; end_process('Why.')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "Why.\n")
