"""Calls of an engine through its own socket, and through the controller where there is none."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from ipyparallel.error import EngineError, RemoteError

import ptynb as pt
from ptynb.cluster import direct_calls
from ptynb.cluster.direct_calls import DirectCalls
from ptynb.data.scan import Scan
from ptynb.polling import wait_until
from tests.raising import raises


def answer(what: str, value: Any = None) -> Any:
    """Do what the test asks for, in the other process."""
    if what == "wait":
        time.sleep(value)
    elif what == "raise":
        raise KeyError(value)
    elif what == "threads":
        return threading.active_count()
    return (lambda: None) if what == "unpicklable" else value


def count(last: int | None, publish: Callable[[int], None]) -> None:
    """Send the numbers up to `last`; None: as long as this can be done, in a thread."""
    if last is not None:
        for number in range(last):
            publish(number)
        return

    def go_on() -> None:
        for number in range(200):
            publish(number)
            time.sleep(0.02)

    threading.Thread(target=go_on).start()


def serve(path: Path) -> None:
    """Serve until the process is ended."""
    direct_calls.serve(path, answer, count)
    threading.Event().wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[psutil.Process, DirectCalls]]:
    line = f"from tests.cluster import test_direct_calls as here; here.serve(here.Path({str(tmp_path / 's')!r}))"
    process = subprocess.Popen([sys.executable, "-c", line])
    assert wait_until((tmp_path / "s").exists, 30)
    calls = DirectCalls(tmp_path / "s")
    yield psutil.Process(process.pid), calls
    calls.close()
    process.kill()
    process.wait()


def called(calls: DirectCalls, *arguments: Any) -> Any:
    begun = calls.begin(arguments)
    try:
        return begun.get(30)
    finally:
        begun.release()


def test_calls_return_answers_and_errors_also_at_the_same_time(server: tuple[psutil.Process, DirectCalls]) -> None:
    _, calls = server
    large = np.arange(10**6)
    assert (called(calls, "return", large) == large).all()
    with pytest.raises(RemoteError, match=r"KeyError.*this one"):
        called(calls, "raise", "this one")
    with pytest.raises(RemoteError, match="pickle"):
        called(calls, "unpicklable")
    with ThreadPoolExecutor(8) as pool:
        began = time.monotonic()
        waits = [pool.submit(called, calls, "wait", 0.5) for _ in range(8)]
        assert all(wait.result() == 0.5 for wait in waits)
        assert time.monotonic() - began < 3.5, "they did not wait for each other"
    assert wait_until(lambda: called(calls, "threads") <= 2 + direct_calls.MOST_IDLE, 30)  # the others were closed


def test_an_answer_that_comes_late_is_not_that_of_the_next_call(server: tuple[psutil.Process, DirectCalls]) -> None:
    _, calls = server
    begun = calls.begin(("wait", 0.3))
    with pytest.raises(TimeoutError):
        begun.get(0.01)
    begun.release()
    assert called(calls, "return", 1) == 1


def test_a_suspended_process_does_not_hold_up_the_call_after_many_others(
    server: tuple[psutil.Process, DirectCalls],
) -> None:
    """Its queue of connections is full; a kernel calls it through the controller then, which has a time limit."""
    process, calls = server
    process.suspend()
    begun = [calls.begin(("return",)) for _ in range(direct_calls.WAITING_CONNECTIONS)]
    with pytest.raises((BlockingIOError, TimeoutError)):
        begun += (calls.begin(("return",)) for _ in range(10))
    process.resume()
    assert all(one.get(30) is None for one in begun)
    for one in begun:
        one.release()
    assert called(calls, "return", 1) == 1


def test_the_end_of_the_process_ends_its_calls(server: tuple[psutil.Process, DirectCalls], tmp_path: Path) -> None:
    process, calls = server
    begun = calls.begin(("wait", 60.0))
    process.kill()
    with pytest.raises(EngineError):
        begun.get(10)
    begun.release()
    with pytest.raises((ConnectionRefusedError, EngineError)):  # the first, once its socket has ended too
        called(calls, "return")
    assert wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE, 30)
    with pytest.raises(ConnectionRefusedError):
        DirectCalls(tmp_path / "s")


def test_messages_arrive_in_order_and_a_reader_that_is_suspended_loses_the_last(
    server: tuple[psutil.Process, DirectCalls],
) -> None:
    _, calls = server
    for last, received in {50: 50, 10 * direct_calls.MOST_UNSENT: direct_calls.MOST_UNSENT}.items():
        numbers = list[int]()
        begun = calls.begin((last,), follows=True)
        assert begun.get(30) is None
        ended = threading.Event()
        end = direct_calls.receive_in_thread(begun.connection, numbers.append, ended.set)
        # It ends with the function's last argument, which nothing references any more.
        assert wait_until(partial(getattr, begun.connection, "closed"), 30)
        assert ended.wait(30)
        assert numbers == [*range(received)]
        end()


def test_messages_end_when_the_kernel_does_not_want_them(server: tuple[psutil.Process, DirectCalls]) -> None:
    _, calls = server
    numbers = list[int]()
    before = called(calls, "threads")
    begun = calls.begin((None,), follows=True)
    assert begun.get(30) is None
    ended = threading.Event()
    end = direct_calls.receive_in_thread(begun.connection, numbers.append, ended.set)
    assert wait_until(lambda: len(numbers) > 3, 30)
    end()
    end()
    assert wait_until(lambda: begun.connection.closed, 30)
    assert not ended.wait(0.1)  # it is called where the engine ends it
    assert wait_until(lambda: called(calls, "threads") <= before, 30)


@pytest.fixture(params=[True, False], ids=["direct", "through the controller"])
def engine(request: pytest.FixtureRequest) -> Iterator[pt.Cluster]:
    with pt.Cluster(1, device="cpu") as cluster:
        if not request.param:
            assert cluster.folder is not None
            direct_calls.socket_of(cluster.folder, 0).unlink()
        yield cluster


def test_a_reconstruction_is_the_same_with_and_without(engine: pt.Cluster, scan: Scan) -> None:
    direct = direct_calls.socket_of(engine.folder or Path(), 0).exists()
    with pt.Reconstruction(scan, pt.Settings(), engine) as recon:
        assert [epoch.number for epoch in recon.run(3)] == [1, 2, 3]
        assert (engine.caller._direct[0] is not None) == direct
        with raises("argument.invalid-value", "rank 0", "slice 5"):
            recon.pictures(pt.RenderRequest(slice=5))
        recon.start(10_000)
        assert wait_until(lambda: recon.epoch > 5, 30)
        process = psutil.Process(engine.status()[0]["pid"])
        process.send_signal(signal.SIGSTOP)
        time.sleep(1)
        process.send_signal(signal.SIGCONT)
        known = recon.epoch
        assert wait_until(lambda: recon.epoch > known, 30)
        process.kill()
        began = time.monotonic()
        with raises("engine.lost", "rank 0"):
            recon.wait(30)
        assert time.monotonic() - began < 5
