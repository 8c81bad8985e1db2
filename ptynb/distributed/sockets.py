"""The connections of a group, seen from outside of torch: to end them, and with them whatever waits for another rank.

torch (2.13) has no way to wake a thread that waits in a gloo collective for a rank whose machine has vanished without a
word: `abort` and `shutdown` of the group and of its backend, `destroy_process_group`, `_abort_process_group` and a
shorter timeout set meanwhile all return at once and change nothing; the thread raises when the timeout is over that the
group was made with. So the sockets themselves are shut down, which gloo takes as the other rank's end: the thread
raises within milliseconds (4 measured), and the group can be destroyed and another one formed in the same process.
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
"""Of a socket: its number and its inode, since the number alone may be another one's later."""


class Connections:
    """The sockets that this process opens between the making of this object and `gather`: those of one group.

    One that something else opens meanwhile counts too. What could, opens it again when it is ended (ZeroMQ does).
    """

    def __init__(self) -> None:
        self._before = _sockets()
        self._own: set[Descriptor] = set()
        self._lock = threading.Lock()
        self.aborted = False
        """Whether `abort` was called."""

    def gather(self) -> None:
        """Takes what was opened until now."""
        with self._lock:
            self._own = _sockets() - self._before

    def limit_silence(self, seconds: float) -> None:
        """Those to other machines end when these have not been heard for this long, as an error of theirs.

        On one machine a peer is only ever stopped, and its connection is as good as before when it goes on.
        """
        self._each(lambda connection: _limit_silence(connection, max(1, round(seconds))))

    def abort(self) -> None:
        """Ends those gathered; from any thread. What waits for another rank raises at once, nearly always.

        Only the reading half is shut down: where a thread of gloo writes just then, the error of writing would get
        lost, and the wait for it go on until the group's timeout (9 of 300 times so, 1 of 270 with the reading half
        alone: another rank's end is such an error too). A process that has not let go after a few seconds is to be
        replaced.
        """
        with self._lock:
            self.aborted = True
            self._each(lambda connection: connection.shutdown(socket.SHUT_RD))

    def _each(self, act: Callable[[socket.socket], None]) -> None:
        """On all but those that listen: gloo ends the process when it can't accept any more (seen)."""
        for descriptor in self._own:
            connection = _borrow(descriptor)
            if connection is not None:
                with connection, contextlib.suppress(OSError):  # it listens, or has ended already
                    connection.getpeername()
                    act(connection)


def _sockets() -> set[Descriptor]:
    """Of this process."""
    found = set()
    for name in os.listdir(DESCRIPTORS):
        with contextlib.suppress(OSError):  # closed meanwhile
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                found.add((int(name), status.st_ino))
    return found


def _borrow(descriptor: Descriptor) -> socket.socket | None:
    """A second handle of a socket of the internet; None where it was closed or its number is another one's now."""
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
        # With data under way there are no probes: the system would try again for a quarter of an hour.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * seconds)
