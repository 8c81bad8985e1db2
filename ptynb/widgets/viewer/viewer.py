"""Viewer: pictures side by side in the notebook, at the rate of the browser.

A frame is one message with all pictures. The browser confirms frames that are drawn, and grants as many further ones
as it draws in less than a second; without a grant the next one is sent while at most `UNCONFIRMED` frames are not
confirmed. A slow, hidden or closed page slows the pictures, not the kernel. While a cell runs, the kernel may not
receive confirmations, so after `PATIENCE` seconds a frame is sent without one.

Real pictures are sent as grey levels between limits. The browser computes colours, contrast, zoom, overlays, values
under the cursor and measurements, which therefore work while the kernel is busy.

Coordinates are (y, x) in pixels of the array behind a picture, from the outer corner of its first pixel: that pixel
covers 0 to 1, and rounding down gives a pixel's index.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import traitlets

from ptynb.data.engine_records import Array, Picture
from ptynb.exceptions import InvalidValueError
from ptynb.io.export.colour_maps import CYCLIC, look_up_table, offered
from ptynb.widgets.actions import Actions
from ptynb.widgets.element_tree import Element
from ptynb.widgets.viewer.pane_figure import FigureOf, FigureView

UNCONFIRMED = 1
PATIENCE = 1.0
PAIRINGS = "swipe", "flicker", "difference"
TOOLS = "profile", "rectangle", "ellipse", "ruler"

Clicked = Callable[[str, float, float], None]
Stroked = Callable[[str, Array, float, bool], None]
ValueAt = Callable[[str, int, int], str]
Tell = Callable[[str], None]


class Viewer(Element):
    """Pictures side by side, with one zoom and pan, colour maps, contrast by percentile, scale bar, values.

    columns: panes in a row; 0: as many as fit. height: of a pane [screen pixels]. share: part of the window's height
    that it has if that is more. linked: one zoom and pan for all panes. tools: whether there is a toolbar (colours and
    contrast, zoom, measurements, spectrum, pairs, saving).
    figure_of: called in a thread with the name of a picture, returns its array (y, x) and the Python of it; the tools
    then make figures for papers of what a pane shows, in the working folder.
    value_at: called in a thread for the exact value under the cursor: (picture, y, x) of a pixel of the array to a
    short text; without it the value is read from the grey level, to about 1/255 of the range.
    confirms: whether pages confirm frames; otherwise the caller controls the pace. shows_regions: whether the caller
    sends pictures of `region` with more pixels, `show_region`, which are drawn over those of a frame.

    The wheel zooms a pane that has the focus (after a click), or any pane with Ctrl; otherwise it scrolls the page.

    Traits that the user changes with the mouse, and a program by assignment:
    view: {"y", "x", "scale"}: the centre of the panes, as parts of the picture, and the magnification relative to the
    whole picture. colours: colour map by picture, if not the picture's own. percentiles: (low, high) of the grey levels
    at the ends of the colour map; (0, 100): the picture's own limits. limits: (low, high) by picture, values at the
    ends of the colour map, which hold for later frames too, whatever their own limits (locked). linked_colours: a
    choice of colours or limits holds for all pictures of one kind, with equal unit and initial colour map. brush:
    radius of the brush [array pixels]; erase: whether it erases.
    swipe: two pictures in one pane; empty: off. pairing: how: "swipe", a slider between them at swipe_at, 0 to 1;
    "flicker", in turn; "difference", first minus second.
    tool: what a drag draws: "profile", "rectangle", "ellipse", "ruler"; "": it moves the picture. measure: what was
    drawn: {"kind": a tool, "picture", "start", "stop": [y, x] in array pixels, "width": of a profile}; {}: nothing. All
    pictures of the same shape show it. spectrum: whether the amplitude of the Fourier transform of the visible part is
    shown in the place of pictures; resolution: period of the ring in it [m, or array pixels]; 0: four pixels.

    crosshair: a crosshair by picture, [y, x] in array pixels, of which None is no line: a click, a drag of its lines,
    and Shift with the arrow keys move it, in all pictures of the same shape; those with a crosshair have no clicks.
    labels: a short text in a corner of a picture, by name.

    expressions: Python for the array of a picture, for the line of a measurement; by default `image`. tell:
    called with the line of each measurement.
    link: viewers with the same text on one page show each other's cursor.

    shown, granted, set by the page: number of the newest frame that is drawn, and of the last one that may be sent.
    coarse, set by the page: the smallest number of array pixels per screen pixel, along a side, over all panes;
    pictures may be reduced by it without a visible loss. region, set by the page: where users look closer than the
    pixels of reduced pictures, [top, bottom, left, right] in array pixels, a margin around what is seen; []: nowhere.
    """

    component = "viewer"

    frame: traitlets.Dict[str, Any] = traitlets.Dict({"number": 0, "pictures": [], "facts": {}}).tag(
        sync=True, transient=True
    )
    region_frame: traitlets.Dict[str, Any] = traitlets.Dict({"number": 0, "pictures": [], "corner": [0, 0]}).tag(
        sync=True, transient=True
    )
    shown = traitlets.Int(0).tag(sync=True, echo_update=False)
    granted = traitlets.Int(0).tag(sync=True, echo_update=False)
    confirms = traitlets.Bool(True).tag(sync=True)
    coarse = traitlets.Int(1, min=1).tag(sync=True)
    shows_regions = traitlets.Bool(False).tag(sync=True)
    region: traitlets.List[int] = traitlets.List(traitlets.Int(min=0)).tag(sync=True)
    tables: traitlets.Dict[str, bytes] = traitlets.Dict().tag(sync=True)
    cyclic: traitlets.List[str] = traitlets.List(list(CYCLIC)).tag(sync=True)

    columns = traitlets.Int(0, min=0).tag(sync=True)
    height = traitlets.Int(320, min=60).tag(sync=True)
    share = traitlets.Float(0.0, min=0.0, max=1.0).tag(sync=True)
    linked = traitlets.Bool(True).tag(sync=True)
    tools = traitlets.Bool(True).tag(sync=True)

    view: traitlets.Dict[str, float] = traitlets.Dict({"y": 0.5, "x": 0.5, "scale": 1.0}).tag(sync=True)
    colours: traitlets.Dict[str, str] = traitlets.Dict().tag(sync=True)
    percentiles: traitlets.List[float] = traitlets.List([0.0, 100.0], minlen=2, maxlen=2).tag(sync=True)
    limits: traitlets.Dict[str, list[float]] = traitlets.Dict().tag(sync=True)
    linked_colours = traitlets.Bool(True).tag(sync=True)
    swipe: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)
    swipe_at = traitlets.Float(0.5, min=0.0, max=1.0).tag(sync=True)
    pairing = traitlets.Enum(PAIRINGS, "swipe").tag(sync=True)

    tool = traitlets.Enum(("", *TOOLS), "").tag(sync=True)
    measure: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    spectrum = traitlets.Bool(False).tag(sync=True)
    resolution = traitlets.Float(0.0, min=0.0).tag(sync=True)
    expressions: traitlets.Dict[str, str] = traitlets.Dict().tag(sync=True)
    link = traitlets.Unicode("").tag(sync=True)

    points: traitlets.Dict[str, bytes] = traitlets.Dict().tag(sync=True)
    moves: traitlets.Dict[str, bytes] = traitlets.Dict().tag(sync=True)
    chosen: traitlets.Dict[str, int] = traitlets.Dict().tag(sync=True)

    labels: traitlets.Dict[str, str] = traitlets.Dict().tag(sync=True)
    crosshair: traitlets.Dict[str, list[float | None]] = traitlets.Dict().tag(sync=True)

    painted = traitlets.Unicode(None, allow_none=True).tag(sync=True)
    brush = traitlets.Float(3.0, min=0.5, max=10_000.0).tag(sync=True)
    erase = traitlets.Bool(False).tag(sync=True)

    clickable = traitlets.Bool(False).tag(sync=True)
    exact = traitlets.Bool(False).tag(sync=True)
    figures = traitlets.Bool(False).tag(sync=True)
    said = traitlets.Unicode("").tag(sync=True)
    problem = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        *,
        columns: int = 0,
        height: int = 320,
        share: float = 0.0,
        linked: bool = True,
        tools: bool = True,
        value_at: ValueAt | None = None,
        figure_of: FigureOf | None = None,
        confirms: bool = True,
        shows_regions: bool = False,
    ) -> None:
        tables = {name: look_up_table(name).tobytes() for name in offered()}
        self._questions: Actions | None = None
        self.tell: Tell | None = None
        super().__init__(
            columns=columns,
            height=height,
            share=share,
            linked=linked,
            tools=tools,
            tables=tables,
            confirms=confirms,
            shows_regions=shows_regions,
        )
        self._sent_at, self._drawn, self._most_granted = 0.0, 0, 0
        self._boards: set[str] | None = None
        self._clicked: list[Clicked] = []
        self._stroked: list[Stroked] = []
        self._value_at: ValueAt | None = None
        self.value_at = value_at
        self._figure_of = figure_of
        self._drawings: Actions | None = None
        self.figures = figure_of is not None
        self.on_msg(self._received)

    def close(self) -> None:
        """Close the view and end its threads."""
        for actions in (self._questions, self._drawings):
            if actions is not None:
                actions.close()
        super().close()

    @property
    def value_at(self) -> ValueAt | None:
        """Function that returns the exact value under the cursor as text; see the class."""
        return self._value_at

    @value_at.setter
    def value_at(self, value_at: ValueAt | None) -> None:
        self._value_at = value_at
        if value_at is not None and self._questions is None:
            self._questions = Actions("ptynb viewer", self._complain)
        self.exact = value_at is not None

    # Frames

    @property
    def ready(self) -> bool:
        """Whether a page is to get another frame: of those that show the viewer, one has drawn the frames before.

        Always true until a page has said that it shows the viewer, which it cannot while a cell runs; and from then on
        if pages do not confirm frames.
        """
        if self._boards is not None and not self._boards:
            return False
        if not self.confirms:
            return True
        number = self.frame["number"]
        if number < self._most_granted or number - self._drawn <= UNCONFIRMED:
            return True
        return time.monotonic() - self._sent_at > PATIENCE

    @property
    def frame_facts(self) -> dict[str, int]:
        """The facts that came with the newest frame, such as its epoch."""
        return dict(self.frame["facts"])

    def show(self, pictures: Sequence[Picture], **facts: int) -> None:
        """Send one frame: a pane for each picture, in this order; facts are stored in `frame_facts`.

        Raises ValueError for two pictures of one name and for an unknown colour map.
        """
        names = [picture.name for picture in pictures]
        if len(set(names)) < len(names):
            raise InvalidValueError(
                f"Pictures of a frame need different names; found {', '.join(names)}.", code="argument.invalid-value"
            )
        self._need_tables({picture.colours for picture in pictures})
        self._sent_at = time.monotonic()
        self.frame = {
            "number": self.frame["number"] + 1,
            "facts": facts,
            "pictures": [_plain(picture) for picture in pictures],
        }

    def show_region(self, pictures: Sequence[Picture], corner: tuple[int, int]) -> None:
        """Draw pictures of a part of the arrays over those of the frame with the same names; none: remove them.

        corner: (y, x) of their first pixel [array pixels of the frame's pictures].
        """
        if not pictures and not self.region_frame["pictures"]:
            return
        number = self.region_frame["number"] + 1
        self.region_frame = {"number": number, "pictures": [_plain(one) for one in pictures], "corner": [*corner]}

    def _need_tables(self, names: set[str]) -> None:
        missing = names - set(self.tables)
        if missing:
            self.tables = {**self.tables, **{name: look_up_table(name).tobytes() for name in sorted(missing)}}

    # Clicks, strokes and marks

    def on_click(self, callback: Clicked) -> None:
        """Register a function of (picture, y, x) that is called for each click, in array pixels; by keyboard: Enter.

        It should return immediately; its errors are shown in the viewer.
        """
        self._clicked.append(callback)
        self.clickable = True

    def on_stroke(self, callback: Stroked) -> None:
        """Register a function of (picture, path, radius, erase) that is called for each stroke; see `paint`.

        path: float64 (point, yx) in array pixels, at least one; radius [array pixels].
        """
        self._stroked.append(callback)

    def paint(self, name: str | None) -> None:
        """Start painting on a picture: a drag draws a stroke, the tools show brush and eraser; None ends it."""
        self.painted = name

    def mark(self, name: str, points: Array, *, chosen: int | None = None, moved: Array | None = None) -> None:
        """Draw points over a picture, (point, yx) in array pixels; an empty array removes them.

        chosen: index of the point with a ring. moved: (point, yx), ends of lines from each point.
        Raises ValueError for arrays of another shape and an invalid index.
        """
        points = _coordinates("points", points)
        moved = None if moved is None else _coordinates("moved", moved)
        if moved is not None and len(moved) != len(points):
            raise InvalidValueError(
                f"points has {len(points)} entries, but moved has {len(moved)}; expected the same number.",
                code="array.shape-mismatch",
            )
        if chosen is not None and not 0 <= chosen < len(points):
            raise InvalidValueError(
                f"chosen is {chosen}; expected 0 to {len(points) - 1}, or None.", code="argument.invalid-value"
            )
        # Separate traits: another choice among 200,000 points sends one number.
        with self.hold_sync():
            self.points = _with(self.points, name, points.astype("<f4").tobytes() if len(points) else None)
            self.moves = _with(self.moves, name, None if moved is None else moved.astype("<f4").tobytes() or None)
            self.chosen = _with(self.chosen, name, None if chosen is None else int(chosen))

    # Messages of the browser

    def _received(self, _: Any, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        """Handle a message of the browser; an invalid one, such as from another version, is shown as an error."""
        try:
            self.problem = ""
            kind, name = content["kind"], str(content["name"])
            if kind == "shown":
                self._boards = (self._boards or set()) | {name}
                self.announce("frame", "region_frame")
            elif kind == "hidden":
                self._boards = (self._boards or set()) - {name}
            elif kind == "click":
                y, x = float(content["y"]), float(content["x"])
                for clicked in self._clicked:
                    clicked(name, y, x)
            elif kind == "stroke":
                path = np.frombuffer(buffers[0], "<f4").astype(np.float64).reshape(-1, 2)
                radius, erase = float(content["radius"]), bool(content["erase"])
                for stroked in self._stroked:
                    stroked(name, path, radius, erase)
            elif kind == "line":
                if self.tell is not None:
                    self.tell(str(content["text"]))
            elif kind == "figure":
                self._draw_figure(FigureView.of(content))
            elif kind == "value":
                self._ask(name, int(content["y"]), int(content["x"]))
        except Exception as error:  # noqa: BLE001 - shown to the user
            self._complain(error)

    def _ask(self, name: str, y: int, x: int) -> None:
        value_at = self._value_at
        if value_at is None or self._questions is None:
            return
        answer = {"kind": "value", "name": name, "y": y, "x": x}
        self._questions.put(lambda: self.send({**answer, "text": value_at(name, y, x)}), instead_of="value")

    def _draw_figure(self, view: FigureView) -> None:
        """Make a figure of what a page shows, in a thread of its own: it takes seconds, and needs a result."""
        figure_of = self._figure_of
        picture = next((one for one in self.frame["pictures"] if one["name"] == view.name), None)
        if figure_of is None or picture is None:
            raise InvalidValueError(
                f"There is no picture {view.name!r} any more; choose another one.", code="widget.selection-gone"
            )
        if self._drawings is None:
            self._drawings = Actions("ptynb figures", self._complain_of_figure)
        self._drawings.put(lambda: self._write_figure(view, picture, figure_of))

    def _write_figure(self, view: FigureView, picture: dict[str, Any], figure_of: FigureOf) -> None:
        path, line = view.write(picture, figure_of)
        self.said = f"written: {path}"
        if self.tell is not None:
            self.tell(line)

    def _complain_of_figure(self, error: Exception | None) -> None:
        self._complain(error)
        if error is not None:
            self.said = ""

    def _complain(self, error: Exception | None) -> None:
        self.problem = "" if error is None else str(error) or type(error).__name__

    # Validation of traits

    @traitlets.validate("view")
    def _valid_view(self, proposal: Any) -> dict[str, float]:
        view = {key: float(proposal["value"].get(key, math.nan)) for key in ("y", "x", "scale")}
        if not all(math.isfinite(value) for value in view.values()) or view["scale"] <= 0:
            raise traitlets.TraitError(
                f"view is {proposal['value']}; it needs numbers y, x (0 to 1) and scale (1: all)."
            )
        return view

    @traitlets.validate("region")
    def _valid_region(self, proposal: Any) -> list[int]:
        region = list(proposal["value"])
        if region and not (len(region) == 4 and region[0] < region[1] and region[2] < region[3]):
            raise traitlets.TraitError(
                f"region is {region}; it needs top < bottom and left < right in array pixels, or nothing."
            )
        return region

    @traitlets.validate("percentiles")
    def _valid_percentiles(self, proposal: Any) -> list[float]:
        low, high = (float(value) for value in proposal["value"])
        if not 0 <= low < high <= 100:
            raise traitlets.TraitError(f"percentiles are {low:g} and {high:g}; they need 0 <= low < high <= 100.")
        return [low, high]

    @traitlets.validate("limits")
    def _valid_limits(self, proposal: Any) -> dict[str, list[float]]:
        limits = {str(name): [float(value) for value in values] for name, values in proposal["value"].items()}
        for name, values in limits.items():
            if len(values) != 2 or not all(map(math.isfinite, values)) or values[0] >= values[1]:
                raise traitlets.TraitError(f"limits of {name} are {values}; they need two values, low < high.")
        return limits

    @traitlets.validate("measure")
    def _valid_measure(self, proposal: Any) -> dict[str, Any]:
        measure = dict(proposal["value"])
        if not measure:
            return measure
        ends = [[float(value) for value in measure.get(end, ())] for end in ("start", "stop")]
        finite = all(len(end) == 2 and all(map(math.isfinite, end)) for end in ends)
        if measure.get("kind") not in TOOLS or "picture" not in measure or not finite:
            raise traitlets.TraitError(
                f"measure is {measure}; it needs kind ({', '.join(TOOLS)}), picture, start and stop [y, x], or nothing."
            )
        return {"width": 1, **measure, "start": ends[0], "stop": ends[1]}

    @traitlets.validate("crosshair")
    def _valid_crosshair(self, proposal: Any) -> dict[str, list[float | None]]:
        places = {
            str(name): [None if value is None else float(value) for value in place]
            for name, place in proposal["value"].items()
        }
        for name, place in places.items():
            if len(place) != 2 or not all(value is None or math.isfinite(value) for value in place):
                raise traitlets.TraitError(f"crosshair of {name} is {place}; it needs y and x, numbers or None.")
        return places

    @traitlets.validate("swipe")
    def _valid_swipe(self, proposal: Any) -> list[str]:
        names = list(proposal["value"])
        if len(names) not in (0, 2) or len(set(names)) < len(names):
            raise traitlets.TraitError(f"swipe is {names}; it needs the names of two pictures, or none.")
        return names

    @traitlets.observe("shown")
    def _confirmed(self, change: Any) -> None:
        # The fastest of several pages determines the rate.
        self._drawn = max(self._drawn, change["new"])

    @traitlets.observe("granted")
    def _frames_granted(self, change: Any) -> None:
        self._most_granted = max(self._most_granted, change["new"])

    @traitlets.observe("colours")
    def _colours_chosen(self, change: Any) -> None:
        self._need_tables(set(change["new"].values()))


def _plain(picture: Picture) -> dict[str, Any]:
    """Return a picture as plain values for the browser."""
    return {
        "name": picture.name,
        "title": picture.title,
        "image": picture.image,
        "shape": list(picture.shape),
        "reduction": picture.reduction,
        "limits": None if picture.limits is None else list(picture.limits),
        "unit": picture.unit,
        "pixel_size": None if picture.pixel_size is None else list(picture.pixel_size),
        "colours": picture.colours,
        "note": picture.note,
        "axes": list(picture.axes),
        "bands": list(picture.bands),
        "quantity": picture.quantity,
    }


def _coordinates(what: str, values: Array) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        return np.zeros((0, 2))
    if array.ndim != 2 or array.shape[1] != 2:
        raise InvalidValueError(
            f"{what} has shape {array.shape}; expected (point, 2), y and x in pixels of the array.",
            code="array.shape-mismatch",
        )
    return array


def _with(values: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return a copy with another value for this name; None removes it."""
    others = {key: kept for key, kept in values.items() if key != name}
    return others if value is None else {**others, name: value}
