"""Time limits that count only while this process runs, also for the collectives of a group.

A machine that sleeps, a suspended job or a paused container stops all engines at once, for any time. Nothing is lost
by it, and no engine could have answered meanwhile, so this time is not counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from ptynb.distributed.process_end import end_process
from ptynb.exceptions import ClusterError
from ptynb.supervised_thread import SupervisedThread

MOST_PAUSE = 5.0
"""Longest time between two checks that is counted [s]; in a longer one this process was suspended."""
LOOK_SECONDS = 1.0
"""Period of the checks of a `CollectiveTimeout` [s]; at least four are made within its limit."""
ABORT_SECONDS = 10.0
"""How long a collective on a GPU may go on after it was aborted [s]; then this process ends."""

ON_GPU = "a collective on the GPUs did not end"
"""Part of the message if the limit was exceeded there; all ranks say so if the GPUs cannot communicate."""


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


class Collective(Protocol):
    """A collective that is under way, as torch's `Work`. Both functions can be called from any thread."""

    def is_completed(self) -> bool:
        """Return whether it has ended, also by an error."""

    def wait(self) -> object:
        """Wait for its end. Raises RuntimeError if it failed."""


class CollectiveTimeout:
    """Ends collectives that wait for another rank for too long.

    torch's own timeout counts the time in which a process is suspended: if all of them were for a minute, each treated
    the others as lost afterwards. Therefore its backends have one that is never reached, and this one replaces it.

    A collective on a GPU makes the host wait later, in calls of CUDA. So the collectives themselves are watched, the
    newest one at each check: they end in order.
    """

    def __init__(self, seconds: float, abort: Callable[[], None], end: Callable[[str], object] = end_process) -> None:
        """abort: called from a thread of this object, repeatedly until nothing waits any more.

        end: called with a message if a collective on a GPU does not end after it was aborted.
        """
        self.seconds, self._abort, self._end = seconds, abort, end
        self._pause = min(LOOK_SECONDS, seconds / 4)
        self._waited: RunningTime | None = None
        self._newest: Collective | None = None
        self._watched: tuple[Collective, RunningTime] | None = None
        self._agreement: Collective | None = None
        self._aborted: RunningTime | None = None
        self._on_gpu_expired = False
        self.expired = False
        """Whether a limit was exceeded, after which no collective has a valid result."""
        self._ended = threading.Event()
        self._thread = SupervisedThread("ptynb collective timeout", self._look, restarts=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.wait(self._pause):
            waited = self._waited
            if waited is not None and waited.seconds > self.seconds:
                self.expired = True
            if self._gpu_waits_in_vain() or (waited is not None and self.expired):
                self._abort()

    def watch(self, collective: Collective) -> None:
        """Watch a collective that has been started on the GPU."""
        self._newest = collective

    def agree(self, agreement: Collective) -> None:
        """Watch a collective of all ranks on the host: if it fails, another rank has ended."""
        self._agreement = agreement

    @property
    def on_gpu(self) -> bool:
        """Whether a collective on the GPU is under way."""
        newest = self._newest
        return newest is not None and not _has_ended(newest)

    def _gpu_waits_in_vain(self) -> bool:
        """Return whether a collective on the GPU takes too long, or waits for a rank that has ended."""
        if self._watched is None or _has_ended(self._watched[0]):
            newest, self._watched = self._newest, None
            if newest is not None and not _has_ended(newest):
                self._watched = newest, RunningTime(2 * self._pause)
            elif self._newest is newest:
                self._newest = None  # it may hold a tensor
            return False
        waited = self._watched[1].seconds
        if waited > self.seconds:
            self.expired = self._on_gpu_expired = True
        elif not (waited > self._pause and self._agreement_failed()):
            return False
        if self._aborted is None:
            self._aborted = RunningTime(2 * self._pause)
        elif self._aborted.seconds > ABORT_SECONDS:
            self._end(
                f"The GPUs did not connect, or a collective on them did not end, within {self.seconds:g} s and "
                f"{ABORT_SECONDS:g} s after it was aborted; this process ends."
            )
        return True

    def _agreement_failed(self) -> bool:
        agreement = self._agreement
        if agreement is None or not agreement.is_completed():
            return False
        try:
            agreement.wait()
        except RuntimeError:
            return True
        return False

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Context of a wait for a collective. Raises ClusterError after the time limit."""
        waited = self._waited = RunningTime(2 * self._pause)
        try:
            yield
        except RuntimeError as error:
            if not (self.expired or waited.seconds > self.seconds):
                raise
            raise self._error(error) from error
        finally:
            self._waited = None
        if self.expired:
            raise self._error()

    def _error(self, seen: RuntimeError | None = None) -> ClusterError:
        facts = [fact for fact in (seen, ON_GPU if self._on_gpu_expired else "") if fact]
        told = f" ({'; '.join(map(str, facts))})" if facts else ""
        return ClusterError(f"Another engine did not answer within {self.seconds:g} s{told}.", code="group.no-answer")

    def close(self) -> None:
        """End the thread, and release the collectives, which hold the group's connections."""
        self._ended.set()
        self._thread.join()
        self._newest = self._watched = self._agreement = None


def _has_ended(collective: Collective) -> bool:
    try:
        return collective.is_completed()
    except RuntimeError:  # the GPU is lost: the thread that uses it gets the same error
        return True
