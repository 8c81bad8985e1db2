"""Rotation between scan and detector, suspicious patterns, and patterns to exclude."""

from __future__ import annotations

import html

from ptynb.analysis import find_suspicious, leave_out
from ptynb.exceptions import InvalidValueError
from ptynb.preparation import ScanRotation, estimate_rotation
from ptynb.widgets import elements
from ptynb.widgets.choice import Choice
from ptynb.widgets.inspect.inspect_state import InspectorPanel, InspectorState, number_list, read_number_list, row
from ptynb.widgets.shared_widgets import put

LISTED = 500
"""Maximum number of suspicious patterns in the list; the text above it states the total."""


class PositionsPanel(InspectorPanel):
    """Rotation, suspicious positions and patterns, and the list of those to exclude."""

    title = "Positions"

    def __init__(self, state: InspectorState) -> None:
        self._rotation: ScanRotation | None = None
        self._suspicious: list[tuple[int, str]] = []
        self._rotation_text = elements.HTML()
        self._rotate = self.button(
            "Rotate positions", self._rotated, "Rotates the positions by this angle", "rotate-cw"
        )
        self._list = Choice("Suspicious", rows=8, width="420px")
        self._counts = elements.HTML()
        self._left_out = elements.Text(value="", description="Exclude", placeholder="patterns, such as 3, 7-9")
        self._left_out.layout.width = "420px"
        self._left_out.layout.max_width = "100%"
        super().__init__(
            state,
            [
                row(
                    self.button(
                        "Find rotation",
                        self._find_rotation,
                        "Finds the rotation of the scan from centres of mass",
                        "compass",
                    ),
                    self._rotate,
                ),
                self._rotation_text,
                row(self.button("Find suspicious", self._find, "Searches the surveyed patterns", "search")),
                self._counts,
                self._list,
                row(
                    self.button(
                        "Exclude chosen",
                        lambda: self._exclude([self.state.index]),
                        "Adds the pattern shown to the list",
                    ),
                    self.button(
                        "Exclude all suspicious",
                        lambda: self._exclude([index for index, _ in self._suspicious]),
                        "Adds them to the list",
                    ),
                ),
                row(self._left_out, self.button("Remove from scan", self._use, "Removes these patterns", "check")),
            ],
        )
        self._rotate.disabled = True
        self._list.observe(lambda _: self._chosen(), "chosen")

    @property
    def excluded(self) -> list[int]:
        """Sorted indices of the patterns to exclude. Raises ValueError for an invalid list."""
        return read_number_list(self._left_out.value, len(self.state.scan))

    def draw(self) -> None:
        """Do nothing: results are computed on a click, as this takes seconds for large scans."""

    def renew(self) -> None:
        """Remove the results for the earlier scan."""
        self._rotation, self._suspicious = None, []
        self._rotate.disabled = True
        self._list.offer([])
        self._left_out.value = ""
        put(self._rotation_text, "")
        put(self._counts, "")

    def _find_rotation(self) -> None:
        found = self._rotation = estimate_rotation(self.state.scan, self.state.need_survey())
        self.state.say("rotation = pt.preparation.estimate_rotation(scan)")
        verdict = "" if found.needed else "The positions need no correction. "
        put(
            self._rotation_text,
            f"<b>{found.degrees:.2f}°</b>: {found}. {verdict}The curl is {found.curl_before:.0%} of the field before "
            f"and {found.curl_after:.0%} after it; chance does it with a probability of {found.false_alarm:.0e}. "
            f"A further 180° inverts the phase.<br><code>{html.escape('; '.join(found.lines))}</code>",
        )
        self._rotate.disabled = False

    def _rotated(self) -> None:
        if self._rotation is not None:
            self.state.replace(self._rotation.apply(self.state.scan), self._rotation.lines)

    def _find(self) -> None:
        found = find_suspicious(self.state.scan, self.state.need_survey())
        self.state.say("suspicious = pt.analysis.find_suspicious(scan)")
        self._suspicious = list(found)
        kinds = ", ".join(f"{len(indices):,} {reason}" for reason, indices in found.found.items())
        count = self.state.need_survey().patterns
        shown = f"; the first {LISTED} are listed" if len(self._suspicious) > LISTED else ""
        put(self._counts, f"{html.escape(kinds) or 'nothing suspicious'} in {count:,} patterns{shown}")
        listed = enumerate(self._suspicious[:LISTED])
        self._list.offer([(str(row), f"{index}: {reason}") for row, (index, reason) in listed], [])

    def _chosen(self) -> None:
        if self._list.value in self._list.offered:
            self.state.show_pattern(self._suspicious[int(self._list.value)][0])

    def _exclude(self, indices: list[int]) -> None:
        self._left_out.value = number_list([*self.excluded, *indices])

    def _use(self) -> None:
        excluded = self.excluded
        if not excluded:
            raise InvalidValueError(
                "The list of patterns to exclude is empty; enter some, such as 3, 7-9.", code="argument.missing"
            )
        self.state.replace(leave_out(self.state.scan, excluded), [f"scan = pt.analysis.leave_out(scan, {excluded})"])
