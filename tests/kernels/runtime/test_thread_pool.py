import _thread
import multiprocessing
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch

from ptynb.kernels.runtime import thread_pool as shares
from ptynb.kernels.runtime.thread_count import is_torch_alone, torch_alone
from ptynb.kernels.runtime.thread_pool import in_shares, part
from tests.parametrization import each

STEPS = 1000


@in_shares
def noted(rows, share, shares):
    """Each share fills what it took, (share, thing)."""
    first, last = part(rows.shape[1], share, shares)
    rows[share, first:last] += shares


@in_shares
def added(numbers, times, share, shares):
    """Takes `times` additions of each number."""
    for index in range(*part(len(numbers), share, shares)):
        for _ in range(times):
            numbers[index] += 1


@in_shares
def followed(numbers, times, share, shares):
    """Takes each number through so many sines, one after the other."""
    for index in range(*part(len(numbers), share, shares)):
        for _ in range(times):
            numbers[index] = np.sin(numbers[index]) + 1


@in_shares
def starved(size, failing, share, shares):
    if share == failing:
        np.empty(size)


@pytest.fixture(autouse=True, params=[False, True], ids=["asleep", "awake"])
def three_threads(request):
    """Helpers fall asleep at once, or look for more work for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    with torch_alone(request.param):
        yield
    torch.set_num_threads(before)


@each("things", [0, 1, 2, 3, 10, 11])
@each("shares", [1, 2, 3, 7])
def test_parts_cover_everything_once_and_differ_by_one_at_most(things, shares):
    parts = [part(things, share, shares) for share in range(shares)]
    assert [thing for first, last in parts for thing in range(first, last)] == [*range(things)]
    sizes = [last - first for first, last in parts]
    assert max(sizes) - min(sizes) <= 1


@each("pause", [0.0, 3e-3])
def test_every_share_is_done_once(pause):
    """Also by helpers that fell asleep in between."""
    expected = np.zeros((3, 10))
    expected[0, :3] = expected[1, 3:6] = expected[2, 6:] = 3
    for _ in range(20 if pause else STEPS):
        rows = np.zeros((3, 10))
        noted(rows)
        assert np.array_equal(rows, expected)
        time.sleep(pause)


def test_more_threads_come_when_they_are_asked_for():
    for threads in (2, 5, 1, 3):
        torch.set_num_threads(threads)
        with torch_alone():
            numbers = np.zeros(20)
            added(numbers, 3)
        assert np.array_equal(numbers, np.full(20, 3.0))


def test_helpers_stay_awake_while_torch_is_alone(monkeypatch):
    wakes, move_off = [], shares._move_off
    monkeypatch.setattr(shares, "_move_off", lambda taken: (wakes.append(taken), move_off(taken)))
    numbers, fewest = np.zeros(3), STEPS
    for _ in range(20):  # of which a busy machine leaves some undisturbed
        wakes.clear()
        for _ in range(STEPS // 20):
            added(numbers, 1)
        fewest = min(fewest, len(wakes))
    assert np.array_equal(numbers, np.full(3, STEPS))
    assert (fewest < STEPS // 40) == is_torch_alone()


def test_a_share_without_memory_is_told_after_all_have_ended():
    for failing in (0, 2):
        with pytest.raises(MemoryError):
            starved(2**60, failing)
    starved(10, 2)


def test_several_callers_get_what_each_gets_alone():
    """One of them has the helpers, the others do their shares themselves."""
    results = [np.zeros(7) for _ in range(4)]

    def call(numbers):
        torch.set_num_threads(3)
        for _ in range(STEPS):
            added(numbers, 2)

    callers = [threading.Thread(target=call, args=(numbers,)) for numbers in results]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert all(np.array_equal(numbers, np.full(7, 2.0 * STEPS)) for numbers in results)


def test_an_interruption_waits_for_the_helpers():
    """The first share is empty and the last one long, so the caller waits where it can be interrupted."""
    followed(np.zeros(2), 1)
    numbers, expected = np.zeros(2), np.zeros(2)
    followed(expected, 40_000_000)
    timer = threading.Timer(0.1, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        followed(numbers, 40_000_000)
    timer.join()
    assert np.array_equal(numbers, expected)


def _shares(pipe):
    rows = np.zeros((3, 10))
    noted(rows)
    pipe.send(rows.max(1).tolist())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    noted(np.zeros((3, 10)))
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    child = multiprocessing.get_context("fork").Process(target=_shares, args=(theirs,))
    child.start()
    assert ours.poll(60), "the forked process waits for threads that it does not have"
    assert ours.recv() == [3, 3, 3]
    child.join()


def test_the_end_of_a_process_is_not_held_up():
    code = (
        "import numpy as np, torch\n"
        "from ptynb.kernels import fused_updates as updates\n"
        "from ptynb.kernels.runtime.thread_count import is_torch_alone, torch_alone\n"
        "torch.set_num_threads(3)\n"
        "with torch_alone():\n"
        "    updates.adam(*np.ones((4, 30)), 0.1, (0.9, 0.99), 1, 1e-8)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_as_many_shares_as_there_are_rows_are_done():
    for shares_asked in (1, 2, 4):
        rows = np.zeros((shares_asked, 10))
        noted(rows, shares=shares_asked)
        assert np.array_equal(rows.sum(0), np.full(10, shares_asked))
