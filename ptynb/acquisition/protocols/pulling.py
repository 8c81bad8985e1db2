"""Sources that push their messages by ZeroMQ, or publish them, each with the parser of its protocol."""

from __future__ import annotations

import time
from collections.abc import Callable

import zmq

from ptynb.acquisition.messages import LiveSource, Message
from ptynb.data.source_address import Address
from ptynb.exceptions import AcquisitionError

WAITING = 16
"""Most messages that ZeroMQ keeps; the receiver takes them out at once, and limits what waits by its bytes."""
LARGEST = 2**30
"""Most bytes of a part of a message; ZeroMQ closes the connection of a sender of more."""
MOST_AT_ONCE, BYTES_AT_ONCE = 64, 2**24
"""Most messages that are taken out in one go, and bytes after which no more are."""


class Pulling(LiveSource):
    """Messages from the host and port of an address, which binds; ZeroMQ connects again by itself.

    parse: makes a message of the parts of one and of the time of its arrival [s since 1970].
    """

    def __init__(
        self, address: Address, parse: Callable[[list[zmq.Frame], float], Message], *, subscribe: bool = False
    ) -> None:
        self.parse, place = parse, f"tcp://{address.place}:{address.port}"
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB if subscribe else zmq.PULL)
        if subscribe:
            self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        self._socket.setsockopt(zmq.RCVHWM, WAITING)
        self._socket.setsockopt(zmq.MAXMSGSIZE, LARGEST)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.IPV6, 1)
        try:
            self._socket.connect(place)
        except zmq.ZMQError as error:
            self.close()
            raise AcquisitionError(
                f"{place} is no address that can be connected to ({error}).",
                code="acquisition.source-lost",
            ) from None

    def poll(self, timeout: float) -> list[Message]:
        """Return the messages that have come; wait for the first one."""
        found: list[list[zmq.Frame]] = []
        nbytes = 0
        if self._socket.poll(int(1000 * timeout)):
            try:
                while len(found) < MOST_AT_ONCE and nbytes < BYTES_AT_ONCE:
                    found.append(self._socket.recv_multipart(zmq.NOBLOCK, copy=False))
                    nbytes += sum(map(len, found[-1]))
            except zmq.Again:
                pass
        return [self.parse(parts, time.time()) for parts in found]

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
        self._context.term()
