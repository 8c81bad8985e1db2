"""Signals that end a run after a checkpoint: of users, of schedulers before they take a machine back, of Kubernetes.

Slurm, LSF, PBS, SGE and HTCondor send SIGTERM, or the signal that a job asked for, some time before SIGKILL: often
SIGUSR1 or SIGUSR2, and SIGXCPU at a limit of time.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from types import FrameType

from ptynb.batch.exit_statuses import CTRL_C, INTERRUPTED, exit_status

NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU")
SIGNALS = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))  # Windows has two of them
WAIT = b"Keeping the state; this takes a moment.\n"


class Leaving(KeyboardInterrupt):
    """A signal requested the end of this process. number: of the signal."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_status(self) -> int:
        """Exit status of the process."""
        return status_of(self.number)


def status_of(number: int) -> int:
    """Return the exit status of a run that this signal ended."""
    return CTRL_C if number == signal.SIGINT else INTERRUPTED


def status_of_end(error: BaseException) -> int:
    """Return the exit status of a process that an error ended, or a signal."""
    return error.exit_status if isinstance(error, Leaving) else exit_status(error)


class _Leave:
    """Handlers of which the first signal raises `Leaving`; further ones do not interrupt the checkpoint that follows.

    Each signal becomes a SIGINT, which what must not be interrupted holds back (`serial_executor.held_back`).
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self._has_raised = False
        self._without_int = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # of a background process of a shell

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.first is None and self._without_int:
            return
        repeated = self.first is not None and (self._has_raised or number != signal.SIGINT)
        self.first = number if self.first is None else self.first
        if repeated:
            os.write(2, WAIT)
        elif number != signal.SIGINT:
            signal.raise_signal(signal.SIGINT)
        else:
            self._has_raised = True
            raise Leaving(self.first)


_leave: _Leave | None = None
"""Handlers of the outermost context."""


def signal_that_came() -> int | None:
    """Return the first signal in the context `signals_raise` that is active; None without one."""
    return None if _leave is None else _leave.first


@contextlib.contextmanager
def signals_raise(*, ends_process: bool = False) -> Iterator[None]:
    """Context in which the first signal raises `Leaving`, also beyond a context inside.

    ends_process: whether the process ends after it; then signals that follow do not change its exit status.
    """
    global _leave
    outermost = _leave is None
    _leave = _leave or _Leave()
    try:
        with _handled_by(_leave, also=signal.SIGINT):
            yield
    finally:
        if outermost:
            _leave = None
        if ends_process:
            _ignore_until_exit()


@contextlib.contextmanager
def signals_are_noted() -> Iterator[Sequence[int]]:
    """Context in which signals interrupt nothing; yields the list of those that came."""
    came: list[int] = []
    with _handled_by(lambda number, _: came.append(number)):
        yield came


@contextlib.contextmanager
def _handled_by(handle: signal._HANDLER, also: int | None = None) -> Iterator[None]:
    """Set a handler of the signals that are not ignored. also: one that is handled even then."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, old in before.items():
        if old is not signal.SIG_IGN or number == also:  # set by nohup, or by a shell for background processes
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _ignore_until_exit() -> None:
    """Let this process, which ends, have its exit status whatever follows; Ctrl-C still ends it at once."""
    for number in SIGNALS:
        if number != signal.SIGINT:
            signal.signal(number, signal.SIG_IGN)
