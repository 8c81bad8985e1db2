"""What a page holds beside its text: pictures, the viewers and curves that show them, and files to be saved."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptynb.data import images
from ptynb.data.snapshot import Array, Picture
from ptynb.widgets.colour_maps import look_up_table
from ptynb.widgets.viewer.viewer_assets import COLOURS, CYCLIC

LARGEST_SIDE = 2048
"""Of a picture on the page [its pixels]: what browsers draw and zoom without waiting."""
COMPRESSION = 6
MARKS = 10_000
"""Points drawn over a picture at most: more can't be seen apart."""
Controls = Sequence[Mapping[str, Any]]
Makers = Mapping[str, Callable[[int], Picture]]
"""By the name on the page: makes a picture at a reduction."""


@dataclass(frozen=True)
class Shares:
    """How many bytes pictures and files may take, before they are written as text, which adds a third.

    whole: of the object as one; slices; epochs: kept ones; probe. total: with the files, which get what is left.
    """

    whole: float = 2.6e6
    slices: float = 1.4e6
    epochs: float = 0.8e6
    probe: float = 0.5e6
    total: float = 6.7e6


UNLIMITED = Shares(math.inf, math.inf, math.inf, math.inf, math.inf)


@dataclass(frozen=True)
class Stills:
    """Pictures of one kind of thing by name, and how many pixels a side one of theirs stands for."""

    names: tuple[str, ...]
    reduction: int


@dataclass
class Contents:
    """Collects them. file: beginning of the names of all files that are saved from the page."""

    file: str
    pictures: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    viewers: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    curves: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    files: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def stills(self, named: Makers, share: float) -> Stills:
        """Adds pictures that together take at most `share` bytes, all of them at one reduction.

        named: by their names on the page; each makes its picture at a reduction.
        """
        # One of them tells about how small all have to be; then all are made, and seldom more than once.
        reduction = _fitting({name: named[name] for name in list(named)[-1:]}, 1, share / len(named))[0]
        _, made = _fitting(named, reduction, share)
        self.pictures |= {name: _plain(picture) for name, picture in made.items()}
        return Stills(tuple(made), max(picture.reduction for picture in made.values()))

    def composed(self, name: str, title: str, amplitude: str, phase: str) -> str:
        """Adds a picture in colours that the page makes of two that are there; returns its name."""
        like = self.pictures[amplitude]
        taken = {key: like[key] for key in ("shape", "reduction", "pixel_size")}
        said = {"name": "complex", "title": title, "limits": None, "unit": "", "colours": "gray", "note": ""}
        self.pictures[name] = {**taken, **said, "composed": [amplitude, phase]}
        return name

    def viewer(
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
        """Adds a viewer. frames: {"pictures": names, "points", "moves", "note"} by the keys of the controls' options.

        exclusive: only one control says what is shown, the one touched last; else all of them together do.
        """
        said = {"label": label, "exclusive": exclusive, "tools": tools, "height": height, "file": name}
        self.viewers[name] = {**said, "controls": list(controls), "frames": dict(frames)}

    def curve(
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
        """Adds a curve.

        axes: their titles. lines: {"name", "x": values for each axis, "y", "faint"}. marks: {"x", "text"} likewise;
        marked: what they are. lowest, highest: of the height, where it is linear.
        """
        said = {"title": title, "axes": list(axes), "log": log, "lowest": lowest, "highest": highest}
        self.curves[name] = {
            **said,
            "lines": list(lines),
            "marks": list(marks),
            "marked": marked,
            "file": f"{self.file}-{name}",
        }

    def save(self, key: str, ending: str, kind: str, content: bytes) -> str:
        """Adds a file to be saved from the page; returns its name."""
        name = f"{self.file}-{key}.{ending}"
        self.files[key] = {"name": name, "type": kind, "content": encoded(content)}
        return name

    def make(self, key: str, planes: Sequence[Mapping[str, Any]], pixel_size: tuple[float, float] | None) -> None:
        """Adds a TIFF that the page makes of arrays among its files, a page for each plane; see `report.values`."""
        named = {"name": f"{self.file}-{key}.tif", "type": "image/tiff"}
        self.files[key] = {**named, "planes": list(planes), "pixel_size": pixel_size}

    @property
    def taken(self) -> int:
        """Bytes of all pictures and files so far."""
        texts = [str(one.get("image", "")) for one in self.pictures.values()]
        files = [str(one.get("content", "")) for one in self.files.values()]
        return sum(len(text) for text in (*texts, *files)) * 3 // 4

    def plain(self) -> dict[str, Any]:
        """All of it as plain values for the page."""
        maps = {*COLOURS, *(str(picture["colours"]) for picture in self.pictures.values())}
        return {
            "file": self.file,
            "tables": {name: encoded(look_up_table(name).tobytes()) for name in sorted(maps, key=_order)},
            "cyclic": list(CYCLIC),
            "pictures": self.pictures,
            "viewers": self.viewers,
            "curves": self.curves,
            "files": self.files,
        }


def still(
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
) -> Picture:
    """A picture of real values (y, x), each pixel the mean of reduction x reduction; never more than 2048 a side.

    Given less reduction than a picture of this side needs, it takes what it needs.
    """
    reduction = max(reduction, images.reduction_for(values.shape, LARGEST_SIDE))
    grey = images.levels(images.reduce_by(values, reduction), limits)
    height, width = values.shape
    image = images.png(grey, COMPRESSION)
    return Picture(name, title, image, (height, width), reduction, limits, unit, pixel_size, colours, note)


def coloured_still(field: Array, name: str, title: str, reduction: int, pixel_size: Any, note: str = "") -> Picture:
    """A picture of complex values (y, x) in colours: hue for the phase, brightness for the amplitude."""
    image = images.png(images.complex_colours(images.reduce_by(field, reduction)), COMPRESSION)
    height, width = field.shape
    return Picture(name, title, image, (height, width), reduction, None, "", pixel_size, "gray", note)


def npy(values: Array) -> bytes:
    """An array as a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(values), allow_pickle=False)
    return buffer.getvalue()


def encoded(content: bytes) -> str:
    """Bytes as text (base64)."""
    return base64.b64encode(content).decode("ascii")


def points(values: Array) -> str:
    """Places (point, yx) as the viewer takes them, those of a large number thinned out."""
    return encoded(values[:: max(1, -(-len(values) // MARKS))].astype("<f4").tobytes())


def choice(label: str, options: Sequence[tuple[str, Any]], start: int = 0, *, kind: str = "select") -> dict[str, Any]:
    """A control: options are (text, key of a frame), or (text, two names to slide between), or (text, no names).

    kind: "select" or "range".
    """
    plain = [{"text": text, "swipe" if isinstance(one, tuple) else "key": one} for text, one in options]
    return {"label": label, "kind": kind, "start": start, "options": plain}


def _fitting(makers: Makers, reduction: int, share: float) -> tuple[int, dict[str, Picture]]:
    """The reduction, from this one on, at which the pictures take at most `share` bytes, and the pictures."""
    while True:
        made = {name: make(reduction) for name, make in makers.items()}
        taken = sum(len(picture.image) for picture in made.values())
        # A picture of one pixel can't get smaller.
        if taken <= share or max(max(picture.shape) for picture in made.values()) <= reduction:
            return reduction, made
        # They may have needed more to be no larger than the largest side.
        least = max(picture.reduction for picture in made.values())
        reduction = max(reduction + 1, math.floor(least * math.sqrt(taken / share)))


def _order(name: str) -> tuple[int, str]:
    return (COLOURS.index(name) if name in COLOURS else len(COLOURS), name)


def _plain(picture: Picture) -> dict[str, Any]:
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
    }
