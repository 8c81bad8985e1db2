"""Cuts through the slices of a thick object beside its pictures, at a crosshair that a click or a drag moves."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence

from ptynb.data.engine_records import PANES, Picture
from ptynb.widgets import elements
from ptynb.widgets.live.controls import checkbox
from ptynb.widgets.viewer.viewer import ValueAt, Viewer

HEIGHT = 150
NAMES = tuple(f"{pane} {cut}" for pane in PANES for cut in ("xz", "yz"))

Place = list[float | None]


class Cuts:
    """A viewer of cuts (z, x) and (y, z), and the crosshair in them and in the object's pictures.

    tick: shows the cuts; it is offered where the object has several slices. slice: the field of the slice that the
    object's pictures show, which a click in a cut chooses.
    """

    def __init__(
        self, object: Viewer, slice: elements.BoundedIntText, value_at: ValueAt, changed: Callable[[], None]
    ) -> None:
        self._object, self._slice, self._changed = object, slice, changed
        self.viewer = Viewer(height=HEIGHT, tools=False, value_at=value_at, confirms=False, linked=False)
        self.viewer.add_class("ptynb-cuts")
        self.tick = checkbox(
            "Cuts", False, "Shows cuts along the beam through all slices, at a crosshair that clicks and drags move"
        )
        self.tick.layout.display = "none"
        self.tick.observe(lambda change: self._ticked(change["new"]), "value")
        object.observe(lambda change: self._aimed(change["new"]), "crosshair")
        self.viewer.observe(lambda change: self._aimed(change["new"]), "crosshair")
        slice.observe(lambda _: self._aim(), "value")
        for name in ("colours", "limits", "percentiles"):
            object.observe(lambda _: self._take_contrast(), name)
        self._lock = threading.RLock()  # the view's thread and clicks both move the crosshair
        self.at: tuple[int, int] | None = None
        """Pixel (y, x) of the object array at which the cuts cross; None: no cuts are shown."""
        self._corner, self._shape = (0, 0), (1, 1)
        self._bands: dict[str, tuple[int, int]] = {}
        self._told: tuple[int, int] | None = None
        self._before: tuple[int, int] | None = None

    def follow(self, corner: tuple[int, int], pictures: Sequence[Picture], slices: int) -> None:
        """Show the cuts among the pictures; corner: (y, x) of the first pixel of the object's pictures in its array."""
        with self._lock:
            shapes = [one.shape for one in pictures if one.name in PANES]
            self._corner, self._shape = corner, shapes[0] if shapes else self._shape
            self.tick.layout.display = None if slices > 1 else "none"
            if slices < 2 and self.tick.value:
                self.tick.value = False
            cuts = [one for one in pictures if one.name in NAMES]
            self._bands = {one.name: one.bands for one in cuts}
            if self.at is not None and cuts:
                self._aim()
                self.viewer.show(cuts)

    def line(self, panes: Sequence[str], mode: int, flat: bool) -> str | None:
        """Return the Python of the cuts if they have moved and rest since the last call; else None."""
        at, before = self.at, self._before
        self._before = at
        if at is None or at == self._told or at != before:
            return None
        self._told = at
        quantity = "phase" if "phase" in panes else next(iter(panes), "phase")
        more = f", mode={mode}" * (mode > 0) + ", flat=False" * (not flat)
        return f"pt.analysis.orthogonal_cuts(recon.result, y={at[0]}, x={at[1]}, quantity={quantity!r}{more})"

    def _ticked(self, shown: bool) -> None:
        with self._lock:
            if shown:
                self.at = self._corner[0] + self._shape[0] // 2, self._corner[1] + self._shape[1] // 2
                if not self._slice.value:  # the product of all slices has another contrast than each
                    self._slice.value = self._slice.max // 2 + 1
                self._take_contrast()
            else:
                self.at = self._told = None
                self._object.crosshair = self.viewer.crosshair = {}
                self.viewer.show([])
            self._aim()
        self._changed()

    def _aim(self) -> None:
        """Set the crosshair of all pictures to the present pixel and slice."""
        with self._lock:
            if self.at is None:
                return
            y, x = (place - first + 0.5 for place, first in zip(self.at, self._corner, strict=True))
            self._set(self._object, {pane: [y, x] for pane in PANES})
            z = self._slice.value - 0.5 if self._slice.value else None
            aims: dict[str, Place] = {}
            for name, (down, across) in self._bands.items():
                depth = None if z is None else z * (down if name.endswith("xz") else across)
                aims[name] = [depth, x] if name.endswith("xz") else [y, depth]
            self._set(self.viewer, aims)

    def _set(self, viewer: Viewer, aims: dict[str, Place]) -> None:
        if viewer.crosshair != aims:
            viewer.crosshair = aims

    def _aimed(self, aims: dict[str, Place]) -> None:
        """Move the cuts to where a click or a drag has moved the crosshair of a picture."""
        with self._lock:
            if self.at is None:
                return
            at, z = [*self.at], self._slice.value
            for name, place in aims.items():
                whole = [None if one is None else math.floor(one) for one in place]
                for axis, along in ((0, "xz"), (1, "yz")):
                    pixel, band = whole[axis], self._bands.get(name, (1, 1))[axis]
                    if pixel is None:
                        continue
                    if name.endswith(along):
                        chosen = pixel // band + 1
                        z = chosen if chosen != self._slice.value else z
                    elif pixel + self._corner[axis] != self.at[axis]:
                        at[axis] = pixel + self._corner[axis]
            if (at, z) == ([*self.at], self._slice.value):
                return
            self.at = at[0], at[1]
            self._slice.value = z
            self._aim()
        self._changed()

    def _take_contrast(self) -> None:
        """Show the cuts with the colour maps and limits that were chosen for the object's pictures."""
        if self.at is None:
            return
        for trait in ("colours", "limits"):
            chosen = getattr(self._object, trait)
            setattr(self.viewer, trait, {name: chosen[name[:-3]] for name in NAMES if name[:-3] in chosen})
        self.viewer.percentiles = self._object.percentiles
