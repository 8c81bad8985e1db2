"""The page "Errors" of the live view: the R-factor of each pattern over the positions, and the object's standard error.

The R-factors are measured by the engines a few at a time, while the page is shown. The standard error needs two further
reconstructions, which a button starts and another one cancels; they run in a thread of their own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import traitlets

from ptynb.data import images
from ptynb.data.engine_records import Picture
from ptynb.data.pattern_r_factors import PatternRFactors
from ptynb.data.standard_error import ErrorMap
from ptynb.widgets.actions import Actions
from ptynb.widgets.element_tree import Element, command, shown
from ptynb.widgets.inspect.position_map import PositionMap
from ptynb.widgets.live.protocol import Moment, Tell, Watched, moment_of
from ptynb.widgets.viewer.viewer import Viewer

HEIGHT, SHARE = 120, 0.19
"""Of the maps: least height [screen pixels], and part of the window, with which they are seen at once."""
MEASURING_SECONDS = 0.02
"""Time that a request may take from updates; one portion of patterns is measured in any case [s]."""
REST = 20.0
"""Ratio of the pause after a request to the time that it took from updates."""
LINE = "recon.pattern_r_factors()"
NAME = "R-factors"


class ErrorsPage(Element):
    """A map of R-factors, in which a click chooses a pattern, and a map of the standard error, on request.

    facts: of the R-factors, in words. computing: whether the standard error is being computed. done, total: epochs of
    the two halves; total is 0 before their first one. said: its median, or how its computation ended. message: its
    error. chosen: called with the pattern of a click; tell: with the line of Python of one.
    """

    component = "liveErrors"

    facts = shown(traitlets.Unicode(""))
    computing = shown(traitlets.Bool(False))
    done = shown(traitlets.Int(0))
    total = shown(traitlets.Int(0))
    said = shown(traitlets.Unicode(""))
    message = shown(traitlets.Unicode(""))
    map = shown(traitlets.Instance(Viewer))
    errors = shown(traitlets.Instance(Viewer))

    def __init__(self, recon: Watched, chosen: Callable[[int], None], tell: Tell) -> None:
        self._recon, self._chosen, self._tell = recon, chosen, tell
        self._places: PositionMap | None = None
        self._found: PatternRFactors | None = None
        self._shown: tuple[int, int, Moment] | None = None
        self._not_before = float("-inf")
        self._job: Actions | None = None
        self._cancelled = threading.Event()
        viewer = Viewer(height=HEIGHT, share=SHARE, value_at=self._value_at)
        super().__init__(map=viewer, errors=Viewer(height=HEIGHT, share=SHARE))
        self.map.on_click(lambda _, y, x: self._clicked(y, x))

    def close(self) -> None:
        """Cancel the reconstructions of halves and end their thread."""
        self._cancelled.set()
        if self._job is not None:
            self._job.close()
        for viewer in (self.map, self.errors):
            viewer.close()
        super().close()

    # R-factors of patterns

    def update(self, epoch: int, update: int) -> None:
        """Let the engines measure some patterns, and show the map, unless all of it is of this state."""
        key = (epoch, update, moment_of(self._recon))
        complete = self._found is not None and self._found.complete
        if (key == self._shown and complete) or time.monotonic() < self._not_before or not self.map.ready:
            return
        found = self._recon.pattern_r_factors(MEASURING_SECONDS)
        self._not_before = time.monotonic() + REST * found.cost
        if self._places is None:
            self._places = PositionMap(self._recon.scan)
        self._found, self._shown = found, key
        if not np.isfinite(found.values).any():
            return
        values = self._places.image(found.values, found.measured)
        limits = images.limits_of(found.values, 0.5, 99.5)
        pixel = self._places.pixel_size
        one = images.picture(values, NAME, "R-factor of each pattern", limits=limits, pixel_size=pixel, colours="magma")
        self.map.show([one], epoch=epoch, update=update)
        self.facts = r_factor_words(found)

    def _clicked(self, y: float, x: float) -> None:
        if self._places is not None:
            self._chosen(self._places.pattern_at(y, x))

    def _value_at(self, _: str, y: int, x: int) -> str:
        places, found = self._places, self._found
        if places is None or found is None:
            return ""
        index = places.pattern_at(y + 0.5, x + 0.5)
        return f"pattern {index}, R-factor {found.values[index]:.4f}, epoch {found.epochs[index]}"

    # The standard error from halves

    @command
    def compute(self, epochs: int = 0, engines: int = 0) -> None:
        """Map the standard error. epochs: of each half; 0: as the run. engines: new ones; 0: this process."""
        if self.computing:
            return
        if self._job is None:
            self._job = Actions("ptynb error map", self._complain, self._end)
        self._cancelled.clear()
        self.done = self.total = 0
        self.said, self.computing = "", True
        self._job.put(lambda: self._map(epochs or None, engines))

    @command
    def cancel(self) -> None:
        """End the computation."""
        self._cancelled.set()
        self.said = "ending …"

    def _map(self, epochs: int | None, engines: int) -> None:
        arguments = ", ".join([f"epochs={epochs}"] * bool(epochs) + [f"engines={engines}"] * bool(engines))
        found = self._recon.error_map(
            epochs, engines=engines, progress=self._show_progress, cancelled=self._cancelled.is_set
        )
        self.errors.show(error_pictures(found))
        phase = float(np.median(found.phase_error))
        self.said = f"Median standard error {found.median:.3g} of the amplitude, {phase:.3g} rad of the phase."
        self._tell(f"errors = recon.error_map({arguments})")

    def _show_progress(self, done: int, total: int) -> None:
        self.done, self.total = done, total

    def _complain(self, error: Exception | None) -> None:
        self.said, self.message = "", "" if error is None else str(error)

    def _end(self) -> None:
        self.computing = False


def r_factor_words(found: PatternRFactors) -> str:
    """Return how many patterns were measured, their median and the worst one."""
    measured, count = int(found.measured.sum()), len(found.values)
    many = f"{measured:,} of {count:,} patterns" if measured < count else f"{count:,} patterns"
    epochs = found.epochs[found.measured]
    when = f"epoch {epochs.min()}" if epochs.min() == epochs.max() else f"epochs {epochs.min()} to {epochs.max()}"
    worst = found.worst
    most = "" if worst is None else f", largest {found.values[worst]:.4f} (pattern {worst})"
    return f"{many}, {when}: median {found.median:.4f}{most}. A click shows the pattern."


def error_pictures(found: ErrorMap) -> list[Picture]:
    """Return the phase of the object and the standard errors of phase and amplitude as pictures."""
    phase, pixel = images.flat_phase(found.object), found.pixel_size
    made = (
        ("phase", phase, "phase, mean of both", "rad", "viridis"),
        ("phase error", found.phase_error, "standard error of the phase", "rad", "magma"),
        ("amplitude error", found.amplitude_error, "standard error of the amplitude", "", "magma"),
    )
    return [
        images.picture(values, name, title, unit=unit, pixel_size=pixel, colours=colours)
        for name, values, title, unit, colours in made
    ]
