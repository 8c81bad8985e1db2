"""Lease of an engine: it ends when its holder has been gone for longer than the lease.

The holder is the process that drives the cluster, usually a notebook's kernel. If both are on one machine, the engine
checks whether the holder's process lives; otherwise the holder renews the lease periodically. An engine without a
holder continues its run for the duration of the lease at most, writes a checkpoint and ends; an idle one ends soon.
Time in which the engine itself is suspended does not count: it could not have received a renewal.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from ptynb.distributed.timeouts import RunningTime
from ptynb.engine import run_registry
from ptynb.polling import wait_until
from ptynb.supervised_thread import SupervisedThread
from ptynb.systems import terminate_self

LOOK_SECONDS = 2.0
IDLE_SECONDS = 10.0
"""How long an engine without a run waits for a holder. It writes a checkpoint, for `ptynb.resume` to continue from."""
IDLE_SECONDS_BEYOND = 300.0
"""The same if the holder is on another machine, where it cannot renew the lease while its Python is busy."""
UNHELD_SECONDS = 300.0
"""How long an engine waits for its first holder: other engines of the cluster may take long to start."""
LEAVE_SECONDS = 60.0
"""How long an engine that ends waits for its checkpoint to be written."""


@dataclass(frozen=True)
class Holder:
    """The process that holds the engines, identified by its id, start time and machine.

    lease: how long a run continues without it [s].
    """

    pid: int
    start: float
    machine: str
    lease: float

    @classmethod
    def this(cls, lease: float) -> Holder:
        """Return this process as the holder."""
        return cls(os.getpid(), psutil.Process().create_time(), machine(), lease)

    def alive(self) -> bool | None:
        """Return whether the process lives; None if it is on another machine, so that this is unknown."""
        if self.machine != machine():
            return None
        try:
            process = psutil.Process(self.pid)
            return abs(process.create_time() - self.start) < 1 and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


@functools.cache
def machine() -> str:
    """Return a name of the space of process ids: of this machine since its last boot, or of a container on it."""
    parts = [platform.node()]
    for source in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        try:
            parts.append(
                os.readlink(source) if source.endswith("pid") else Path(source).read_text(encoding="ascii").strip()
            )
        except OSError:
            continue
    return " ".join(parts)


class Lease:
    """Ends this process when its lease has expired."""

    def __init__(self) -> None:
        self._holder: Holder | None = None
        self._silence = RunningTime()
        SupervisedThread("ptynb lease", self._watch, restarts=True).start()

    def renew(self, holder: Holder) -> None:
        """Renew the lease: `holder` lives now."""
        self._holder = holder
        self._silence.restart()

    def expired(self) -> bool:
        """Return whether this engine has had no holder for longer than allowed."""
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
        wait_until(self.expired, math.inf, LOOK_SECONDS)
        terminate_self()  # a clean end: the engine's main loop ends, then `leave` is called
        time.sleep(2 * LEAVE_SECONDS)
        os._exit(1)


_lease: Lease | None = None


def begin() -> None:
    """Begin the lease of this engine, which has no holder yet."""
    global _lease
    if _lease is None:
        _lease = Lease()


def hold(holder: Holder) -> None:
    """Renew the lease of this engine."""
    begin()
    assert _lease is not None
    _lease.renew(holder)


def leave() -> None:
    """Write a checkpoint of the reconstruction that is open on this engine, end it, and wait until that is done.

    Rank 0 broadcasts the command; the other ranks wait for it.
    """
    run_registry.leave(LEAVE_SECONDS)
