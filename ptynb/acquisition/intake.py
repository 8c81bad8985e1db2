"""Intake: a thread that takes messages from a source at once, and holds them for the receiver.

The number of bytes that wait is limited: a detector's sender is held up after that, and a receiver that is a second
behind (a disk that writes) does not grow without end.
"""

from __future__ import annotations

import collections
import threading

from ptynb.acquisition.messages import Frame, LiveSource, MeasuredPositions, Message
from ptynb.exceptions import PtynbError
from ptynb.supervised_thread import SupervisedThread

MOST_BYTES = 2**26
"""Most bytes that wait, but for one message that is larger."""
TURN = 0.1
"""Time for which a source is waited for before the thread looks whether it should end [s]."""
CLOSING = 3.0
"""Time in which a source is closed [s]; one that hangs, such as a file whose server is gone, keeps no scan open."""
OVERHEAD = 500
"""Bytes of a message beside its counts."""


class Intake:
    """Messages of a source, in their order. `failed` is the error by which the source ended."""

    def __init__(self, source: LiveSource, name: str, arrived: threading.Event) -> None:
        self._source, self._arrived = source, arrived
        self._waiting: collections.deque[Message] = collections.deque()
        self._nbytes = 0
        self._room = threading.Condition()
        self._over = False
        self.failed: BaseException | None = None
        self._thread = SupervisedThread(f"ptynb-{name}", self._run)
        self._thread.start()

    def take(self, most: int, nbytes: int) -> list[Message]:
        """Return messages that have come, up to `most`, and no more after so many bytes."""
        taken: list[Message] = []
        with self._room:
            until = self._nbytes - nbytes
            while self._waiting and len(taken) < most and (self._nbytes > until or not taken):
                taken.append(self._waiting.popleft())
                self._nbytes -= _size(taken[-1])
            self._room.notify()
        return taken

    @property
    def is_over(self) -> bool:
        """Whether there are no messages, and will be no more."""
        with self._room:
            return self.failed is not None and not self._waiting

    def rest(self) -> list[Message]:
        """Return all messages that wait."""
        with self._room:
            rest = list(self._waiting)
            self._waiting.clear()
            self._nbytes = 0
        return rest

    def close(self) -> None:
        """End the thread, and close the source."""
        with self._room:
            self._over = True
            self._room.notify()
        self._thread.join(CLOSING)

    def _run(self) -> None:
        try:
            while not self._over:
                messages = self._source.poll(TURN)
                if not messages:
                    continue
                with self._room:
                    while self._nbytes > MOST_BYTES and not self._over:
                        self._room.wait()
                    self._waiting.extend(messages)
                    self._nbytes += sum(map(_size, messages))
                self._arrived.set()
        except BaseException as error:  # noqa: BLE001, given to the receiver, which ends by it
            self.failed = error
            self._arrived.set()
        finally:
            self._source.close()


def sentence(error: BaseException) -> str:
    """Return an error as a sentence; of errors that are not ptynb's, with its type."""
    return str(error) if isinstance(error, PtynbError) else f"{type(error).__name__}: {error}"


def _size(message: Message) -> int:
    if isinstance(message, Frame):
        return OVERHEAD + len(message.packed.data)
    return OVERHEAD + (message.values.nbytes if isinstance(message, MeasuredPositions) else 0)
