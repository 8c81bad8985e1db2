"""The pictures of the live view: object, cuts through its slices, probe modes, and positions over the object."""

from __future__ import annotations

import cmath
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ptynb.analysis.array_lines import field_line, field_of, quantity_lines, quantity_of
from ptynb.analysis.position_refinement import PositionRefinement, moved_positions
from ptynb.data.engine_records import PANES, Array, RenderRequest
from ptynb.widgets import elements
from ptynb.widgets.live.controls import checkbox, row, whole_number
from ptynb.widgets.live.cuts import Cuts
from ptynb.widgets.live.positions_page import PositionsPage
from ptynb.widgets.live.protocol import Moment, Watched, moment_of
from ptynb.widgets.number_text import number
from ptynb.widgets.viewer.viewer import Viewer

OBJECT_HEIGHT, PROBE_HEIGHT = 360, 150
"""Of a pane where no divider gives it the height of the window [screen pixels]."""
MOST_MODES = 12
REST = 20.0
"""Ratio of the pause after pictures to their cost, which limits the share of time that pictures take from updates."""
PROBE_SECONDS = 0.25
"""Interval of pictures of the probe, which changes slowly and costs a page as much as the object."""

Shown = tuple[int, int, RenderRequest, Moment]
"""Identifies a frame: epoch, update, request, and `moment_of`."""


class Panes:
    """Viewers `object`, `cuts.viewer` and `probe`, of the object and of the probe modes, with the choice of content.

    choices: the fields of that choice. arrows: the choices of the arrows that show refined positions.
    changed: called when the choice changes; clicked: called with (y, x) of a click on the object [array pixels].
    """

    def __init__(
        self, recon: Watched, size: int, changed: Callable[[], None], clicked: Callable[[float, float], None]
    ) -> None:
        self._recon, self._size = recon, size
        self.object = Viewer(height=OBJECT_HEIGHT, value_at=self._value_at, figure_of=self._figure_of)
        self.probe = Viewer(height=PROBE_HEIGHT, tools=False, value_at=self._value_at, confirms=False)
        self.object.observe(lambda _: changed(), "coarse")
        self.object.observe(self._share_colours, ["colours", "linked_colours"])
        self.object.on_click(lambda _, y, x: clicked(y, x))
        self._ticks = {
            pane: checkbox(pane.capitalize(), pane != "complex", f"Shows the object: {pane}") for pane in PANES
        }
        self._slice = whole_number("Slice", 0, 0, 0, "auto", "Slice of a thick object; 0: the product of all slices.")
        self._object_mode = whole_number("Object mode", 1, 1, 1, "auto", "Object mode that is shown.")
        self._flat = checkbox("Remove phase ramp", True, "Shows phases without mean and linear ramp")
        self._modes = whole_number("Probe modes", 4, 0, MOST_MODES, "auto", "Number of probe modes that are shown.")
        self._modes_as = elements.Dropdown(
            options=["complex", "amplitude"],
            description="Probe as",
            tooltip="Complex: phase as hue, amplitude as brightness.",
            style={"description_width": "initial"},
            layout=elements.Layout(width="auto"),
        )
        self.positions = checkbox(
            "Positions", False, "Shows positions over the object, with arrows to the refined ones"
        )
        for field in (self._slice, self._object_mode):
            field.layout.display = "none"
        self.cuts = Cuts(self.object, self._slice, self._value_at, changed)
        self.arrows = PositionsPage(changed)
        fields: tuple[elements.Control, ...] = (self._slice, self._object_mode, self._modes, self._modes_as)
        for control in (*self._ticks.values(), self._flat, self.positions, *fields):
            control.observe(lambda _: changed(), "value")
        ticks = row(*self._ticks.values(), self.positions, self.cuts.tick, self._flat, grid_gap="0 6px")
        self.choices = elements.VBox([ticks, *fields])
        self.object.add_class("ptynb-main")
        self.probe.add_class("ptynb-aside")
        self._corner, self._longest = (0, 0), 0
        self.page_shown = False
        """Whether the page about positions is shown, with which they are drawn, too."""
        self._centres: Array | None = None
        self._refinement: PositionRefinement | None = None
        self._seen: tuple[RenderRequest, tuple[int, int]] | None = None
        """Request of the object's pictures that are shown, and their shape."""
        self._chosen: int | None = None
        self._marked: object = None
        self._shown: Shown | None = None
        self._probe_shown: Shown | None = None
        self._probe_at = float("-inf")

    @property
    def request(self) -> RenderRequest:
        """The pictures that are chosen."""
        return RenderRequest(
            panes=tuple(pane for pane, tick in self._ticks.items() if tick.value),
            slice=self._slice.value - 1 if self._slice.value else None,
            state=self._object_mode.value - 1,
            modes=self._modes.value,
            modes_as=self._modes_as.value,
            flat=self._flat.value,
            size=self._fine_enough(),
            cut=self.cuts.at,
        )

    def cut_line(self) -> str | None:
        """Return the Python of the cuts after their crosshair was moved; see `Cuts.line`."""
        request = self.request
        return self.cuts.line(request.panes, request.state, request.flat)

    def _fine_enough(self) -> int:
        """Return the longest side of pictures [pixels]: no more than the screen resolves, which increases with zoom."""
        coarse = self.object.coarse
        return self._size if coarse == 1 or not self._longest else min(self._size, -(-self._longest // coarse))

    @property
    def ready(self) -> bool:
        """Whether another frame may be sent to both viewers."""
        return self.object.ready

    def needs(self, epoch: int, update: int) -> bool:
        """Return whether a frame of this epoch and update would differ from what is shown."""
        now = epoch, update, self.request, moment_of(self._recon)
        return now != self._shown or (now != self._probe_shown and self._probe_is_due(self.request))

    def update(self) -> float:
        """Request pictures and show them; return the time until the next request [s]."""
        settings = self._recon.settings  # after a change of structure there may be fewer slices and modes
        _limit(self._slice, settings.slices.count)
        _limit(self._object_mode, settings.object.modes)
        request, moment = self.request, moment_of(self._recon)  # first: later changes lead to another request
        with_probe = self._probe_is_due(request)
        pictures = self._recon.pictures(request if with_probe else replace(request, modes=0))
        if pictures is None:
            return 0.0
        shown = (pictures.epoch, pictures.update, request, moment)
        facts = {"epoch": pictures.epoch, "update": pictures.update}
        # The page has the probe's frame once it confirms the object's, which comes after it.
        if with_probe and shown != self._probe_shown:
            self.probe.show([one for one in pictures.pictures if one.name.startswith("probe")], **facts)
            self._probe_shown, self._probe_at = shown, time.monotonic()
        if shown == self._shown:
            return 0.0
        self.object.show([one for one in pictures.pictures if one.name in PANES], **facts)
        self._shown = shown
        self._longest = max((max(one.shape) for one in pictures.pictures if one.name in PANES), default=0)
        self._corner = pictures.corner
        self._name_arrays(request, next((one.shape for one in pictures.pictures if one.name in PANES), None))
        for field, count in ((self._slice, pictures.slices), (self._object_mode, pictures.states)):
            _limit(field, count)  # before max, which would choose the last one
            if field.max != max(count, 1):
                field.max = max(count, 1)
            field.layout.display = None if count > 1 else "none"
        self.cuts.follow(pictures.corner, pictures.pictures, pictures.slices)
        self._draw_marks()
        return REST * pictures.cost

    def _name_arrays(self, request: RenderRequest, shape: tuple[int, int] | None) -> None:
        """Set the Python of the arrays behind the object's pictures, which show an area of this shape."""
        if shape is not None:
            field = field_line("recon.result", request.slice, request.state, self._object_mode.max)
            self.object.expressions = quantity_lines(field, self._corner, shape, flat=request.flat)
            self._seen = request, shape

    def _figure_of(self, name: str) -> tuple[Array, str]:
        """Return the array of a picture of the object, of the present result, and the Python of it."""
        assert self._seen is not None, "a page shows a picture of it"
        request, shape = self._seen
        field = field_of(self._recon.result, request.slice, request.state)
        return quantity_of(field, name, self._corner, shape, flat=request.flat), self.object.expressions[name]

    def _share_colours(self, _: object) -> None:
        """Show amplitudes of the probe with the colour map that was chosen for those of the object, if linked."""
        chosen = self.object.colours.get("amplitude") if self.object.linked_colours else None
        modes = [f"probe {number + 1}" for number in range(MOST_MODES)]
        self.probe.colours = {} if chosen is None else dict.fromkeys(modes, chosen)

    def _probe_is_due(self, request: RenderRequest) -> bool:
        """Return whether the probe is due: every `PROBE_SECONDS`, and immediately if the choice changed."""
        if self._probe_shown is None or self._probe_shown[2] != request:
            return True
        return time.monotonic() - self._probe_at >= PROBE_SECONDS

    # Positions

    @property
    def draws_positions(self) -> bool:
        """Whether all positions are shown."""
        return bool(self.positions.value) or self.page_shown

    @property
    def wants_positions(self) -> bool:
        """Whether positions are shown, all or a chosen one."""
        return self.draws_positions or self._chosen is not None

    def show_positions(self, start: Array, now: Array) -> None:
        """Show initial and current corners of the probe windows, (pattern, yx) [object pixels]."""
        middle = np.asarray(self._recon.scan.pattern_shape) / 2
        found = moved_positions(start + middle, now + middle, self._recon.scan.pixel_size)
        self.arrows.show(found)
        self._refinement, self._centres = found, now + middle
        self._marked = None
        self._draw_marks()

    def choose(self, index: int | None) -> None:
        """Draw a ring around the position of this pattern."""
        self._chosen = index
        self._draw_marks()

    def nearest(self, y: float, x: float) -> int:
        """Return the pattern whose window is centred nearest to a point of the object's pictures [array pixels]."""
        if self._centres is None:
            self.show_positions(*self._recon.positions)
        assert self._centres is not None
        return int(np.square(self._centres - (np.array([y, x]) + self._corner)).sum(1).argmin())

    def follow_arrows(self) -> None:
        """Draw the arrows as they are chosen now."""
        self._draw_marks()

    def _draw_marks(self) -> None:
        """Draw positions over each pane of the object, if they changed."""
        panes, found = self.request.panes, self._refinement
        if found is None or self._centres is None:
            return
        drawn, affine, factor = (
            self.draws_positions,
            self.arrows.with_affine,
            self.arrows.factor(found),
        )
        key = (panes, drawn, self._chosen, self._corner, id(found), affine, factor)
        if key == self._marked:
            return
        self._marked = key
        moved = found.arrows(factor, affine=affine) - self._corner if found.largest > 0 else None
        self.object.labels = {pane: f"arrows × {factor:g}" for pane in panes if drawn and moved is not None}
        for pane in panes:
            if drawn:
                self.object.mark(pane, found.measured - self._corner, chosen=self._chosen, moved=moved)
            elif self._chosen is not None:
                now = self._centres - self._corner
                self.object.mark(pane, now[self._chosen : self._chosen + 1], chosen=0)
            else:
                self.object.mark(pane, found.measured[:0])

    def _value_at(self, name: str, y: int, x: int) -> str:
        return value_text(name, self._recon.value_at(name, y, x, self.request))


def _limit(field: elements.BoundedIntText, count: int) -> None:
    """Reset the field to the first index if its value exceeds the available number."""
    if field.value > count:
        field.value = field.min


def value_text(name: str, value: complex | float) -> str:
    """Return the value under the cursor as text: '0.9982', '-0.312 rad', '0.9982 at 0.312 rad'."""
    unit = " √counts" if name.startswith("probe") else ""
    if isinstance(value, complex):
        return f"{number(abs(value))}{unit} at {cmath.phase(value):.3f} rad"
    return f"{value:.3f} rad" if name.startswith("phase") else f"{number(value)}{unit}"
