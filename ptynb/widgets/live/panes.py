"""The pictures of the live view: what is shown of object and probe, and positions over it."""

from __future__ import annotations

import cmath
import time
from collections.abc import Callable
from dataclasses import replace

import ipywidgets
import numpy as np

from ptynb.data.snapshot import PANES, Array, RenderRequest
from ptynb.widgets.live.protocol import Moment, Watched, moment_of
from ptynb.widgets.live.shared_fields import checkbox, row, whole_number
from ptynb.widgets.viewer.viewer import Viewer

OBJECT_HEIGHT, PROBE_HEIGHT = 360, 150
MOST_MODES = 12
REST = 20.0
"""Looks take at most one part in so many of the time of updates."""
PROBE_SECONDS = 0.25
"""From one picture of the probe to the next, which changes slowly: a page draws each as dearly as one of the object."""

Shown = tuple[int, int, RenderRequest, Moment]
"""What tells frames apart: the epochs and updates done, what was asked for, and `moment_of`."""


class Panes:
    """Two viewers, one for the object and one for the probe's modes, and the choice of what is in them.

    changed: is called when a user chose something else; clicked: with (y, x) of a click on the object [array pixels].
    """

    def __init__(
        self, recon: Watched, size: int, changed: Callable[[], None], clicked: Callable[[float, float], None]
    ) -> None:
        self._recon, self._size = recon, size
        self.object = Viewer(height=OBJECT_HEIGHT, value_at=self._value_at)
        self.probe = Viewer(height=PROBE_HEIGHT, tools=False, value_at=self._value_at, confirms=False)
        self.object.observe(lambda _: changed(), "coarse")
        self.object.on_click(lambda _, y, x: clicked(y, x))
        self._ticks = {pane: checkbox(pane, pane != "complex", f"object {pane}") for pane in PANES}
        self._slice = whole_number("slice", 0, 0, 0, "120px", "Slice of a thick object; 0: the product of all slices.")
        self._state = whole_number("state", 1, 1, 1, "120px", "State of an object with several.")
        self._flat = checkbox("without ramp", True, "Phases without their mean and their linear ramp")
        self._modes = whole_number("probe modes", 4, 0, MOST_MODES, "150px", "Modes of the probe that are shown.")
        self._modes_as = ipywidgets.Dropdown(
            options=["complex", "amplitude"],
            description="as",
            tooltip="Probe modes: phase as hue and amplitude as brightness, or amplitudes alone.",
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="140px"),
        )
        self.positions = checkbox("show positions", False, "Scan positions over the object, and how they moved")
        for field in (self._slice, self._state):
            field.layout.display = "none"
        choices = (*self._ticks.values(), self._slice, self._state, self._flat, self._modes, self._modes_as)
        for field in choices:
            field.observe(lambda _: changed(), "value")
        self.positions.observe(lambda _: changed(), "value")
        self.widgets = (row(*choices, self.positions, grid_gap="2px 16px"), self.object, self.probe)
        self._corner, self._longest = (0, 0), 0
        self._places: tuple[Array, Array] | None = None
        self._chosen: int | None = None
        self._marked: object = None
        self._shown: Shown | None = None
        self._probe_shown: Shown | None = None
        self._probe_at = float("-inf")

    @property
    def request(self) -> RenderRequest:
        """What is to be seen, as it was chosen."""
        return RenderRequest(
            panes=tuple(pane for pane, tick in self._ticks.items() if tick.value),
            slice=self._slice.value - 1 if self._slice.value else None,
            state=self._state.value - 1,
            modes=self._modes.value,
            modes_as=self._modes_as.value,
            flat=self._flat.value,
            size=self._fine_enough(),
        )

    def _fine_enough(self) -> int:
        """No finer than the screen shows: fewer pixels to encode, send, decode and draw. Zooming in asks for more."""
        coarse = self.object.coarse
        return self._size if coarse == 1 or not self._longest else min(self._size, -(-self._longest // coarse))

    @property
    def ready(self) -> bool:
        """Whether both viewers may be sent another frame."""
        return self.object.ready

    def needs(self, epoch: int, update: int) -> bool:
        """Whether a frame of this moment would show anything new."""
        now = epoch, update, self.request, moment_of(self._recon)
        return now != self._shown or (now != self._probe_shown and self._probe_is_due(self.request))

    def look(self) -> float:
        """Asks for pictures and shows them; returns how long no others are to be asked for [s]."""
        self._choose_what_there_is()
        request, moment = self.request, moment_of(self._recon)  # before asking: what changes meanwhile is asked again
        with_probe = self._probe_is_due(request)
        pictures = self._recon.pictures(request if with_probe else replace(request, modes=0))
        if pictures is None:
            return 0.0
        shown = (pictures.epoch, pictures.update, request, moment)
        facts = {"epoch": pictures.epoch, "update": pictures.update}
        # The page has the probe's frame once it confirms the object's, which comes after it.
        if with_probe and shown != self._probe_shown:
            self.probe.show([one for one in pictures.pictures if one.name not in PANES], **facts)
            self._probe_shown, self._probe_at = shown, time.monotonic()
        if shown == self._shown:
            return 0.0
        self.object.show([one for one in pictures.pictures if one.name in PANES], **facts)
        self._shown = shown
        self._longest = max((max(one.shape) for one in pictures.pictures if one.name in PANES), default=0)
        self._corner = pictures.corner
        for field, count in ((self._slice, pictures.slices), (self._state, pictures.states)):
            _give_way(field, count)  # before its largest value falls, which would choose the last one
            if field.max != max(count, 1):
                field.max = max(count, 1)
            field.layout.display = None if count > 1 else "none"
        self._draw_marks()
        return REST * pictures.cost

    def _probe_is_due(self, request: RenderRequest) -> bool:
        """At its own pace, and at once where something else was chosen."""
        if self._probe_shown is None or self._probe_shown[2] != request:
            return True
        return time.monotonic() - self._probe_at >= PROBE_SECONDS

    def _choose_what_there_is(self) -> None:
        """A chosen slice or state that a new structure does not have gives way to what every structure has."""
        settings = self._recon.settings
        _give_way(self._slice, settings.slices.count)
        _give_way(self._state, settings.object.modes)

    # Positions

    @property
    def wants_positions(self) -> bool:
        """Whether positions are to be seen, all or a chosen one."""
        return bool(self.positions.value) or self._chosen is not None

    def show_positions(self, start: Array, now: Array) -> None:
        """Takes over where the windows' top-left corners were and are, (pattern, yx) [object pixels]."""
        middle = np.asarray(self._recon.scan.pattern_shape) / 2
        self._places = start + middle, now + middle
        self._marked = None
        self._draw_marks()

    def choose(self, index: int | None) -> None:
        """Puts a ring around this pattern's position."""
        self._chosen = index
        self._draw_marks()

    def nearest(self, y: float, x: float) -> int:
        """The pattern whose window's middle is nearest to a point of the object's pictures [array pixels]."""
        if self._places is None:
            self.show_positions(*self._recon.positions)
        assert self._places is not None
        return int(np.square(self._places[1] - (np.array([y, x]) + self._corner)).sum(1).argmin())

    def _draw_marks(self) -> None:
        """Over each of the object's panes; what is drawn already is left as it is."""
        panes = self.request.panes
        wanted = (panes, self.positions.value, self._chosen, self._corner, id(self._places))
        if self._places is None or wanted == self._marked:
            return
        self._marked = wanted
        start, now = (places - self._corner for places in self._places)
        for pane in panes:
            if self.positions.value:
                moved = now if np.abs(now - start).max() > 0 else None
                self.object.mark(pane, start, chosen=self._chosen, moved=moved)
            elif self._chosen is not None:
                self.object.mark(pane, now[self._chosen : self._chosen + 1], chosen=0)
            else:
                self.object.mark(pane, start[:0])

    def _value_at(self, name: str, y: int, x: int) -> str:
        return in_words(name, self._recon.value_at(name, y, x, self.request))


def _give_way(field: ipywidgets.BoundedIntText, count: int) -> None:
    if field.value > count:
        field.value = field.min


def in_words(name: str, value: complex | float) -> str:
    """A value for the line under the cursor: '0.9982', '-0.312 rad', '0.9982 at 0.312 rad'."""
    if isinstance(value, complex):
        return f"{abs(value):.4g} at {cmath.phase(value):.3f} rad"
    return f"{value:.3f} rad" if name == "phase" else f"{value:.4g}"
