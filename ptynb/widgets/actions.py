"""Actions: what was clicked, carried out in order by one thread that is not the kernel's.

Callbacks of widgets only put an action in a queue and return, so that a click never waits for an engine, works the same
wherever the notebook runs callbacks, and an error is shown in the widget rather than lost in a log.
"""

from __future__ import annotations

import collections
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)

Action = Callable[[], Any]


class Actions:
    """A queue of actions and the thread that carries them out.

    name: of the thread. complain: is given what an action raised; clear: is called before each action, to take an
    earlier complaint away; done: after each. They are methods of the widget, which the thread does not keep alive; a
    widget that is gone, or `close`, ends the thread.
    """

    def __init__(
        self,
        name: str,
        complain: Callable[[Exception], None],
        clear: Callable[[], None] | None = None,
        done: Callable[[], None] | None = None,
    ) -> None:
        self._queue = _Queue()
        told = _Told(*(None if method is None else weakref.WeakMethod(method) for method in (complain, clear, done)))
        threading.Thread(target=_carry_out, args=(self._queue, told), name=name, daemon=True).start()
        weakref.finalize(self, self._queue.end)

    def put(self, action: Action, instead_of: str | None = None) -> None:
        """Queues an action and returns at once.

        instead_of: a word for actions of which only the newest counts, such as the moves of a slider: one that still
        waits under the same word is replaced.
        """
        self._queue.put(action, instead_of)

    def settle(self, seconds: float = 30.0) -> None:
        """Waits until all that was put so far is done. Raises TimeoutError."""
        self._queue.settle(seconds)

    @property
    def busy(self) -> bool:
        """Whether an action waits or is under way."""
        return self._queue.busy

    def close(self) -> None:
        """Ends the thread after the action under way; what waits is dropped."""
        self._queue.end()


class _Told(collections.namedtuple("_Told", "complain clear done")):
    """Weak references to the widget's methods."""

    __slots__ = ()

    def __call__(self, which: str, *arguments: Any) -> None:
        reference = getattr(self, which)
        method = reference() if reference is not None else None
        if method is not None:
            method(*arguments)


class _Queue:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: collections.deque[tuple[str | None, Action]] = collections.deque()
        self._ended = self.busy = False

    def put(self, action: Action, instead_of: str | None) -> None:
        with self._changed:
            if self._ended:
                return
            if instead_of is not None:
                self._waiting = collections.deque(entry for entry in self._waiting if entry[0] != instead_of)
            self._waiting.append((instead_of, action))
            self.busy = True
            self._changed.notify_all()

    def take(self) -> Action | None:
        """The next one, once there is one; None at the end."""
        with self._changed:
            self.busy = bool(self._waiting)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._ended)
            return None if self._ended else self._waiting.popleft()[1]

    def settle(self, seconds: float) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: not self.busy or self._ended, seconds):
                raise TimeoutError(f"Still at work after {seconds:g} s.")

    def end(self) -> None:
        with self._changed:
            self._ended, self.busy = True, False
            self._waiting.clear()
            self._changed.notify_all()


def _carry_out(waiting: _Queue, told: _Told) -> None:
    while (action := waiting.take()) is not None:
        try:
            told("clear")
            action()
        except Exception as error:  # noqa: BLE001 - shown to the user, who caused it by a click
            _tell_of(error, told)
        try:
            told("done")
        except Exception as error:  # noqa: BLE001 - else no later click would do anything
            _tell_of(error, told)
        del action


def _tell_of(error: Exception, told: _Told) -> None:
    """Shows what was raised; where even that fails, as in a widget that is being closed, it is logged."""
    try:
        told("complain", error)
    except Exception:
        logger.exception("%s could not be shown", type(error).__name__)
