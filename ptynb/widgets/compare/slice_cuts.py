"""Cuts through the slices of thick objects below their pictures, at a crosshair that a click or a drag moves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from ptynb.analysis.orthogonal_cuts import CutQuantity, OrthogonalCuts, orthogonal_cuts
from ptynb.analysis.result_comparison import Together
from ptynb.data import images
from ptynb.exceptions import InvalidValueError
from ptynb.widgets import elements
from ptynb.widgets.shared_widgets import free
from ptynb.widgets.viewer.viewer import Viewer

HEIGHT = 150


class SliceCuts:
    """A viewer of cuts (z, x) and (y, z) of each result, and the crosshair in the pictures of the objects.

    moved: called when the crosshair is moved on a page. lines: the Python of the cuts that are shown, by result.
    """

    def __init__(self, objects: Viewer, moved: Callable[[], None]) -> None:
        self._objects = objects
        self.viewer = Viewer(height=HEIGHT, tools=False, linked=False)
        self.place = elements.VBox(layout=free())
        """Box with the viewer, while there are cuts."""
        self.lines: dict[str, str] = {}
        objects.observe(lambda change: self._aimed(change["new"], moved), "crosshair")
        for trait in ("colours", "percentiles"):
            objects.observe(lambda _: self._take_colours(), trait)
        self._at: tuple[int, int] | None = None
        """Pixel (y, x) of the common area at which the cuts cross; None: no cuts are shown."""

    def hide(self) -> None:
        """Remove the cuts and the crosshair."""
        self._at, self.lines = None, {}
        self._objects.crosshair = {}
        self.place.children = []

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
        self.place.children = [self.viewer] if pictures else []
        return problems

    def _aimed(self, aims: dict[str, list[float | None]], moved: Callable[[], None]) -> None:
        """Move the cuts to where a click or a drag has moved the crosshair."""
        places = [tuple(math.floor(one) for one in place if one is not None) for place in aims.values()]
        at = next((place for place in places if place != self._at and len(place) == 2), None)
        if at is not None and self._at is not None:
            self._at = at[0], at[1]
            moved()

    def _take_colours(self) -> None:
        """Show the cuts with the colour map and the percentiles that were chosen for the pictures of the objects."""
        chosen, names = self._objects.colours, [*self.lines]
        planes = [(name, f"{name} {plane}") for name in names if name in chosen for plane in ("xz", "yz")]
        self.viewer.colours = {shown: chosen[name] for name, shown in planes}
        self.viewer.percentiles = self._objects.percentiles
