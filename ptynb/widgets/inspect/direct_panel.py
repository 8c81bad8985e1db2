"""The first pictures of a scan, without a reconstruction, and the first guess that follows from them."""

from __future__ import annotations

from ptynb.analysis.direct.direct_imaging import DirectImages, DirectReading, direct
from ptynb.exceptions import ScanError
from ptynb.widgets import elements
from ptynb.widgets.inspect.inspect_state import InspectorPanel, InspectorState, row
from ptynb.widgets.shared_widgets import CancelBar, CancelledError, note, put
from ptynb.widgets.viewer.viewer import Viewer

MOST = 2000
"""Number of patterns of a scan that is being measured after which the pictures are shown: 1.5 s of 128 x 128 pixels."""


class DirectPanel(InspectorPanel):
    """Virtual detectors, deflections and phases, which are computed when the panel is first shown.

    Of a scan that is being measured they are those of what has come.
    """

    title = "First pictures"

    def __init__(self, state: InspectorState) -> None:
        self._found: DirectImages | None = None
        self._reading: DirectReading | None = None
        self._tried = False
        compute = self.button("Compute", self._compute, "Reads all patterns once", "image")
        self._use = self.button(
            "Use as first guess", self._adopt, "Corrects the positions, and sets the probe of the fitted lens", "check"
        )
        self._progress = CancelBar("Pictures", "Ends the reading; the scan stays as it is")
        self._text = elements.HTML()
        self._view = Viewer(columns=4, height=520, share=0.6)
        controls = row(compute, self._use, self._progress)
        if state.acquisition is not None:
            controls.layout.display = "none"
        super().__init__(state, [controls, self._view, self._text])
        self.renew()

    def draw(self) -> None:
        """Compute the pictures, if that was not tried, or more patterns have come."""
        if self.state.acquisition is not None:
            self._continue()
        elif not self._tried:
            self._compute()

    def renew(self) -> None:
        """Forget the pictures of the last scan."""
        self._found, self._tried, self._use.disabled = None, False, True
        self._view.show([])
        put(self._text, "")

    def _compute(self) -> None:
        self._tried = True
        scan = self.state.scan
        self._progress.begin()
        try:
            found = direct(scan, report=lambda count: self._progress.show(count, len(scan)))
        except CancelledError:
            put(self._text, note("The reading was cancelled."))
            return
        except ScanError as error:
            put(self._text, note(str(error)))
            return
        finally:
            self._progress.end()
        self._show(found)
        self.state.say("first = pt.direct(scan)")

    def _continue(self) -> None:
        """Read what has come since, in portions, and show all that was read."""
        try:
            self._reading = self._reading or DirectReading(self.state.scan)
            more = self._reading.read(most=MOST)
        except ScanError as error:
            put(self._text, note(str(error)))
            return
        self._show(self._reading.images())
        if more:
            self.state.work.put(self.draw, instead_of="first pictures")

    def _show(self, found: DirectImages) -> None:
        self._found = found
        self._use.disabled = not found.lines
        self._view.show(found.shown())
        put(self._text, found.table().html())

    def _adopt(self) -> None:
        if self._found is not None:
            guess = self._found.initial_guess(self.state.scan)
            self.state.replace(guess, ["scan = first.initial_guess(scan)"], earlier_lines=["first = pt.direct(scan)"])
