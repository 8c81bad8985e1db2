"""Serial execution of functions that must not be aborted by Ctrl-C.

Python raises KeyboardInterrupt in the main thread between any two instructions: for example between the start of a
process and the record that it was started, and again while the first interrupt is being handled. Therefore short
operations defer interrupts (`held_back`), and longer ones run in a separate thread (`SerialExecutor`), where an
interrupt only ends the wait for them.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from ptynb.supervised_thread import report

Answer = TypeVar("Answer")

PATIENCE_SECONDS = 0.25
"""Time that an interrupted caller waits for the clean-up [s]: the prompt must return within a second."""


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Context that defers an interrupt to the end of the block, which must be short."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is None:  # interrupts reach the main thread only
        yield
        return
    received: list[int] = []
    previous_handler = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)
        if received:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Context for a wait on a `threading.Condition`, an Event or a Future, which an interrupt ends properly.

    If a second interrupt arrives while the wait reacquires its lock after the first one, its `with` releases a lock
    that it does not hold, and CPython raises RuntimeError; KeyboardInterrupt is raised instead.
    """
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise


class SerialExecutor:
    """Execute functions in the order of submission, each to its end, also if an interrupt ends the wait for it."""

    def __init__(self, name: str, *, finish: bool = False) -> None:
        """name: name of the threads. finish: whether Python waits for them when it exits."""
        self._name, self._finish = name, finish
        self._lock = threading.Lock()
        self._last: threading.Thread | None = None
        self._local = threading.local()

    def submit(self, work: Callable[[], Answer]) -> Future[Answer]:
        """Queue a function and return its future, whose `cancel()` removes it from the queue unless it has begun."""
        future: Future[Answer] = Future()

        def execute(previous: threading.Thread | None = None) -> None:
            if previous is not None:
                previous.join()
            if not future.set_running_or_notify_cancel():
                return
            self._local.inside = True
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - raised in the waiting thread
                future.set_exception(error)

        with held_back(), self._lock:
            thread = threading.Thread(target=execute, args=(self._last,), name=self._name, daemon=not self._finish)
            try:
                thread.start()
            except RuntimeError:  # Python is exiting and starts no threads; no thread waits any more
                execute()
                self._local.inside = False
            else:
                self._last = thread
        return future

    def run(self, work: Callable[[], Answer], patience: float | None = None, *, short: bool = False) -> Answer:
        """Run a function after all previously submitted ones, and return its result or raise its error.

        patience: time after which TimeoutError is raised while the function continues [s]. short: whether it may run in
        the calling thread, with interrupts held back, which takes 0.2 ms less. A call from a function that this
        executor is running is executed at once.
        """
        if getattr(self._local, "inside", False):
            return work()
        if short and (self._last is None or not self._last.is_alive()):
            with held_back():
                self._local.inside = True
                try:
                    return work()
                finally:
                    self._local.inside = False
        future = self.submit(work)
        try:
            with waiting():
                return future.result(patience)
        finally:
            if not future.done():
                future.add_done_callback(self._report_unread)

    def _report_unread(self, future: Future[Any]) -> None:
        """Report the error of a function for which nobody waits any more."""
        if not future.cancelled() and (error := future.exception()) is not None:
            report(f"What {self._name!r} did after the wait for it was ended failed", error)

    def wait(self) -> None:
        """Wait until all functions submitted so far are done."""
        if self._last is not None and not getattr(self._local, "inside", False):
            self._last.join()
