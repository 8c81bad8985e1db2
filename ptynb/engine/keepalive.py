"""How long an engine lives: as long as somebody holds it, and for the lease's time after that.

The holder is the process that drives the cluster, a notebook's kernel mostly. Where engine and holder are on one
machine the engine looks whether the holder lives; elsewhere the holder says now and then that it does. An engine that
nobody holds finishes the run it is at, for the lease's time at most, keeps the state and leaves; one without anything
to do leaves soon. Time in which the engine itself is stopped does not count: it could not have heard of a holder.
"""

from __future__ import annotations

import os
import platform
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from ptynb.distributed.timeouts import RunningTime
from ptynb.engine import run_registry

LOOK_SECONDS = 2.0
IDLE_SECONDS = 10.0
"""How long an engine without a run waits for a holder. Its state is kept: `ptynb.resume` goes on from it."""
IDLE_SECONDS_BEYOND = 300.0
"""The same where the holder is on another machine, and silent for as long as its Python is busy."""
UNHELD_SECONDS = 300.0
"""How long an engine waits for somebody to hold it at all: others of its cluster may take long to come."""
LEAVE_SECONDS = 60.0
"""How long an engine that leaves waits for its state to be kept."""


@dataclass(frozen=True)
class Holder:
    """Who holds the engines: a process, by its id, its start time and its machine.

    lease: seconds that a run goes on without it.
    """

    pid: int
    start: float
    machine: str
    lease: float

    @classmethod
    def this(cls, lease: float) -> Holder:
        """This process."""
        return cls(os.getpid(), psutil.Process().create_time(), machine(), lease)

    def alive(self) -> bool | None:
        """Whether it lives; None where that can't be seen from here."""
        if self.machine != machine():
            return None
        try:
            process = psutil.Process(self.pid)
            return abs(process.create_time() - self.start) < 1 and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


def machine() -> str:
    """A name for what shares process ids with this process: a machine since it was started, or a container on it."""
    parts = [platform.node()]
    for source in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        try:
            parts.append(os.readlink(source) if source.endswith("pid") else Path(source).read_text().strip())
        except OSError:
            continue
    return " ".join(parts)


class Lease:
    """Ends this process when nobody holds it any more."""

    def __init__(self) -> None:
        self._holder: Holder | None = None
        self._silence = RunningTime()
        threading.Thread(target=self._watch, name="ptynb lease", daemon=True).start()

    def renew(self, holder: Holder) -> None:
        """The holder is this one, and it lives now."""
        self._holder = holder
        self._silence.restart()

    def expired(self) -> bool:
        """Whether nobody has held this engine for longer than it may go on without."""
        holder = self._holder
        if holder is None:
            return self._silence.seconds > UNHELD_SECONDS
        alive = holder.alive()
        if alive:
            self._silence.restart()
            return False
        idle = IDLE_SECONDS if alive is not None else IDLE_SECONDS_BEYOND
        allowed = holder.lease if run_registry.at_work() else min(holder.lease, idle)
        if alive is None:
            allowed = max(allowed, IDLE_SECONDS_BEYOND)
        return self._silence.seconds > allowed

    def _watch(self) -> None:
        while not self.expired():
            time.sleep(LOOK_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)  # in order: the engine's main loop ends, then `leave`
        time.sleep(2 * LEAVE_SECONDS)
        os._exit(1)


_lease: Lease | None = None


def begin() -> None:
    """Begins the lease of this engine, which nobody holds yet."""
    global _lease
    if _lease is None:
        _lease = Lease()


def hold(holder: Holder) -> None:
    """Renews the lease of this engine."""
    begin()
    assert _lease is not None
    _lease.renew(holder)


def leave() -> None:
    """Ends the reconstruction that is open on this engine, its state kept; waits until that is done.

    Rank 0 decides and tells the others, who wait for it.
    """
    run_registry.leave(LEAVE_SECONDS)
