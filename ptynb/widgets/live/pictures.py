"""The pictures of the live view: object, cuts through its slices, probe modes, and positions over the object."""

from __future__ import annotations

import cmath
import math
import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import traitlets

from ptynb.analysis.array_lines import field_line, field_of, quantity_lines, quantity_of
from ptynb.analysis.position_refinement import PositionRefinement, moved_positions
from ptynb.data.engine_records import PANES, Array, Picture, Pictures, RenderRequest
from ptynb.data.images import reduction_for
from ptynb.widgets.element_tree import Element, shown
from ptynb.widgets.live.cuts import Cuts
from ptynb.widgets.live.protocol import Moment, Watched, moment_of
from ptynb.widgets.quantities import number
from ptynb.widgets.viewer.viewer import Viewer

OBJECT_HEIGHT, PROBE_HEIGHT = 360, 150
"""Of a pane where no divider gives it the height of the window [screen pixels]."""
MOST_MODES = 12
REST = 20.0
"""Ratio of the pause after pictures to their cost, which limits the share of time that pictures take from updates."""
PROBE_SECONDS = 0.25
"""Interval of pictures of the probe, which changes slowly and costs a page as much as the object."""
POSITIONS = "Positions"
"""The page that shows how positions have moved."""

Shown = tuple[int, int, RenderRequest, Moment]
"""Identifies a frame: epoch, update, request, and `moment_of`."""


class LivePictures(Element):
    """The part of the live view that has pictures: what users choose to see, and the viewers.

    panes: of the object. slice: 0 is the product of all. object_mode: from 1. flat: phases without mean and ramp.
    modes, modes_as: of the probe. cuts: whether cuts through slices are shown. positions: whether positions are drawn.
    without_affine: whether their arrows lack the affine part. arrows: length of an arrow over that of the move; 0: a
    fitting one. slices, object_modes: how many there are. refinement: moves of the positions in words; empty: unknown.
    page: title of the page below the pictures that is shown; None: none.
    """

    panes: traitlets.List[str] = traitlets.List(traitlets.Enum(PANES), ["amplitude", "phase"]).tag(sync=True)
    slice = traitlets.Int(0, min=0).tag(sync=True)
    object_mode = traitlets.Int(1, min=1).tag(sync=True)
    flat = traitlets.Bool(True).tag(sync=True)
    modes = traitlets.Int(4, min=0, max=MOST_MODES).tag(sync=True)
    modes_as = traitlets.Enum(("complex", "amplitude"), "complex").tag(sync=True)
    cuts = traitlets.Bool(False).tag(sync=True)
    positions = traitlets.Bool(False).tag(sync=True)
    without_affine = traitlets.Bool(False).tag(sync=True)
    arrows = traitlets.Float(0.0, min=0.0).tag(sync=True)
    page = traitlets.Unicode(None, allow_none=True).tag(sync=True)

    slices = shown(traitlets.Int(1))
    object_modes = shown(traitlets.Int(1))
    refinement: traitlets.Dict[str, Any] = shown(traitlets.Dict())
    object_pictures = shown(traitlets.Instance(Viewer))
    probe_pictures = shown(traitlets.Instance(Viewer))
    cut_pictures = shown(traitlets.Instance(Viewer))

    def __init__(self, recon: Watched, size: int, **traits: Any) -> None:
        self._recon, self._size = recon, size
        self._corner, self._longest = (0, 0), 0
        self._centres: Array | None = None
        self._refinement: PositionRefinement | None = None
        self._shown_array: tuple[RenderRequest, tuple[int, int]] | None = None
        """Request of the object's pictures that are shown, and their shape."""
        self._overview: tuple[RenderRequest, Pictures] | None = None
        """The pictures that are shown, of which a region may be shown with more pixels."""
        self._region_shown: tuple[tuple[int, ...], int] = (), 1
        """The region that users look at, and what pages resolve of it, that was shown last."""
        self._coarse = 1
        self._ring: int | None = None
        self._marked: object = None
        self._shown: Shown | None = None
        self._probe_shown: Shown | None = None
        self._probe_at = float("-inf")
        quick = partial(Viewer, height=PROBE_HEIGHT, value_at=self._value_at, tools=False, confirms=False)
        super().__init__(
            object_pictures=Viewer(
                height=OBJECT_HEIGHT, value_at=self._value_at, figure_of=self._figure_of, shows_regions=True
            ),
            probe_pictures=quick(),
            cut_pictures=quick(linked=False),
            **traits,
        )
        self._cuts = Cuts(self)
        self.object_pictures.observe(lambda _: self.update_soon(), ["coarse", "region"])
        self.object_pictures.observe(self._share_colours, ["colours", "linked_colours"])

    def update_soon(self) -> None:
        """Update the view at once."""
        raise NotImplementedError

    @traitlets.validate("panes")
    def _in_order(self, proposal: Any) -> list[str]:
        return [pane for pane in PANES if pane in proposal["value"]]

    @traitlets.validate("slice", "object_mode")
    def _there(self, proposal: Any) -> int:
        most = self.slices if proposal["trait"].name == "slice" else self.object_modes
        return min(int(proposal["value"]), most)

    @traitlets.observe(
        "panes", "slice", "object_mode", "flat", "modes", "modes_as", "positions", "without_affine", "arrows"
    )
    def _chosen(self, _: Any) -> None:
        self.update_soon()

    @property
    def request(self) -> RenderRequest:
        """The pictures that are chosen."""
        return RenderRequest(
            panes=tuple(self.panes),
            slice=self.slice - 1 if self.slice else None,
            state=self.object_mode - 1,
            modes=self.modes,
            modes_as=self.modes_as,
            flat=self.flat,
            size=self._picture_size(),
            cut=self._cuts.at,
        )

    def _picture_size(self) -> int:
        """Return the longest side of pictures [pixels]: no more than the screen resolves.

        It increases with zoom, unless a region is then shown with more pixels, as all of a large object never is.
        """
        viewer = self.object_pictures
        if viewer.view["scale"] <= 1 or self._longest <= self._size:
            self._coarse = viewer.coarse
        return min(self._size, -(-self._longest // self._coarse)) if self._coarse > 1 and self._longest else self._size

    def needs_pictures(self, epoch: int, update: int) -> bool:
        """Return whether a frame of this epoch and update would differ from what is shown."""
        now = epoch, update, self.request, moment_of(self._recon)
        return now != self._shown or (now != self._probe_shown and self._probe_is_due(self.request))

    def show_pictures(self) -> float:
        """Request pictures and show them; return the time until the next request [s]."""
        settings = self._recon.settings  # after a change of structure there may be fewer slices and modes
        self._limit(settings.slices.count, settings.object.modes)
        request, moment = self.request, moment_of(self._recon)  # first: later changes lead to another request
        with_probe = self._probe_is_due(request)
        pictures = self._recon.pictures(request if with_probe else replace(request, modes=0))
        if pictures is None:
            return 0.0
        shown = (pictures.epoch, pictures.update, request, moment)
        facts = {"epoch": pictures.epoch, "update": pictures.update}
        # The page has the probe's frame once it confirms the object's, which comes after it.
        if with_probe and shown != self._probe_shown:
            self.probe_pictures.show([one for one in pictures.pictures if one.name.startswith("probe")], **facts)
            self._probe_shown, self._probe_at = shown, time.monotonic()
        if shown == self._shown:
            return 0.0
        panes = [one for one in pictures.pictures if one.name in PANES]
        self._overview = request, pictures
        part = self._region_pictures()
        with self.object_pictures.hold_sync():  # a page shows both at once
            self.object_pictures.show(panes, **facts)
            self._draw_region(part)
        self._shown = shown
        self._take_facts(request, pictures, panes)
        return REST * (pictures.cost + (0.0 if part is None else part.cost))

    def show_region(self) -> None:
        """Show the region that users look at with more pixels, if it is another one than before."""
        looked_at = tuple(self.object_pictures.region), self.object_pictures.coarse
        if looked_at == self._region_shown or self._shown is None:
            return
        if self._shown[2:] == (self.request, moment_of(self._recon)):  # else new pictures come, with their region
            self._draw_region(self._region_pictures())

    def _region_pictures(self) -> Pictures | None:
        """Request pictures of the region that users look at; None: those of all have enough pixels."""
        looked_at = tuple(self.object_pictures.region), self.object_pictures.coarse
        found = self._pictures_of(*looked_at)
        self._region_shown = looked_at  # not before: a request that failed is repeated
        return found

    def _pictures_of(self, looked_at: tuple[int, ...], coarse: int) -> Pictures | None:
        found = self._overview
        panes = [] if found is None else [one for one in found[1].pictures if one.name in PANES]
        if found is None or not looked_at or not panes:
            return None
        (request, overview), (height, width) = found, panes[0].shape
        top, bottom, left, right = looked_at
        sides = min(bottom, height) - top, min(right, width) - left
        size = min(self._size, -(-max(sides) // coarse))
        if min(sides) < 1 or reduction_for(sides, size) >= panes[0].reduction:
            return None
        y, x = overview.corner
        region = y + top, y + top + sides[0], x + left, x + left + sides[1]
        return self._recon.pictures(
            replace(request, region=region, size=size, contrast=overview.contrast, modes=0, cut=None)
        )

    def _draw_region(self, part: Pictures | None) -> None:
        if part is None or self._overview is None:
            self.object_pictures.show_region([], (0, 0))
            return
        y, x = (first - corner for first, corner in zip(part.corner, self._overview[1].corner, strict=True))
        self.object_pictures.show_region(part.pictures, (y, x))

    def _take_facts(self, request: RenderRequest, pictures: Pictures, panes: list[Picture]) -> None:
        """Follow what pictures of the object say about it."""
        self._longest = max((max(one.shape) for one in panes), default=0)
        self._corner = pictures.corner
        self._limit(pictures.slices, pictures.states)
        self.slices, self.object_modes = max(pictures.slices, 1), max(pictures.states, 1)
        if panes:  # the Python of the arrays behind them
            field = field_line("recon.result", request.slice, request.state, self.object_modes)
            lines = quantity_lines(field, self._corner, panes[0].shape, flat=request.flat)
            self.object_pictures.expressions = lines
            self._shown_array = request, panes[0].shape
        self._cuts.follow(pictures.corner, pictures.pictures, pictures.slices)
        self._draw_marks()

    def _limit(self, slices: int, modes: int) -> None:
        """Choose the product of all slices, and the first mode, where what was chosen is gone."""
        if self.slice > slices:
            self.slice = 0
        if self.object_mode > modes:
            self.object_mode = 1

    def _figure_of(self, name: str) -> tuple[Array, str]:
        """Return the array of a picture of the object, of the present result, and the Python of it."""
        assert self._shown_array is not None, "a page shows a picture of it"
        request, shape = self._shown_array
        field = field_of(self._recon.result, request.slice, request.state)
        line = self.object_pictures.expressions[name]
        return quantity_of(field, name, self._corner, shape, flat=request.flat), line

    def _share_colours(self, _: object) -> None:
        """Show amplitudes of the probe with the colour map that was chosen for those of the object, if linked."""
        chosen = self.object_pictures.colours.get("amplitude") if self.object_pictures.linked_colours else None
        modes = [f"probe {number + 1}" for number in range(MOST_MODES)]
        self.probe_pictures.colours = {} if chosen is None else dict.fromkeys(modes, chosen)

    def _probe_is_due(self, request: RenderRequest) -> bool:
        """Return whether the probe is due: every `PROBE_SECONDS`, and immediately if the choice changed."""
        if self._probe_shown is None or self._probe_shown[2] != request:
            return True
        return time.monotonic() - self._probe_at >= PROBE_SECONDS

    def _value_at(self, name: str, y: int, x: int) -> str:
        request = self.request
        if self._overview is not None and self._overview[0] == request:
            request = replace(request, contrast=self._overview[1].contrast)
        return value_text(name, self._recon.value_at(name, y, x, request))

    # Positions

    @property
    def draws_positions(self) -> bool:
        """Whether all positions are shown."""
        return self.positions or self.page == POSITIONS

    @property
    def wants_positions(self) -> bool:
        """Whether positions are shown, all or a chosen one."""
        return self.draws_positions or self._ring is not None

    def show_positions(self, start: Array, now: Array) -> None:
        """Show initial and current corners of the probe windows, (pattern, yx) [object pixels]."""
        middle = np.asarray(self._recon.scan.pattern_shape) / 2
        found = moved_positions(start + middle, now + middle, self._recon.scan.pixel_size)
        self.refinement = refinement_words(found)
        self._refinement, self._centres = found, now + middle
        self._marked = None
        self._draw_marks()

    def nearest(self, y: float, x: float) -> int:
        """Return the pattern whose window is centred nearest to a point of the object's pictures [array pixels]."""
        if self._centres is None:
            self.show_positions(*self._recon.positions)
        assert self._centres is not None
        return int(np.square(self._centres - (np.array([y, x]) + self._corner)).sum(1).argmin())

    def _draw_ring(self, index: int) -> None:
        """Draw a ring around the position of this pattern."""
        self._ring = index
        self._draw_marks()

    def _draw_marks(self) -> None:
        """Draw positions over each pane of the object, if they changed."""
        panes, found, viewer = self.request.panes, self._refinement, self.object_pictures
        if found is None or self._centres is None:
            return
        drawn, affine = self.draws_positions, not self.without_affine
        factor = self.arrows or found.exaggeration(affine=affine)
        key = (panes, drawn, self._ring, self._corner, id(found), affine, factor)
        if key == self._marked:
            return
        self._marked = key
        moved = found.arrows(factor, affine=affine) - self._corner if found.largest > 0 else None
        viewer.labels = {pane: f"arrows × {factor:g}" for pane in panes if drawn and moved is not None}
        for pane in panes:
            if drawn:
                viewer.mark(pane, found.measured - self._corner, chosen=self._ring, moved=moved)
            elif self._ring is not None:
                now = self._centres - self._corner
                viewer.mark(pane, now[self._ring : self._ring + 1], chosen=0)
            else:
                viewer.mark(pane, found.measured[:0])


def refinement_words(found: PositionRefinement) -> dict[str, Any]:
    """Return the lengths of the moves, (rms, largest), whole and without their affine part, and that part, in words."""
    if not found.largest:
        return {"moved": False}
    part = found.affine
    return {
        "moved": True,
        "moves": [found.length_text(found.rms), found.length_text(found.largest)],
        "residual": [found.length_text(found.residual_rms), found.length_text(found.residual_largest)],
        "affine": f"Scale {part['scale']:.5f}, y against x {part['asymmetry']:+.3%}, rotation "
        f"{math.degrees(part['rotation']):+.3f}°, shear {math.degrees(part['shear']):+.3f}°",
    }


def value_text(name: str, value: complex | float) -> str:
    """Return the value under the cursor as text: '0.9982', '-0.312 rad', '0.9982 at 0.312 rad'."""
    unit = " √counts" if name.startswith("probe") else ""
    if isinstance(value, complex):
        return f"{number(abs(value))}{unit} at {cmath.phase(value):.3f} rad"
    return f"{value:.3f} rad" if name.startswith("phase") else f"{number(value)}{unit}"
