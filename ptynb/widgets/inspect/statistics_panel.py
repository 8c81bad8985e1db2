"""Mean, maximum and variance pattern, and the histogram of counts."""

from __future__ import annotations

from ptynb.widgets import elements
from ptynb.widgets.inspect.inspect_state import InspectorPanel, InspectorState, choice, row
from ptynb.widgets.inspect.pattern_display import SCALES, centred, exponent_of, pattern_picture, show
from ptynb.widgets.inspect.scan_facts import histogram
from ptynb.widgets.shared_widgets import put
from ptynb.widgets.viewer.viewer import Viewer


class StatisticsPanel(InspectorPanel):
    """Mean, maximum, variance and histogram of the surveyed patterns."""

    title = "Statistics"

    def __init__(self, state: InspectorState) -> None:
        self._scale = choice("Scale", SCALES)
        self._exponent = exponent_of(self._scale)
        self._view = Viewer(columns=3, height=320, share=0.45)
        self._histogram = elements.HTML()
        super().__init__(state, [row(self._scale, self._exponent), self._view, self._histogram])
        for control in (self._scale, self._exponent):
            control.observe(lambda _: self.state.run(self.draw, instead_of="statistics"), "value")

    def draw(self) -> None:
        """Draw the three pictures and the histogram."""
        survey, scan = self.state.survey, self.state.scan
        if survey is None:
            return
        good = survey.finite if scan.mask is None else survey.finite & scan.mask
        fields = {
            "mean": (survey.mean, "counts"),
            "maximum": (survey.maximum, "counts"),
            "variance": (survey.variance, "counts²"),
        }
        scale, exponent = self._scale.value, self._exponent.value
        # Masked pixels may have any value and would set the contrast.
        pictures = [
            pattern_picture(centred(scan, field * good), name, name, scale, exponent, unit)
            for name, (field, unit) in fields.items()
        ]
        show(self._view, pictures)
        put(self._histogram, f"<b>Counts of the pixels of {survey.patterns:,} patterns</b><br>{histogram(survey)}")
