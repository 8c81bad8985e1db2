"""Figures for papers of what a pane of a viewer shows, and the line of Python that makes them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ptynb.data.engine_records import Array
from ptynb.exceptions import InvalidValueError
from ptynb.figures.figure import figure
from ptynb.io.new_files import free_name

FigureOf = Callable[[str], tuple[Array, str]]
"""Return the array (y, x) of a picture, by its name, and the Python of it."""
SUFFIXES = ("pdf", "svg", "png")


@dataclass(frozen=True)
class FigureView:
    """What a page shows of a picture.

    name: of the picture. minus: name of the picture that is subtracted from it, if the pane shows a difference.
    region: ((top, bottom), (left, right)) [array pixels]. limits, colours: of real pictures. suffix: of the file.
    """

    name: str
    minus: str | None
    region: tuple[tuple[float, float], tuple[float, float]]
    limits: tuple[float, float] | None
    colours: str | None
    suffix: str

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Return the view in a message of the page. Raise InvalidValueError for another format of the file."""
        if content["suffix"] not in SUFFIXES:
            raise InvalidValueError(
                f"A figure as {content['suffix']!r} is not supported; expected {', '.join(SUFFIXES)}.",
                code="argument.invalid-value",
            )
        (top, bottom), (left, right) = ([float(value) for value in ends] for ends in content["region"])
        limits = content["limits"]
        return cls(
            str(content["name"]),
            None if content["minus"] is None else str(content["minus"]),
            ((top, bottom), (left, right)),
            None if limits is None else (float(limits[0]), float(limits[1])),
            None if content["colours"] is None else str(content["colours"]),
            str(content["suffix"]),
        )

    def write(self, picture: Mapping[str, Any], figure_of: FigureOf) -> tuple[Path, str]:
        """Write the figure to a new file in the working folder; return its path and the equivalent line of Python.

        picture: as the viewer sends it. figure_of: see `Viewer`.
        """
        values, source = figure_of(self.name)
        title = str(picture["title"])
        if self.minus is not None:
            other, other_source = figure_of(self.minus)
            values, source = values - other, f"{source} - {other_source}"
            title = f"{title} − {self.minus}"
        options = self._options(picture, title)
        path = Path(free_name(re.sub(r"[^\w-]+", "_", title).strip("_")[:60] or "figure", f".{self.suffix}"))
        page = figure(values, **options)
        page.savefig(path)
        given = "".join(f", {name}={value!r}" for name, value in options.items())
        return path.absolute(), f"pt.figure({source}{given}).savefig({str(path)!r})"

    def _options(self, picture: Mapping[str, Any], title: str) -> dict[str, Any]:
        options: dict[str, Any] = {}
        shape = tuple(picture["shape"])
        part = tuple(
            (max(0, math.floor(low + 0.01)), min(side, math.ceil(high - 0.01)))
            for (low, high), side in zip(self.region, shape, strict=True)
        )
        # Of a reduced picture the screen has no incomplete blocks of pixels at the far edges.
        if any(low > 0 or high < side - picture["reduction"] for (low, high), side in zip(part, shape, strict=True)):
            options["region"] = part
        if self.limits is not None:
            options["limits"] = tuple(float(f"{value:.5g}") for value in self.limits)
        if self.colours is not None:
            options["colours"] = self.colours
        if picture["pixel_size"] is not None:
            options["pixel_size"] = tuple(picture["pixel_size"])
        quantity = str(picture["quantity"]).removeprefix("difference of ")
        name = quantity.capitalize() if quantity in ("phase", "amplitude") else title
        unit = f" [{picture['unit']}]" if picture["unit"] else ""
        differs = self.minus is not None or quantity != picture["quantity"]
        label = f"{name}{' difference' if differs and name != title else ''}{unit}"
        return {**options, "label": label, "ticks": True}
