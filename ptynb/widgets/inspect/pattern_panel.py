"""A map of the positions and the chosen pattern, side by side."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from ptynb.data.engine_records import Array
from ptynb.widgets import elements
from ptynb.widgets.inspect.inspect_state import InspectorPanel, InspectorState, choice, real, row
from ptynb.widgets.inspect.pattern_display import SCALES, exponent_of, pattern_of, pattern_picture, show
from ptynb.widgets.inspect.position_map import FIELDS, KINDS, NAME, PositionMap
from ptynb.widgets.inspect.scan_facts import pattern_note
from ptynb.widgets.viewer.viewer import Viewer

HEIGHT, SHARE, LIVE_SHARE = 340, 0.6, 0.5
"""Of the pictures: least height [screen pixels], and part of the window, which leaves room for what is above them.

A scan that is being measured has more above them: the progress of its reception.
"""
DOTS = 400
"""Maximum number of positions that are marked by default; more would hide the map."""


class PatternPanel(InspectorPanel):
    """Choice of a pattern by a click on the map, by index, or by buttons."""

    def __init__(self, state: InspectorState) -> None:
        last = len(state.scan) - 1
        self._number = elements.BoundedIntText(value=0, min=0, max=last, description="Pattern")
        self._number.layout.width = "180px"
        self._step = {
            -1: self._stepping("Previous", "arrow-left", -1),
            1: self._stepping("Next", "arrow-right", 1),
        }
        self.scale = choice("Scale", SCALES)
        self.exponent = exponent_of(self.scale)
        self._kind = choice("Map", KINDS)
        self._radius = real("Radius [pixels]", 0, 0, 1e5)
        self._kind.observe(lambda _: self._offer_radius(), "value")
        self._radius.tooltip = "Radius of the bright field [detector pixels]; 0: from the mean pattern"
        self._dots = elements.Checkbox(value=last < DOTS, description="Positions", indent=False)
        self._dots.layout.width = "auto"
        self._note = elements.HTML()
        share = SHARE if state.acquisition is None else LIVE_SHARE
        self._map_view = Viewer(columns=1, height=HEIGHT, share=share, linked=False)
        self._view = Viewer(columns=1, height=HEIGHT, share=share, linked=False, value_at=self._value_at)
        self._map: PositionMap | None = None
        self._counts: Array = np.zeros(state.scan.pattern_shape)
        self._follower: int | None = None
        super().__init__(
            state,
            [
                row(
                    *(self._number, *self._step.values(), self.scale, self.exponent),
                    *(self._kind, self._radius, self._dots),
                ),
                elements.HBox([_half(self._map_view), _half(self._view)], layout=elements.Layout(flex_flow="row wrap")),
                self._note,
            ],
        )
        if state.acquisition is not None:  # it has no survey
            self._kind.layout.display = "none"
        self._offer_radius()
        self._map_view.on_click(self._clicked)
        self._number.observe(self._numbered, "value")
        controls: tuple[elements.Control, ...] = (self.scale, self.exponent)
        for control in controls:
            control.observe(lambda _: self.state.show_pattern(self.state.chosen), "value")
        for control in (self._kind, self._radius, self._dots):
            control.observe(lambda _: self.state.run(self.draw, instead_of="map"), "value")

    def draw(self) -> None:
        """Draw the map of the patterns surveyed so far."""
        if self._map is None:
            self._map = PositionMap(self.state.scan)
        acquisition = self.state.acquisition
        if acquisition is not None:
            picture = self._map.arrived(acquisition.index().placed())
        else:
            picture = self._map.picture(self.state.survey, self._kind.value, self._radius.value)
        show(self._map_view, [picture])
        self._mark()

    def _offer_radius(self) -> None:
        self._radius.layout.display = None if self._kind.value in FIELDS else "none"

    def draw_pattern(self) -> None:
        """Read the chosen pattern and show it."""
        scan, index = self.state.scan, self.state.index
        self._counts = pattern_of(scan, index)
        title = f"pattern {index}"
        show(self._view, [pattern_picture(self._counts, "pattern", title, self.scale.value, self.exponent.value)])
        self._note.value = pattern_note(scan, index, self._counts)
        self._follow()
        self._mark()

    def renew(self) -> None:
        """Reset the map and the limit of the index."""
        self._map = None
        self._number.max = len(self.state.scan) - 1

    def _follow(self) -> None:
        """Show the index of a pattern that was chosen elsewhere, unless another one was chosen since."""
        if self.state.chosen != self.state.index:
            return
        self._follower = threading.get_ident()
        try:
            self._number.value = self.state.index
        finally:
            self._follower = None

    def _mark(self) -> None:
        positions, index = self._map, self.state.index
        if positions is None or index >= len(positions.points):
            return
        all_of_them = self._dots.value
        points = positions.points if all_of_them else positions.points[index : index + 1]
        self._map_view.mark(NAME, points, chosen=index if all_of_them else 0)

    def _clicked(self, name: str, y: float, x: float) -> None:
        if self._map is not None:
            self.state.show_pattern(self._map.pattern_at(y, x))

    def _numbered(self, change: Any) -> None:
        # Ignores changes by `_follow`, but not those of the user, in another thread, at the same time.
        if threading.get_ident() != self._follower and int(change["new"]) != self.state.chosen:
            self.state.show_pattern(int(change["new"]))

    def _stepping(self, text: str, icon: str, step: int) -> elements.Button:
        button = elements.Button(description=text, icon=icon, tooltip=f"{text} pattern")
        button.layout.width = "auto"
        button.on_click(lambda _: self._stepped(step))
        return button

    def _stepped(self, step: int) -> None:
        # Relative to the pattern chosen last, which may not be shown yet.
        self.state.show_pattern(self.state.chosen + step)
        self._number.value = self.state.chosen

    def _value_at(self, name: str, y: int, x: int) -> str:
        height, width = self._counts.shape
        return f"{self._counts[y, x]:,.6g} counts" if 0 <= y < height and 0 <= x < width else ""


def _half(widget: elements.Element) -> elements.Box:
    """Return a view of half the width, or the whole width of a narrow page."""
    return elements.Box(
        [widget], layout=elements.Layout(flex="1 1 390px", overflow="visible", min_width="0", margin="0 6px")
    )
