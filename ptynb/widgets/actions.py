"""The threads of widgets: `Actions` executes clicks in order, `repeat` updates a view periodically.

A callback of a widget only queues an action and returns. Thus a click never waits for an engine, works the
same wherever the notebook runs callbacks, and its error is shown in the widget.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ptynb.supervised_thread import SupervisedThread

logger = logging.getLogger(__name__)

Action = Callable[[], Any]
SHORTEST_PAUSE = 0.02
"""Time between two updates of a view, independent of their duration [s]."""


class Actions:
    """A queue of actions and the thread that executes them.

    complain: called with the exception of an action, and with None before each action, which removes the message.
    done: called after each action. say: called with the line of Python of an action that succeeded.
    All three are methods of the widget, stored as weak references: the thread ends when the widget is deleted or by
    `close`.
    """

    def __init__(
        self,
        name: str,
        complain: Callable[[Exception | None], None],
        done: Callable[[], None] | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._queue = _Queue()
        methods = [None if method is None else weakref.WeakMethod(method) for method in (complain, done, say)]
        SupervisedThread(name, _carry_out, self._queue, *methods, restarts=True).start()
        weakref.finalize(self, self._queue.end)

    def put(self, action: Action, instead_of: str | None = None, line: str | None = None) -> None:
        """Queue an action and return.

        instead_of: a key of actions of which only the newest is needed, such as the moves of a slider; a waiting
        action with the same key is replaced. line: the equivalent line of Python.
        """
        self._queue.put((instead_of, action, line))

    def settle(self, seconds: float = 30.0) -> None:
        """Wait until the queue is empty and the last action is done. Raises TimeoutError."""
        self._queue.settle(seconds)

    @property
    def busy(self) -> bool:
        """Whether an action is waiting or being carried out."""
        return self._queue.busy

    def close(self) -> None:
        """End the thread after the current action; waiting actions are dropped."""
        self._queue.end()


class _Queue:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: collections.deque[tuple[str | None, Action, str | None]] = collections.deque()
        self._ended = self.busy = False

    def put(self, entry: tuple[str | None, Action, str | None]) -> None:
        with self._changed:
            if self._ended:
                return
            if entry[0] is not None:
                self._waiting = collections.deque(other for other in self._waiting if other[0] != entry[0])
            self._waiting.append(entry)
            self.busy = True
            self._changed.notify_all()

    def take(self) -> tuple[Action, str | None] | None:
        """Wait for the next action and return it; None at the end."""
        with self._changed:
            self.busy = bool(self._waiting)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._ended)
            return None if self._ended else self._waiting.popleft()[1:]

    def settle(self, seconds: float) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: not self.busy or self._ended, seconds):
                raise TimeoutError(f"An action is still being carried out after {seconds:g} s.")

    def end(self) -> None:
        with self._changed:
            self._ended, self.busy = True, False
            self._waiting.clear()
            self._changed.notify_all()


Method = weakref.WeakMethod[Callable[..., None]]


def _carry_out(queue: _Queue, complain: Method, done: Method | None, say: Method | None) -> None:
    def call(reference: Method | None, *arguments: Any) -> None:
        if reference is not None and (method := reference()) is not None:
            method(*arguments)

    def guarded(step: Action) -> None:
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - shown to the user; the next action is still executed
            try:
                call(complain, error)
            except Exception:  # as in a widget that is being closed
                logger.exception("%s could not be shown", type(error).__name__)

    while (entry := queue.take()) is not None:

        def act(entry: tuple[Action, str | None] = entry) -> None:
            call(complain, None)
            entry[0]()
            if entry[1] is not None:
                call(say, entry[1])

        guarded(act)
        guarded(lambda: call(done))
        del entry, act


class Repeated(Protocol):
    """A view that is updated by a thread."""

    @property
    def closed(self) -> bool:
        """Whether the view was closed."""
        ...


View = TypeVar("View", bound=Repeated)


def repeat(
    view: View,
    name: str,
    seconds: float,
    work: Callable[[View], float | None],
    complain: Callable[[View, Exception | None], None],
    *,
    soon: threading.Event | None = None,
    over: Callable[[View], bool] = lambda view: False,
) -> threading.Event:
    """Call `work` periodically in a thread of this name until the view is closed or deleted.

    work: may return the delay of its next call [s]. complain: called with the exception of `work`,
    and with None when `work` succeeds again. over: whether the view is final; `work` is called once more.
    Returns `soon`: setting it makes the thread call `work`, or check whether the view was closed, immediately.
    """
    soon = soon or threading.Event()
    SupervisedThread(name, _repeat, weakref.ref(view), seconds, work, complain, soon, over, restarts=True).start()
    return soon


def _repeat(
    reference: weakref.ref[View],
    seconds: float,
    work: Callable[[View], float | None],
    complain: Callable[[View, Exception | None], None],
    soon: threading.Event,
    over: Callable[[View], bool],
) -> None:
    due, failing, last = time.monotonic() + seconds, False, False
    while not last:
        if soon.wait(max(due - time.monotonic(), 0)):
            soon.clear()
            due = time.monotonic()
        view = reference()
        if view is None or view.closed:
            return
        last = over(view)  # before the work: a view with a reference to a scan must not keep it alive afterwards
        pause: float | None = None
        try:
            pause = work(view)
            if failing and not view.closed:
                failing = False
                complain(view, None)
        except Exception as error:  # noqa: BLE001 - shown in the view, and the next call may succeed
            if not view.closed:
                failing = True
                complain(view, error)
        del view
        now = time.monotonic()
        due = max(due + seconds, now + SHORTEST_PAUSE) if pause is None else now + pause
