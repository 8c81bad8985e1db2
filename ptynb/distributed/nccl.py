"""Collectives by NCCL: how torch is told to treat their failures, and how they are ended.

A collective by NCCL is a kernel, which waits on the GPU for the other ranks, for ever if one of them does not come.
The host waits later, in the next call that needs a number from the GPU, and no timeout ends that. What does is
ncclCommAbort, after which the kernel ends, and with it the host's wait; what it has summed up is not valid then.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol

from ptynb.supervised_thread import SupervisedThread

SETTINGS = {
    # By default (3, SkipCleanUp) torch's watchdog ends the process after an error or a timeout. With 2 (CleanUpOnly) it
    # aborts the communicator, so that the host's wait ends, and leaves the process to us ("just clean up collectives
    # and abort communicators without tearing down process": torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp).
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "2",
    # The watchdog sleeps for four times this long before it does anything, to leave time for dumps (default: 1 min).
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "250",
    # Otherwise the thread that dumps sleeps for eight minutes, ends the process after them, and is joined meanwhile by
    # the destructor of the group, which holds Python's lock (ProcessGroupNCCL::HeartbeatMonitor::runLoop).
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
}
"""Environment variables that torch reads when a group is formed; a user's own are kept."""


def set_environment() -> None:
    """Set the variables, before a group is formed."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


class Abortable(Protocol):
    """The part of torch's ProcessGroupNCCL that is used here."""

    def abort(self) -> None:
        """End all kernels of this rank."""


class Connecting:
    """The connection of the GPUs, watched like a collective: nothing but the end of the process ends it if it hangs."""

    def __init__(self) -> None:
        self._done = threading.Event()

    def done(self) -> None:
        """Note that all are connected, or that it failed."""
        self._done.set()

    def is_completed(self) -> bool:
        """Return whether it has ended."""
        return self._done.is_set()

    def wait(self) -> None:
        """Wait for its end."""
        self._done.wait()


class Abort:
    """Ends all collectives of a group on its GPU, and with them its waits; afterwards the group can only be closed.

    In a thread of its own, since ncclCommAbort may hang: torch then waits for it without end.
    """

    def __init__(self, backend: Abortable) -> None:
        """backend: of the group's GPU."""
        self._thread = SupervisedThread("ptynb NCCL abort", backend.abort)
        self._lock = threading.Lock()
        self.started = False

    def start(self) -> None:
        """Begin to abort; once, from any thread."""
        with self._lock:
            if not self.started:
                self.started = True
                self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Abort, and return whether it is done within this time."""
        self.start()
        self._thread.join(seconds)
        return not self._thread.is_alive()
