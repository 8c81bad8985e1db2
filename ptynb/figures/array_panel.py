"""A figure of an array: real values with a colour bar, complex ones with a phase wheel."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ptynb.exceptions import InvalidValueError
from ptynb.figures.figure_page import Page
from ptynb.figures.figure_part import FigurePart
from ptynb.figures.phase_colours import complex_colours
from ptynb.figures.scale_marks import (
    PixelSize,
    colour_bar,
    limits_for,
    phase_wheel,
    scale_bar,
    shown,
    shown_as_is,
    turn_ticks,
)


def array(
    page: Page, values: NDArray[Any], part: FigurePart, pixel_size: PixelSize, label: str, colours: str | None
) -> list[Axes]:
    """Draw an array (y, x). label: of the colour bar, the quantity with its unit."""
    if values.ndim != 2 or not values.size or values.dtype.kind not in "biufc":
        raise InvalidValueError(
            f"The array has shape {values.shape} and type {values.dtype}; expected numbers (y, x).",
            code="array.shape-mismatch",
        )
    area = part.area(values.shape)
    seen, corner = values[area], (area[0].start, area[1].start)
    axes = page.add_subplot()
    if np.iscomplexobj(values):
        if part.limits is not None or colours is not None:
            raise InvalidValueError(
                "limits and colours are for real arrays; a complex one is shown as hue and lightness.",
                code="argument.conflict",
            )
        shown_as_is(axes, complex_colours(seen, float(np.abs(np.nan_to_num(values)).max())), pixel_size)
        phase_wheel(axes, "amplitude")
    else:
        seen = seen.astype(np.float64)
        image = shown(axes, seen, pixel_size, part.limits or limits_for(seen), colours or "gray")
        turn_ticks(colour_bar(page, axes, image, label), image, label)
    scale_bar(axes, seen.shape, pixel_size)
    part.label_axes(axes, corner, seen.shape, pixel_size)
    page.caption = (
        f"{label or 'Values'}, pixels {area[0].start} to {area[0].stop} in y, {corner[1]} to {area[1].stop} in x."
    )
    return [axes]
