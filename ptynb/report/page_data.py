"""The data of a report's page: pictures, the viewers and curves that show them, and files to be saved."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptynb.data import images
from ptynb.data.engine_records import Array, Picture
from ptynb.io.export.colour_maps import COLOURS, CYCLIC, look_up_table, offered

LARGEST_SIDE = 2048
"""Maximum side of a picture on the page [pixels]: browsers draw and zoom these without delay."""
COMPRESSION = 6
MARKS = 10_000
"""Maximum number of points drawn over a picture: more cannot be distinguished."""
Controls = Sequence[Mapping[str, Any]]
Makers = Mapping[str, Callable[[int], Picture]]
"""Functions that return the picture at a reduction (binning factor), by name of the picture on the page."""


@dataclass(frozen=True)
class ByteBudget:
    """Bytes that pictures and files may take, before base64 adds a third.

    whole: the projection of the object; slices; epochs: thumbnails of earlier epochs; probe. total: all of them and
    the files, which get the rest.
    """

    whole: float = 2.6e6
    slices: float = 1.4e6
    epochs: float = 0.8e6
    probe: float = 0.5e6
    total: float = 6.7e6


UNLIMITED = ByteBudget(math.inf, math.inf, math.inf, math.inf, math.inf)


@dataclass(frozen=True)
class Shown:
    """Names of pictures that were added together, and their common reduction."""

    names: tuple[str, ...]
    reduction: int


@dataclass
class PageData:
    """Pictures, viewers, curves and files by name. file: the first part of the names of files that are saved."""

    file: str
    pictures: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    viewers: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    curves: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    files: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def add_pictures(self, named: Makers, share: float) -> Shown:
        """Add pictures that together take at most `share` bytes, all at the same reduction."""
        # The reduction of one picture is a good first guess for all, so that most are computed only once.
        reduction = _fitting({name: named[name] for name in list(named)[-1:]}, 1, share / len(named))[0]
        _, added = _fitting(named, reduction, share)
        self.pictures |= {name: plain_picture(picture) for name, picture in added.items()}
        return Shown(tuple(added), max(picture.reduction for picture in added.values()))

    def add_composed(self, name: str, title: str, amplitude: str, phase: str) -> str:
        """Add a coloured picture that the page computes from an amplitude and a phase; return its name."""
        like = self.pictures[amplitude]
        like_them = {key: like[key] for key in ("shape", "reduction", "pixel_size")}
        described = {"name": "complex", "title": title, "limits": None, "unit": "", "colours": "gray", "note": ""}
        self.pictures[name] = {**like_them, **described, "composed": [amplitude, phase]}
        return name

    def add_viewer(
        self,
        name: str,
        label: str,
        frames: Mapping[str, Mapping[str, Any]],
        controls: Controls = (),
        *,
        exclusive: bool = False,
        tools: bool = True,
        height: int = 560,
    ) -> None:
        """Add a viewer. frames: {"pictures": names, "points", "moves", "note"} by the keys of the controls' options.

        exclusive: the control used last selects the frame; otherwise all controls together do.
        """
        options = {"label": label, "exclusive": exclusive, "tools": tools, "height": height, "file": name}
        self.viewers[name] = {**options, "controls": list(controls), "frames": dict(frames)}

    def add_curve(
        self,
        name: str,
        title: str,
        axes: Sequence[str],
        lines: Sequence[Mapping[str, Any]],
        *,
        marks: Sequence[Mapping[str, Any]] = (),
        marked: str = "",
        log: bool = True,
        lowest: float | None = None,
        highest: float | None = None,
    ) -> None:
        """Add a curve.

        axes: titles of the x axes. lines: {"name", "x": values for each axis, "y", "faint"}. marks: {"x", "text"};
        marked: what the marks mean. lowest, highest: limits of a linear y axis.
        """
        self.curves[name] = {
            "title": title,
            "axes": list(axes),
            "log": log,
            "lowest": lowest,
            "highest": highest,
            "lines": list(lines),
            "marks": list(marks),
            "marked": marked,
            "file": f"{self.file}-{name}",
        }

    def add_file(self, key: str, ending: str, kind: str, content: bytes) -> str:
        """Add a file to be saved from the page; return its name."""
        name = f"{self.file}-{key}.{ending}"
        self.files[key] = {"name": name, "type": kind, "content": encoded(content)}
        return name

    def add_tiff(self, key: str, planes: Sequence[Mapping[str, Any]], pixel_size: tuple[float, float] | None) -> None:
        """Add a TIFF that the page creates from arrays among its files, one page per plane (`values.js`)."""
        self.files[key] = {
            "name": f"{self.file}-{key}.tif",
            "type": "image/tiff",
            "planes": list(planes),
            "pixel_size": pixel_size,
        }

    @property
    def size(self) -> int:
        """Bytes of all pictures and files added so far."""
        texts = [str(one.get("image", "")) for one in self.pictures.values()]
        files = [str(one.get("content", "")) for one in self.files.values()]
        return sum(len(text) for text in (*texts, *files)) * 3 // 4

    def as_dict(self) -> dict[str, Any]:
        """Return all content as plain values, which become JSON in the page."""
        maps = {*offered(), *(str(picture["colours"]) for picture in self.pictures.values())}
        return {
            "file": self.file,
            "tables": {name: encoded(look_up_table(name).tobytes()) for name in sorted(maps, key=_order)},
            "cyclic": list(CYCLIC),
            "pictures": self.pictures,
            "viewers": self.viewers,
            "curves": self.curves,
            "files": self.files,
        }


def picture_of(
    values: Array,
    name: str,
    title: str,
    limits: tuple[float, float],
    *,
    unit: str = "",
    pixel_size: tuple[float, float] | None = None,
    colours: str = "gray",
    reduction: int = 1,
    note: str = "",
    scale: int = 1,
) -> Picture:
    """Return a picture of real values (y, x), averaged over reduction x reduction pixels, at most 2048 a side.

    scale: pixels of the array a side of a value, if the values are such means already.
    """
    reduction = max(-(-reduction // scale), images.reduction_for(values.shape, LARGEST_SIDE))
    grey = images.levels(images.reduce_by(values, reduction), limits)
    height, width = values.shape
    image, shape = images.png(grey, COMPRESSION), (height * scale, width * scale)
    return Picture(name, title, image, shape, reduction * scale, limits, unit, pixel_size, colours, note)


def coloured_picture(field: Array, name: str, title: str, reduction: int, pixel_size: Any, note: str = "") -> Picture:
    """Return a picture of complex values (y, x) in colours: hue for the phase, brightness for the amplitude."""
    image = images.png(images.complex_colours(images.reduce_by(field, reduction)), COMPRESSION)
    height, width = field.shape
    return Picture(name, title, image, (height, width), reduction, None, "", pixel_size, "gray", note)


def npy(values: Array) -> bytes:
    """Return an array as a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(values), allow_pickle=False)
    return buffer.getvalue()


def encoded(content: bytes) -> str:
    """Return bytes as text (base64)."""
    return base64.b64encode(content).decode("ascii")


def points(values: Array) -> str:
    """Return points (point, yx) in the viewer's encoding, at most 10,000 of them."""
    return encoded(values[:: max(1, -(-len(values) // MARKS))].astype("<f4").tobytes())


def choice(label: str, options: Sequence[tuple[str, Any]], start: int = 0, *, kind: str = "select") -> dict[str, Any]:
    """Return a control of a viewer: options are (text, key of a frame), or (text, two names to swipe between or none).

    kind: "select" or "range".
    """
    plain = [{"text": text, "swipe" if isinstance(one, tuple) else "key": one} for text, one in options]
    return {"label": label, "kind": kind, "start": start, "options": plain}


def _fitting(makers: Makers, reduction: int, share: float) -> tuple[int, dict[str, Picture]]:
    """Return the first reduction, from this one up, with at most `share` bytes of pictures, and the pictures."""
    while True:
        made = {name: make(reduction) for name, make in makers.items()}
        taken = sum(len(picture.image) for picture in made.values())
        # A picture of one pixel cannot be reduced further.
        if taken <= share or max(max(picture.shape) for picture in made.values()) <= reduction:
            return reduction, made
        # The limit of 2048 pixels a side may already have required a larger reduction.
        least = max(picture.reduction for picture in made.values())
        reduction = max(reduction + 1, math.floor(least * math.sqrt(taken / share)))


def _order(name: str) -> tuple[int, str]:
    return (COLOURS.index(name) if name in COLOURS else len(COLOURS), name)


def plain_picture(picture: Picture) -> dict[str, Any]:
    """Return a picture as plain values, which become JSON in the page."""
    return {
        "name": picture.name,
        "title": picture.title,
        "image": encoded(picture.image),
        "shape": picture.shape,
        "reduction": picture.reduction,
        "limits": picture.limits,
        "unit": picture.unit,
        "pixel_size": picture.pixel_size,
        "colours": picture.colours,
        "note": picture.note,
        "axes": picture.axes,
        "bands": picture.bands,
    }
