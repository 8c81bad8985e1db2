"""The part of a picture that a figure shows, its contrast, and axes with ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ptynb.exceptions import InvalidValueError
from ptynb.figures.scale_marks import PixelSize, unit_for

Region = tuple[tuple[float, float], tuple[float, float]]
"""((top, bottom), (left, right)) [pixels of the array], from the outer corner of its first pixel."""


@dataclass(frozen=True)
class FigurePart:
    """Region, contrast limits and ticks of a figure of fields; by default all of it, automatic limits, no ticks."""

    region: Region | None = None
    limits: tuple[float, float] | None = None
    ticks: bool = False

    def __post_init__(self) -> None:
        """Raise InvalidValueError for values that are no region or no limits."""
        if self.limits is not None:
            found = _numbers(self.limits, (2,))
            if found is None or not found[0] < found[1]:
                raise InvalidValueError(
                    f"limits is {self.limits!r}; expected two values, low < high.", code="argument.invalid-value"
                )
        if self.region is not None:
            found = _numbers(self.region, (2, 2))
            if found is None or not (found[:, 0] < found[:, 1]).all():
                raise InvalidValueError(
                    f"region is {self.region!r}; expected ((top, bottom), (left, right)) in pixels, top < bottom and "
                    "left < right.",
                    code="argument.invalid-value",
                )

    @property
    def plain(self) -> bool:
        """Whether all of it is the default."""
        return self == FigurePart()

    def area(self, shape: tuple[int, ...], corner: tuple[int, int] = (0, 0)) -> tuple[slice, slice]:
        """Return the part of values (y, x) that the region covers, in whole pixels.

        corner: (y, x) of the first value in the pixels of the region. Raise InvalidValueError if there is none.
        """
        if self.region is None:
            return slice(0, shape[0]), slice(0, shape[1])
        parts = []
        for (low, high), start, side in zip(self.region, corner, shape, strict=True):
            # Of a pixel at the edge at least a hundredth is in the region: rounding must not add one.
            part = slice(max(math.floor(low + 0.01) - start, 0), min(math.ceil(high - 0.01) - start, side))
            parts.append(part)
        if any(part.stop <= part.start for part in parts):
            reach = ", ".join(f"{start} to {start + side}" for start, side in zip(corner, shape, strict=True))
            raise InvalidValueError(
                f"region is {self.region!r}, outside the picture; expected a part of y and x of {reach} pixels.",
                code="argument.invalid-value",
            )
        return parts[0], parts[1]

    def label_axes(
        self, axes: Axes, corner: tuple[float, float], shape: tuple[int, ...], pixel_size: PixelSize
    ) -> None:
        """Add ticks and labels in units of length, or in pixels, if they are wanted.

        corner, shape: (y, x) of the pixels that the axes show.
        """
        if not self.ticks:
            return
        sizes = (1.0, 1.0) if pixel_size is None else pixel_size
        unit, size = ("pixel", 1.0) if pixel_size is None else unit_for(shape[1] * sizes[1])
        for name, axis, start, side, pixel in zip("yx", (axes.yaxis, axes.xaxis), corner, shape, sizes, strict=True):
            step = pixel / size
            first, last = start * step, (start + side) * step
            values = [
                one for one in MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(first, last) if first <= one <= last
            ]
            axis.set_ticks([value / step - start - 0.5 for value in values], [f"{value:.6g}" for value in values])
            axis.set_label_text(f"{name} [{unit}]")


def _numbers(values: Any, shape: tuple[int, ...]) -> NDArray[np.float64] | None:
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return found if found.shape == shape and np.isfinite(found).all() else None
