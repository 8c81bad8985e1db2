"""The survey of a scan in the background, portion by portion while nothing else is requested."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ptynb.analysis import Survey
from ptynb.analysis.scan_survey import Surveyor
from ptynb.data.scan import Scan
from ptynb.widgets.actions import repeat

Progress = Callable[["BackgroundSurvey", Survey], None]
Failed = Callable[["BackgroundSurvey", Exception], None]
SHORTEST_INTERVAL, PROGRESS_SHARE = 1.0, 20.0
"""Minimum interval of reports [s], and minimum ratio of this interval to the duration of a report."""
BUSY_SECONDS, PAUSED_SECONDS = 0.02, 60.0
REST = 0.25
"""Pause after each portion, as a fraction of its duration, so that other threads can run."""


class BackgroundSurvey:
    """Survey of a scan in a thread, until all patterns are read or `close` is called.

    progress, failed: called in that thread. busy: whether the user waits for something; the survey pauses meanwhile.
    closed: whether it has ended.
    """

    def __init__(self, scan: Scan, progress: Progress, failed: Failed, busy: Callable[[], bool]) -> None:
        self._scan, self._progress, self._failed, self._busy = scan, progress, failed, busy
        self._surveyor: Surveyor | None = None
        self._next_report = 0.0
        self._wake = threading.Event()
        self.paused = self.closed = False

    def start(self) -> None:
        """Start the thread."""
        repeat(self, "ptynb survey", 0.0, BackgroundSurvey._advance, BackgroundSurvey._fail, soon=self._wake)

    def pause(self, paused: bool) -> None:
        """Suspend the survey, or continue it."""
        self.paused = paused
        self._wake.set()

    def close(self) -> None:
        """End the thread after the current portion."""
        self.closed = True
        self._wake.set()

    def _advance(self) -> float:
        """Read a portion of patterns and report progress; return the time until the next portion [s]."""
        if self.paused:
            return PAUSED_SECONDS
        if self._busy():
            return BUSY_SECONDS
        if self._surveyor is None:
            self._surveyor = Surveyor(self._scan)
        began = time.monotonic()
        more = self._surveyor.advance()
        seconds = time.monotonic() - began
        if not more or (not self._surveyor.in_sample and time.monotonic() >= self._next_report):
            began = time.monotonic()
            if not self.closed:
                self._progress(self, self._surveyor.survey())
            interval = max(SHORTEST_INTERVAL, PROGRESS_SHARE * (time.monotonic() - began))
            self._next_report = time.monotonic() + interval
        if not more:
            self._surveyor = None
            self.close()
        return REST * seconds

    def _fail(self, error: Exception | None) -> None:
        if error is not None:
            self._failed(self, error)
            self.close()
