"""The page "Errors" of the live view: the R-factor of each pattern over the positions, and the object's standard error.

The R-factors are measured by the engines a few at a time, while the page is shown. The standard error needs two further
reconstructions, which a button starts and another one cancels; they run in a thread of their own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from ptynb.data import images
from ptynb.data.engine_records import Picture
from ptynb.data.pattern_r_factors import PatternRFactors
from ptynb.data.standard_error import ErrorMap
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions
from ptynb.widgets.inspect.position_map import PositionMap
from ptynb.widgets.live.controls import row, whole_number
from ptynb.widgets.live.protocol import Moment, Tell, Watched, moment_of
from ptynb.widgets.shared_widgets import complaint, free, put
from ptynb.widgets.viewer.viewer import Viewer

HEIGHT, SHARE = 120, 0.19
"""Of the maps: least height [screen pixels], and part of the window, with which they are seen at once."""
MEASURING_SECONDS = 0.02
"""Time that a request may take from updates; one portion of patterns is measured in any case [s]."""
REST = 20.0
"""Ratio of the pause after a request to the time that it took from updates."""
LINE = "recon.pattern_r_factors()"
NAME = "R-factors"


class ErrorsPage:
    """A map of R-factors, in which a click chooses a pattern, and a map of the standard error, on request.

    tell: called with the line of Python of a click.
    """

    def __init__(self, recon: Watched, chosen: Callable[[int], None], tell: Tell) -> None:
        self._recon, self._chosen, self._tell = recon, chosen, tell
        self.map = Viewer(height=HEIGHT, share=SHARE, value_at=self._value_at)
        self.map.on_click(lambda _, y, x: self._clicked(y, x))
        self._facts = elements.HTML()
        self._places: PositionMap | None = None
        self._found: PatternRFactors | None = None
        self._shown: tuple[int, int, Moment] | None = None
        self._not_before = float("-inf")
        self.epochs = whole_number(
            "Epochs", 0, 0, 1_000_000, "150px", "Epochs of each half; 0: as many as the run has completed."
        )
        self.engines = whole_number(
            "New engines", 0, 0, 64, "150px", "Engines that are started for it; 0: the notebook's process reconstructs."
        )
        self.compute = self._button("Map the standard error", "contrast", self._start)
        self.cancel = self._button("Cancel", "stop", self._cancel)
        self.cancel.disabled = True
        self._progress = elements.HTML(
            '<span style="opacity:.75">From reconstructions of two halves of the scan, beside the run.</span>'
        )
        self.errors = Viewer(height=HEIGHT, share=SHARE)
        self.errors.layout.display = "none"
        self._job: Actions | None = None
        self._cancelled = threading.Event()
        left = elements.VBox([self.map], layout=free("auto"))
        controls = row(self.epochs, self.engines, self.compute, self.cancel, grid_gap="2px 8px")
        right = elements.VBox([controls, self._progress, self.errors], layout=free("auto"))
        left.layout.flex, right.layout.flex = "1 1 300px", "2 1 420px"
        left.layout.min_width = right.layout.min_width = "0"  # else the left one takes all, and more
        wrapped = elements.Layout(flex_flow="row wrap", overflow="visible", grid_gap="4px 24px", width="100%")
        self.widget = elements.VBox([self._facts, elements.HBox([left, right], layout=wrapped)], layout=free())

    def close(self) -> None:
        """Cancel the reconstructions of halves and end their thread."""
        self._cancelled.set()
        if self._job is not None:
            self._job.close()

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
        put(self._facts, r_factor_text(found))

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

    def _button(self, text: str, icon: str, action: Callable[[], None]) -> elements.Button:
        button = elements.Button(description=text, icon=icon, tooltip=text, layout=elements.Layout(width="auto"))
        button.on_click(lambda _: action())
        return button

    def _start(self) -> None:
        if self._job is None:
            self._job = Actions("ptynb error map", self._complain, self._end)
        self._cancelled.clear()
        self.compute.disabled, self.cancel.disabled = True, False
        self._job.put(partial(self._map, self.epochs.value or None, self.engines.value))

    def _cancel(self) -> None:
        self._cancelled.set()
        self.cancel.disabled = True
        put(self._progress, '<span role="status">ending …</span>')

    def _map(self, epochs: int | None, engines: int) -> None:
        arguments = ", ".join([f"epochs={epochs}"] * bool(epochs) + [f"engines={engines}"] * bool(engines))
        self._show_progress(0, 0)
        found = self._recon.error_map(
            epochs, engines=engines, progress=self._show_progress, cancelled=self._cancelled.is_set
        )
        self.errors.layout.display = None
        self.errors.show(error_pictures(found))
        phase = float(np.median(found.phase_error))
        put(self._progress, f"Median standard error {found.median:.3g} of the amplitude, {phase:.3g} rad of the phase.")
        self._tell(f"errors = recon.error_map({arguments})")

    def _show_progress(self, done: int, total: int) -> None:
        if not self._cancelled.is_set():
            label = f"{done} of {total} epochs" if total else "reading the scan …"
            bar = f'<progress value="{done}" max="{max(total, 1)}" aria-label="Epochs of both halves"></progress>'
            put(self._progress, f'{bar} <span role="status">{label}</span>')

    def _complain(self, error: Exception | None) -> None:
        if error is not None:
            put(self._progress, complaint(error))

    def _end(self) -> None:
        self.compute.disabled, self.cancel.disabled = False, True


def r_factor_text(found: PatternRFactors) -> str:
    """Return how many patterns were measured, their median and the worst one, as HTML."""
    measured, count = int(found.measured.sum()), len(found.values)
    many = f"{measured:,} of {count:,} patterns" if measured < count else f"{count:,} patterns"
    epochs = found.epochs[found.measured]
    when = f"epoch {epochs.min()}" if epochs.min() == epochs.max() else f"epochs {epochs.min()} to {epochs.max()}"
    worst = found.worst
    most = "" if worst is None else f", largest {found.values[worst]:.4f} (pattern {worst})"
    return f"{many}, {when}: median {found.median:.4f}{most}. A click shows the pattern."


def error_pictures(found: ErrorMap) -> list[Picture]:
    """Return the phase of the object and the standard errors of phase and amplitude as pictures."""
    pixel = found.pixel_size
    phase = images.picture(
        images.flat_phase(found.object), "phase", "phase, mean of both", unit="rad", pixel_size=pixel, colours="viridis"
    )
    deviations = (
        ("phase error", found.phase_error, "standard error of the phase", "rad"),
        ("amplitude error", found.amplitude_error, "standard error of the amplitude", ""),
    )
    return [
        phase,
        *(
            images.picture(values, name, title, unit=unit, pixel_size=pixel, colours="magma")
            for name, values, title, unit in deviations
        ),
    ]
