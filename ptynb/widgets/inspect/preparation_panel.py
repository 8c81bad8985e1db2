"""Preparation: a sequence of steps, a pattern before and after them, and the prepared scan."""

from __future__ import annotations

import html

from ptynb.data.scan import Scan
from ptynb.io.prepared_scan import prepare
from ptynb.settings.recipe import PrepareStep, Recipe
from ptynb.widgets import elements
from ptynb.widgets.inspect.inspect_state import InspectorPanel, InspectorState, row
from ptynb.widgets.inspect.pattern_display import pattern_of, pattern_picture, show
from ptynb.widgets.inspect.preparation_steps import KINDS
from ptynb.widgets.inspect.scan_facts import facts
from ptynb.widgets.shared_widgets import put
from ptynb.widgets.viewer.viewer import Viewer


class PreparePanel(InspectorPanel):
    """Preview and application of preparation steps."""

    title = "Prepare"

    def __init__(self, state: InspectorState) -> None:
        self._steps: list[PrepareStep] = []
        self._scans: list[Scan] = [state.scan]
        self._kind = elements.Dropdown(options=[(kind.name, kind) for kind in KINDS], description="Step")
        self._kind.layout.width = "auto"
        self._kind.layout.max_width = "320px"
        self._value = elements.Text(value=KINDS[0].default, description="Number", layout=elements.Layout(width="190px"))
        self._meaning = elements.HTML()
        self._lines = elements.HTML()
        self._remove = self.button("Remove last", self._removed, icon="undo")
        self._apply = self.button("Apply", self._applied, "Replaces the scan by the prepared one", "check")
        self._view = Viewer(columns=2, height=340, share=0.5, linked=False)
        super().__init__(
            state,
            [
                row(self._kind, self._value, self._meaning),
                row(self.button("Add step", self._added, icon="plus"), self._remove, self._apply),
                self._lines,
                self._view,
            ],
        )
        self._kind.observe(lambda _: self._ask(), "value")
        self._ask()
        self._tell()

    def draw(self) -> None:
        """Draw the chosen pattern before and after the steps."""
        after, index = self._scans[-1], self.state.index
        pictures = [
            pattern_picture(
                pattern_of(scan, index), name, f"{name}: {scan.pattern_shape[0]} × {scan.pattern_shape[1]}", "log", 1.0
            )
            for name, scan in (("before", self.state.scan), ("after", after))
        ]
        show(self._view, pictures)

    def renew(self) -> None:
        """Update the panel after the steps were applied or the scan changed."""
        self._steps, self._scans = [], [self.state.scan]
        self._tell()

    def _ask(self) -> None:
        kind = self._kind.value
        self._value.value, self._value.disabled = kind.default, not kind.number
        self._value.placeholder = kind.number
        put(self._meaning, html.escape(kind.number))

    def _added(self) -> None:
        step = self._kind.value.step(self._value.value)
        self._scans.append(prepare(self._scans[-1], [step]))
        self._steps.append(step)
        self._tell()
        self.draw()

    def _removed(self) -> None:
        if self._steps:
            self._steps.pop()
            self._scans.pop()
        self._tell()
        self.draw()

    def _applied(self) -> None:
        if self._steps:
            self.state.replace(self._scans[-1], [f"scan = {step.as_python}" for step in self._steps])

    def _tell(self) -> None:
        self._remove.disabled = self._apply.disabled = not self._steps
        if not self._steps:
            put(self._lines, "No steps chosen yet.")
            return
        lines = "<br>".join(html.escape(f"scan = {step.as_python}") for step in self._steps)
        text = html.escape(Recipe(prepare=tuple(self._steps)).in_file("prepare"))
        in_file = f"<details><summary>in a run file</summary><pre>{text}</pre></details>"
        put(self._lines, f"<code>{lines}</code>{in_file}{facts(self._scans[-1])}")
