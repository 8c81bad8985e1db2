"""The first pictures of a scan, without a reconstruction, and the first guess that follows from them."""

from __future__ import annotations

import ipywidgets
import numpy as np

from ptynb.analysis.direct.direct_imaging import DirectImages, direct
from ptynb.data.images import picture
from ptynb.exceptions import ScanError
from ptynb.widgets.inspect.inspect_state import InspectorPanel, InspectorState, row
from ptynb.widgets.shared_widgets import CancelBar, CancelledError, note, put
from ptynb.widgets.viewer.viewer import Viewer


class DirectPanel(InspectorPanel):
    """Virtual detectors, deflections and phases, which are computed when the panel is first shown."""

    title = "First pictures"

    def __init__(self, state: InspectorState) -> None:
        self._found: DirectImages | None = None
        self._tried = False
        compute = self.button("Compute", self._compute, "Reads all patterns once", "image")
        self._use = self.button(
            "Use as first guess", self._adopt, "Corrects the positions, and sets the probe of the fitted lens", "check"
        )
        self._progress = CancelBar("Pictures", "Ends the reading; the scan stays as it is")
        self._text = ipywidgets.HTML()
        self._view = Viewer(columns=4, height=520, share=0.6)
        super().__init__(state, [row(compute, self._use, self._progress), self._view, self._text])
        self.renew()

    def draw(self) -> None:
        """Compute the pictures, if that was not tried."""
        if not self._tried:
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
        self._found = found
        self._use.disabled = not found.lines
        self._view.show(
            [
                picture(
                    np.nan_to_num(values, nan=float(np.nanmin(values))), name, name.capitalize(),
                    unit=found.units[name], pixel_size=found.pixel_size,
                )
                for name, values in found.pictures.items()
            ]
        )  # fmt: skip
        put(self._text, found.table().html())
        self.state.say("first = pt.direct(scan)")

    def _adopt(self) -> None:
        if self._found is not None:
            guess = self._found.initial_guess(self.state.scan)
            self.state.replace(guess, ["scan = first.initial_guess(scan)"], earlier_lines=["first = pt.direct(scan)"])
