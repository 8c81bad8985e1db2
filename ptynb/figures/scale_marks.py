"""Scale bars, colour bars and phase wheels of pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from ptynb.data import images
from ptynb.figures.phase_colours import wheel

PixelSize = tuple[float, float] | None
PHASE_LABEL = "Phase [rad]"
UNITS = (("m", 1.0), ("mm", 1e-3), ("µm", 1e-6), ("nm", 1e-9), ("pm", 1e-12))


def shown(
    axes: Axes,
    values: NDArray[Any],
    pixel_size: PixelSize,
    limits: tuple[float, float],
    colours: str,
) -> AxesImage:
    """Draw real values (y, x) with the aspect ratio of their pixels; ticks are to be added after it."""
    low, high = limits
    return _placed(axes, values, pixel_size, cmap=colours, vmin=low, vmax=high)


def shown_as_is(axes: Axes, colours: NDArray[np.uint8], pixel_size: PixelSize) -> AxesImage:
    """Draw colours (y, x, rgb) with the aspect ratio of their pixels; ticks are to be added after it."""
    return _placed(axes, colours, pixel_size)


def _placed(axes: Axes, values: NDArray[Any], pixel_size: PixelSize, **options: Any) -> AxesImage:
    aspect = 1.0 if pixel_size is None else pixel_size[0] / pixel_size[1]
    # "none" is nearest on screens, and leaves the pixels as they are in PDF and SVG.
    image = axes.imshow(values, interpolation="none", aspect=aspect, **options)
    axes.set(xticks=[], yticks=[])
    return image


def limits_for(values: NDArray[Any]) -> tuple[float, float]:
    """Return contrast limits of real values; a range around the value if all are equal."""
    low, high = images.limits_of(values)
    middle = (low + high) / 2
    if high - low > 2e-6 * max(abs(middle), 1.0):
        return low, high
    half = 0.5 * (abs(middle) if abs(middle) > 1e-3 else 1.0)
    return middle - half, middle + half


def colour_bar(page: Figure, axes: Axes, image: AxesImage, label: str = "") -> Axes:
    """Add a colour bar at the right of a picture, of the same height."""
    place = axes.inset_axes((1.03, 0.0, 0.05, 1.0))
    bar = page.colorbar(image, cax=place, label=label)
    bar.outline.set_linewidth(0.4)
    return place


def phase_bar(page: Figure, axes: Axes, image: AxesImage) -> Axes:
    """Add a `colour_bar` of a phase [rad]; a whole turn has ticks at fractions of π."""
    place = colour_bar(page, axes, image, PHASE_LABEL)
    turn_ticks(place, image, PHASE_LABEL)
    return place


def turn_ticks(place: Axes, image: AxesImage, label: str) -> None:
    """Give the colour bar of a quantity in radians that spans a whole turn ticks at fractions of π."""
    low, high = image.get_clim()
    if "[rad]" in label and high - low > 1.99 * np.pi:
        place.set_yticks([-np.pi, -np.pi / 2, 0, np.pi / 2, np.pi], ["−π", "−π/2", "0", "π/2", "π"])


def phase_wheel(axes: Axes, of: str = "", part: float = 0.4) -> Axes:
    """Add a phase wheel at the right of a picture.

    of: the quantity that is 0 in the centre; part: diameter as a fraction of the picture's width.
    """
    place = axes.inset_axes((0.5 + 1.5 * part, 0.5 - part / 2, part, part))
    place.imshow(wheel(), extent=(-1, 1, -1, 1), interpolation="none")
    place.axis("off")
    place.set(xticks=[], yticks=[])
    for text, x, y, across, up in (
        ("0", 1.1, 0, "left", "center"),
        ("π", -1.1, 0, "right", "center"),
        ("π/2", 0, 1.1, "center", "bottom"),
        ("−π/2", 0, -1.1, "center", "top"),
    ):
        place.text(x, y, text, ha=across, va=up)
    if of:
        place.annotate(
            of, (0, -1.1), (0, -1.3), textcoords="offset fontsize", ha="center", va="top", annotation_clip=False
        )
    return place


def scale_bar(
    axes: Axes, shape: tuple[int, ...], pixel_size: PixelSize, part: float = 0.25, letters: float | None = None
) -> None:
    """Add a bar of a round length, at most this fraction of the picture's width, in metric units or in pixels.

    letters: size of its label [points].
    """
    pixel = 1.0 if pixel_size is None else pixel_size[1]
    length = round_length(shape[1] * pixel * part)
    pixels = length / pixel
    label = f"{length:g} px" if pixel_size is None else metric(length)
    height, width = shape[0], shape[1]
    left, bottom, thick = 0.05 * width, 0.93 * height, 0.018 * height
    axes.add_patch(Rectangle((left, bottom), pixels, thick, facecolor="white", edgecolor="black", linewidth=0.5))
    box = {"facecolor": "black", "alpha": 0.45, "pad": 1.0, "linewidth": 0}
    axes.text(left, bottom - 0.03 * height, label, color="white", va="bottom", fontsize=letters, bbox=box)


def round_length(length: float) -> float:
    """Return the largest of 1, 2, 5 times a power of ten that is not above `length`."""
    power = 10.0 ** np.floor(np.log10(length))
    return float(max(step * power for step in (1, 2, 5) if step * power <= length * (1 + 1e-9)))


def metric(length: float) -> str:
    """Return a length [m] with a suitable unit: '200 nm', '5 µm'."""
    unit, size = unit_for(length)
    return f"{length / size:.3g} {unit}"


def unit_for(length: float) -> tuple[str, float]:
    """Return a suitable unit for a length [m], and its size [m]."""
    return next((each for each in UNITS if length >= each[1] * 0.9995), UNITS[-1])
