"""Cuts through the slices of a thick object beside its pictures, at a crosshair that a click or a drag moves."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

from ptynb.data.engine_records import PANES, Picture
from ptynb.widgets.viewer.viewer import Viewer

NAMES = tuple(f"{pane} {cut}" for pane in PANES for cut in ("xz", "yz"))

Place = list[float | None]


class Cuts:
    """The cuts (z, x) and (y, z) of a view while its `cuts` is set, and their crosshair, in the object's pictures too.

    A click in a cut chooses the slice that the object's pictures show. view: `LivePictures`, which has these cuts.
    """

    def __init__(self, view: Any) -> None:
        self._view = view
        self._object, self._viewer = view.object_pictures, view.cut_pictures
        view.observe(lambda change: self._switched(change["new"]), "cuts")
        view.observe(lambda _: self._aim(), "slice")
        for viewer in (self._object, self._viewer):
            viewer.observe(lambda change: self._aimed(change["new"]), "crosshair")
        self._object.observe(self._take_contrast, ["colours", "limits", "percentiles"])
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
            if slices < 2:
                self._view.cuts = False
            cuts = [one for one in pictures if one.name in NAMES]
            self._bands = {one.name: one.bands for one in cuts}
            if self.at is not None and cuts:
                self._aim()
                self._viewer.show(cuts)

    def line(self) -> str | None:
        """Return the Python of the cuts if they have moved and rest since the last call; else None."""
        at, before, request = self.at, self._before, self._view.request
        self._before = at
        if at is None or at == self._told or at != before:
            return None
        self._told = at
        quantity = "phase" if "phase" in request.panes else next(iter(request.panes), "phase")
        more = f", mode={request.state}" * (request.state > 0) + ", flat=False" * (not request.flat)
        return f"pt.analysis.orthogonal_cuts(recon.result, y={at[0]}, x={at[1]}, quantity={quantity!r}{more})"

    def _switched(self, shown: bool) -> None:
        with self._lock:
            if shown:
                self.at = self._corner[0] + self._shape[0] // 2, self._corner[1] + self._shape[1] // 2
                if not self._view.slice:  # the product of all slices has another contrast than each
                    self._view.slice = self._view.slices // 2 + 1
                self._take_contrast()
            else:
                self.at = self._told = None
                self._object.crosshair = self._viewer.crosshair = {}
                self._viewer.show([])
            self._aim()
        self._view.update_soon()

    def _aim(self) -> None:
        """Set the crosshair of all pictures to the present pixel and slice."""
        with self._lock:
            if self.at is None:
                return
            y, x = (place - first + 0.5 for place, first in zip(self.at, self._corner, strict=True))
            _set(self._object, {pane: [y, x] for pane in PANES})
            z = self._view.slice - 0.5 if self._view.slice else None
            aims: dict[str, Place] = {}
            for name, (down, across) in self._bands.items():
                depth = None if z is None else z * (down if name.endswith("xz") else across)
                aims[name] = [depth, x] if name.endswith("xz") else [y, depth]
            _set(self._viewer, aims)

    def _aimed(self, aims: dict[str, Place]) -> None:
        """Move the cuts to where a click or a drag has moved the crosshair of a picture."""
        with self._lock:
            if self.at is None:
                return
            at, z = [*self.at], self._view.slice
            for name, place in aims.items():
                whole = [None if one is None else math.floor(one) for one in place]
                for axis, along in ((0, "xz"), (1, "yz")):
                    pixel, band = whole[axis], self._bands.get(name, (1, 1))[axis]
                    if pixel is None:
                        continue
                    if name.endswith(along):
                        chosen = pixel // band + 1
                        z = chosen if chosen != self._view.slice else z
                    elif pixel + self._corner[axis] != self.at[axis]:
                        at[axis] = pixel + self._corner[axis]
            if (at, z) == ([*self.at], self._view.slice):
                return
            self.at = at[0], at[1]
            self._view.slice = z
            self._aim()
        self._view.update_soon()

    def _take_contrast(self, _: Any = None) -> None:
        """Show the cuts with the colour maps and limits that were chosen for the object's pictures."""
        if self.at is None:
            return
        for trait in ("colours", "limits"):
            chosen = getattr(self._object, trait)
            setattr(self._viewer, trait, {name: chosen[name[:-3]] for name in NAMES if name[:-3] in chosen})
        self._viewer.percentiles = self._object.percentiles


def _set(viewer: Viewer, aims: dict[str, Place]) -> None:
    if viewer.crosshair != aims:
        viewer.crosshair = aims
