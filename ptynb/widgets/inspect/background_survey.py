"""The survey in the background: portion after portion while nothing else is asked, told now and then."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from ptynb.analysis import Survey
from ptynb.analysis.scan_survey import Surveyor
from ptynb.data.scan import Scan

News = Callable[["BackgroundSurvey", Survey], None]
Failed = Callable[["BackgroundSurvey", Exception], None]
OFTEN, PATIENCE = 1.0, 20.0
"""Seconds between two tellings, and how many times longer than the telling itself they are apart."""
REST = 0.25
"""Part of a portion's time that others get after it."""


class BackgroundSurvey:
    """Surveys a scan in a thread of its own until all patterns are seen or `close` is called.

    news, failed: methods, called in that thread; they are not kept alive by it. busy: whether the user waits for
    something, during which the survey stands still.
    """

    def __init__(self, scan: Scan, news: News, failed: Failed, busy: Callable[[], bool]) -> None:
        self._stop, self._go = threading.Event(), threading.Event()
        self._go.set()
        methods = weakref.WeakMethod(news), weakref.WeakMethod(failed), weakref.WeakMethod(busy)
        self._thread = threading.Thread(
            target=_survey,
            args=(weakref.ref(self), scan, methods, self._stop, self._go),
            name="ptynb survey",
            daemon=True,
        )
        weakref.finalize(self, _end, self._stop, self._go)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    @property
    def paused(self) -> bool:
        """Whether it stands still until told otherwise."""
        return not self._go.is_set()

    @paused.setter
    def paused(self, paused: bool) -> None:
        (self._go.clear if paused else self._go.set)()

    def wait(self, seconds: float = 60.0) -> None:
        """Waits for its end. Raises TimeoutError."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            raise TimeoutError(f"The survey is still going on after {seconds:g} s.")

    def close(self) -> None:
        """Ends it after the portion under way."""
        _end(self._stop, self._go)


def _end(stop: threading.Event, go: threading.Event) -> None:
    stop.set()
    go.set()


def _survey(
    owner: weakref.ref[BackgroundSurvey],
    scan: Scan,
    methods: tuple[weakref.WeakMethod[Any], ...],
    stop: threading.Event,
    go: threading.Event,
) -> None:
    def tell(method: weakref.WeakMethod[Any], what: object) -> None:
        called, source = method(), owner()
        if called is not None and source is not None and not stop.is_set():
            called(source, what)

    news, failed, busy = methods
    try:
        surveyor = Surveyor(scan)
        next_telling = 0.0
        while go.wait() and not stop.is_set():
            while (asked := busy()) is not None and asked() and not stop.wait(0.02):
                del asked
            began = time.monotonic()
            more = surveyor.advance()
            seconds = time.monotonic() - began
            if not more or (not surveyor.in_sample and time.monotonic() >= next_telling):
                began = time.monotonic()
                tell(news, surveyor.survey())
                next_telling = time.monotonic() + max(OFTEN, PATIENCE * (time.monotonic() - began))
            if not more or stop.wait(REST * seconds):
                return
    except Exception as error:  # noqa: BLE001 - shown to the user; a file may be gone or spoilt
        tell(failed, error)
