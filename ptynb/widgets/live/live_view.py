"""The live view: the state of a reconstruction while it runs, and its controls.

Pictures, loss curve and state have the window; controls are in a column beside them that folds away, and what is looked
at now and then (patterns, positions, errors, convergence, engines, changes) is in a drawer below. `live.jsx` of the
browser draws it from the traits.

It has three threads besides the kernel's: one updates pictures and figures at the rate of the screen, one
requests what may take longer (patterns, positions, the state of engines), one executes clicks in order. Commands
only put an action in a queue, so that a click never waits for a picture.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import traitlets

from ptynb.data.engine_records import Status
from ptynb.settings import PART_OF_COMPONENT, Settings
from ptynb.settings.schema import ABBREVIATIONS
from ptynb.widgets.actions import Actions, repeat
from ptynb.widgets.arrival_facts import arrival_facts
from ptynb.widgets.element_tree import Element, command, shown
from ptynb.widgets.live import live_facts
from ptynb.widgets.live.errors_page import LINE as ERRORS_LINE
from ptynb.widgets.live.errors_page import ErrorsPage
from ptynb.widgets.live.pattern_comparison import pattern_words, pictures_of
from ptynb.widgets.live.pictures import POSITIONS, LivePictures
from ptynb.widgets.live.protocol import Moment, Watched, moment_of
from ptynb.widgets.viewer.viewer import Viewer

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
PATTERN, ERRORS, ENGINES = "Pattern", "Errors", "Engines"
"""Pages below the pictures for which engines are asked while they are shown."""
LINES = {POSITIONS: "pt.analysis.position_refinement(recon.result)", ERRORS: ERRORS_LINE}
"""The Python of pages that show the values of a function."""
NO_PICTURES = ("failed", "closed", "recovering")
"""States in which no pictures are requested from engines."""
PATTERN_HEIGHT = 200
RATES = ("object", "probe")
"""Components whose learning rate is offered."""
PARTS = tuple(name for name in Settings.model_fields if hasattr(getattr(Settings(), name), "learning_rate"))
"""Components with a learning rate, which can be frozen."""


class Live(LivePictures):
    """Object, probe, positions, patterns, curves, engines and controls of a reconstruction; see `live`.

    summary, record, changes, health, facts: see `live_facts`; arrivals: see `arrival_facts`. usable: commands of the
    run that make sense now. parts: label and learning rate of components that are or were optimised. r_factor_every:
    interval of the R-factor [epochs], 0: never. marks: epochs in which settings were changed. messages: errors;
    notices: what has gone wrong without stopping the run. pattern: index of the one that is shown, of `patterns`;
    pattern_facts: its counts in words; logarithmic: its scale. extra: elements below the controls. pages: further pages
    below the pictures, by title.
    tell: called with the line of Python equivalent to a click, after the click was carried out.
    """

    component = "live"

    summary: traitlets.Dict[str, Any] = shown(traitlets.Dict({"state": "starting"}))
    usable: traitlets.List[str] = shown(traitlets.List())
    parts: traitlets.Dict[str, Any] = shown(traitlets.Dict())
    r_factor_every = shown(traitlets.Int(0))
    record: traitlets.Dict[str, bytes] = shown(traitlets.Dict())
    marks: traitlets.List[int] = shown(traitlets.List())
    changes: traitlets.List[list[str]] = shown(traitlets.List())
    health: traitlets.List[list[str]] = shown(traitlets.List())
    facts: traitlets.List[str] = shown(traitlets.List())
    arrivals: traitlets.Dict[str, Any] = shown(traitlets.Dict())
    messages: traitlets.List[str] = shown(traitlets.List())
    notices: traitlets.List[str] = shown(traitlets.List())
    pattern = shown(traitlets.Int(None, allow_none=True))
    patterns = shown(traitlets.Int(0))
    pattern_facts = shown(traitlets.Unicode(""))
    logarithmic = traitlets.Bool(True).tag(sync=True)
    pattern_pictures = shown(traitlets.Instance(Viewer))
    errors = shown(traitlets.Instance(ErrorsPage))
    extra: traitlets.List[Element] = shown(traitlets.List())
    pages: traitlets.Dict[str, Element] = shown(traitlets.Dict())

    def __init__(
        self,
        recon: Watched,
        rate: float = 10.0,
        size: int = 1024,
        extra: Sequence[Element] = (),
        pages: Mapping[str, Element] | None = None,
    ) -> None:
        """pages: further pages of the drawer, by title; they are closed with the view."""
        self._pause_seconds = 1.0 / rate
        self._update_now, self._request_now = threading.Event(), threading.Event()
        self._ended = threading.Event()
        self._drawn: tuple[Any, ...] = ()
        self._text_of: tuple[Any, ...] = ()
        self._not_before = self._health_at = self._text_at = self._awake_until = float("-inf")
        self._speed: float | None = None
        self._pattern_of: tuple[Any, ...] = ()
        self._positions_of: tuple[int, int, Moment] | None = None
        self._positions_at = float("-inf")
        self._failure: Exception | None = None
        self._errors: dict[str, str] = {}
        self._message_lock, self._state_lock = threading.Lock(), threading.Lock()
        self._rates_before: dict[str, float] = {}
        self._moved = {*RATES}
        super().__init__(
            recon,
            size,
            pattern_pictures=Viewer(height=PATTERN_HEIGHT),
            errors=ErrorsPage(recon, self.look_at, self._say),
            patterns=len(recon.scan),
            extra=[*extra],
            pages={**(pages or {})},
        )
        self._actions = Actions("ptynb live actions", self.complain, self._obeyed, self._say)
        self.object_pictures.on_click(lambda _, y, x: self._clicked(y, x))
        self.object_pictures.tell = self._say
        self._show_controls("starting", set())
        self.update_soon()
        for name, seconds, work, thread, soon in (
            ("ptynb live view", self._pause_seconds, Live.refresh, UPDATE, self._update_now),
            ("ptynb live requests", REQUEST_SECONDS, Live.request_more, REQUEST, self._request_now),
        ):
            complain = partial(Live.complain, thread=thread)
            repeat(self, name, seconds, work, complain, soon=soon, over=lambda view: view._recon.closed)

    def close(self) -> None:
        """Close the view and end its threads; the reconstruction continues."""
        self._ended.set()
        self._actions.close()
        self.update_soon()
        viewers = (self.object_pictures, self.probe_pictures, self.cut_pictures, self.pattern_pictures)
        for element in (*viewers, self.errors, *self.extra, *self.pages.values()):
            element.close()
        super().close()

    @property
    def closed(self) -> bool:
        """Whether the view was closed."""
        return self._ended.is_set()

    def on_page(self, callback: Callable[[], None]) -> None:
        """Register a function that is called when another page of the drawer is shown."""
        self.observe(lambda _: callback(), "page")

    # The thread that updates the view

    def refresh(self) -> float | None:
        """Show the current state, and new pictures if the screen is ready for them.

        Returns the seconds until the next try if there are new pictures and the screen is not ready.
        """
        status = self._recon.last_status()
        state = self._show_state(status)
        if status is None:
            return None
        if state not in NO_PICTURES:
            self.show_region()  # before other pictures, which take longer, or are not due
        # The status is up to 0.1 s old: while running, newer pictures than it reports exist.
        new = state == "running" or self.needs_pictures(status.epoch, status.update)
        if state in NO_PICTURES or not new:
            if state not in ("ready", "paused"):
                return None
            clicked = time.monotonic() < self._awake_until
            return EAGER_SECONDS if clicked else max(WAITING_SECONDS, self._pause_seconds)
        now = time.monotonic()
        if now < self._not_before:
            return self._not_before - now
        if not self.object_pictures.ready:
            return self._pause_seconds / TRIES  # a whole interval would cost a picture
        # From the request on: the engine copies at its beginning, and rendering may take most of an interval.
        self._not_before = now + self.show_pictures()
        return None

    def _show_state(self, status: Status | None) -> str:
        """Show failure, notices, controls, text and curves of this status, and return the state."""
        recon = self._recon
        with self._state_lock:  # the thread of clicks shows it, too
            self._show_failure(recon.failure)
            self.notices = [*recon.notices]
            if status is None:
                return "starting"
            state = live_facts.state_of(recon, status)
            # Before the text: Resume can be clicked when "paused" is shown.
            self._show_controls(state, {PART_OF_COMPONENT.get(name, name) for name in status.rates})
            if self._text_is_due(state):
                self.summary = live_facts.summary(recon, status, state, self._speed)
                self.arrivals = arrival_facts(status.arrivals)
                self.facts = live_facts.facts(recon, status)
                self._show_record()
            return state

    def _show_controls(self, state: str, moving: set[str]) -> None:
        """Show what can be done in this state, and current rates. moving: components that are optimised now."""
        recon = self._recon
        settings, self._moved = recon.settings, self._moved | moving
        can = {
            "pause": state == "running",
            "resume": state == "paused",
            "stop": state in ("running", "paused"),
            "recover": recon.can_recover and state != "starting",
            "start": state == "ready",
            "change": state not in ("failed", "closed"),
        }
        self.usable = [name for name, possible in can.items() if possible]
        rates = {part: getattr(settings, part).learning_rate for part in PARTS}
        self._rates_before |= {part: rate for part, rate in rates.items() if rate > 0}
        self.parts = {
            part: {"label": " ".join(ABBREVIATIONS.get(word, word) for word in part.split("_")), "rate": rate}
            for part, rate in rates.items()
            if part in self._moved
        }
        self.r_factor_every = recon.r_factor_every

    def _text_is_due(self, state: str) -> bool:
        """Return whether text is due: every `TEXT_SECONDS`, after a change of settings or state, and at the end."""
        subject = (state, self._recon.changes[-1:])
        now = time.monotonic()
        if subject == self._text_of and now - self._text_at < TEXT_SECONDS and not self._recon.closed:
            return False
        self._text_of, self._text_at = subject, now
        return True

    def _show_record(self) -> None:
        epochs, changes, r_factors = self._recon.epochs, self._recon.changes, self._recon.r_factors
        drawn = tuple((len(rows), rows[-1:]) for rows in (epochs, changes, r_factors))
        if drawn != self._drawn:
            self._drawn = drawn
            self.record = live_facts.record(epochs, r_factors)
            self.marks = [change.epoch + 1 for change in changes]
            self.changes = live_facts.change_rows(changes)

    # The thread for requests that may take longer

    def request_more(self) -> None:
        """Show the chosen pattern, positions, and the state of the engines."""
        status = self._recon.last_status()
        if status is None or status.state == "loading" or live_facts.state_of(self._recon, status) in NO_PICTURES:
            return
        if self.page == PATTERN:
            self._show_pattern(status.epoch, status.update)
        if self.page == ERRORS:
            self.errors.update(status.epoch, status.update)
        if (line := self._cuts.line()) is not None:
            self._say(line)
        update = status.update if self.draws_positions else 0  # one ring is drawn anew after an epoch
        moment = status.epoch, update, moment_of(self._recon)
        due = time.monotonic() - self._positions_at >= POSITIONS_SECONDS or self._positions_of is None
        if self.wants_positions and self._positions_of != moment and due:
            self.show_positions(*self._recon.positions)
            self._positions_of, self._positions_at = moment, time.monotonic()
        else:
            self._draw_marks()
        running = live_facts.state_of(self._recon, status) == "running"
        seen = self.page == ENGINES or (running and not self._recon.epochs)
        if seen and time.monotonic() - self._health_at >= HEALTH_SECONDS:
            engines = self._recon.health()
            self.health = [live_facts.health_row(one, len(engines)) for one in engines]
            self._speed = live_facts.speed_of(engines)
            self._health_at = time.monotonic()  # last, so that a failed request is repeated in the next turn

    def _show_pattern(self, epoch: int, update: int) -> None:
        """Request and show the chosen pattern if it differs from the one that is shown."""
        index, logarithmic, moment = self.pattern, self.logarithmic, moment_of(self._recon)
        key = (index, epoch, update, logarithmic, moment)
        if index is None or key == self._pattern_of or not self.pattern_pictures.ready:
            return
        pair = self._recon.pattern(index)
        self.pattern_pictures.show(pictures_of(pair, logarithmic), epoch=pair.epoch, update=pair.update)
        self._pattern_of = (index, pair.epoch, pair.update, logarithmic, moment)
        self.pattern_facts = pattern_words(pair)

    # Commands

    @command
    def pause(self) -> None:
        """Suspend the run."""
        self._actions.put(self._recon.pause, line="recon.pause()")

    @command
    def resume(self) -> None:
        """Continue a paused run."""
        self._actions.put(self._recon.resume, line="recon.resume()")

    @command
    def stop(self) -> None:
        """End the run."""
        self._actions.put(self._recon.stop, line="recon.stop()")

    @command
    def recover(self) -> None:
        """Continue from the latest checkpoint on engines that are left, and new ones."""
        self._actions.put(self._recon.recover, line="recon.recover()")

    @command
    def start(self, epochs: int) -> None:
        """Run so many epochs."""
        self._actions.put(lambda: self._recon.start(epochs), line=f"recon.start(epochs={epochs})")

    @command
    def set_rate(self, part: str, rate: float) -> None:
        """Set the learning rate of a component."""
        rate = float(rate)

        def change() -> None:
            try:
                self._recon.settings = self._recon.settings.replace(**{part: {"learning_rate": rate}})
            finally:
                self.announce("parts")  # the browser shows what was entered until then

        self._actions.put(change, line=f'recon.settings = recon.settings.replace({part}={{"learning_rate": {rate!r}}})')

    @command
    def freeze(self, part: str, on: bool) -> None:
        """Set the learning rate of a component to 0, or to what it was before."""
        default = getattr(Settings(optimiser=self._recon.settings.optimiser), part).learning_rate
        self.set_rate(part, 0.0 if on else self._rates_before.get(part, default or 0.01))

    @command
    def measure_r_factor(self, every: int) -> None:
        """Set the interval of the R-factor [epochs]."""

        def change() -> None:
            try:
                self._recon.r_factor_every = every
            finally:
                self.announce("r_factor_every")

        self._actions.put(change, line=f"recon.r_factor_every = {every}")

    @command
    def look_at(self, pattern: int) -> None:
        """Show a pattern by its index."""
        self._actions.put(lambda: self._choose(pattern))

    def _clicked(self, y: float, x: float) -> None:
        self._actions.put(lambda: self._choose(self.nearest(y, x)))

    def _choose(self, index: int) -> None:
        index = min(max(index, 0), self.patterns - 1)
        if (index, PATTERN) == (self.pattern, self.page):
            return
        self.pattern = index
        self._draw_ring(self.pattern)
        self.page = PATTERN
        self._request_now.set()
        self._say(f"recon.pattern({self.pattern})")

    @traitlets.observe("page", "logarithmic")
    def _turned(self, change: Any) -> None:
        if change["name"] == "page" and self.page in LINES:
            self._say(LINES[self.page])
        self.update_soon()

    def _obeyed(self) -> None:
        """Show the state after a click at once: the thread that updates the view may be waiting for pictures."""
        if not self.closed:
            self._show_state(self._recon.last_status())
            self.update_soon()

    def update_soon(self) -> None:
        """Update the view at once."""
        self._awake_until = time.monotonic() + AWAKE_SECONDS
        self._update_now.set()
        self._request_now.set()

    # Errors

    def _show_failure(self, failure: Exception | None) -> None:
        """Show the failure of the reconstruction; errors from before it began or ended are removed."""
        if failure is not self._failure:
            self._failure = failure
            self._errors.clear()
            self._show_messages()

    def complain(self, error: Exception | None, thread: str = ACTION) -> None:
        """Show an error of a thread in place of its last one; None: removes it."""
        if error is not None or thread in self._errors:
            kind = "" if thread == ACTION else f"{type(error).__name__}: "  # of no error that users make
            self._errors[thread] = "" if error is None else f"{kind}{error}" or type(error).__name__
            self._show_messages()

    def _show_messages(self) -> None:
        """The failure of the reconstruction, and below it the errors of the three threads."""
        with self._message_lock:
            failure = "" if self._failure is None else str(self._failure)
            self.messages = [text for text in dict.fromkeys((failure, *self._errors.copy().values())) if text]


def live(recon: Any, rate: float = 10.0, size: int = 1024, extra: Sequence[Element] = ()) -> Live:
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
    extra : sequence of Element, optional
        Elements to show below the controls; they are closed with the view.

    Returns
    -------
    Live
        The view. `close` ends it and its threads; the reconstruction continues.
    """
    return Live(recon, rate, size, extra)
