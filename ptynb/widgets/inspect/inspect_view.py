"""The look at a scan: facts, the panels, a survey in the background, and the scan that comes of it all.

Three threads serve it, none of them the kernel's: one reads and shows the pattern that was asked for last, so that
scrolling never waits for anything else; one does what the panels are asked; one surveys the scan while both are idle.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import ipywidgets

from ptynb.analysis import Survey
from ptynb.data.scan import Scan
from ptynb.widgets.actions import Actions
from ptynb.widgets.elements import Whole, complaint, put
from ptynb.widgets.inspect.background_survey import BackgroundSurvey
from ptynb.widgets.inspect.inspect_state import InspectorPanel, InspectorState, row
from ptynb.widgets.inspect.mask_panel import MaskPanel
from ptynb.widgets.inspect.pattern_panel import PatternPanel
from ptynb.widgets.inspect.positions_panel import PlacesPanel
from ptynb.widgets.inspect.prepare_panel import PreparePanel
from ptynb.widgets.inspect.scan_facts import facts, progress
from ptynb.widgets.inspect.statistics_panel import StatisticsPanel


class Inspect(Whole):
    """A look at a scan; see `inspect`.

    tell: is given each line of Python that does the same as what was done by mouse, with the scan as `scan` and the
    mask as `mask`; on_scan: is given the scan after each change. Both None at first; called in a thread of the look's.
    """

    def __init__(self, scan: Scan) -> None:
        self.on_scan: Callable[[Scan], None] | None = None
        self._look = Actions("ptynb inspect look", self._cannot_look, self._can_look)
        self._work = Actions("ptynb inspect work", self._complain)
        self._drawing = threading.RLock()
        self._ended = False
        self.state = InspectorState(scan, self._work, self.choose, self._replaced, self._clear)
        self._facts = ipywidgets.HTML(facts(scan))
        self._progress = ipywidgets.HTML(progress(None, len(scan), paused=False))
        self._pause = ipywidgets.ToggleButton(value=False, description="Pause survey", icon="pause")
        self._pause.layout.width = "auto"
        self._back = ipywidgets.Button(description="Undo last change", icon="undo", disabled=True)
        self._back.tooltip, self._back.layout.width = "Back to the scan before it was changed", "auto"
        self._problems = ipywidgets.HTML(), ipywidgets.HTML(), ipywidgets.HTML()
        self.patterns = PatternPanel(self.state)
        self.mask, self.places = MaskPanel(self.state), PlacesPanel(self.state)
        self._prepare = PreparePanel(self.state)
        self._panels: list[InspectorPanel] = [StatisticsPanel(self.state), self.mask, self.places, self._prepare]
        self._tab = ipywidgets.Tab(self._panels, titles=[panel.title for panel in self._panels], selected_index=0)
        super().__init__(
            [self._facts, row(self._progress, self._pause, self._back), *self._problems, self.patterns, self._tab],
            layout=ipywidgets.Layout(overflow="visible"),
        )
        self.add_class("ptynb-inspect")
        self._pause.observe(self._paused, "value")
        self._back.on_click(lambda _: self.state.asked(self.state.go_back))
        self._tab.observe(lambda _: self._work.put(self._draw_selected, instead_of="tab"), "selected_index")
        self._surveying = self._new_survey()
        self._begin()

    @property
    def scan(self) -> Scan:
        """The scan as it is now, with all that was used and applied."""
        return self.state.scan

    @property
    def tell(self) -> Callable[[str], None] | None:
        """Who is given the lines of Python; see the class."""
        return self.state.tell

    @tell.setter
    def tell(self, tell: Callable[[str], None] | None) -> None:
        self.state.tell = tell

    @property
    def excluded(self) -> list[int]:
        """The patterns on the list of those to leave out."""
        return self.places.excluded

    def choose(self, index: int) -> None:
        """Shows this pattern, and returns at once; of several choices in a row only the last one is read."""
        wanted = self.state.wanted = min(max(index, 0), len(self.state.scan) - 1)
        self._look.put(lambda: self._choose(wanted), instead_of="pattern")

    def settle(self, seconds: float = 60.0) -> None:
        """Waits until all that was asked is done and the survey is complete. Raises TimeoutError."""
        self._work.settle(seconds)
        if not self._pause.value:
            self._surveying.wait(seconds)
        self._look.settle(seconds)
        self._work.settle(seconds)

    def close(self) -> None:
        """Ends the look, its threads and the survey; the scan stays as it is."""
        self._ended = True
        self._surveying.close()
        self._look.close()
        self._work.close()
        super().close()

    # What the threads do

    def _choose(self, index: int) -> None:
        self.state.index = min(index, len(self.state.scan) - 1)  # the scan may have become shorter since
        self.patterns.draw_pattern()
        if self._selected is self._prepare:
            self._work.put(self._draw_selected, instead_of="tab")

    @property
    def _selected(self) -> InspectorPanel | None:
        """The panel that is seen: the others are drawn when they come to be."""
        index = self._tab.selected_index
        return None if index is None else self._panels[index]

    def _draw(self) -> None:
        with self._drawing:
            self.patterns.draw()
        self._draw_selected()

    def _draw_selected(self) -> None:
        with self._drawing:
            if self._selected is not None:
                self._selected.draw()

    def _news(self, source: BackgroundSurvey, seen: Survey) -> None:
        if source is self._surveying and not self._ended:
            self.state.seen = seen
            self._say_progress()
            try:
                self._draw()
            except Exception as error:  # noqa: BLE001 - shown; what can't be drawn is no reason to stop surveying
                self._complain(error)

    def _survey_failed(self, source: BackgroundSurvey, error: Exception) -> None:
        if source is self._surveying and not self._ended:
            put(self._problems[2], complaint(f"The survey ended: {error}"))

    def _replaced(self) -> None:
        """The scan is another one: all is looked at afresh."""
        with self._drawing:
            self._surveying.close()
            put(self._facts, facts(self.scan))
            put(self._problems[2], "")
            for panel in (self.patterns, *self._panels):
                panel.renew()
            self._back.disabled = not self.state.can_go_back
            self._surveying = self._new_survey()
        self._begin()
        if self.on_scan is not None:
            self.on_scan(self.scan)

    def _new_survey(self) -> BackgroundSurvey:
        survey = BackgroundSurvey(self.scan, self._news, self._survey_failed, self._busy)
        survey.paused = self._pause.value
        return survey

    def _begin(self) -> None:
        self._say_progress()
        self.choose(self.state.wanted)
        self._work.put(self._draw, instead_of="draw")
        self._surveying.start()

    def _busy(self) -> bool:
        return self._look.busy or self._work.busy

    def _say_progress(self) -> None:
        put(self._progress, progress(self.state.seen, len(self.scan), paused=self._pause.value))

    def _paused(self, change: Any) -> None:
        self._surveying.paused = change["new"]
        self._work.put(self._say_progress)

    # Errors

    def _cannot_look(self, error: Exception) -> None:
        put(self._problems[0], complaint(error))

    def _can_look(self) -> None:
        put(self._problems[0], "")

    def _complain(self, error: Exception) -> None:
        put(self._problems[1], complaint(error))

    def _clear(self) -> None:
        put(self._problems[1], "")


def inspect(scan: Scan) -> Inspect:
    """A look at a scan in the notebook, before it is reconstructed.

    Opens at once and never holds more than a few patterns, so that scans far larger than memory are looked at too.
    Shows patterns by their place in the scan or in a virtual image, statistics, suspicious places and patterns;
    masks, turns, leaves out and prepares. `inspect(scan).scan` is the scan with what was used and applied.
    """
    return Inspect(scan)
