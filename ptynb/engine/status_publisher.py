"""Delivery of a worker's status to its session whenever it changes, so that nobody has to ask for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ptynb.data.engine_records import Status
from ptynb.supervised_thread import SupervisedThread, report

Deliver = Callable[[Status, int], None]
"""Takes a status, and the number of epochs before the first one whose record it has."""

PROGRESS_SECONDS = 0.1
"""Period in which the status is delivered while updates are made or patterns come [s]."""
TOGETHER_SECONDS = 0.01
"""Time within which epochs that follow one another are delivered together [s]: each status takes 0.1 ms of a core."""
LARGEST_SHARE = 0.05
"""Largest part of its thread's time that the delivery of such epochs takes."""


class StatusPublisher:
    """Delivers the status of a worker after each change, first at once."""

    def __init__(
        self, look: Callable[[int], Status], deliver: Deliver, known: int, failures_only: bool = False
    ) -> None:
        """look: returns the status with the records after so many epochs. known: epochs that the receiver knows.

        failures_only: deliver no status without a failure.
        """
        self._look, self._deliver, self._known, self._failures_only = look, deliver, known, failures_only
        self._lock = threading.Lock()
        self._news, self._end = threading.Event(), threading.Event()
        self._thread = SupervisedThread("ptynb status", self._run, restarts=True)
        self._thread.start()

    def changed(self) -> None:
        """Deliver the status soon, from another thread; a failure is delivered by `now`."""
        if not self._failures_only:
            self._news.set()

    def now(self) -> Status:
        """Deliver the status, for what somebody waits for, and return it; an error of the receiver is a notice."""
        with self._lock:
            status = self._look(self._known)
            try:
                if status.failure is not None or not self._failures_only:
                    self._deliver(status, self._known)
            except Exception as error:  # noqa: BLE001 - the run does not depend on it
                report("The status of the run could not be delivered", error)
            self._known += len(status.epochs)
        return status

    def end(self) -> None:
        """Deliver the last status, and end the thread."""
        self._end.set()
        self._news.set()

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread: Python must not exit while it is in torch."""
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _run(self) -> None:
        pause = None
        self._news.set()  # the first status, or that at which this failed
        while True:
            self._news.wait(pause)
            self._news.clear()
            ended, began = self._end.is_set(), time.thread_time()
            status = self.now()
            if ended:
                return
            coming = status.arrivals is not None and status.arrivals.ended is None
            pause = PROGRESS_SECONDS if (status.state == "running" or coming) and not self._failures_only else None
            self._end.wait(max(TOGETHER_SECONDS, (time.thread_time() - began) / LARGEST_SHARE))
