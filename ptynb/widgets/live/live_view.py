"""The live view: the state of a reconstruction while it runs, and its controls.

Pictures, loss curve and state have the window; controls are in a column beside them that folds away, and what is looked
at now and then (patterns, positions, errors, convergence, engines, changes) is in a drawer below
(`ptynb.widgets.layout`).

It has three threads besides the kernel's: one updates pictures and figures at the rate of the screen, one
requests what may take longer (patterns, positions, the state of engines), one executes clicks in order. Callbacks of
widgets only put an action in a queue, so that a click never waits for a picture.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ptynb.data.arrivals import Arrivals
from ptynb.data.engine_records import Status
from ptynb.settings import PART_OF_COMPONENT
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions, repeat
from ptynb.widgets.layout.divider import Divider
from ptynb.widgets.layout.drawer import Drawer
from ptynb.widgets.layout.own_tab import OwnTab
from ptynb.widgets.live.arrival_bar import arrival_bar
from ptynb.widgets.live.controls import Controls
from ptynb.widgets.live.errors_page import LINE as ERRORS_LINE
from ptynb.widgets.live.errors_page import ErrorsPage
from ptynb.widgets.live.live_text import change_table, facts, health_table, speed_of, state_of, summary
from ptynb.widgets.live.panes import Panes
from ptynb.widgets.live.pattern_comparison import PatternViewer
from ptynb.widgets.live.positions_page import LINE as POSITIONS_LINE
from ptynb.widgets.live.protocol import Moment, Tell, Watched, moment_of
from ptynb.widgets.loss_curve import change_curves, loss_curve
from ptynb.widgets.shared_widgets import complaint, free, note, put

REQUEST_SECONDS = 0.5
"""Interval of requests for a pattern or positions."""
HEALTH_SECONDS = 2.0
POSITIONS_SECONDS = 1.0
TEXT_SECONDS = 0.5
"""Interval of text and curves; a shorter one is not readable, and pages draw slowly."""
WAITING_SECONDS, AWAKE_SECONDS = 0.25, 1.0
"""Interval of looks at a run that is not running, and the time after a click in which it is `EAGER_SECONDS`."""
EAGER_SECONDS = 0.03
TRIES = 4
"""Number of checks per interval of pictures while the screen is not ready."""
ACTION, UPDATE, REQUEST = "action", "update", "request"
"""The three threads; each may have an error to show."""
PATTERN, POSITIONS, ERRORS = "Pattern", "Positions", "Errors"
CONVERGENCE, ENGINES, CHANGES = "Convergence", "Engines", "Changes"
"""The pages of the drawer."""
ICONS = {
    PATTERN: "grid-3x3",
    POSITIONS: "crosshair",
    ERRORS: "map",
    CONVERGENCE: "chart-line",
    ENGINES: "server",
    CHANGES: "list",
    "More": "ellipsis",
    "Live settings": "sliders-horizontal",
    "Checkpoints": "history",
    "Diagnosis": "stethoscope",
}
LINES = {POSITIONS: POSITIONS_LINE, ERRORS: ERRORS_LINE}
"""The Python of pages that show the values of a function."""
NO_PICTURES = ("failed", "closed", "recovering")
"""States in which no pictures are requested from engines."""


class Live(elements.VBox):
    """Object, probe, positions, patterns, curves, engines and controls of a reconstruction; see `live`.

    tell: called with the line of Python equivalent to a click, after the click was carried out.
    """

    tell: Tell | None = None

    def __init__(
        self,
        recon: Watched,
        rate: float = 10.0,
        size: int = 1024,
        extra: Sequence[elements.Element] = (),
        pages: Mapping[str, elements.Element] | None = None,
    ) -> None:
        """pages: further pages of the drawer, by title; they are closed with the view."""
        self._recon, self._pause_seconds = recon, 1.0 / rate
        self._update_now, self._request_now = threading.Event(), threading.Event()
        self._ended = threading.Event()
        self._drawn: tuple[Any, ...] = ()
        self._text_of: tuple[Any, ...] = ()
        self._not_before = self._health_at = self._text_at = self._awake_until = float("-inf")
        self._speed: float | None = None
        self._positions_of: tuple[int, int, Moment] | None = None
        self._positions_at = float("-inf")
        self._failure: Exception | None = None
        self._errors: dict[str, str] = {}
        self._message_lock, self._state_lock = threading.Lock(), threading.Lock()
        self._shown_notices: tuple[str, ...] = ()
        self._curve = elements.HTML(loss_curve([]))
        self._changes_curve = elements.HTML(layout=elements.Layout(width="480px", max_width="100%"))
        self._summary, self._message, self._notices = elements.HTML(), elements.HTML(), elements.HTML()
        self._arrivals = elements.HTML(layout=elements.Layout(display="none"))
        self._record, self._health, self._facts = elements.HTML(), elements.HTML(), elements.HTML()
        self._actions = Actions("ptynb live actions", self._complain, self._obeyed, self._say)
        this = weakref.ref(self)  # the callbacks of the parts must not keep the view alive
        self._controls = Controls(recon, self._actions)
        self._panes = Panes(recon, size, lambda: _of(this)._update_soon(), lambda y, x: _of(this)._clicked(y, x))
        self._panes.object.tell = lambda line: _of(this)._say(line)
        self._patterns = PatternViewer(recon, lambda index: _of(this)._entered(index), lambda: _of(this)._update_soon())
        self._errors_page = ErrorsPage(
            recon, lambda index: _of(this)._entered(index), lambda line: _of(this)._say(line)
        )
        self._over = elements.Dropdown(
            options=["epochs", "seconds"],
            description="Loss over",
            style={"description_width": "initial"},
            layout=elements.Layout(width="auto"),
        )
        self._over.observe(lambda _: _of(this)._update_soon(), "value")
        self._divider, tab = Divider(), OwnTab(title="Live view")
        self._divider.observe(lambda _: _of(this)._update_soon(), "room")
        self._drawer = Drawer(
            {
                PATTERN: elements.VBox([*self._patterns.widgets], layout=free()),
                POSITIONS: self._panes.arrows.widget,
                ERRORS: self._errors_page.widget,
                CONVERGENCE: self._changes_curve,
                ENGINES: elements.VBox([self._facts, self._health], layout=free()),
                CHANGES: self._record,
                **(pages or {}),
            },
            "Below the pictures",
            icons=ICONS,
        )
        self._drawer.on_change(lambda: _of(this)._turned())
        head = elements.HBox([self._summary, tab], layout=free())
        head.add_class("ptynb-live-head")
        above = [head, self._arrivals, self._message, self._notices]
        super().__init__([*above, self._split(extra), self._drawer], layout=free())
        self.add_class("ptynb-live")
        self._update_soon()
        for name, seconds, work, thread, soon in (
            ("ptynb live view", self._pause_seconds, Live.refresh, UPDATE, self._update_now),
            ("ptynb live requests", REQUEST_SECONDS, Live.request, REQUEST, self._request_now),
        ):
            complain = partial(_complain, thread=thread)
            repeat(self, name, seconds, work, complain, soon=soon, over=lambda view: view._recon.closed)

    def _split(self, extra: Sequence[elements.Element]) -> elements.Box:
        """Return pictures and loss curve, the divider, and the column of controls."""
        self._curve.add_class("ptynb-curve")
        pictures = elements.Box([self._panes.object, self._panes.probe, self._curve, self._panes.cuts.viewer])
        pictures.add_class("ptynb-split-pictures")
        more = elements.VBox([self._controls.r_factor.widget, self._over])
        drawer = Drawer({"More": more}, "Rarely used controls", icons=ICONS)
        controls = elements.VBox(
            [self._controls.run, self._controls.parts, self._panes.choices, *extra, drawer],
        )
        controls.add_class("ptynb-split-controls")
        split = elements.Box([pictures, self._divider, controls])
        split.add_class("ptynb-split")
        return split

    def close(self) -> None:
        """Close the view and end its threads; the reconstruction continues."""
        self._ended.set()
        self._actions.close()
        self._errors_page.close()
        self._update_soon()
        super().close()

    @property
    def closed(self) -> bool:
        """Whether the view was closed."""
        return self._ended.is_set()

    @property
    def page(self) -> str | None:
        """Title of the page of the drawer that is shown; None: it is shut."""
        return self._drawer.shown

    def on_page(self, callback: Callable[[], None]) -> None:
        """Register a function that is called when another page of the drawer is shown."""
        self._drawer.on_change(callback)

    # The thread that updates the view

    def refresh(self) -> float | None:
        """Show the current state, and new pictures if the screen is ready for them.

        Returns the seconds until the next try if there are new pictures and the screen is not ready.
        """
        status = self._recon.last_status()
        state = self._show_state(status)
        if status is None:
            return None
        # The status is up to 0.1 s old: while running, newer pictures than it reports exist.
        new = state == "running" or self._panes.needs(status.epoch, status.update)
        if state in NO_PICTURES or not new:
            if state not in ("ready", "paused"):
                return None
            clicked = time.monotonic() < self._awake_until
            return EAGER_SECONDS if clicked else max(WAITING_SECONDS, self._pause_seconds)
        now = time.monotonic()
        if now < self._not_before:
            return self._not_before - now
        if not self._panes.ready:
            return self._pause_seconds / TRIES  # a whole interval would cost a picture
        # From the request on: the engine copies at its beginning, and rendering may take most of an interval.
        self._not_before = now + self._panes.update()
        return None

    def _show_arrivals(self, arrivals: Arrivals | None) -> None:
        """Show the bar of a scan that is being measured; for others it takes no room."""
        put(self._arrivals, arrival_bar(arrivals))
        shown = "none" if arrivals is None else None
        if self._arrivals.layout.display != shown:
            self._arrivals.layout.display = shown

    def _show_state(self, status: Status | None) -> str:
        """Show failure, notices, controls, text and curves of this status, and return the state."""
        recon = self._recon
        with self._state_lock:  # the thread of clicks shows it, too
            self._show_failure(recon.failure)
            if self._shown_notices != recon.notices:
                self._shown_notices = recon.notices
                put(self._notices, "".join(note(notice) for notice in recon.notices))
            if status is None:
                put(self._summary, "starting: engines read the scan")
                return "starting"
            state = state_of(recon, status)
            self._controls.follow(
                state, {PART_OF_COMPONENT.get(name, name) for name in status.rates}
            )  # before the text: Resume is enabled when "paused" is shown
            if self._text_is_due(state):
                put(self._summary, summary(recon, status, state, self._speed))
                self._show_arrivals(status.arrivals)
                put(self._facts, facts(recon, status))
                self._draw_curve()
            return state

    def _text_is_due(self, state: str) -> bool:
        """Return whether text is due: every `TEXT_SECONDS`, after a change of settings or choice, and at the end."""
        subject = (state, self._recon.changes[-1:], self._over.value, self._divider.room)
        now = time.monotonic()
        if subject == self._text_of and now - self._text_at < TEXT_SECONDS and not self._recon.closed:
            return False
        self._text_of, self._text_at = subject, now
        return True

    def _draw_curve(self) -> None:
        epochs, changes, r_factors = self._recon.epochs, self._recon.changes, self._recon.r_factors
        latest = [(len(record), record[-1:]) for record in (epochs, changes, r_factors)]
        drawn = (*latest, self._over.value, self._divider.room)
        if drawn == self._drawn:
            return
        self._drawn = drawn
        losses, marks = [epoch.loss for epoch in epochs], [change.epoch + 1 for change in changes]
        seconds = [epoch.seconds for epoch in epochs] if self._over.value == "seconds" else None
        room = {"size": (self._divider.room[0], self._divider.room[1])} if any(self._divider.room) else {}
        put(self._curve, loss_curve(losses, marks, r_factors=r_factors, seconds=seconds, **room))
        put(self._changes_curve, change_curves(epochs, seconds))
        put(self._record, change_table(changes))

    # The thread for requests that may take longer

    def request(self) -> None:
        """Show the chosen pattern, positions, and the state of the engines."""
        status = self._recon.last_status()
        if status is None or status.state == "loading" or state_of(self._recon, status) in NO_PICTURES:
            return
        if self._drawer.shown == PATTERN:
            self._patterns.update(status.epoch, status.update)
        if self._drawer.shown == ERRORS:
            self._errors_page.update(status.epoch, status.update)
        if (line := self._panes.cut_line()) is not None:
            self._say(line)
        update = status.update if self._panes.draws_positions else 0  # one ring is drawn anew after an epoch
        moment = status.epoch, update, moment_of(self._recon)
        due = time.monotonic() - self._positions_at >= POSITIONS_SECONDS or self._positions_of is None
        if self._panes.wants_positions and self._positions_of != moment and due:
            self._panes.show_positions(*self._recon.positions)
            self._positions_of, self._positions_at = moment, time.monotonic()
        else:
            self._panes.follow_arrows()
        seen = self._drawer.shown == ENGINES or (state_of(self._recon, status) == "running" and not self._recon.epochs)
        if seen and time.monotonic() - self._health_at >= HEALTH_SECONDS:
            health = self._recon.health()
            put(self._health, health_table(health))
            self._speed = speed_of(health)
            self._health_at = time.monotonic()  # last, so that a failed request is repeated in the next turn

    # Clicks

    def _turned(self) -> None:
        """Follow the page of the drawer that is shown now."""
        page = self._drawer.shown
        self._panes.page_shown = page == POSITIONS
        if page in LINES:
            self._say(LINES[page])
        self._update_soon()

    def _clicked(self, y: float, x: float) -> None:
        self._actions.put(lambda: self._choose(self._panes.nearest(y, x)))

    def _entered(self, index: int) -> None:
        self._actions.put(lambda: self._choose(index))

    def _choose(self, index: int) -> None:
        self._patterns.choose(index)
        self._panes.choose(index)
        self._drawer.shown = PATTERN
        self._request_now.set()
        self._say(f"recon.pattern({index})")

    def _say(self, line: str) -> None:
        if self.tell is not None:
            self.tell(line)

    def _obeyed(self) -> None:
        """Show the state after a click at once: the thread that updates the view may be waiting for pictures."""
        if not self.closed:
            self._show_state(self._recon.last_status())
            self._update_soon()

    def _update_soon(self) -> None:
        self._awake_until = time.monotonic() + AWAKE_SECONDS
        self._update_now.set()
        self._request_now.set()

    # Errors

    def _show_failure(self, failure: Exception | None) -> None:
        """Show the failure of the reconstruction; errors from before it began or ended are removed."""
        if failure is not self._failure:
            self._failure = failure
            self._errors.clear()
            self._show_message()

    def _complain(self, error: Exception | str | None, thread: str = ACTION) -> None:
        """Show an error of a thread in place of its last one; None: removes it."""
        if error is not None or thread in self._errors:
            self._errors[thread] = complaint(error)
            self._show_message()

    def _show_message(self) -> None:
        """The failure of the reconstruction, and below it the errors of the three threads."""
        with self._message_lock:
            failure = complaint(self._failure)
            put(self._message, "".join(dict.fromkeys((failure, *self._errors.copy().values()))))


def live(recon: Any, rate: float = 10.0, size: int = 1024, extra: Sequence[elements.Element] = ()) -> Live:
    """Return a view of a reconstruction while it runs: pictures, patterns, curves, engines, and controls.

    It is displayed if it is the last expression of a notebook cell. A reconstruction can have several views.

    Parameters
    ----------
    recon : Reconstruction
        The reconstruction to show and control.
    rate : float, optional
        Pictures per second at most; the pace of the screen may be lower.
    size : int, optional
        Longest side of the pictures of the object [screen pixels].
    extra : sequence of elements.Element, optional
        Widgets to show below the controls; they are closed with the view.

    Returns
    -------
    Live
        The view. `close` ends it and its threads; the reconstruction continues.
    """
    return Live(recon, rate, size, extra)


def _of(reference: weakref.ref[Live]) -> Live:
    view = reference()
    assert view is not None, "its own parts call it"
    return view


def _complain(view: Live, error: Exception | None, thread: str) -> None:
    view._complain(None if error is None else f"{type(error).__name__}: {error}", thread)
