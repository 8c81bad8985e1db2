"""A ZeroMQ socket that pushes, as detectors have one."""

from __future__ import annotations

from typing import Any

import zmq

WAITING = 100
"""Most messages that wait for who pulls; then sending waits."""
LINGER = 20_000
"""Time for which the last messages of a series are still sent after closing [ms]."""


class Pushing:
    """Binds to a port (0: a free one) of an address, by default the loopback one."""

    def __init__(self, host: str, port: int) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PUSH)
        self._socket.setsockopt(zmq.SNDHWM, WAITING)
        self._socket.setsockopt(zmq.LINGER, 0)
        try:
            self._socket.bind(f"tcp://{host}:{port or '*'}")
        except BaseException:
            self.close()
            raise
        bound = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.place = bound.removeprefix("tcp://")

    def send(self, *parts: Any) -> None:
        """Send a message of parts; wait until somebody listens."""
        self._socket.send_multipart(parts, copy=False)

    def send_last(self, *parts: Any) -> None:
        """Send the last message, and have closing wait until all was sent."""
        self._socket.setsockopt(zmq.LINGER, LINGER)
        self.send(*parts)

    def close(self) -> None:
        """Close the socket; what was not sent is lost, but after the last message."""
        self._socket.close()
        self._context.term()
