"""How the scan lies to the detector, what looks suspicious, and which patterns are left out."""

from __future__ import annotations

import html
import math

import ipywidgets

from ptynb.analysis import ScanRotation, find_suspicious, leave_out, scan_rotation
from ptynb.exceptions import InvalidValueError
from ptynb.widgets.choice import Choice
from ptynb.widgets.elements import put
from ptynb.widgets.inspect.inspect_state import InspectorPanel, InspectorState, number_list, read_number_list, row

LISTED = 500
"""Suspicious patterns in the list at most; the words beside it count all."""


class PlacesPanel(InspectorPanel):
    """Rotation, suspicious places and patterns, and the list of those to leave out."""

    title = "Places"

    def __init__(self, state: InspectorState) -> None:
        self._rotation: ScanRotation | None = None
        self._found: list[tuple[int, str]] = []
        self._turning = ipywidgets.HTML()
        self._turn = self.button(
            "Turn positions", self._turned, "Turns the positions by the angle found", "rotate-right"
        )
        self._list = Choice("Suspicious", rows=8, width="420px")
        self._counts = ipywidgets.HTML()
        self._left_out = ipywidgets.Text(value="", description="Leave out", placeholder="patterns, such as 3, 7-9")
        self._left_out.layout.width = "420px"
        self._left_out.layout.max_width = "100%"
        super().__init__(
            state,
            [
                row(
                    self.button("Find rotation", self._find_rotation, "From the centres of mass", "compass"), self._turn
                ),
                self._turning,
                row(self.button("Find suspicious", self._find, "Looks through all that was surveyed", "search")),
                self._counts,
                self._list,
                row(
                    self.button("Leave out chosen", self._leave_chosen, "Adds the chosen pattern to the list"),
                    self.button("Leave out all listed", self._leave_all, "Adds all suspicious patterns to the list"),
                ),
                row(self._left_out, self.button("Use without them", self._use, "Makes a scan without these", "check")),
            ],
        )
        self._turn.disabled = True
        self._list.observe(lambda _: self._chosen(), "chosen")

    @property
    def excluded(self) -> list[int]:
        """The patterns to leave out, in order. Raises ValueError for a text that names none that the scan has."""
        return read_number_list(self._left_out.value, len(self.state.scan))

    def draw(self) -> None:
        """Nothing is drawn by itself: to look for something takes seconds for large scans."""

    def renew(self) -> None:
        """Nothing is known of the new scan."""
        self._rotation, self._found = None, []
        self._turn.disabled = True
        self._list.offer([])
        self._left_out.value = ""
        put(self._turning, "")
        put(self._counts, "")

    def _find_rotation(self) -> None:
        found = self._rotation = scan_rotation(self.state.scan, self.state.need_survey())
        self.state.say("rotation = pt.analysis.scan_rotation(scan)")
        exchange = "y and x of the positions exchanged, then turned" if found.transposed else "positions turned"
        put(
            self._turning,
            f"<b>{found.degrees:.2f}°</b>: {exchange} from x towards y by this angle. Curl is {found.curl_before:.0%} "
            f"of the field now, and would be {found.curl_after:.0%}. Half a turn more gives the opposite phase.<br>"
            f"<code>{html.escape('; '.join(_lines(found)))}</code>",
        )
        self._turn.disabled = False

    def _turned(self) -> None:
        if self._rotation is not None:
            self.state.replace(self._rotation.apply(self.state.scan), _lines(self._rotation))

    def _find(self) -> None:
        found = find_suspicious(self.state.scan, self.state.need_survey())
        self.state.say("suspicious = pt.analysis.find_suspicious(scan)")
        self._found = list(found)
        kinds = ", ".join(f"{len(indices):,} {reason}" for reason, indices in found.found.items())
        seen = self.state.need_survey().patterns
        shown = f"; the first {LISTED} are listed" if len(self._found) > LISTED else ""
        put(self._counts, f"{html.escape(kinds) or 'nothing suspicious'} in {seen:,} patterns{shown}")
        texts = [f"{index}: {reason}" for index, reason in self._found[:LISTED]]
        self._list.offer(zip(texts, texts, strict=True), [])

    def _chosen(self) -> None:
        if self._list.value in self._list.offered:
            self.state.show_pattern(int(self._list.value.partition(":")[0]))

    def _leave_chosen(self) -> None:
        self._add([self.state.index])

    def _leave_all(self) -> None:
        self._add([index for index, _ in self._found])

    def _add(self, indices: list[int]) -> None:
        self._left_out.value = number_list([*self.excluded, *indices])

    def _use(self) -> None:
        excluded = self.excluded
        if not excluded:
            raise InvalidValueError("No patterns are named to leave out; expected some, such as 3, 7-9.")
        self.state.replace(leave_out(self.state.scan, excluded), [f"scan = pt.analysis.leave_out(scan, {excluded})"])


def _lines(found: ScanRotation) -> list[str]:
    lines = ["scan = pt.preparation.transpose_positions(scan)"] if found.transposed else []
    degrees = f"  # {math.degrees(found.angle):.2f} degrees"
    return [*lines, f"scan = pt.preparation.rotate_positions(scan, {found.angle!r}){degrees}"]
