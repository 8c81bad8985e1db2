"""The live view: what a reconstruction is doing, and the controls that steer it.

Three threads serve it, none of them the kernel's: one looks (it pulls pictures and figures at the pace of the screen),
one asks for what may take longer (patterns, positions, how engines are), one acts (it carries out what was clicked, in
order). Callbacks of widgets only put an action in a queue, so they work the same wherever the notebook runs them, and a
click never waits for a picture.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets

from ptynb.settings import PART_OF_COMPONENT
from ptynb.widgets.actions import Action, Actions
from ptynb.widgets.elements import Whole, complaint, note, put
from ptynb.widgets.live.controls import Controls
from ptynb.widgets.live.live_text import health_table, record, state_of, summary
from ptynb.widgets.live.panes import Panes
from ptynb.widgets.live.pattern_comparison import PatternViewer
from ptynb.widgets.live.protocol import Moment, Tell, Watched, moment_of
from ptynb.widgets.live.shared_fields import row
from ptynb.widgets.loss_curve import loss_curve

ASK_SECONDS = 0.5
"""From one question for a pattern or positions to the next."""
HEALTH_SECONDS = 2.0
WORDS_SECONDS = 0.5
"""From one telling of where a run is, in words and curves, to the next: nobody reads faster, and pages draw slowly."""
LEAST_SECONDS = 0.02
TRIES = 4
"""How often in a turn's time it is tried whether the screen is ready."""
ACTION, LOOK, QUESTION = "action", "look", "question"
"""What the three threads do, each of which may go wrong."""
STANDING_STILL = ("failed", "closed", "recovering")
"""States in which nobody is asked for pictures."""


class Live(Whole):
    """Object, probe, positions, patterns, curves, engines and controls of a reconstruction; see `live`.

    tell: is given the line of Python that does what was clicked, once it is done; None: nobody is told.
    """

    tell: Tell | None = None

    def __init__(
        self, recon: Watched, rate: float = 10.0, size: int = 1024, extra: Sequence[ipywidgets.Widget] = ()
    ) -> None:
        self._recon, self._pause_seconds = recon, 1.0 / rate
        self._look_now, self._ask_now = threading.Event(), threading.Event()
        self._ended = threading.Event()
        self._drawn: tuple[Any, ...] = ()
        self._words_about: tuple[Any, ...] = ()
        self._not_before = self._health_at = self._words_at = float("-inf")
        self._positions_of: tuple[int, Moment] | None = None
        self._failure: Exception | None = None
        self._troubles: dict[str, str] = {}
        self._saying = threading.Lock()
        self._told_notices: tuple[str, ...] = ()
        self._curve = ipywidgets.HTML(loss_curve([]), layout=ipywidgets.Layout(width="100%"))
        self._summary, self._message, self._notices = ipywidgets.HTML(), ipywidgets.HTML(), ipywidgets.HTML()
        self._record, self._health = ipywidgets.HTML(), ipywidgets.HTML()
        self._actions = Actions("ptynb live actions", self._complain, self._forget_complaint, self._look_soon)
        this = weakref.ref(self)  # what the parts call back must not keep the view alive
        self._controls = Controls(recon, lambda action, line: _of(this)._act(action, line))
        self._panes = Panes(
            recon, size, lambda: _of(this)._look_soon(), lambda y, x: _of(this)._act(_of(this)._choose_at, None, y, x)
        )
        self._patterns = PatternViewer(
            recon, lambda index: _of(this)._act(_of(this)._choose, None, index), lambda: _of(this)._look_soon()
        )
        self._over = ipywidgets.Dropdown(
            options=["epochs", "seconds"],
            description="Loss over",
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="170px"),
        )
        self._over.observe(lambda _: _of(this)._look_soon(), "value")
        super().__init__(
            [
                self._summary,
                *self._controls.widgets,
                self._message,
                self._notices,
                *extra,
                *self._panes.widgets,
                *self._patterns.widgets,
                self._beside(),
            ]
        )
        self.layout.overflow = "visible"
        self.add_class("ptynb-live")
        for name, turn in (("ptynb live view", _look), ("ptynb live questions", _ask)):
            threading.Thread(target=turn, args=(this,), name=name, daemon=True).start()

    def _beside(self) -> ipywidgets.HBox:
        """The curves, and the tables beside them."""
        above = row(self._over, self._controls.r_factor.widget, grid_gap="2px 12px")
        wide = ipywidgets.Layout(width="480px", max_width="100%", overflow="visible")
        tables = ipywidgets.VBox([self._health, self._record], layout=ipywidgets.Layout(overflow="visible"))
        beside = row(ipywidgets.VBox([above, self._curve], layout=wide), tables, grid_gap="0 24px")
        beside.layout.align_items = "flex-start"
        return beside

    def close(self) -> None:
        """Ends the view and its threads; the reconstruction goes on."""
        self._ended.set()
        self._actions.close()
        self._look_now.set()
        self._ask_now.set()
        super().close()

    @property
    def closed(self) -> bool:
        """Whether the view was closed."""
        return self._ended.is_set()

    # What the looking thread does

    def refresh(self) -> bool:
        """Takes over state and record now, and new pictures where the screen is ready for them.

        Returns whether there are such and the screen was not ready.
        """
        recon = self._recon
        status = recon.last_status()
        self._tell_failure(recon.failure)
        if self._told_notices != recon.notices:
            self._told_notices = recon.notices
            put(self._notices, "".join(note(notice) for notice in recon.notices))
        if status is None:
            put(self._summary, "starting: engines read the scan")
            return False
        state = state_of(recon, status)
        self._controls.follow(
            state, {PART_OF_COMPONENT.get(name, name) for name in status.rates}
        )  # before the words: who reads "paused" can click Resume
        if self._words_are_due(state):
            put(self._summary, summary(recon, status, state, recon.epochs))
            self._draw_curve()
        # What is known of a run is up to 0.1 s old: its pictures are newer, and asked for without looking.
        new = state == "running" or self._panes.needs(status.epoch, status.update)
        if state in STANDING_STILL or not new:
            return False
        if time.monotonic() < self._not_before or not self._panes.ready:
            return True
        self._not_before = time.monotonic() + self._panes.look()
        return False

    def _words_are_due(self, state: str) -> bool:
        """Now and then; at once where somebody changed something, chose something else, and for the last time."""
        about, now = (state, self._recon.changes[-1:], self._over.value), time.monotonic()
        if about == self._words_about and now - self._words_at < WORDS_SECONDS and not self._recon.closed:
            return False
        self._words_about, self._words_at = about, now
        return True

    def _draw_curve(self) -> None:
        epochs, changes, r_factors = self._recon.epochs, self._recon.changes, self._recon.r_factors
        wanted = (
            len(epochs),
            epochs[-1:],
            len(changes),
            changes[-1:],
            len(r_factors),
            r_factors[-1:],
            self._over.value,
        )
        if wanted == self._drawn:
            return
        self._drawn = wanted
        losses, marks = [epoch.loss for epoch in epochs], [change.epoch + 1 for change in changes]
        seconds = [epoch.seconds for epoch in epochs] if self._over.value == "seconds" else None
        put(self._curve, loss_curve(losses, marks, r_factors=r_factors, seconds=seconds))
        put(self._record, record(changes))

    # What the asking thread does

    def ask(self) -> None:
        """Takes over what may take longer: the chosen pattern, positions, and how the engines are."""
        status = self._recon.last_status()
        if status is None or status.state == "loading" or state_of(self._recon, status) in STANDING_STILL:
            return
        self._patterns.look(status.epoch, status.update)
        state = status.epoch, moment_of(self._recon)
        if self._panes.wants_positions and self._positions_of != state:
            self._panes.show_positions(*self._recon.positions)
            self._positions_of = state
        if time.monotonic() - self._health_at >= HEALTH_SECONDS:
            put(self._health, health_table(self._recon.health()))
            self._health_at = time.monotonic()  # after it: what failed is asked again at the next turn

    # What was clicked

    def _act(self, action: Callable[..., None], line: str | None, *arguments: Any) -> None:
        """Queues an action, and after it the line of Python that does the same."""
        self._actions.put(_told(weakref.ref(self), action, line, arguments))

    def _choose_at(self, y: float, x: float) -> None:
        self._choose(self._panes.nearest(y, x))

    def _choose(self, index: int) -> None:
        self._patterns.choose(index)
        self._panes.choose(index)
        self._ask_now.set()
        self._say(f"recon.pattern({index})")

    def _say(self, line: str) -> None:
        if self.tell is not None:
            self.tell(line)

    def _look_soon(self) -> None:
        self._look_now.set()
        self._ask_now.set()

    # What went wrong

    def _tell_failure(self, failure: Exception | None) -> None:
        """As long as it lasts; what went wrong before it began or ended is over then."""
        if failure is not self._failure:
            self._failure = failure
            self._troubles.clear()
            self._show_message()

    def _complain(self, error: Exception | str, about: str = ACTION) -> None:
        """Shows what went wrong, in the place of what went wrong before in the same thread."""
        self._troubles[about] = complaint(error)
        self._show_message()

    def _forget_complaint(self, about: str = ACTION) -> None:
        if self._troubles.pop(about, None) is not None:
            self._show_message()

    def _show_message(self) -> None:
        """The failure, if there is one, and beneath it what else went wrong in any of the three threads."""
        with self._saying:
            failure = () if self._failure is None else (complaint(self._failure),)
            put(self._message, "".join(dict.fromkeys((*failure, *self._troubles.copy().values()))))


def live(recon: Any, rate: float = 10.0, size: int = 1024, extra: Sequence[ipywidgets.Widget] = ()) -> Live:
    """A view of a reconstruction while it runs: pictures, patterns, curves, engines, and what steers it.

    rate: pictures a second at most; the screen's own pace may be lower. size: longest side of the object's pictures
    [screen pixels]. extra: widgets to be shown below the controls; they are closed with the view. As the last line of a
    cell it appears below it; several views of one reconstruction are fine.
    """
    return Live(recon, rate, size, extra)


def _of(reference: weakref.ref[Live]) -> Live:
    view = reference()
    assert view is not None, "its own parts call it"
    return view


def _told(
    reference: weakref.ref[Live], action: Callable[..., None], line: str | None, arguments: tuple[Any, ...]
) -> Action:
    def act() -> None:
        action(*arguments)
        view = reference()
        if view is not None and line is not None:
            view._say(line)

    return act


def _look(reference: weakref.ref[Live]) -> None:
    _turn(reference, LOOK, lambda view: (view.refresh, view._look_now, view._pause_seconds))


def _ask(reference: weakref.ref[Live]) -> None:
    _turn(reference, QUESTION, lambda view: (view.ask, view._ask_now, ASK_SECONDS))


def _turn(
    reference: weakref.ref[Live],
    name: str,
    of: Callable[[Live], tuple[Callable[[], bool | None], threading.Event, float]],
) -> None:
    """Does the same again and again, at a pace, until the view or the reconstruction is closed.

    name: under which the view remembers what went wrong, until the same works again. Work that returns True had to wait
    for the screen and is tried again soon: else each such turn would cost a whole picture.
    """
    due = time.monotonic()
    while True:
        view = reference()
        if view is None or view.closed:
            return
        work, at_once, pace = of(view)
        ended = view._recon.closed  # before the look: what ends during it is looked at once more
        put_off: bool | None = False
        try:
            put_off = work()
            if not view.closed:
                view._forget_complaint(name)
        except Exception as error:  # noqa: BLE001 - a view that fails says so and goes on
            if not view.closed:
                view._complain(_named(error), name)
        if ended:
            return  # that was the last look: nothing changes any more, and the view must not keep its scan alive
        del work, view
        now = time.monotonic()
        due = now + pace / TRIES if put_off else max(due + pace, now + LEAST_SECONDS)
        if at_once.wait(due - now):
            at_once.clear()
            due = time.monotonic()


def _named(error: Exception) -> Exception | str:
    return f"{type(error).__name__}: {error}"
