"""The sockets of a group's connections, shut down to end waits for another rank.

torch (2.13) cannot wake a thread that waits in a gloo collective for a rank whose machine is lost without closing its
connections: `abort` and `shutdown` of the group and of its backend, `destroy_process_group`, `_abort_process_group` and
a shorter timeout set meanwhile all return at once without effect; the thread raises only after the timeout that the
group was created with. Therefore the sockets are shut down, which gloo treats as the end of the other rank: the thread
raises within milliseconds (4 measured), the group can be destroyed, and a new one formed in the same process.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
import threading
from collections.abc import Callable

DESCRIPTORS = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
PROBES = 3

Descriptor = tuple[int, int]
"""Number and inode of a socket, since the number alone may be reused."""


class Connections:
    """The sockets that this process opens between the creation of this object and `gather`: those of one group.

    Sockets that other code opens meanwhile are included; such code reopens those that are ended (ZeroMQ does).
    """

    def __init__(self) -> None:
        self._before = _sockets()
        self._own: set[Descriptor] = set()
        self._lock = threading.Lock()
        self._on_abort: Callable[[], None] | None = None
        self.aborted = False
        """Whether `abort` was called."""

    def on_abort(self, act: Callable[[], None] | None) -> None:
        """Let `abort` also call `act`, which must return at once: for waits on a GPU, which no socket ends."""
        with self._lock:
            self._on_abort = act
            if self.aborted and act is not None:
                act()

    def gather(self) -> None:
        """Collect the sockets opened until now."""
        with self._lock:
            self._own = _sockets() - self._before

    def limit_silence(self, seconds: float) -> None:
        """Let connections to other machines fail if nothing was received for this many seconds.

        On one machine a peer can only be suspended, and its connection works again when it is resumed.
        """
        self._each(lambda connection: _limit_silence(connection, max(1, round(seconds))))

    def abort(self) -> None:
        """Shut down the collected sockets; from any thread. Waits for another rank then raise at once, nearly always.

        Only the reading half is shut down: if a gloo thread writes at that moment, the error of writing may be lost and
        the wait continue until the group's timeout (9 of 300 times so, 1 of 270 with the reading half alone, since the
        end of another rank is such an error too). A process that still waits after a few seconds has to be replaced.
        """
        with self._lock:
            self.aborted = True
            self._each(lambda connection: connection.shutdown(socket.SHUT_RD))
            if self._on_abort is not None:  # last: what waits on the GPU goes on by it, and must not agree any more
                self._on_abort()

    def close(self) -> None:
        """Shut down the collected sockets for good, before this process ends: the other ranks get an error at once."""
        with self._lock:
            self.aborted = True
            self._each(lambda connection: connection.shutdown(socket.SHUT_RDWR))

    def _each(self, act: Callable[[socket.socket], None]) -> None:
        """Call `act` for all but listening sockets: gloo ends the process if it cannot accept connections (seen)."""
        for descriptor in self._own:
            connection = _borrow(descriptor)
            if connection is not None:
                with connection, contextlib.suppress(OSError):  # it listens, or has ended already
                    connection.getpeername()
                    act(connection)


def _sockets() -> set[Descriptor]:
    """Return the sockets of this process; none on Windows, where only the group's time limit ends a wait."""
    found = set()
    for name in os.listdir(DESCRIPTORS) if os.path.isdir(DESCRIPTORS) else ():
        with contextlib.suppress(OSError):  # closed meanwhile
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                found.add((int(name), status.st_ino))
    return found


def _borrow(descriptor: Descriptor) -> socket.socket | None:
    """Return a second handle of an internet socket; None if it was closed or its number reused."""
    number, inode = descriptor
    try:
        copy = os.dup(number)
    except OSError:
        return None
    if os.fstat(copy).st_ino == inode and stat.S_ISSOCK(os.fstat(copy).st_mode):
        connection = socket.socket(fileno=copy)
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            return connection
        connection.close()
        return None
    os.close(copy)
    return None


def _limit_silence(connection: socket.socket, seconds: int) -> None:
    if connection.getpeername()[0] == connection.getsockname()[0]:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        each = max(1, seconds // (PROBES + 1))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, each)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, each)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
        # While data is unacknowledged no probes are sent: the system would retransmit for a quarter of an hour.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * seconds)
