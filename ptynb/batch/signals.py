"""Signals that end a run after a checkpoint."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from types import FrameType

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
INTERRUPTED = 130
"""Exit status of a run that a signal ended."""
WAIT = b"Keeping the state; this takes a moment.\n"


class Leaving(KeyboardInterrupt):
    """A signal requested the end of this process."""


@contextlib.contextmanager
def signals_raise() -> Iterator[None]:
    """Context in which the first signal raises `Leaving`; further ones do not interrupt the checkpoint that follows."""
    came: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) == 1:
            raise Leaving
        os.write(2, WAIT)

    with _handled_by(handle):
        yield


@contextlib.contextmanager
def signals_are_noted() -> Iterator[Sequence[int]]:
    """Context in which signals interrupt nothing; yields the list of those that came."""
    came: list[int] = []
    with _handled_by(lambda number, _: came.append(number)):
        yield came


@contextlib.contextmanager
def _handled_by(handle: signal._HANDLER) -> Iterator[None]:
    numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]  # Windows has no SIGHUP
    before = {number: signal.getsignal(number) for number in numbers}
    for number, old in before.items():
        if old is not signal.SIG_IGN:  # set by nohup, or by a shell for background processes
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
