"""Fields for a live source and for what is known of its scan: the arguments of `ptynb.listen`, and the line of Python.

An error is told below the field that it is about.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ptynb.acquisition.plan import Plan
from ptynb.app.plan_text import geometry_of, reading_line, whole_numbers
from ptynb.data.source_address import pattern_address, position_address
from ptynb.exceptions import InvalidValueError, PtynbError, about
from ptynb.io.array_file import read_array
from ptynb.io.mask_file import load_mask
from ptynb.settings.base_models import SettingsModel
from ptynb.settings.load_options import LoadOptions
from ptynb.widgets import elements
from ptynb.widgets.load.load_panel import SEPARATORS, LoadPanel, OptionField
from ptynb.widgets.shared_widgets import complaint, free, put

Finite = Annotated[float, Field(allow_inf_nan=False)]
PLANNED, FROM_ADDRESS, SAME_FILE = "planned", "from an address", "in the same file"
PLACEHOLDERS = {
    PLANNED: "",
    FROM_ADDRESS: "panda://host:8889?y=INENC1.VAL.Mean&x=INENC2.VAL.Mean",
    SAME_FILE: "entry/y,entry/x or entry/positions",
}
OPTIONS = (
    "geometry", "focus_to_sample", "energy", "voltage", "wavelength", "distance", "detector_pixel", "angular_pixel",
    "units", "mask", "clip_negative",
)  # fmt: skip
"""Options of `load` that a plan has, too."""
ASKED_OF = {
    **dict.fromkeys(OPTIONS, "options"), "count": "count", "extent": "extent", "window": "window", "centre": "window",
    "positions": "positions", "planned": "planned", "folder": "folder",
}  # fmt: skip
"""Where the arguments of `ptynb.listen` and `Plan` are entered that errors name in their `fields`; others at "source".

"planned" are the positions of a `Plan`, which have the name of an argument of `listen`.
"""
FORMS = """\
<div style="font-size:90%;line-height:1.5;margin:4px 0">Addresses: <code>stream2://host:31001</code>,
<code>simplon://host:9999</code> (Dectris), <code>pva://PREFIX:Pva1:Image</code> (EPICS); or an HDF5 file in writing:
<code>scan.h5</code>, <code>scan_master.h5</code>. Options follow a question mark:
<code>scan.h5?patterns=entry/data/data</code>.</div>"""


class ScanExtent(SettingsModel):
    """Where positions will lie that are not known before."""

    extent_y: tuple[Finite, Finite] | None = Field(
        title="Extent in y", default=None, description="Smallest and largest y of the positions [m]"
    )
    extent_x: tuple[Finite, Finite] | None = Field(
        title="Extent in x", default=None, description="Smallest and largest x of the positions [m]"
    )


@dataclass(frozen=True)
class ListenArguments:
    """Arguments of `ptynb.listen`, and the line of Python with them."""

    source: str
    plan: Plan
    positions: str
    folder: str | None
    line: str


class Asked(elements.VBox):
    """Fields of one subject, and below them what is wrong with them."""

    def __init__(self, *fields: elements.Element) -> None:
        self._problem = elements.HTML()
        super().__init__(
            [
                elements.HBox(fields, layout=elements.Layout(flex_flow="row wrap", overflow="visible")),
                self._problem,
            ],
            layout=free(),
        )
        self.complain(None)

    @property
    def problem(self) -> str:
        """What is shown as wrong (HTML)."""
        return str(self._problem.value)

    def complain(self, error: Exception | str | None) -> None:
        """Show what is wrong; None: nothing."""
        put(self._problem, complaint(error))
        self._problem.layout.display = "none" if error is None else None


class PlanFields(elements.VBox):
    """Where the patterns of a live source come to, and what is planned. edited: called after each change by the user.

    source: the field of the source, which stands elsewhere; its errors are shown here. told: the last error that a
    field shows.
    """

    def __init__(self, edited: Callable[[], None] = lambda: None) -> None:
        self.source = elements.Text(
            description="Source", placeholder="stream2://host:31001, pva://PV or scan_master.h5",
            tooltip="Address of the detector's stream, or an HDF5 file that is being written", continuous_update=False,
            style={"description_width": "46px"},
            layout=elements.Layout(flex="1 1 300px", width="auto", max_width="700px"),
        )  # fmt: skip
        self.kind = elements.Dropdown(
            options=[*PLACEHOLDERS], description="Positions", tooltip="Where the positions of the patterns come from",
            style={"description_width": "120px"}, layout=elements.Layout(width="270px", flex="0 0 auto"),
        )  # fmt: skip
        self.positions = elements.Text(
            continuous_update=False, tooltip="Address of the positions, or names of their datasets",
            style={"description_width": "60px"},
            layout=elements.Layout(flex="1 1 200px", width="auto", min_width="0", display="none"),
        )  # fmt: skip
        self.planned = _text(
            "Planned positions", "positions.npy, .txt or .csv: columns y, x", "File with one line a pattern"
        )
        self.count = _text("Patterns", "number: what the plan or the detector says", "Number of patterns of the scan")
        self.extent = [OptionField(name, field) for name, field in ScanExtent.model_fields.items()]
        for field in self.extent:
            field.input.placeholder = "from, to"
            field.input.style.description_width, field.input.layout.width = "120px", "222px"
        self.window = _text("Crop to", "y, x; all", "Size (y, x) of the patterns that are kept [pixels]", "222px")
        self.centre = _text(
            "around", "y, x; the middle", "Pixel (y, x) of the direct beam, the middle of the window", "190px"
        )
        self.centre.style.description_width = "52px"
        self.folder = _text("Folder", "one with the time in its name", "Folder for the scan, which is created")
        self.options = LoadPanel(self._changed, OPTIONS, "More about the measurement")
        self.asked = {
            "source": Asked(),
            "positions": Asked(self.kind, self.positions),
            "planned": Asked(self.planned),
            "count": Asked(self.count),
            "extent": Asked(*self.extent),
            "window": Asked(self.window, self.centre),
            "folder": Asked(self.folder),
            "options": Asked(self.options),
        }
        self.told: Exception | None = None
        self._line = elements.HTML()
        self._edited = edited
        source, *others = (asked for name, asked in self.asked.items() if name != "options")
        left = [source, elements.HTML(FORMS), *others]
        columns = [
            elements.VBox(left, layout=elements.Layout(flex="1 1 430px", min_width="0", overflow="visible")),
            elements.VBox(
                [self.asked["options"]], layout=elements.Layout(flex="1 1 430px", min_width="0", overflow="visible")
            ),
        ]
        super().__init__(
            [
                elements.HBox(columns, layout=elements.Layout(flex_flow="row wrap", overflow="visible")),
                self._line,
            ],
            layout=free(),
        )
        texts = (
            self.source,
            self.kind,
            self.positions,
            self.planned,
            self.count,
            self.window,
            self.centre,
            self.folder,
        )
        for widget in texts:
            widget.observe(lambda _: self._changed(), "value")
        for field in self.extent:
            field.observe_all(lambda _: self._changed())

    def arguments(self) -> ListenArguments:
        """Return what was entered. Raises an error of a field, which `mark` shows there."""
        source, folder = self.source.value.strip(), self.folder.value.strip() or None
        if not source:
            raise InvalidValueError(
                "No source is named; enter an address such as stream2://host:31001, or a file that is being written.",
                code="argument.missing",
                fields=("source",),
            )
        positions = self._position_source(pattern_address(source).kind == "file")
        plan, text = self._plan(positions)
        given = [repr(source), f"plan=pt.Plan({text})"]
        given += [] if positions == "planned" else [f"positions={positions!r}"]
        given += [] if folder is None else [f"folder={folder!r}"]
        return ListenArguments(source, plan, positions, folder, f"scan = pt.listen({', '.join(given)})")

    def mark(self, error: PtynbError | None) -> None:
        """Show an error at the first field that it is about; None: nothing any more."""
        self.told = error
        at = None if error is None else next((ASKED_OF[name] for name in error.fields if name in ASKED_OF), "source")
        for name, asked in self.asked.items():
            asked.complain(error if name == at else None)
        self.options.show(None)
        if error is not None:
            self.options.mark(error)

    def show_line(self, line: str) -> None:
        """Show the line of Python; "" if fields are empty or wrong."""
        put(self._line, f'<code style="overflow-wrap:anywhere">{html.escape(line)}</code>' if line else "")

    def _position_source(self, is_file: bool) -> str:
        kind, text = self.kind.value, self.positions.value.strip()
        if kind == PLANNED:
            return "planned"
        if kind == FROM_ADDRESS:
            position_address(text)
        elif not is_file:
            raise InvalidValueError(
                "Positions are in the same file, and the source is no file; enter the address of their source.",
                code="argument.conflict",
                fields=("positions",),
            )
        elif not 1 <= len(names := text.split(",")) <= 2 or not all(names) or "://" in text:
            raise InvalidValueError(
                f"The datasets of positions are {text!r:.100}; expected one (pattern, yx) or two: entry/y,entry/x.",
                code="argument.invalid-value",
                fields=("positions",),
            )
        return text

    def _plan(self, positions: str) -> tuple[Plan, str]:
        """Return the plan, and its arguments as Python."""
        values, texts = dict[str, Any](), dict[str, str]()

        def put_in(name: str, value: Any, text: str | None = None) -> None:
            values[name], texts[name] = value, repr(value) if text is None else text

        given = LoadOptions.from_arguments(self.options.arguments)
        if given.units != "metres":
            put_in("units", given.units)
        if (geometry := geometry_of(given)) is not None:
            put_in("geometry", geometry, f"pt.{geometry!r}".replace("=inf,", "=float('inf'),"))
        if given.mask is not None:
            with about("mask"):
                put_in("mask", load_mask(str(given.mask)), f"pt.load_mask({str(given.mask)!r})")
        if given.clip_negative:
            put_in("clip_negative", True)
        if path := self.planned.value.strip():
            with about("planned"):
                put_in("positions", read_array(Path(path).expanduser(), "planned positions"), reading_line(path))
        if text := self.count.value.strip():
            with about("count"):
                put_in("count", whole_numbers(text, 1, "Patterns")[0])
        if (extent := self._extent(given.units == "pixels")) is not None:
            put_in("extent", extent)
        is_planned = positions == "planned"
        if "positions" not in values and "extent" not in values:
            raise InvalidValueError(
                "Nothing says where positions will be; name a file with the planned ones"
                f"{', or choose where measured ones come from' if is_planned else ', or enter both extents'}.",
                code="argument.missing",
                fields=("planned" if is_planned else "extent",),
            )
        if is_planned and "positions" not in values:
            raise InvalidValueError(
                "The plan has an extent and no positions; choose where measured positions come from.",
                code="acquisition.no-positions",
                fields=("positions",),
            )
        for name, field, title in (("window", self.window, "Crop to"), ("centre", self.centre, "around")):
            if text := field.value.strip():
                with about(name):
                    put_in(name, whole_numbers(text, 2, title))
        try:
            plan = Plan(**values)
        except PtynbError as error:
            error.fields = tuple("planned" if name == "positions" else name for name in error.fields)
            raise
        return plan, ", ".join(f"{name}={text}" for name, text in texts.items())

    def _extent(self, in_pixels: bool) -> tuple[Any, Any] | None:
        entered = []
        for field in self.extent:
            value = SEPARATORS.split(field.input.value.strip()) if in_pixels and field.input.value else field.entered
            entered.append(value)
        if entered == [None, None] or entered == [None, ""]:
            return None
        try:
            sides = [tuple(float(one) for one in side) for side in entered]
        except (TypeError, ValueError):
            raise InvalidValueError(
                f"The extents are {self.extent[0].input.value!r:.50} and {self.extent[1].input.value!r:.50}; expected "
                "two numbers in each: from, to.",
                code="argument.invalid-value",
                fields=("extent",),
            ) from None
        return sides[0], sides[1]

    def _changed(self) -> None:
        kind = self.kind.value
        self.positions.placeholder = PLACEHOLDERS[kind]
        self.positions.description = "Datasets" if kind == SAME_FILE else "Address"
        self.positions.layout.display = "none" if kind == PLANNED else None
        in_pixels = self.options.fields["units"].entered == "pixels"
        for field in self.extent:
            assert field.unit is not None
            field.unit.layout.visibility = "hidden" if in_pixels else "visible"
        self._edited()


def _text(title: str, placeholder: str, tooltip: str, width: str = "420px") -> elements.Text:
    return elements.Text(
        description=title, placeholder=placeholder, tooltip=tooltip, continuous_update=False,
        style={"description_width": "120px"}, layout=elements.Layout(width=width, max_width="100%"),
    )  # fmt: skip
