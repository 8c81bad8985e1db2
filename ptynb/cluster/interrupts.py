"""Ctrl-C: what must not be cut in two, and what goes on to its end though nobody waits for it any more.

Python raises KeyboardInterrupt in the main thread, between any two of its instructions: between the start of a process
and the note that it was started, say, and again while the first interrupt is being answered. So what takes moments
holds it back, and what takes longer runs in a thread of its own, where an interrupt only ends the waiting.
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
"""How long one who was interrupted waits for what is then still to be done: the prompt has to be back in a second."""


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Inside, an interrupt waits for the end of the block: for what takes moments and can't be done by half."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is None:  # the main thread's only, or not Python's to handle
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
    """Around a wait on a `threading.Condition`, an Event or a Future: an interrupt ends it with KeyboardInterrupt.

    Where a second interrupt comes while the wait takes its lock again after the first, its `with` releases a lock that
    it does not hold, and CPython raises RuntimeError in place of the interrupt.
    """
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise


class Errands:
    """Work that is done to its end, one piece after the other, even where an interrupt has ended the waiting for it."""

    def __init__(self, name: str, *, finish: bool = False) -> None:
        """name: of the threads. finish: Python does not end before them."""
        self._name, self._finish = name, finish
        self._lock = threading.Lock()
        self._last: threading.Thread | None = None
        self._here = threading.local()

    def run(self, work: Callable[[], Answer], patience: float | None = None) -> Answer:
        """Does the work after all that was given before, and returns its answer or raises its error.

        patience: seconds after which TimeoutError is raised, while the work goes on.
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
            except RuntimeError:  # Python is ending, and nobody waits for anything any more
                return work()
            self._last = thread
        with waiting():
            return outcome.result(patience)

    def wait(self) -> None:
        """Waits until all that was given is done."""
        if self._last is not None and not getattr(self._here, "inside", False):
            self._last.join()
