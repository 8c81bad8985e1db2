"""Time limits that count only while this process runs, also for the collectives of a group.

A machine that sleeps, a suspended job or a paused container stops all engines at once, for any time. Nothing is lost
by it, and no engine could have answered meanwhile, so this time is not counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ptynb.exceptions import ClusterError

MOST_PAUSE = 5.0
"""Longest time between two checks that is counted [s]; in a longer one this process was suspended."""
LOOK_SECONDS = 1.0
"""Period of the checks of a `CollectiveTimeout` [s]; at least four are made within its limit."""


class RunningTime:
    """Time that this process has run since the creation or restart of this object [s].

    To be read at least every `most_pause` seconds: a longer time between two reads counts as this much.
    """

    def __init__(self, most_pause: float = MOST_PAUSE) -> None:
        self._most_pause = most_pause
        self.restart()

    def restart(self) -> None:
        """Restart at 0."""
        self._seconds, self._looked = 0.0, time.monotonic()

    @property
    def seconds(self) -> float:
        """Return the seconds until now."""
        now = time.monotonic()
        self._seconds += min(now - self._looked, self._most_pause)
        self._looked = now
        return self._seconds


class CollectiveTimeout:
    """Ends collectives that wait for another rank for too long.

    torch's own timeout counts the time in which a process is suspended: if all of them were for a minute, each treated
    the others as lost afterwards. Therefore gloo has a timeout that is never reached, and this one replaces it.
    """

    def __init__(self, seconds: float, abort: Callable[[], None]) -> None:
        """abort: called from a thread of this object, repeatedly until nothing waits any more."""
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
        """Context of a wait for a collective. Raises ClusterError after the time limit."""
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
        """End the thread."""
        self._ended.set()
        self._thread.join()
