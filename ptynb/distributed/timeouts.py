"""Time limits of waiting that count only while this process runs, and the one of a group's collectives.

A machine that sleeps, a suspended job or a container that is paused stops all engines at once, for as long as it likes.
Nothing is lost by it, and nothing could have answered meanwhile, so that time is not counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ptynb.exceptions import ClusterError

MOST_PAUSE = 5.0
"""Seconds between two looks that count at most; a longer pause is one in which this process was stopped."""
LOOK_SECONDS = 1.0
"""How often a `CollectiveTimeout` looks, at least four times within its limit."""


class RunningTime:
    """The seconds in which this process has run since this was made or restarted.

    To be looked at every `most_pause` seconds or more often: a longer time between two looks counts as so much.
    """

    def __init__(self, most_pause: float = MOST_PAUSE) -> None:
        self._most_pause = most_pause
        self.restart()

    def restart(self) -> None:
        """Begins again at 0."""
        self._seconds, self._looked = 0.0, time.monotonic()

    @property
    def seconds(self) -> float:
        """So many until now."""
        now = time.monotonic()
        self._seconds += min(now - self._looked, self._most_pause)
        self._looked = now
        return self._seconds


class CollectiveTimeout:
    """Ends collectives that wait for another rank for too long.

    torch's own timeout counts the time in which a process is stopped: where all of them were for a minute, each gave
    up the others when they went on. So gloo is given one that is never reached, and this one stands in for it.
    """

    def __init__(self, seconds: float, abort: Callable[[], None]) -> None:
        """abort: called from a thread of this object's, again and again until nothing waits any more."""
        self.seconds, self._abort = seconds, abort
        self._pause = min(LOOK_SECONDS, seconds / 4)
        self._waited: RunningTime | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="ptynb collective timeout", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.wait(self._pause):
            waited = self._waited
            if waited is not None and waited.seconds > self.seconds:
                self._abort()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, a collective is waited for. Raises ClusterError after the time limit."""
        waited = self._waited = RunningTime(2 * self._pause)
        try:
            yield
        except RuntimeError as error:
            if waited.seconds > self.seconds:
                raise ClusterError(
                    f"Another engine did not answer within {self.seconds:g} s ({error}).", code="group.no-answer"
                ) from error
            raise
        finally:
            self._waited = None

    def close(self) -> None:
        """Ends its thread."""
        self._ended.set()
        self._thread.join()
