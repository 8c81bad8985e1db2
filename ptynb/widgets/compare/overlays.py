"""What lies over the pictures of results: positions with arrows to the refined ones, and a crosshair with its cuts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from ptynb.analysis.orthogonal_cuts import CutQuantity, OrthogonalCuts, orthogonal_cuts
from ptynb.analysis.position_refinement import position_refinement
from ptynb.analysis.result_comparison import Together
from ptynb.data import images
from ptynb.exceptions import InvalidValueError
from ptynb.widgets.viewer.viewer import Viewer

HEIGHT = 150
NONE = np.zeros((0, 2))


def mark_positions(viewer: Viewer, together: Together, registered: bool) -> None:
    """Draw the measured positions of each comparable result; arrows of all results are longer by one factor."""
    found = {name: position_refinement(together.results[name]) for name in together.placed}
    factor = min((one.exaggeration() for one in found.values() if one.largest > 0), default=1.0)
    labels = {}
    for name, refinement in found.items():
        scale, offset = together.on_area(name, registered)
        middle = np.array(together.results[name].probe.shape[-2:]) / 2
        moved = None
        if refinement.largest > 0:
            moved = (refinement.arrows(factor) + middle) * scale + offset
            labels[name] = f"arrows × {factor:g}"
        viewer.mark(name, (refinement.measured + middle) * scale + offset, moved=moved)
    viewer.labels = labels


def remove_marks(viewer: Viewer) -> None:
    """Remove all positions."""
    for name in [*viewer.points]:
        viewer.mark(name, NONE)
    viewer.labels = {}


class SliceCuts:
    """A viewer of cuts (z, x) and (y, z) of each result, and the crosshair in the pictures of the objects.

    moved: called when the crosshair is moved on a page. shown: whether there are cuts. lines: their Python, by result.
    """

    def __init__(self, objects: Viewer, moved: Callable[[], None]) -> None:
        self._objects, self._moved = objects, moved
        self.viewer = Viewer(height=HEIGHT, tools=False, linked=False)
        self.shown = False
        self.lines: dict[str, str] = {}
        objects.observe(lambda change: self._aimed(change["new"]), "crosshair")
        objects.observe(lambda _: self._take_colours(), ["colours", "percentiles"])
        self._at: tuple[int, int] | None = None
        """Pixel (y, x) of the common area at which the cuts cross; None: no cuts are shown."""

    def hide(self) -> None:
        """Remove the cuts and the crosshair."""
        self._at, self.shown, self.lines = None, False, {}
        self._objects.crosshair = {}

    def draw(self, together: Together, quantity: CutQuantity, registered: bool, panes: Sequence[str]) -> list[str]:
        """Show the cuts of all thick objects, in one contrast; return why some have none. panes: with the crosshair."""
        height, width = (part.stop - part.start for part in together.area)
        y, x = (height // 2, width // 2) if self._at is None else self._at
        y, x = self._at = min(y, height - 1), min(x, width - 1)
        aims: dict[str, list[float | None]] = {name: [y + 0.5, x + 0.5] for name in panes}
        if self._objects.crosshair != aims:
            self._objects.crosshair = aims
        cuts, lines, problems = dict[str, OrthogonalCuts](), dict[str, str](), list[str]()
        for name in together.placed:
            result = together.results[name]
            if len(result.slices) < 2:
                continue
            scale, offset = together.on_area(name, registered)
            row, column = np.floor((np.array([y + 0.5, x + 0.5]) - offset) / scale).astype(int).tolist()
            try:
                cuts[name] = orthogonal_cuts(result, y=row, x=column, quantity=quantity)
            except InvalidValueError as error:
                problems.append(f"{name}: {error}")
            else:
                given = f"view.results[{name!r}], y={row}, x={column}, quantity={quantity!r}"
                lines[name] = f"pt.analysis.orthogonal_cuts({given})"
        self.lines = lines
        values = [values.ravel() for cut in cuts.values() for values in (cut.xz, cut.yz)]
        limits = None if quantity == "complex" or not values else images.limits_of(np.concatenate(values))
        pictures = [
            dataclasses.replace(one, name=f"{name} {plane}", title=f"{name}, {one.title.partition(', ')[2]}")
            for name, cut in cuts.items()
            for one, plane in zip(cut.pictures(limits), ("xz", "yz"), strict=True)
        ]
        self._take_colours()
        self.viewer.show(pictures)
        self.shown = bool(pictures)
        return problems

    def _aimed(self, aims: dict[str, list[float | None]]) -> None:
        """Move the cuts to where a click or a drag has moved the crosshair."""
        places = [tuple(math.floor(one) for one in place if one is not None) for place in aims.values()]
        at = next((place for place in places if place != self._at and len(place) == 2), None)
        if at is not None and self._at is not None:
            self._at = at[0], at[1]
            self._moved()

    def _take_colours(self) -> None:
        """Show the cuts with the colour map and the percentiles that were chosen for the pictures of the objects."""
        chosen = {name: colours for name, colours in self._objects.colours.items() if name in self.lines}
        self.viewer.colours = {f"{name} {plane}": one for name, one in chosen.items() for plane in ("xz", "yz")}
        self.viewer.percentiles = self._objects.percentiles
