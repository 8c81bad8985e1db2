"""The inspector of a scan: facts, panels, a survey in the background, and the scan with all changes.

It has three threads besides the kernel's: one reads and shows the chosen pattern, so that scrolling waits for nothing
else; one executes actions of the panels; one surveys the scan while the other two are idle. Of a scan that is being
measured the third one shows what has come instead, and the newest pattern until another one is chosen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ptynb.analysis import Survey
from ptynb.data.arrivals import SCAN_NAME, ArrivalIndex
from ptynb.data.scan import Scan
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions, repeat
from ptynb.widgets.inspect.background_survey import BackgroundSurvey
from ptynb.widgets.inspect.direct_panel import DirectPanel
from ptynb.widgets.inspect.inspect_state import InspectorPanel, InspectorState, row
from ptynb.widgets.inspect.mask_panel import MaskPanel
from ptynb.widgets.inspect.pattern_panel import PatternPanel
from ptynb.widgets.inspect.positions_panel import PositionsPanel
from ptynb.widgets.inspect.preparation_panel import PreparePanel
from ptynb.widgets.inspect.scan_facts import facts, progress
from ptynb.widgets.inspect.statistics_panel import StatisticsPanel
from ptynb.widgets.live.arrival_bar import arrival_bar
from ptynb.widgets.shared_widgets import complaint, note, put

ARRIVALS_SECONDS = 0.5
"""Time between looks at what has come of a scan that is being measured [s]."""
WAITING = (
    "Statistics, mask, positions and preparation need all patterns, and the scan is being measured: they are offered "
    "for its file, {path}, after its end."
)

ENDED = "The scan has ended: open its file, {path}, for statistics, mask, positions and preparation."


class Inspect(elements.VBox):
    """The inspector of a scan; see `inspect`.

    tell: called with each line of Python equivalent to a click, with the scan as `scan` and the mask as `mask`.
    on_scan: called with the scan after each change. on_end: called when a scan that is being measured has ended. They
    are called in a thread of the inspector.
    """

    def __init__(self, scan: Scan) -> None:
        self.on_scan: Callable[[Scan], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self._reading = Actions("ptynb inspect reading", self._pattern_failed)
        self._work = Actions("ptynb inspect work", self._action_failed)
        self._drawing = threading.RLock()
        self._ended = False
        self.state = InspectorState(scan, self._work, self.choose, self._replaced, self._clear)
        self._facts = elements.HTML(facts(scan))
        self._progress = elements.HTML(progress(None, len(scan), paused=False))
        self._pause = elements.ToggleButton(value=False, description="Pause survey", icon="pause")
        self._pause.layout.width = "auto"
        self._back = elements.Button(description="Undo last change", icon="undo", disabled=True)
        self._back.tooltip, self._back.layout.width = "Restores the scan before the last change", "auto"
        self._problems = elements.HTML(), elements.HTML(), elements.HTML()
        self.patterns = PatternPanel(self.state)
        self.mask, self.positions = MaskPanel(self.state), PositionsPanel(self.state)
        self._prepare = PreparePanel(self.state)
        self._panels: list[InspectorPanel] = [
            StatisticsPanel(self.state), self.mask, self.positions, self._prepare, DirectPanel(self.state)
        ]  # fmt: skip
        acquisition = self.state.acquisition
        pages = self._panels if acquisition is None else self._panels[-1:]
        self._tab = elements.Tab(pages, titles=[panel.title for panel in pages], selected_index=0)
        super().__init__(
            [self._facts, row(self._progress, self._pause, self._back), *self._problems, self.patterns, self._tab],
            layout=elements.Layout(overflow="visible"),
        )
        self.add_class("ptynb-inspect")
        self._pause.observe(self._paused, "value")
        self._back.on_click(lambda _: self.state.run(self.state.undo))
        self._came, self._newest = (-1, -1), -1
        self._arrivals_over = False
        self._index: ArrivalIndex | None = None
        if acquisition is not None:
            for widget in (self._pause, self._back):
                widget.layout.display = "none"
            self._progress.layout.width = "100%"
            put(self._problems[2], note(WAITING.format(path=acquisition.folder / SCAN_NAME)))
        self._tab.observe(lambda _: self._work.put(self._draw_selected, instead_of="tab"), "selected_index")
        self._surveying = self._new_survey()
        self._begin()

    @property
    def scan(self) -> Scan:
        """The scan with all changes."""
        return self.state.scan

    @property
    def tell(self) -> Callable[[str], None] | None:
        """Called with lines of Python; see the class."""
        return self.state.tell

    @tell.setter
    def tell(self, tell: Callable[[str], None] | None) -> None:
        self.state.tell = tell

    @property
    def closed(self) -> bool:
        """Whether the inspector was closed."""
        return self._ended

    @property
    def excluded(self) -> list[int]:
        """Indices of the patterns to exclude."""
        return self.positions.excluded

    def choose(self, index: int) -> None:
        """Show a pattern; return immediately: of several calls in a row only the last one reads a pattern."""
        chosen = self.state.chosen = min(max(index, 0), len(self.state.scan) - 1)
        self._reading.put(lambda: self._show_pattern(chosen), instead_of="pattern")

    def settle(self, seconds: float = 60.0) -> None:
        """Wait until all actions are carried out and the survey is complete. Raises TimeoutError."""
        self._work.settle(seconds)
        if not self._pause.value:
            self._surveying.wait(seconds)
        self._reading.settle(seconds)
        self._work.settle(seconds)

    def close(self) -> None:
        """Close the inspector and end its threads."""
        self._ended = True
        self._surveying.close()
        self._reading.close()
        self._work.close()
        super().close()
        for panel in self._panels:  # also those that have no page
            panel.close()

    # Executed in the threads

    def _show_pattern(self, index: int) -> None:
        self.state.index = min(index, len(self.state.scan) - 1)  # the scan may have become shorter
        self.patterns.draw_pattern()
        if self._selected is self._prepare:
            self._work.put(self._draw_selected, instead_of="tab")

    @property
    def _selected(self) -> InspectorPanel | None:
        """The visible panel; the others are drawn when they are selected."""
        index = self._tab.selected_index
        return None if index is None else self._tab.children[index]

    def _draw(self) -> None:
        with self._drawing:
            self.patterns.draw()
        self._draw_selected()

    def _draw_selected(self) -> None:
        with self._drawing:
            if self._selected is not None:
                self._selected.draw()

    def _surveyed(self, source: BackgroundSurvey, survey: Survey) -> None:
        if source is self._surveying and not self._ended:
            self.state.survey = survey
            self._show_progress()
            try:
                self._draw()
            except Exception as error:  # noqa: BLE001 - shown; the survey continues
                put(self._problems[1], complaint(error))

    def _survey_failed(self, source: BackgroundSurvey, error: Exception) -> None:
        if source is self._surveying and not self._ended:
            put(self._problems[2], complaint(f"The survey failed: {error}"))

    def _replaced(self) -> None:
        """Reset the panels and start a survey for another scan."""
        with self._drawing:
            self._surveying.close()
            put(self._facts, facts(self.scan))
            put(self._problems[2], "")
            for panel in (self.patterns, *self._panels):
                panel.renew()
            self._back.disabled = not self.state.can_undo
            self._surveying = self._new_survey()
        self._begin()
        if self.on_scan is not None:
            self.on_scan(self.scan)

    def _new_survey(self) -> BackgroundSurvey:
        survey = BackgroundSurvey(self.scan, self._surveyed, self._survey_failed, self._busy)
        survey.paused = self._pause.value
        return survey

    def _begin(self) -> None:
        if self.state.acquisition is not None:
            self._surveying.close()
            self._show_arrivals()
            self._work.put(self._draw, instead_of="draw")
            repeat(
                self,
                "ptynb inspect arrivals",
                ARRIVALS_SECONDS,
                Inspect._show_arrivals,
                Inspect._pattern_failed,
                over=lambda view: view._arrivals_over,
            )
            return
        self._show_progress()
        self.choose(self.state.chosen)
        self._work.put(self._draw, instead_of="draw")
        self._surveying.start()

    def _show_arrivals(self) -> None:
        """Show what has come, and the newest pattern, unless another one was chosen."""
        assert self.state.acquisition is not None
        self._index = index = self._index or self.state.acquisition.index()
        arrivals = index.summary()
        put(self._progress, arrival_bar(arrivals))
        if (came := (arrivals.arrived, arrivals.placed)) != self._came:  # a position may come after its pattern
            self._came = came
            if arrivals.arrived and self.state.chosen == max(self._newest, 0):
                self._newest = int(np.nanargmax(index.arrival_times()))
                self.choose(self._newest)
            self._work.put(self._draw, instead_of="draw")
        if arrivals.ended is not None and not self._arrivals_over:
            self._arrivals_over = True
            put(self._problems[2], note(ENDED.format(path=self.state.acquisition.folder / SCAN_NAME)))
            if self.on_end is not None:
                self.on_end()

    def _busy(self) -> bool:
        return self._reading.busy or self._work.busy

    def _show_progress(self) -> None:
        survey = self.state.survey
        put(self._progress, progress(survey, len(self.scan), paused=self._pause.value))
        complete = survey is not None and survey.patterns == len(self.scan)
        self._pause.layout.display = "none" if complete else None

    def _paused(self, change: Any) -> None:
        self._surveying.pause(change["new"])
        self._work.put(self._show_progress)

    # Errors

    def _pattern_failed(self, error: Exception | None) -> None:
        put(self._problems[0], complaint(error))

    def _action_failed(self, error: Exception | None) -> None:
        if error is not None:  # drawing does not remove the error of a click
            put(self._problems[1], complaint(error))

    def _clear(self) -> None:
        put(self._problems[1], "")


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
