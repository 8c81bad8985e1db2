"""The panels of statistics, of positions, and of the first pictures, which need no reconstruction."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable

import traitlets

from ptynb.analysis import find_suspicious, leave_out
from ptynb.analysis.direct.direct_imaging import DirectImages, DirectReading
from ptynb.exceptions import InvalidValueError, ScanError
from ptynb.preparation import ScanRotation, estimate_rotation
from ptynb.widgets.actions import CancelledError
from ptynb.widgets.element_tree import command, shown
from ptynb.widgets.inspect.inspect_state import InspectorPanel, InspectorState, action
from ptynb.widgets.inspect.scan_display import SCALES, show, statistics_pictures
from ptynb.widgets.viewer.viewer import Viewer

LISTED = 500
"""Maximum number of suspicious patterns in the list; the text above it states the total."""
PORTION = 2000
"""Number of patterns of a scan that is being measured after which the pictures are shown: 1.5 s of 128 x 128 pixels."""


class StatisticsPanel(InspectorPanel):
    """Mean, maximum, variance and histogram of the surveyed patterns; octaves: see `ptynb.analysis.Survey`."""

    component = "inspectStatistics"

    patterns, octaves = shown(traitlets.Int(0)), shown(traitlets.List())
    scale = traitlets.Enum(SCALES, SCALES[0]).tag(sync=True)
    exponent = traitlets.Float(0.5, min=0.05, max=5.0).tag(sync=True)

    def __init__(self, state: InspectorState) -> None:
        super().__init__(state, Viewer(columns=3, height=320, share=0.45))
        self.observe(lambda _: self.state.run(self.draw, instead_of="statistics"), ["scale", "exponent"])

    def draw(self) -> None:
        """Draw the three pictures and the histogram."""
        if (survey := self.state.survey) is not None:
            show(self.view, statistics_pictures(self.state.scan, survey, self.scale, self.exponent))
            self.patterns, self.octaves = survey.patterns, survey.octaves.tolist()


class PositionsPanel(InspectorPanel):
    """Rotation, suspicious patterns, and the list of those to exclude; computed on a click, as this takes seconds.

    rotation: {"angle", "text", "lines"} of what was found. rows: [index, reason] of suspicious patterns. exclude:
    patterns, such as "3, 7-9".
    """

    component = "inspectPositions"

    rotation = shown(traitlets.Dict())
    text, rows = shown(traitlets.Unicode("")), shown(traitlets.List())
    exclude = traitlets.Unicode("").tag(sync=True)

    @property
    def excluded(self) -> list[int]:
        """Sorted indices of the patterns to exclude. Raises ValueError for an invalid list."""
        return read_number_list(self.exclude, len(self.state.scan))

    def renew(self) -> None:
        """Remove the results for the earlier scan."""
        self._rotation: ScanRotation | None = None
        self._suspicious: list[tuple[int, str]] = []
        self.rotation, self.text, self.rows, self.exclude = {}, "", [], ""

    @action
    def find_rotation(self) -> None:
        """Find the rotation of the scan from centres of mass."""
        found = self._rotation = estimate_rotation(self.state.scan, self.state.need_survey())
        self.state.say("rotation = pt.preparation.estimate_rotation(scan)")
        verdict = "" if found.needed else "The positions need no correction. "
        text = (
            f"{found}. {verdict}The curl is {found.curl_before:.0%} of the field before and {found.curl_after:.0%} "
            f"after it; chance does it with a probability of {found.false_alarm:.0e}. A further 180° inverts the phase."
        )
        self.rotation = {"angle": f"{found.degrees:.2f}°", "text": text, "lines": "; ".join(found.lines)}

    @action
    def rotate(self) -> None:
        """Rotate the positions by the angle that was found."""
        if self._rotation is not None:
            self.state.replace(self._rotation.apply(self.state.scan), self._rotation.lines)

    @action
    def find_suspicious(self) -> None:
        """Find suspicious ones among the surveyed patterns."""
        survey = self.state.need_survey()
        found = find_suspicious(self.state.scan, survey)
        self.state.say("suspicious = pt.analysis.find_suspicious(scan)")
        self._suspicious = list(found)
        kinds = ", ".join(f"{len(indices):,} {reason}" for reason, indices in found.found.items())
        listed = f"; the first {LISTED} are listed" if len(self._suspicious) > LISTED else ""
        self.text = f"{kinds or 'nothing suspicious'} in {survey.patterns:,} patterns{listed}"
        self.rows = [[int(index), reason] for index, reason in self._suspicious[:LISTED]]

    @action
    def exclude_shown(self) -> None:
        """Add the pattern that is shown to the list of those to exclude."""
        self.exclude = number_list([*self.excluded, self.state.index])

    @action
    def exclude_suspicious(self) -> None:
        """Add all suspicious patterns to the list of those to exclude."""
        self.exclude = number_list([*self.excluded, *(index for index, _ in self._suspicious)])

    @action
    def remove_excluded(self) -> None:
        """Remove the patterns of the list from the scan."""
        excluded = self.excluded
        if not excluded:
            raise InvalidValueError(
                "The list of patterns to exclude is empty; enter some, such as 3, 7-9.", code="argument.missing"
            )
        self.state.replace(leave_out(self.state.scan, excluded), [f"scan = pt.analysis.leave_out(scan, {excluded})"])


class DirectPanel(InspectorPanel):
    """Virtual detectors, deflections and phases, which are computed when the panel is first shown.

    Of a scan that is being measured they are those of what has come. rows: the table of what was found, its heads
    first; text: what is above it. reading: {"done", "total"} while patterns are read.
    """

    component = "inspectDirect"

    live = shown(traitlets.Bool(False))
    text, rows = shown(traitlets.Unicode("")), shown(traitlets.List())
    note, guess = shown(traitlets.Unicode("")), shown(traitlets.Bool(False))
    reading = shown(traitlets.Dict())

    def __init__(self, state: InspectorState) -> None:
        self._cancelled = threading.Event()
        super().__init__(state, Viewer(columns=4, height=520, share=0.6))
        self.live = state.acquisition is not None

    def close(self) -> None:
        """End the reading and close the panel."""
        self._cancelled.set()
        super().close()

    def draw(self) -> None:
        """Compute the pictures, if that was not tried, or more patterns have come."""
        if self.live or not self._tried:
            self._compute()

    def renew(self) -> None:
        """Forget the pictures of the last scan."""
        self._found: DirectImages | None = None
        self._reading: DirectReading | None = None
        self._tried = False
        self.guess, self.text, self.rows, self.note = False, "", [], ""
        self.view.show([])

    @action
    def compute(self) -> None:
        """Compute the pictures, which reads all patterns."""
        self._tried = False

    @command
    def cancel(self) -> None:
        """End the reading; the scan stays as it is."""
        self._cancelled.set()

    @action
    def use_guess(self) -> None:
        """Correct the positions, and set the probe of the fitted lens."""
        if self._found is not None:
            guess = self._found.initial_guess(self.state.scan)
            self.state.replace(guess, ["scan = first.initial_guess(scan)"], earlier_lines=["first = pt.direct(scan)"])

    def _compute(self) -> None:
        """Read all patterns; of a scan that is being measured a portion of those that have come since."""
        self._tried = True
        self._cancelled.clear()
        try:
            self._report(0)
            reading = self._reading or DirectReading(self.state.scan)
            self._reading = reading if self.live else None
            more = reading.read(self._report, PORTION if self.live else None)
            found = self._found = reading.images()
        except (CancelledError, ScanError) as error:
            self.note = str(error)
            return
        finally:
            self.reading = {}
        self.view.show(found.shown())
        table, self.guess = found.table(), bool(found.lines)
        self.note, self.text, self.rows = "", table.caption, [table.heads, *table.rows]
        if not self.live:
            self.state.say("first = pt.direct(scan)")
        elif more:
            self.state.work.put(self.draw, instead_of="first pictures")

    def _report(self, done: int) -> None:
        if self._cancelled.is_set():
            raise CancelledError("The reading was cancelled.")
        self.reading = {} if self.live else {"done": done, "total": len(self.state.scan)}


def number_list(indices: Iterable[int]) -> str:
    """Return sorted integers as text, runs of three and more as ranges: "3, 7-9"."""
    runs: list[list[int]] = []
    for index in sorted(set(indices)):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def read_number_list(text: str, count: int) -> list[int]:
    """Return the indices, below `count`, in a text such as "3, 7-9". Raises ValueError for another text."""
    indices: set[int] = set()
    for part in filter(None, map(str.strip, re.split("[,;]", text))):
        found = re.fullmatch(r"([0-9]+)(?:\s*-\s*([0-9]+))?", part)
        low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        problem = ""
        if found is None:
            problem = "is not an index or a range; expected integers and ranges, such as 3, 7-9."
        elif low > high:
            problem = f"is a range that ends before it begins; enter {high}-{low}."
        elif high >= count:
            problem = f"is outside the scan; expected patterns from 0 to {count - 1}."
        if problem:
            raise InvalidValueError(f"{part!r} {problem}", code="argument.invalid-value")
        indices.update(range(low, high + 1))
    return sorted(indices)
