"""Fields for a live source and for what is known of its scan: the arguments of `ptynb.listen`, and the line of Python.

An error is told below the field that it is about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptynb.acquisition.plan import Plan
from ptynb.data.geometry import Geometry, NearField
from ptynb.data.source_address import Role, all_kinds, example, pattern_address, position_address, with_positions
from ptynb.exceptions import InvalidValueError, PtynbError, ScanError, about
from ptynb.io.array_file import read_array
from ptynb.io.mask_file import load_mask
from ptynb.settings.load_options import LoadOptions
from ptynb.widgets.load.load_fields import FIRST, given_in, load_options, title_of, unfold_near_field
from ptynb.widgets.option_fields import SEPARATORS, OptionField, OptionFields

PLANNED, FROM_ADDRESS, SAME_FILE = "planned", "from an address", "in the same file"
POSITIONS = {
    PLANNED: ("Address", ""),
    FROM_ADDRESS: ("Address", example("positions")),
    SAME_FILE: ("Datasets", "entry/y,entry/x or entry/positions"),
}
"""Where positions come from: title and placeholder of the field that says it."""
OPTIONS = (
    "geometry", "focus_to_sample", "energy", "voltage", "wavelength", "distance", "detector_pixel", "angular_pixel",
    "units", "mask", "clip_negative",
)  # fmt: skip
"""Options of `load` that a plan has, too."""

EXTENTS = "extent_y", "extent_x"
FIELD_OF = {"positions": "planned", "extent": "extent_y"}
"""Fields of arguments of `Plan` that have another name."""


def _addresses(role: Role) -> list[str]:
    """Return for each kind of source a line with an address, what it is, and the names of its further options."""
    lines = []
    for kind in (kind for kind in all_kinds().values() if kind.role == role):
        further = ", ".join(f"?{name}=" for name in kind.options if f"{name}=" not in kind.example)
        lines.append(f"{kind.example}: {kind.title}" + (f" ({further})" if further else ""))
    return lines


FIELDS = (
    OptionField(
        "source", "Source", "\n".join(["Addresses and their options:", *_addresses("source")]), example("source"),
    ),
    OptionField(
        "kind", "Positions", "Where the positions of the patterns come from",
        choices=tuple((one, one) for one in POSITIONS), initial=PLANNED,
    ),
    OptionField("positions", "Address", "\n".join(["Names of datasets, or an address:", *_addresses("positions")])),
    OptionField(
        "planned", "Planned positions", "File with one line a pattern", "positions.npy, .txt or .csv: columns y, x",
    ),
    OptionField("count", "Patterns", "Number of patterns of the scan", "number: what the plan or the detector says"),
    *(
        OptionField(
            name, f"Extent in {name[-1]}", f"Smallest and largest {name[-1]} of the positions [m]", "from, to",
            unit="m", shown_in="µm", pair=True,
        )
        for name in EXTENTS
    ),
    OptionField("window", "Crop to", "Size (y, x) of the patterns that are kept [pixels]", "y, x; all"),
    OptionField("centre", "Crop around", "Pixel (y, x) of the direct beam: the window's middle", "y, x; the middle"),
    OptionField("folder", "Folder", "Folder for the scan, which is created", "one with the time in its name"),
)  # fmt: skip


@dataclass(frozen=True)
class ListenArguments:
    """Arguments of `ptynb.listen`, and the line of Python with them."""

    source: str
    plan: Plan
    positions: str
    folder: str | None
    line: str


class PlanFields(OptionFields):
    """Where the patterns of a live source come to, and what is planned. edited: as for `OptionFields`."""

    def __init__(self, edited: Callable[[], None] = lambda: None) -> None:
        options = (*FIELDS, *load_options(OPTIONS))
        self._followed = edited
        folded = [name for name in OPTIONS if name not in FIRST]
        super().__init__(options, self._follow, folded, "More about the measurement")
        self.hidden = ["positions"]

    def arguments(self) -> ListenArguments:
        """Return what was entered. Raises an error of a field, which `mark` shows there."""
        source, folder = self.text("source"), self.text("folder") or None
        if not source:
            raise _problem(
                f"No source is named; enter an address such as {example('source')}, or a file that is being written.",
                "source", "argument.missing",
            )  # fmt: skip
        positions = self._position_source(source)
        plan, text = self._plan(positions)
        given = [repr(source), f"plan=pt.Plan({text})"]
        given += [] if positions == "planned" else [f"positions={positions!r}"]
        given += [] if folder is None else [f"folder={folder!r}"]
        return ListenArguments(source, plan, positions, folder, f"scan = pt.listen({', '.join(given)})")

    def mark(self, error: PtynbError | None, otherwise: str = "source") -> bool:
        """Tell below the field that an error is about what is wrong, or else below the source; None: nothing is."""
        return super().mark(error, otherwise)

    def _position_source(self, source: str) -> str:
        kind, text = self.values["kind"], self.text("positions")
        patterns = pattern_address(source)
        if kind == PLANNED:
            return "planned"
        if kind == FROM_ADDRESS:
            position_address(text)
        elif patterns.kind == "file":
            with_positions(patterns, text)
        else:
            raise _problem(
                "Positions are in the same file, and the source is no file; enter the address of their source.",
                "positions", "argument.conflict",
            )  # fmt: skip
        return text

    def _plan(self, positions: str) -> tuple[Plan, str]:
        """Return the plan, and its arguments as Python."""
        values, texts = dict[str, Any](), dict[str, str]()

        def put_in(name: str, value: Any, text: str | None = None) -> None:
            values[name], texts[name] = value, repr(value) if text is None else text

        given = given_in(self)
        if given.units != "metres":
            put_in("units", given.units)
        if (geometry := _geometry_of(given)) is not None:
            put_in("geometry", geometry, f"pt.{geometry!r}".replace("=inf,", "=float('inf'),"))
        if given.mask is not None:
            with about("mask"):
                put_in("mask", load_mask(str(given.mask)), f"pt.load_mask({str(given.mask)!r})")
        if given.clip_negative:
            put_in("clip_negative", True)
        if path := self.text("planned"):
            with about("planned"):
                put_in("positions", read_array(Path(path).expanduser(), "planned positions"), _reading_line(path))
        if text := self.text("count"):
            with about("count"):
                put_in("count", _whole_numbers(text, 1, "Patterns")[0])
        if (extent := self._extent()) is not None:
            put_in("extent", extent)
        is_planned = positions == "planned"
        if "positions" not in values and "extent" not in values:
            other = "choose where measured ones come from" if is_planned else "enter both extents"
            raise _problem(
                f"Nothing says where positions will be; name a file with the planned ones, or {other}.",
                "planned" if is_planned else "extent_y", "argument.missing",
            )  # fmt: skip
        if is_planned and "positions" not in values:
            raise _problem(
                "The plan has an extent and no positions; choose where measured positions come from.",
                "positions", "acquisition.no-positions",
            )  # fmt: skip
        for name in ("window", "centre"):
            if text := self.text(name):
                with about(name):
                    put_in(name, _whole_numbers(text, 2, self.options[name].title))
        try:
            plan = Plan(**values)
        except PtynbError as error:
            error.fields = tuple(FIELD_OF.get(name, name) for name in error.fields)
            raise
        return plan, ", ".join(f"{name}={text}" for name, text in texts.items())

    def _extent(self) -> tuple[Any, Any] | None:
        texts = [self.text(name) for name in EXTENTS]
        if not any(texts):
            return None
        try:
            sides = [tuple(float(one) for one in self.entered(name)) for name in EXTENTS]
        except (TypeError, ValueError):
            given = f"{texts[0]!r:.50} and {texts[1]!r:.50}"
            raise _problem(f"The extents are {given}; expected two numbers in each: from, to.", EXTENTS[0]) from None
        return sides[0], sides[1]

    def _follow(self) -> None:
        kind, in_pixels = str(self.values["kind"]), self.entered("units") == "pixels"
        title, placeholder = POSITIONS[kind]
        self.change("positions", title=title, placeholder=placeholder)
        self.hidden = ["positions"] if kind == PLANNED else []
        for name in EXTENTS:
            self.change(name, unit="" if in_pixels else "m")
        unfold_near_field(self)
        self._followed()


def _problem(text: str, field: str, code: str = "argument.invalid-value") -> InvalidValueError:
    return InvalidValueError(text, code=code, fields=(field,))


def _whole_numbers(text: str, count: int, title: str) -> tuple[int, ...]:
    """Return whole numbers in a text; a single one stands for both of a pair."""
    parts = SEPARATORS.split(text)
    parts = parts * count if len(parts) == 1 else parts
    if len(parts) != count or not all(part.isdecimal() for part in parts):
        raise InvalidValueError(
            f"{title} is {text!r:.50}; expected {'a whole number' if count == 1 else 'two whole numbers (y, x)'}.",
            code="argument.invalid-value",
        )
    return tuple(int(part) for part in parts)


def _reading_line(path: str) -> str:
    """Return Python that reads an array as `read_array` does."""
    if path.endswith(".npy"):
        return f"np.load({path!r})"
    return f"np.loadtxt({path!r}{', delimiter=' + repr(',') if path.endswith('.csv') else ''}, ndmin=2)"


def _geometry_of(given: LoadOptions) -> Geometry | NearField | None:
    """Return the geometry of the options; None if they have none. Raises ScanError for a part of one."""
    parts = given.geometry_parts
    lacking = tuple(name for name, value in parts.items() if value is None)
    if lacking and (len(lacking) < len(parts) or given.is_near_field):
        raise ScanError(
            f"The geometry lacks {' and '.join(map(title_of, lacking))}; enter all of it, or nothing where the "
            "detector's header has it.",
            code="scan.no-geometry",
            fields=lacking,
        )
    return given.whole_geometry
