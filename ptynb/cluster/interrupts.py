"""Ctrl-C: blocks that it must not interrupt, and work that continues in a thread after the waiting is interrupted.

Python raises KeyboardInterrupt in the main thread between any two instructions: between the start of a process and its
registration, say, and again while the first interrupt is handled. Short blocks defer it; longer work runs in a thread,
where an interrupt only ends the waiting.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

Answer = TypeVar("Answer")

PATIENCE_SECONDS = 0.25
"""Longest wait after an interrupt: the prompt must return within a second."""


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Defer interrupts to the end of a short block that must be completed."""
    main = threading.current_thread() is threading.main_thread()
    if (
        not main or signal.getsignal(signal.SIGINT) is None
    ):  # only the main thread has signals, and other programs may handle them
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Convert errors of a wait on a `threading.Condition`, an Event or a Future to KeyboardInterrupt.

    If a second interrupt comes while the wait acquires its lock again, its `with` releases a lock that is not acquired,
    and CPython raises RuntimeError in place of the interrupt.
    """
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise


class Errands:
    """Serial execution of work in threads, completed even if an interrupt ends the waiting."""

    def __init__(self, name: str, *, finish: bool = False) -> None:
        """name: of the threads. finish: whether Python waits for them at its end."""
        self._name, self._finish = name, finish
        self._lock = threading.Lock()
        self._last: threading.Thread | None = None
        self._here = threading.local()

    def run(self, work: Callable[[], Answer], patience: float | None = None) -> Answer:
        """Do the work after all earlier work, and return its result or raise its error.

        patience: time limit of waiting [s], after which TimeoutError is raised and the work continues.
        """
        if getattr(self._here, "inside", False):  # part of an errand
            return work()
        outcome: Future[Answer] = Future()

        def do(before: threading.Thread | None) -> None:
            if before is not None:
                before.join()
            self._here.inside = True
            try:
                outcome.set_result(work())
            except BaseException as error:  # noqa: BLE001 - goes to whoever waits
                outcome.set_exception(error)

        with held_back(), self._lock:
            thread = threading.Thread(target=do, args=(self._last,), name=self._name, daemon=not self._finish)
            try:
                thread.start()
            except RuntimeError:  # Python is ending
                return work()
            self._last = thread
        with waiting():
            return outcome.result(patience)

    def wait(self) -> None:
        """Wait until all work is done."""
        if self._last is not None and not getattr(self._here, "inside", False):
            self._last.join()
