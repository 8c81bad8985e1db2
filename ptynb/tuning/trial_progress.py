"""How far trials are, in epochs, and their cancellation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ptynb.exceptions import ReconstructionError
from ptynb.session.reconstruction import Reconstruction

MOST = 0.99
"""Largest fraction before the end: further trials may follow from the results."""


class TrialProgress:
    """Epochs that trials have completed, of those that are planned; used by several threads.

    progress: called with the completed fraction, from 0 to 1, which never decreases. cancelled: returns whether the
    trials are to end.
    """

    def __init__(self, progress: Callable[[float], None] | None, cancelled: Callable[[], bool] | None) -> None:
        self._progress, self._cancelled = progress, cancelled
        self._lock = threading.Lock()
        self._planned = self._completed = self._fraction = 0.0
        self._running: dict[int, int] = {}

    def plan(self, epochs: float) -> None:
        """Take the number of epochs of the trials to come; those before, such as for timing, do not count."""
        with self._lock:
            self._planned, self._completed = epochs, 0.0

    def check(self) -> None:
        """Raise ReconstructionError if the trials are to end."""
        if self._cancelled is not None and self._cancelled():
            raise ReconstructionError("The trials were cancelled; nothing is recommended.", code="tuning.cancelled")

    def wait(self, recon: Reconstruction) -> None:
        """Wait for the end of a trial. Raises ReconstructionError if it is cancelled, or has failed."""
        self.check()
        recon.wait(progress=lambda: self._report(recon))

    @contextmanager
    def trial(self, recon: Reconstruction, epochs: int) -> Iterator[None]:
        """Count this trial as completed at the end, also if it did not reach its last epoch."""
        try:
            yield
        finally:
            with self._lock:
                self._running.pop(id(recon), None)
                self._completed += epochs
            self._say()

    def end(self) -> None:
        """Report that all is done."""
        if self._progress is not None:
            self._progress(1.0)

    def _report(self, recon: Reconstruction) -> None:
        self.check()
        status = recon.last_status()
        with self._lock:
            self._running[id(recon)] = 0 if status is None else status.epoch
        self._say()

    def _say(self) -> None:
        if self._progress is None or not self._planned:
            return
        with self._lock:
            done = self._completed + sum(self._running.values())
            self._fraction = max(self._fraction, min(MOST, done / max(self._planned, done, 1.0)))
            fraction = self._fraction
        self._progress(fraction)
