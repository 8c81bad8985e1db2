"""The threads of widgets: `Actions` executes clicks in order, `repeat` updates a view periodically.

A callback of a widget only queues an action and returns. Thus a click never waits for an engine, works the
same wherever the notebook runs callbacks, and its error is shown in the widget.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ptynb.supervised_thread import SupervisedThread

logger = logging.getLogger(__name__)

Action = Callable[[], Any]
SHORTEST_PAUSE = 0.02
"""Time between two updates of a view, independent of their duration [s]."""


class CancelledError(Exception):
    """The user has cancelled an action."""


class Actions:
    """Lanes of actions and the threads that execute them.

    Actions of one lane are executed in order; lanes do not wait for each other, but for those named in `after`. A lane
    is what its actions are about, such as the scan or the run.

    complain: called with the exception of an action, and with None before each action, which removes the message; or
    with an exception of another lane that was not shown yet when the action was put. done: called after each action.
    say: called with the line of Python of an action that succeeded. All three are methods of the widget, stored as weak
    references: the threads end when the widget is deleted or by `close`.
    """

    def __init__(
        self,
        name: str,
        complain: Callable[[Exception | None], None],
        done: Callable[[], None] | None = None,
        say: Callable[[str], None] | None = None,
        lanes: Collection[str] = ("",),
    ) -> None:
        self._queue, self._lanes = _Queue(), frozenset(lanes)
        methods = (None if method is None else weakref.WeakMethod(method) for method in (complain, done, say))
        told = _Told(*methods)
        for lane in lanes:
            thread = f"{name}: {lane}" if lane else name
            SupervisedThread(thread, _carry_out, self._queue, lane, told, restarts=True).start()
        weakref.finalize(self, self._queue.end)

    def put(
        self,
        action: Action,
        instead_of: str | None = None,
        line: str | None = None,
        lane: str = "",
        after: Collection[str] = (),
    ) -> None:
        """Queue an action and return.

        instead_of: a key of actions of which only the newest is needed, such as the moves of a slider; a waiting
        action with the same key is replaced. line: the equivalent line of Python. after: other lanes, whose actions
        that are queued already are done first.
        """
        assert {lane, *after} <= self._lanes, f"{lane!r} or one of {after} is no lane of {self._lanes}"
        self._queue.put(action, instead_of, line, lane, after)

    def settle(self, seconds: float = 30.0) -> None:
        """Wait until no action is waiting or being carried out. Raises TimeoutError."""
        self._queue.settle(seconds)

    @property
    def busy(self) -> bool:
        """Whether an action is waiting or being carried out."""
        return self._queue.busy

    def close(self) -> None:
        """End the threads after their current actions; waiting actions are dropped."""
        self._queue.end()


@dataclass(frozen=True, eq=False)
class _Entry:
    action: Action
    key: str | None
    line: str | None
    lane: str
    after: frozenset[str]
    number: int


class _Queue:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[_Entry] = []
        self._current: dict[str, _Entry] = {}
        self._ended, self.count = False, 0

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._current)

    def put(self, action: Action, key: str | None, line: str | None, lane: str, after: Collection[str]) -> None:
        with self._changed:
            if self._ended:
                return
            if key is not None:
                self._waiting = [other for other in self._waiting if other.key != key]
            self.count += 1
            self._waiting.append(_Entry(action, key, line, lane, frozenset({lane, *after}), self.count))
            self._changed.notify_all()

    def take(self, lane: str) -> _Entry | None:
        """End the current action of a lane, wait for its next one and return it; None at the end."""
        with self._changed:
            self._current.pop(lane, None)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ended or self._next(lane) is not None)
            entry = None if self._ended else self._next(lane)
            if entry is not None:
                self._waiting.remove(entry)
                self._current[lane] = entry
            return entry

    def _next(self, lane: str) -> _Entry | None:
        """Return the first action of a lane if nothing that it follows is to be done before."""
        entry = next((one for one in self._waiting if one.lane == lane), None)
        if entry is None:
            return None
        others = (*self._waiting, *self._current.values())
        return None if any(one.lane in entry.after and one.number < entry.number for one in others) else entry

    def settle(self, seconds: float) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: not self.busy or self._ended, seconds):
                raise TimeoutError(f"An action is still being carried out after {seconds:g} s.")

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._waiting.clear()
            self._current.clear()
            self._changed.notify_all()


Method = weakref.WeakMethod[Callable[..., None]]


class _Told:
    """What the widget is told. An exception is shown until an action begins that was put after it, or of its lane."""

    def __init__(self, complain: Method | None, done: Method | None, say: Method | None) -> None:
        self._complain, self._done, self._say = complain, done, say
        self._lock, self._errors = threading.Lock(), dict[str, tuple[BaseException, int]]()

    def begin(self, entry: _Entry) -> None:
        with self._lock:
            for lane, (_, number) in [*self._errors.items()]:
                if lane == entry.lane or number < entry.number:
                    del self._errors[lane]
            _call(self._complain, next((error for error, _ in reversed(self._errors.values())), None))

    def complain(self, lane: str, error: BaseException, number: int) -> None:
        """Show an exception; number: of the newest action."""
        with self._lock:
            self._errors[lane] = error, number
            _call(self._complain, error)

    def done(self) -> None:
        _call(self._done)

    def say(self, line: str) -> None:
        _call(self._say, line)


def _call(reference: Method | None, *arguments: Any) -> None:
    if reference is not None and (method := reference()) is not None:
        method(*arguments)


def _carry_out(queue: _Queue, lane: str, told: _Told) -> None:
    def guarded(step: Action) -> None:
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - shown to the user; the next action is still executed
            try:
                told.complain(lane, error, queue.count)
            except Exception:  # as in a widget that is being closed
                logger.exception("%s could not be shown", type(error).__name__)

    while (entry := queue.take(lane)) is not None:

        def act(entry: _Entry = entry) -> None:
            told.begin(entry)
            entry.action()
            if entry.line is not None:
                told.say(entry.line)

        guarded(act)
        guarded(told.done)
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
