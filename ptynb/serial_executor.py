"""Serial execution of work that Ctrl-C must not cut in two.

Python raises KeyboardInterrupt in the main thread, between any two of its instructions: between the start of a process
and the note that it was started, say, and again while the first interrupt is being answered. So what takes moments
defers it (`held_back`), and what takes longer runs in a thread of its own (`SerialExecutor`), where an interrupt only
ends the waiting.
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
"""How long an interrupted caller waits for the clean-up: the prompt has to be back within a second."""


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Defer an interrupt to the end of the block, which must be short."""
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


class SerialExecutor:
    """Runs work in the order of submission, each to its end, even where an interrupt has ended the waiting for it."""

    def __init__(self, name: str, *, finish: bool = False) -> None:
        """name: of the threads. finish: Python does not exit before they have ended."""
        self._name, self._finish = name, finish
        self._lock = threading.Lock()
        self._last: threading.Thread | None = None
        self._here = threading.local()

    def submit(self, work: Callable[[], Answer]) -> Future[Answer]:
        """Queue the work and return its future, whose `cancel()` drops it unless it has begun."""
        future: Future[Answer] = Future()

        def execute(previous: threading.Thread | None = None) -> None:
            if previous is not None:
                previous.join()
            if not future.set_running_or_notify_cancel():
                return
            self._here.inside = True
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - goes to whoever waits
                future.set_exception(error)

        with held_back(), self._lock:
            thread = threading.Thread(target=execute, args=(self._last,), name=self._name, daemon=not self._finish)
            try:
                thread.start()
            except RuntimeError:  # Python is exiting and starts no threads; nobody waits for anything any more
                execute()
                self._here.inside = False
            else:
                self._last = thread
        return future

    def run(self, work: Callable[[], Answer], patience: float | None = None) -> Answer:
        """Run the work after all that was submitted before, and return its answer or raise its error.

        patience: seconds after which TimeoutError is raised, while the work continues. Inside other work of this
        executor it runs at once.
        """
        if getattr(self._here, "inside", False):
            return work()
        future = self.submit(work)
        with waiting():
            return future.result(patience)

    def wait(self) -> None:
        """Wait until everything submitted so far is done."""
        if self._last is not None and not getattr(self._here, "inside", False):
            self._last.join()
