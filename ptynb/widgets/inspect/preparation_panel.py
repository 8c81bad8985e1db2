"""The panel of preparation: steps from the text of a field, a pattern before and after them, and the prepared scan."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import traitlets

from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError
from ptynb.io.prepared_scan import prepare
from ptynb.settings.recipe import PrepareStep, Recipe
from ptynb.widgets.element_tree import shown
from ptynb.widgets.inspect.inspect_state import InspectorPanel, InspectorState, action
from ptynb.widgets.inspect.scan_display import facts, pattern_of, pattern_picture, show
from ptynb.widgets.viewer.viewer import Viewer

MEAN_OF = 256
"""Number of patterns whose mean determines the centre of a scan."""
KINDS = (
    ("centre", "centre", "", "", ""),
    ("crop", "crop", "window", "window [pixels]", "128"),
    ("bin", "bin", "factor", "factor", "2"),
    ("pad", "pad", "window", "window [pixels]", "256"),
    ("subtract dark", "subtract_dark", "dark", "level [counts]", "1"),
    ("remove counts below", "remove_negatives", "threshold", "threshold [counts]", "1"),
    ("flip patterns", "flip", "axes", "axes: y, x or yx", "y"),
    ("transpose patterns", "transpose", "", "", ""),
    ("rotate positions", "rotate_positions", "angle", "angle [degrees]", "90"),
    ("swap y and x of positions", "transpose_positions", "", "", ""),
)
"""Kinds of steps: name, function, its argument ("": none), what a user enters for it, and the default of that."""
READERS: dict[str, Callable[[str], Any]] = {
    "window": int,
    "factor": int,
    "dark": float,
    "threshold": float,
    "axes": str.strip,
    "angle": lambda text: math.radians(float(text)),
}


def _step(kind: str, text: str) -> PrepareStep:
    """Return a step of a kind, from the text of its argument."""
    function, argument = next((function, argument) for name, function, argument, *_ in KINDS if name == kind)
    if not argument:
        return PrepareStep(function=function, arguments={"patterns": MEAN_OF} if function == "centre" else {})
    reader = READERS[argument]
    try:
        value = reader(text)
    except ValueError:
        expected = "an integer" if reader is int else "a number"
        raise InvalidValueError(
            f"The number of this step is {text!r}; expected {expected}.", code="argument.invalid-value"
        ) from None
    return PrepareStep(function=function, arguments={argument: value})


class PreparationPanel(InspectorPanel):
    """Preview and application of steps.

    kinds: [name, meaning of the parameter, default] of each. lines: the steps as Python; recipe: as in a run file.
    facts: of the prepared scan.
    """

    component = "inspectPreparation"

    facts = shown(traitlets.List())
    kinds = shown(traitlets.List([[name, meaning, default] for name, _, _, meaning, default in KINDS]))
    lines, recipe = shown(traitlets.List()), shown(traitlets.Unicode(""))

    def __init__(self, state: InspectorState) -> None:
        super().__init__(state, Viewer(columns=2, height=340, share=0.5, linked=False))

    def draw(self) -> None:
        """Draw the chosen pattern before and after the steps."""
        self._tell()
        index = self.state.index
        scans = {"before": self.state.scan, "after": self._scans[-1]}
        titles = {name: "{}: {} × {}".format(name, *scan.pattern_shape) for name, scan in scans.items()}
        patterns = {name: pattern_of(scan, index) for name, scan in scans.items()}
        show(self.view, [pattern_picture(patterns[name], name, titles[name], "log", 1.0) for name in scans])

    def renew(self) -> None:
        """Start again without steps."""
        self._steps: list[PrepareStep] = []
        self._scans: list[Scan] = [self.state.scan]
        self._tell()

    @action
    def add(self, kind: str, number: str) -> None:
        """Append a step of a kind; number: the text of its parameter."""
        step = _step(kind, number)
        self._scans.append(prepare(self._scans[-1], [step]))
        self._steps.append(step)

    @action
    def remove(self) -> None:
        """Remove the last step."""
        if self._steps:
            self._steps.pop()
            self._scans.pop()

    @action
    def apply(self) -> None:
        """Replace the scan by the prepared one."""
        if self._steps:
            self.state.replace(self._scans[-1], self.lines)

    def _tell(self) -> None:
        self.lines = [f"scan = {step.as_python}" for step in self._steps]
        self.recipe = Recipe(prepare=tuple(self._steps)).in_file("prepare") if self._steps else ""
        self.facts = facts(self._scans[-1])
