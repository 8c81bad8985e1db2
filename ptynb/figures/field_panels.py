"""Figures of fields: object, its slices, probe modes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ptynb.data import images
from ptynb.data.engine_records import Result
from ptynb.data.geometry import illuminated_area
from ptynb.data.standard_error import ErrorMap
from ptynb.figures.figure_page import Page
from ptynb.figures.figure_part import FigurePart
from ptynb.figures.phase_colours import complex_colours
from ptynb.figures.scale_marks import (
    PixelSize,
    colour_bar,
    limits_for,
    phase_bar,
    phase_wheel,
    scale_bar,
    shown,
    shown_as_is,
)

PHASE_COLOURS, WRAPPED_COLOURS = "viridis", "twilight"
AMPLITUDE_COLOURS = "gray"
ERROR_COLOURS = "magma"
MOST_PANELS = 16
FINEST = 4096
"""Longest side of a panel of a large object [values]: more than can be printed."""
WHOLE = FigurePart()
NEARLY_ALL = 0.97
"""Fraction of π: phases that exceed it on both sides are taken as wrapped and get a cyclic colour map."""


def covered(result: Result) -> NDArray[Any]:
    """Return the object (y, x) where it was illuminated, its slices multiplied."""
    return result.projection[illuminated_part(result)]


def panel_values(
    result: Result, quantity: Literal["amplitude", "phase"], part: FigurePart = WHOLE, slice: int | None = None
) -> tuple[NDArray[Any], tuple[float, float], PixelSize]:
    """Return values (y, x) of a part of the illuminated projection or slice, their first pixel (y, x) and size [m].

    A phase is without its mean and ramp over all of the illuminated area. Of a large object these are means over blocks
    of pixels, at most `FINEST` a side.
    """
    layers = illuminated_layers(result, slice)
    area, scale, corner, pixel = _blocks(layers, result, part)
    if quantity == "amplitude" and scale == 1:
        return np.abs(layers[:, *area].prod(0)), corner, pixel
    means = images.flat_means(layers, scale, area)
    return np.abs(means) if quantity == "amplitude" else np.angle(means), corner, pixel


def illuminated_layers(result: Result, slice: int | None = None) -> NDArray[Any]:
    """Return all slices (slice, y, x) of the object where it was illuminated, or one of them."""
    y, x = illuminated_part(result)
    return (result.slices if slice is None else result.slices[slice][None])[:, y, x]


def _blocks(
    layers: NDArray[Any], result: Result, part: FigurePart
) -> tuple[tuple[slice, slice], int, tuple[float, float], PixelSize]:
    """Return a part of the illuminated area, the side of the blocks in it, its first block (y, x) and their size [m].

    A block is a pixel, or of a large object so many that there are at most `FINEST` blocks a side.
    """
    y, x = illuminated_part(result)
    area = part.area(layers.shape[1:], (y.start, x.start))
    corner, pixel, scale = (y.start + area[0].start, x.start + area[1].start), result.pixel_size, 1
    if max(layers.shape[1:]) > FINEST and pixel is not None:
        scale = images.reduction_for((area[0].stop - area[0].start, area[1].stop - area[1].start), FINEST)
        pixel = pixel[0] * scale, pixel[1] * scale
    return area, scale, (corner[0] / scale, corner[1] / scale), pixel


def illuminated_part(result: Result) -> tuple[slice, slice]:
    """Return the illuminated part of the object; refined positions may extend beyond it."""
    area = illuminated_area(result.positions, result.probe.shape[-2:])
    sides = result.object.shape[-2:]
    y, x = (slice(max(part.start, 0), min(part.stop, side)) for part, side in zip(area, sides, strict=True))
    return y, x


def amplitude(page: Page, result: Result, colours: str | None, part: FigurePart) -> list[Axes]:
    """Draw the object's amplitude."""
    return [_amplitude(page, page.add_subplot(), result, colours, part)]


def phase(page: Page, result: Result, colours: str | None, part: FigurePart) -> list[Axes]:
    """Draw the object's phase, without mean and ramp."""
    return [_phase(page, page.add_subplot(), result, colours, part)]


def both(page: Page, result: Result, colours: str | None, part: FigurePart) -> list[Axes]:
    """Draw the object's amplitude and phase side by side; colours: of the phase."""
    left, right = page.subplots(1, 2)
    return [_amplitude(page, left, result, None, part), _phase(page, right, result, colours, part)]


def errors(page: Page, found: ErrorMap, colours: str | None) -> list[Axes]:
    """Draw the phase of the object and its standard error side by side; colours: of the phase."""
    left, right = page.subplots(1, 2)
    values = images.flat_phase(found.object)
    limits, own = phase_limits(values)
    phase_bar(page, left, shown(left, values, found.pixel_size, limits, colours or own))
    scale_bar(left, values.shape, found.pixel_size)
    deviations = found.phase_error
    image = shown(right, deviations, found.pixel_size, limits_for(deviations), ERROR_COLOURS)
    colour_bar(page, right, image, "Standard error [rad]")
    page.caption = (
        "Phase of the object, mean of two reconstructions of halves of the scan, and its standard error from their "
        f"difference, averaged over {found.smoothing:g} pixels. Errors common to both halves do not show."
    )
    return [left, right]


def field(page: Page, result: Result, part: FigurePart) -> list[Axes]:
    """Draw the object in colours: phase as hue, amplitude as lightness."""
    axes = page.add_subplot()
    layers = illuminated_layers(result)
    area, scale, corner, pixel = _blocks(layers, result, part)
    seen = images.flat_means(layers, scale, area)
    shown_as_is(axes, complex_colours(seen, images.largest_amplitude(layers)), pixel)
    _mark(axes, seen.shape, corner, pixel, part)
    phase_wheel(axes, "amplitude")
    page.caption = "The object: hue is phase, without its mean and ramp, lightness is amplitude."
    return [axes]


def slices(page: Page, result: Result, colours: str | None) -> list[Axes]:
    """Draw the phase of each slice, or of 16 evenly chosen, in one range of colours."""
    stack = result.slices
    chosen = np.unique(np.linspace(0, len(stack) - 1, MOST_PANELS).round().astype(int))
    found = [panel_values(result, "phase", slice=index) for index in chosen]
    phases, pixel = [values for values, _, _ in found], found[0][2]
    limits, own = phase_limits(np.array(phases))
    panels = _grid(page, len(chosen))
    for axes, index, values in zip(panels, chosen, phases, strict=True):
        image = shown(axes, values, pixel, limits, colours or own)
        axes.set_title(f"{index + 1} of {len(stack)}", loc="right")
    scale_bar(panels[0], phases[0].shape, pixel, part=0.4)
    phase_bar(page, panels[min(len(panels), _columns(len(panels))) - 1], image)
    page.caption = "Phase of the slices, the first one upstream, each without its mean and ramp."
    return panels


def probe(page: Page, result: Result) -> list[Axes]:
    """Draw the probe's modes by their power, in colours."""
    modes, powers = by_power(result.probe)
    count = min(len(modes), MOST_PANELS)
    panels = _grid(page, count)
    for number, (axes, mode, power) in enumerate(zip(panels, modes, powers, strict=False)):
        shown_as_is(axes, complex_colours(mode), result.pixel_size)
        axes.set_title(f"mode {number + 1}: {power:.1%}" if _columns(count) < 4 else f"{power:.1%}", loc="right")
    scale_bar(panels[0], modes.shape[1:], result.pixel_size, part=0.4)
    columns = _columns(count)
    phase_wheel(panels[min(count, columns) - 1], "amplitude", 0.4 if columns == 1 else 0.5)
    hidden = f" The {len(modes) - count} weakest of {len(modes)} modes are omitted." if len(modes) > count else ""
    page.caption = (
        "Probe modes with their fractions of the power: hue is phase, lightness is amplitude relative to its maximum."
        + hidden
    )
    return panels


def by_power(probe: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return modes (mode, y, x), the strongest first, and their fractions of the power (mode,)."""
    powers = (np.abs(probe) ** 2).sum((1, 2)).astype(np.float64)
    order = np.argsort(-powers, kind="stable")
    return probe[order], powers[order] / max(powers.sum(), 1e-300)


def phase_limits(values: NDArray[Any]) -> tuple[tuple[float, float], str]:
    """Return contrast limits of phases [rad] and their colour map, a cyclic one for wrapped phases."""
    low, high = limits_for(values)
    if low < -NEARLY_ALL * np.pi and high > NEARLY_ALL * np.pi:
        return (-np.pi, np.pi), WRAPPED_COLOURS
    return (low, high), PHASE_COLOURS


def _mark(
    axes: Axes, shape: tuple[int, ...], corner: tuple[float, float], pixel_size: PixelSize, part: FigurePart
) -> None:
    """Add the scale bar, and ticks if they are wanted."""
    scale_bar(axes, shape, pixel_size)
    part.label_axes(axes, corner, shape, pixel_size)


def _amplitude(page: Page, axes: Axes, result: Result, colours: str | None, part: FigurePart) -> Axes:
    values, corner, pixel = panel_values(result, "amplitude", part)
    limits = part.limits or limits_for(values)
    image = shown(axes, values, pixel, limits, colours or AMPLITUDE_COLOURS)
    colour_bar(page, axes, image, "Amplitude")
    _mark(axes, values.shape, corner, pixel, part)
    page.caption = "Amplitude of the object."
    return axes


def _phase(page: Page, axes: Axes, result: Result, colours: str | None, part: FigurePart) -> Axes:
    values, corner, pixel = panel_values(result, "phase", part)
    limits, own = phase_limits(values)
    image = shown(axes, values, pixel, part.limits or limits, colours or own)
    phase_bar(page, axes, image)
    _mark(axes, values.shape, corner, pixel, part)
    page.caption += " " * bool(page.caption) + "Phase of the object, without its mean and ramp."
    return axes


def _columns(count: int) -> int:
    return count if count <= 3 else int(np.ceil(np.sqrt(count)))


def _grid(page: Page, count: int) -> list[Axes]:
    columns = _columns(count)
    grid = page.add_gridspec(-(-count // columns), columns)
    return [page.add_subplot(grid[number // columns, number % columns]) for number in range(count)]
