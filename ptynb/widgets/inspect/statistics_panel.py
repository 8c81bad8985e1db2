"""Mean, maximum and variance pattern, and the histogram of counts."""

from __future__ import annotations

import ipywidgets

from ptynb.widgets.elements import put
from ptynb.widgets.inspect.inspect_state import InspectorPanel, InspectorState, choice, real, row
from ptynb.widgets.inspect.pattern_display import SCALES, centred, pattern_picture, show
from ptynb.widgets.inspect.scan_facts import histogram
from ptynb.widgets.viewer.viewer import Viewer


class StatisticsPanel(InspectorPanel):
    """What the patterns show together, as far as they were surveyed."""

    title = "Statistics"

    def __init__(self, state: InspectorState) -> None:
        self._scale = choice("Scale", SCALES)
        self._exponent = real("Exponent", 0.5, 0.05, 5.0, step=0.05)
        self._view = Viewer(columns=3, height=320)
        self._histogram = ipywidgets.HTML()
        super().__init__(state, [row(self._scale, self._exponent), self._view, self._histogram])
        for control in (self._scale, self._exponent):
            control.observe(lambda _: self.state.asked(self.draw, instead_of="statistics"), "value")

    def draw(self) -> None:
        """The three pictures and the histogram."""
        seen, scan = self.state.seen, self.state.scan
        if seen is None:
            return
        good = seen.finite if scan.mask is None else seen.finite & scan.mask
        fields = {
            "mean": (seen.mean, "counts"),
            "maximum": (seen.maximum, "counts"),
            "variance": (seen.variance, "counts²"),
        }
        scale, exponent = self._scale.value, self._exponent.value
        # Masked pixels may show anything, and would take all of the contrast.
        pictures = [
            pattern_picture(centred(scan, field * good), name, name, scale, exponent, unit)
            for name, (field, unit) in fields.items()
        ]
        show(self._view, pictures)
        put(self._histogram, f"<b>Counts of the pixels of {seen.patterns:,} patterns</b><br>{histogram(seen)}")
