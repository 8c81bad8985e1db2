"""Signals that ask a run to end: what was reached is kept first."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
WAIT = b"Keeping the state; this takes a moment.\n"


class Leaving(KeyboardInterrupt):
    """A signal asked this process to end."""


class TerminationRequest:
    """Whether a signal has asked this process to end."""

    def __init__(self) -> None:
        self.leave = False


@contextlib.contextmanager
def signals_raise() -> Iterator[None]:
    """Inside, the first signal raises `Leaving`; further ones don't cut short what then keeps the state."""
    came: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) == 1:
            raise Leaving
        os.write(2, WAIT)

    with _handled_by(handle):
        yield


@contextlib.contextmanager
def signals_are_noted() -> Iterator[TerminationRequest]:
    """Inside, signals are noted for whoever asks, and interrupt nothing."""
    asked = TerminationRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        asked.leave = True

    with _handled_by(handle):
        yield asked


@contextlib.contextmanager
def _handled_by(handle: signal._HANDLER) -> Iterator[None]:
    numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]  # Windows has no SIGHUP
    before = {number: signal.getsignal(number) for number in numbers}
    for number, old in before.items():
        if old is not signal.SIG_IGN:  # nohup's wish, and that of a shell for what it starts in the background
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
