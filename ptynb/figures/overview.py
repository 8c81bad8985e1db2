"""An overview of a result: object, probe modes, loss, and the error against a ground truth."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.gridspec import SubplotSpec
from numpy.typing import NDArray

from ptynb.analysis import Comparison
from ptynb.data import images
from ptynb.data.engine_records import Result
from ptynb.data.scan import Truth
from ptynb.figures.field_panels import AMPLITUDE_COLOURS, PHASE_COLOURS, by_power, panel_values, phase_limits
from ptynb.figures.figure_page import Page
from ptynb.figures.phase_colours import complex_colours
from ptynb.figures.scale_marks import limits_for, scale_bar, shown
from ptynb.figures.truth_error import compare_with_truth

MODES_SHOWN = 4
SLICES_SHOWN = 6
LETTERS = 8


def overview(result: Result, truth: Truth | None) -> Page:
    """Draw object amplitude and phase, probe modes, loss and slices on one page for a screen; see `figure`."""
    comparison = None if truth is None else compare_with_truth(result, truth)
    columns = 3 if comparison is None else 4
    slices = result.slices
    rows = 2 if len(slices) == 1 else 3
    page = Page(figsize=(3.6 * columns, 3.5 * rows), layout="constrained")
    top = page.add_gridspec(rows, columns, height_ratios=[1.25, 1, 1][:rows])
    amplitude, _, pixel = panel_values(result, "amplitude")
    phase, _, _ = panel_values(result, "phase")
    titled_image(page, page.add_subplot(top[0, 0]), amplitude, "Object amplitude", AMPLITUDE_COLOURS, pixel)
    limits, colours = phase_limits(phase)
    titled_image(page, page.add_subplot(top[0, 1]), phase, "Object phase [rad]", colours, pixel, limits)
    _probe(page.add_subplot(top[0, 2]), result)
    if comparison is not None:
        _truth(page, [page.add_subplot(top[0, 3]), page.add_subplot(top[1, 3])], comparison, result.pixel_size)
    _loss(page.add_subplot(top[1, :3]), result)
    if len(slices) > 1:
        _slices(page, top[2, :], result)
    page.suptitle(_title(result, comparison), fontsize=11, parse_math=False)
    return page


def _title(result: Result, comparison: Comparison | None) -> str:
    parts = [result.metadata.get("scan", ""), f"{len(result.epochs)} epochs", f"R-factor {result.r_factor:.4f}"]
    if comparison is not None:
        parts.append(f"error against the truth {comparison.error:.4f}")
    return "   ·   ".join(part for part in parts if part)


def titled_image(
    page: Page,
    axes: Axes,
    values: NDArray[Any],
    title: str,
    colours: str,
    pixel_size: tuple[float, float] | None,
    limits: tuple[float, float] | None = None,
) -> None:
    """Draw real values (y, x) with a title, a colour bar and a scale bar."""
    image = shown(axes, values, pixel_size, limits or limits_for(values), colours)
    page.colorbar(image, ax=axes, fraction=0.046, pad=0.02)
    axes.set(title=title)
    scale_bar(axes, values.shape, pixel_size, part=0.2, letters=LETTERS)


def _probe(axes: Axes, result: Result) -> None:
    sorted_modes, powers = by_power(result.probe)
    modes = sorted_modes[:MODES_SHOWN]
    columns = 1 if len(modes) == 1 else 2
    empty = np.full((*modes.shape[1:], 3), 255, np.uint8)
    tiles = [complex_colours(mode) for mode in modes]
    tiles += [empty] * (-len(tiles) % columns)
    rows = [np.concatenate(tiles[start : start + columns], axis=1) for start in range(0, len(tiles), columns)]
    axes.imshow(np.concatenate(rows, axis=0), interpolation="nearest")
    height, width = modes.shape[1:]
    for index, power in enumerate(powers[: len(modes)]):
        axes.text(
            index % columns * width + 0.04 * width,
            index // columns * height + 0.04 * height,
            f"{power:.1%}",
            color="white",
            va="top",
            fontsize=LETTERS,
        )
    hidden = len(result.probe) - len(modes)
    more = f", {hidden} more not shown" if hidden else ""
    axes.set(title=f"Probe modes (hue: phase){more}", xticks=[], yticks=[])


def _truth(page: Page, places: list[Axes], comparison: Comparison, pixel_size: tuple[float, float] | None) -> None:
    size = np.abs(comparison.aligned - comparison.ground_truth) / np.sqrt((np.abs(comparison.ground_truth) ** 2).mean())
    title = f"|Error against the truth|, rms {comparison.error:.4f}"
    titled_image(page, places[0], size, title, "magma", pixel_size, (0.0, float(np.percentile(size, 99.5))))
    phase = images.flat_phase(comparison.ground_truth)
    titled_image(page, places[1], phase, "True phase [rad]", PHASE_COLOURS, pixel_size)


def _slices(page: Page, place: SubplotSpec, result: Result) -> None:
    """Draw phases of some slices side by side, in one range of colours."""
    count = len(result.slices)
    chosen = np.unique(np.linspace(0, count - 1, SLICES_SHOWN).round().astype(int))
    found = [panel_values(result, "phase", slice=index) for index in chosen]
    phases, pixel = [values for values, _, _ in found], found[0][2]
    limits, colours = phase_limits(np.array(phases))
    row = place.subgridspec(1, len(chosen))
    for column, (index, phase) in enumerate(zip(chosen, phases, strict=True)):
        title = f"Slice {index + 1} of {count}, phase [rad]"
        titled_image(page, page.add_subplot(row[0, column]), phase, title, colours, pixel, limits)


def _loss(axes: Axes, result: Result) -> None:
    numbers = [epoch.number for epoch in result.epochs]
    axes.semilogy(numbers, result.losses, color="#1f5fa8", marker="." if len(numbers) < 40 else "")
    for change in result.changes:
        axes.axvline(change.epoch + 1, color="0.6", linewidth=0.8, linestyle=":")
    axes.set(title="Loss", xlabel="epoch")
    axes.grid(visible=True, which="both", alpha=0.25)
