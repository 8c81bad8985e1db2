"""The inspector of a scan: facts, patterns, panels, a survey in the background, and the scan with all changes.

It has three threads besides the kernel's: one reads and shows the chosen pattern, so that scrolling waits for nothing
else; one executes actions of the panels; one surveys the scan while the other two are idle. Of a scan that is being
measured the third one shows what has come instead, and the newest pattern until another one is chosen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import traitlets

from ptynb.analysis import Survey
from ptynb.data.arrivals import SCAN_NAME, ArrivalIndex
from ptynb.data.engine_records import Array
from ptynb.data.scan import Scan
from ptynb.polling import wait_until
from ptynb.widgets.actions import Actions, repeat
from ptynb.widgets.arrival_facts import arrival_facts
from ptynb.widgets.element_tree import Element, command, shown
from ptynb.widgets.inspect.background_survey import BackgroundSurvey
from ptynb.widgets.inspect.inspect_state import InspectorPanel, InspectorState
from ptynb.widgets.inspect.mask_panel import MaskPanel
from ptynb.widgets.inspect.panels import DirectPanel, PositionsPanel, StatisticsPanel
from ptynb.widgets.inspect.position_map import KINDS, NAME, PositionMap
from ptynb.widgets.inspect.preparation_panel import PreparationPanel
from ptynb.widgets.inspect.scan_display import SCALES, facts, pattern_note, pattern_of, pattern_picture, show
from ptynb.widgets.viewer.viewer import Viewer

TABS = STATISTICS, MASK, POSITIONS, PREPARE, FIRST = "Statistics", "Mask", "Positions", "Prepare", "First pictures"
ARRIVALS_SECONDS = 0.5
"""Time between looks at what has come of a scan that is being measured [s]."""
SHARE, LIVE_SHARE = 0.6, 0.5
"""Part of the window for the pictures; less with the progress of a reception above them."""
DOTS = 400
"""Maximum number of positions that are marked by default; more would hide the map."""
WAITING = (
    "Statistics, mask, positions and preparation need all patterns, and the scan is being measured: they are offered "
    "for its file, {path}, after its end."
)
ENDED = "The scan has ended: open its file, {path}, for statistics, mask, positions and preparation."


class Inspect(Element):
    """The inspector of a scan; see `inspect`.

    tell: called with each line of Python equivalent to a click, with the scan as `scan` and the mask as `mask`.
    on_scan: called with the scan after each change. on_end: called when a scan that is being measured has ended. They
    are called in a thread of the inspector.

    chosen: the pattern chosen last; `state.index` is the one that is shown. panels: by their titles, in the order of
    the tabs; tab: the visible one. surveyed: how many patterns. messages: errors of reading a pattern, of the last
    action, and of the survey.
    """

    component = "inspect"

    facts, length = shown(traitlets.List()), shown(traitlets.Int(1))
    map_view, view, panels = shown(traitlets.Any()), shown(traitlets.Any()), shown(traitlets.Dict())
    maps = shown(traitlets.List([*KINDS]))
    live, can_undo = shown(traitlets.Bool(False)), shown(traitlets.Bool(False))
    surveyed, arrivals = shown(traitlets.Int(0)), shown(traitlets.Dict())
    pattern_message, message, survey_message, note = (shown(traitlets.Unicode("")) for _ in range(4))
    chosen, pattern_note = shown(traitlets.Int(0)), shown(traitlets.Unicode(""))

    paused = traitlets.Bool(False).tag(sync=True)
    tab = traitlets.Enum(TABS, STATISTICS).tag(sync=True)
    scale = traitlets.Enum(SCALES, SCALES[0]).tag(sync=True)
    exponent = traitlets.Float(0.5, min=0.05, max=5.0).tag(sync=True)
    map_kind = traitlets.Enum(KINDS, KINDS[0]).tag(sync=True)
    radius = traitlets.Float(0.0, min=0.0, max=1e5).tag(sync=True)
    dots = traitlets.Bool(True).tag(sync=True)

    def __init__(self, scan: Scan) -> None:
        self.on_scan: Callable[[Scan], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self._reading = Actions("ptynb inspect reading", self._pattern_failed)
        self._work = Actions("ptynb inspect work", self._action_failed)
        self._drawing = threading.RLock()
        self.state = InspectorState(scan, self._work, self._replaced, self._clear, self._say)
        self._map: PositionMap | None = None
        self._counts: Array = np.zeros(scan.pattern_shape)
        self._came, self._newest, self._arrivals_over = (-1, -1), -1, False
        self._index: ArrivalIndex | None = None
        acquisition = self.state.acquisition
        pair: dict[str, Any] = {"columns": 1, "height": 340, "share": SHARE if acquisition is None else LIVE_SHARE}
        self.mask, self.positions = MaskPanel(self.state), PositionsPanel(self.state)
        self._panels: list[InspectorPanel] = [
            StatisticsPanel(self.state), self.mask, self.positions,
            PreparationPanel(self.state), DirectPanel(self.state),
        ]  # fmt: skip
        super().__init__(
            facts=facts(scan),
            length=len(scan),
            dots=len(scan) <= DOTS,
            map_view=Viewer(linked=False, **pair),
            view=Viewer(linked=False, value_at=self._value_at, **pair),
            panels=dict(zip(TABS, self._panels, strict=True)),
        )
        if acquisition is not None:
            self.live, self.tab, self.panels = True, FIRST, {FIRST: self._panels[-1]}
            self.note = WAITING.format(path=acquisition.folder / SCAN_NAME)
        self.map_view.on_click(self._map_clicked)
        self.observe(lambda _: self.choose(self.chosen), ["scale", "exponent"])
        self.observe(lambda _: self.state.run(self._draw_map, instead_of="map"), ["map_kind", "radius", "dots"])
        self.observe(lambda _: self._work.put(self._draw_selected, instead_of="tab"), "tab")
        self.observe(lambda _: self._surveying.pause(self.paused), "paused")
        self._surveying = self._new_survey()
        self._begin()

    @property
    def scan(self) -> Scan:
        """The scan with all changes."""
        return self.state.scan

    @property
    def excluded(self) -> list[int]:
        """Indices of the patterns to exclude."""
        return self.positions.excluded

    @command
    def choose(self, index: int) -> None:
        """Show a pattern; of several calls in a row only the last one reads a pattern."""
        chosen = self.chosen = min(max(index, 0), len(self.scan) - 1)
        self._reading.put(lambda: self._show_pattern(chosen), instead_of="pattern")

    @command
    def step(self, by: int) -> None:
        """Show a pattern before or after the one chosen last, which may not be shown yet."""
        self.choose(self.chosen + by)

    @command
    def undo(self) -> None:
        """Restore the scan before the last change."""
        self.state.run(self.state.undo)

    def settle(self, seconds: float = 60.0) -> None:
        """Wait until all actions are carried out and the survey is complete. Raises TimeoutError."""
        self._work.settle(seconds)
        if not self.paused and not wait_until(lambda: self._surveying.closed, seconds):
            raise TimeoutError(f"The survey is not complete after {seconds:g} s.")
        self._reading.settle(seconds)
        self._work.settle(seconds)

    def close(self) -> None:
        """Close the inspector and end its threads."""
        super().close()
        self._surveying.close()
        self._reading.close()
        self._work.close()
        for panel in self._panels:  # also those that have no tab
            panel.close()
        self.map_view.close()
        self.view.close()

    def _map_clicked(self, name: str, y: float, x: float) -> None:
        if self._map is not None:
            self.choose(self._map.pattern_at(y, x))

    def _value_at(self, name: str, y: int, x: int) -> str:
        height, width = self._counts.shape
        return f"{self._counts[y, x]:,.6g} counts" if 0 <= y < height and 0 <= x < width else ""

    # Executed in the threads

    def _show_pattern(self, index: int) -> None:
        scan = self.scan
        index = self.state.index = min(index, len(scan) - 1)  # the scan may have become shorter
        self._counts = pattern_of(scan, index)
        title = f"pattern {index}"
        show(self.view, [pattern_picture(self._counts, "pattern", title, self.scale, self.exponent)])
        self.pattern_note = pattern_note(scan, index, self._counts)
        self._mark()
        if self.tab == PREPARE:
            self._work.put(self._draw_selected, instead_of="tab")

    def _draw_map(self) -> None:
        self._map = self._map or PositionMap(self.scan)
        if self.state.acquisition is not None:
            picture = self._map.arrived(self.state.acquisition.index().placed())
        else:
            picture = self._map.picture(self.state.survey, self.map_kind, self.radius)
        show(self.map_view, [picture])
        self._mark()

    def _mark(self) -> None:
        positions, index = self._map, self.state.index
        if positions is not None and index < len(positions.points):
            points = positions.points if self.dots else positions.points[index : index + 1]
            self.map_view.mark(NAME, points, chosen=index if self.dots else 0)

    def _draw(self) -> None:
        with self._drawing:
            self._draw_map()
        self._draw_selected()

    def _draw_selected(self) -> None:
        """Draw the visible panel; the others are drawn when they are selected."""
        with self._drawing:
            self.panels[self.tab].draw()

    def _surveyed(self, source: BackgroundSurvey, survey: Survey) -> None:
        if source is self._surveying and not self.closed:
            self.state.survey = survey
            self._show_progress()
            try:
                self._draw()
            except Exception as error:  # noqa: BLE001 - shown; the survey continues
                self.message = str(error)

    def _survey_failed(self, source: BackgroundSurvey, error: Exception) -> None:
        if source is self._surveying and not self.closed:
            self.survey_message = f"The survey failed: {error}"

    def _replaced(self) -> None:
        """Reset the panels and start a survey for another scan."""
        with self._drawing:
            self._surveying.close()
            self._map = None
            self.facts, self.length, self.can_undo = facts(self.scan), len(self.scan), self.state.can_undo
            self.survey_message = ""
            for panel in self._panels:
                panel.renew()
            self._surveying = self._new_survey()
        self._begin()
        if self.on_scan is not None:
            self.on_scan(self.scan)

    def _new_survey(self) -> BackgroundSurvey:
        survey = BackgroundSurvey(self.scan, self._surveyed, self._survey_failed, self._busy)
        survey.paused = self.paused
        return survey

    def _begin(self) -> None:
        self._work.put(self._draw, instead_of="draw")
        if self.state.acquisition is None:
            self._show_progress()
            self.choose(self.chosen)
            self._surveying.start()
            return
        self._surveying.close()
        self._show_arrivals()
        repeat(
            self,
            "ptynb inspect arrivals",
            ARRIVALS_SECONDS,
            Inspect._show_arrivals,
            Inspect._pattern_failed,
            over=lambda view: view._arrivals_over,
        )

    def _show_arrivals(self) -> None:
        """Show what has come, and the newest pattern, unless another one was chosen."""
        assert self.state.acquisition is not None
        self._index = index = self._index or self.state.acquisition.index()
        arrivals = index.summary()
        self.arrivals = arrival_facts(arrivals)
        if (came := (arrivals.arrived, arrivals.placed)) != self._came:  # a position may come after its pattern
            self._came = came
            if arrivals.arrived and self.chosen == max(self._newest, 0):
                self._newest = int(np.nanargmax(index.arrival_times()))
                self.choose(self._newest)
            self._work.put(self._draw, instead_of="draw")
        if arrivals.ended is not None and not self._arrivals_over:
            self._arrivals_over = True
            self.note = ENDED.format(path=self.state.acquisition.folder / SCAN_NAME)
            if self.on_end is not None:
                self.on_end()

    def _busy(self) -> bool:
        return self._reading.busy or self._work.busy

    def _show_progress(self) -> None:
        self.surveyed = 0 if self.state.survey is None else self.state.survey.patterns

    # Errors, and lines of Python

    def _pattern_failed(self, error: Exception | None) -> None:
        self.pattern_message = "" if error is None else str(error)

    def _action_failed(self, error: Exception | None) -> None:
        if error is not None:  # drawing does not remove the error of a click
            self.message = str(error)

    def _clear(self) -> None:
        self.message = ""


def inspect(scan: Scan) -> Inspect:
    """Return an inspector of a scan: patterns, first pictures, statistics, mask, positions, and preparation.

    It is displayed if it is the last expression of a notebook cell. It reads a few patterns at a time, so that a scan
    may be larger than memory. Of a scan that is being measured it shows the newest pattern, and the pictures of what
    has come.

    Parameters
    ----------
    scan : Scan
        The scan to inspect.

    Returns
    -------
    Inspect
        The inspector; its `scan` is the scan with the mask and all changes applied. `close` ends it and its threads.
    """
    return Inspect(scan)
