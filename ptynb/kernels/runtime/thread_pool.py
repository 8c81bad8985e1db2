"""Division of work into equal shares for threads that stay in compiled code.

Waking a thread takes 50 to 90 microseconds on a virtual machine, and so does passing on Python's global lock (GIL); an
update of a small batch takes a few hundred. So while torch is limited to one thread, helper threads poll a mailbox for
a millisecond after their last share before they sleep: a section whose helpers are awake takes one microsecond to begin
and to end. Otherwise they leave the cores to torch's threads immediately.

The helpers are started when first needed and live as long as the process. numba's own threads would be a second pool
beside torch's, each spinning for milliseconds on the cores that the other needs.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ptynb.kernels import runtime
from ptynb.kernels.runtime import thread_count
from ptynb.kernels.runtime.compiler import address_of, compiled, system_function
from ptynb.kernels.runtime.spin_queue import BOX, LINE, pause_for, runner_of, serve, set_up

PATIENCE = 1e-3
"""Time for which helpers, or their caller, poll before they sleep [s]."""


@compiled
def part(count: int, share: int, shares: int) -> tuple[int, int]:
    """Return the first index of a share's part of `count` items, and one past its last."""
    return count * share // shares, count * (share + 1) // shares


def in_shares(function: Callable[..., None]) -> Callable[..., None]:
    """Compile function(*arguments, share, shares), which runs one share, into function(*arguments), which runs all.

    Arguments are numbers, arrays, and tuples of these. The number of shares is `thread_count.count()`, or `shares=`
    for arrays that have a row per share; the call waits for all shares. Raises MemoryError if a share ran out of
    memory.
    """
    runner = runner_of(function)

    @functools.wraps(function)
    def all_shares(*arguments: Any, shares: int = 0) -> None:
        _crew.run(runner, shares or thread_count.count(), arguments)

    return all_shares


class _Addresses(NamedTuple):
    """Addresses of the mailboxes (0 without helpers) and of system functions (0 if not available).

    patience: number of pauses before a waiting thread sleeps. leave: yields the core to other threads. rest: sleeps for
    a number of microseconds (Windows: milliseconds). core: returns the number of the caller's core.
    """

    boxes: int
    patience: int
    leave: int
    rest: int
    core: int


class _Crew:
    """The pool of helper threads. Share 0 runs on the caller's thread, share k on helper k - 1."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._helpers = list[_Helper]()
        self._patience = 0
        self._memory = np.zeros(0, np.int64)
        self._alone = _Addresses(0, 0, 0, 0, 0)
        self._addresses = self._hasty = self._alone

    def run(self, runner: Any, shares: int, arguments: tuple[Any, ...]) -> None:
        """Run all shares; sequentially if another thread is using the helpers."""
        if shares == 1 or not self._busy.acquire(blocking=False):
            failed = runner(self._alone, shares, arguments)
        else:
            try:
                if len(self._helpers) < shares - 1:
                    self._grow(shares - 1)
                addresses = self._addresses if thread_count.is_torch_alone() else self._hasty
                failed = runner(addresses, shares, arguments)
            finally:
                self._busy.release()
        if failed:
            raise MemoryError("Not enough memory for the buffers of a compiled step.")

    def _grow(self, helpers: int) -> None:
        """Start this number of helpers instead of the previous ones, which must be idle: mailboxes are reallocated."""
        self.end()
        self._patience = self._patience or _pauses(PATIENCE)
        self._memory = np.zeros((helpers * BOX + LINE) // 8, np.int64)
        boxes = -(-self._memory.ctypes.data // LINE) * LINE
        self._addresses = _Addresses(
            boxes, self._patience, *(address_of(function) for function in (_leave, _rest, _core))
        )
        self._hasty = self._addresses._replace(patience=0)
        made = list[_Helper]()
        for number in range(helpers):
            made.append(_Helper(boxes + number * BOX, number, [*made]))
        self._helpers = made

    def end(self) -> None:
        """Stop all helpers, which must be idle."""
        for helper in self._helpers:
            helper.calls.put(None)
        for helper in self._helpers:
            helper.thread.join()


class _Helper:
    """A thread that runs the tasks in its mailbox.

    calls: queue that wakes it, with the core number of the waking thread; None stops it. core: core on which it last
    woke.
    """

    def __init__(self, box: int, number: int, before: list[_Helper]) -> None:
        """before: helpers of the preceding shares."""
        self.calls: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self.core, self._before = -1, before
        self._wake = ctypes.CFUNCTYPE(None, ctypes.c_int64)(self.calls.put)
        set_up(box, address_of(self._wake))
        self.thread = runtime.new_thread(f"hot path {number}", self._serve, box)
        self.thread.start()

    def _serve(self, box: int) -> None:
        while (caller := self.calls.get()) is not None:
            try:
                if _core is not None:
                    _move_off({caller, *(helper.core for helper in self._before)})
                    self.core = _core()
            finally:
                serve(box)  # the caller waits for its share, whatever happens here


def _move_off(taken: set[int]) -> None:
    """Move the calling thread to another core if it is on one of the `taken` cores.

    Linux wakes a thread on the core of its waker, and leaves two threads that never sleep there for a hundred
    milliseconds, with another core idle.
    """
    ask = getattr(os, "sched_getaffinity", None)
    if _core is None or ask is None or not hasattr(os, "sched_setaffinity") or _core() not in taken:
        return
    allowed: set[int] = ask(0)
    if free := allowed - taken:
        with contextlib.suppress(OSError):  # not permitted: only slower
            os.sched_setaffinity(0, free)
            os.sched_setaffinity(0, allowed)


def _pauses(seconds: float) -> int:
    """Measure the number of pause instructions that take this time."""
    pause_for(1)  # compiles it
    number = 1000
    while True:
        started = time.perf_counter()
        pause_for(number)
        taken = time.perf_counter() - started
        if taken > seconds:
            return max(int(number * seconds / taken), 1)
        number *= 2


_on_windows = os.name == "nt"
_leave = system_function("SwitchToThread", "kernel32") if _on_windows else system_function("sched_yield")
_rest = system_function("Sleep", "kernel32") if _on_windows else system_function("usleep")
_core = None if _on_windows else system_function("sched_getcpu")
_crew = _Crew()
atexit.register(lambda: _crew.end())


def _forget() -> None:
    global _crew
    _crew = _Crew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)  # threads do not survive a fork
