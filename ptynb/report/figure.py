"""One figure that tells what a reconstruction gave: object, probe modes, loss, and the error from a known truth."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from ptynb import render
from ptynb.geometry import lit_area
from ptynb.quality import Comparison, compare
from ptynb.scan import Truth
from ptynb.snapshot import Result

PHASE_COLOURS = "viridis"
AMPLITUDE_COLOURS = "gray"
MODES_SHOWN = 4
SLICES_SHOWN = 6


class Page(Figure):
    """A matplotlib figure that a notebook shows as it is, whether or not pyplot is in use."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=90)
        return buffer.getvalue()


def figure(result: Result, truth: Truth | None = None) -> Page:
    """A figure of a result: object amplitude and phase, probe modes with their powers, loss.

    A thick object is shown as the product of its slices, and the phase of each slice (up to 6, evenly chosen) below.

    truth: of a simulated scan (`scan.truth`); adds the difference from it and its size.
    The figure belongs to no window and is never shown by itself; save it with `figure(...).savefig("x.png")`.
    """
    comparison = None if truth is None else compare_with_truth(result, truth)
    columns = 3 if comparison is None else 4
    slices = result.slices
    rows = 2 if len(slices) == 1 else 3
    page = Page(figsize=(3.6 * columns, 3.5 * rows), layout="constrained")
    top = page.add_gridspec(rows, columns, height_ratios=[1.25, 1, 1][:rows])
    area = lit_area(result.positions, result.probe.shape[-2:])
    seen = result.projection[area]
    _image(page, page.add_subplot(top[0, 0]), np.abs(seen), "Object amplitude", AMPLITUDE_COLOURS, result.pixel_size)
    phase = render.flat_phase(seen)
    _image(page, page.add_subplot(top[0, 1]), phase, "Object phase [rad]", PHASE_COLOURS, result.pixel_size)
    _probe(page.add_subplot(top[0, 2]), result)
    if comparison is not None:
        _truth(page, [page.add_subplot(top[0, 3]), page.add_subplot(top[1, 3])], comparison, result.pixel_size)
    _loss(page.add_subplot(top[1, :3]), result)
    if len(slices) > 1:
        _slices(page, top[2, :], slices[(slice(None), *area)], result.pixel_size)
    page.suptitle(_title(result, comparison), fontsize=11, parse_math=False)
    return page


def compare_with_truth(result: Result, truth: Truth) -> Comparison:
    """The result's object against the true one, over the area between the outermost probe centres."""
    window = np.array(result.probe.shape[-2:])
    low = np.ceil(result.positions.min(0) + window / 2).astype(int) + result.origin
    high = np.floor(result.positions.max(0) + window / 2).astype(int) + result.origin
    area = (slice(int(low[0]), int(high[0])), slice(int(low[1]), int(high[1])))
    return compare(result.projection, _projection(truth), area, result.origin)


def _projection(truth: Truth) -> NDArray[Any]:
    projection: NDArray[Any] = truth.object.prod(0) if truth.object.ndim == 3 else truth.object
    return projection


def _title(result: Result, comparison: Comparison | None) -> str:
    parts = [result.about.get("scan", ""), f"{len(result.epochs)} epochs", f"R-factor {result.r_factor:.4f}"]
    if comparison is not None:
        parts.append(f"error against the truth {comparison.error:.4f}")
    return "   ·   ".join(part for part in parts if part)


def _image(
    page: Figure,
    axes: Axes,
    values: NDArray[Any],
    title: str,
    colours: str,
    pixel_size: tuple[float, float] | None,
    limits: tuple[float, float] | None = None,
) -> None:
    low, high = limits or render.limits_of(values)
    shown = axes.imshow(values, cmap=colours, vmin=low, vmax=high, interpolation="nearest")
    page.colorbar(shown, ax=axes, fraction=0.046, pad=0.02)
    axes.set(title=title, xticks=[], yticks=[])
    _scale_bar(axes, values.shape, pixel_size)


def _scale_bar(axes: Axes, shape: tuple[int, ...], pixel_size: tuple[float, float] | None) -> None:
    """A bar of a round length, about a fifth of the picture, in metric units or in pixels."""
    pixel = 1.0 if pixel_size is None else pixel_size[1]
    length = round_length(shape[1] * pixel / 5)
    pixels = length / pixel
    label = f"{length:g} px" if pixel_size is None else metric(length)
    height, width = shape[0], shape[1]
    left, bottom, thick = 0.05 * width, 0.93 * height, 0.015 * height
    axes.add_patch(Rectangle((left, bottom), pixels, thick, facecolor="white", edgecolor="black", linewidth=0.5))
    axes.text(
        left + pixels / 2,
        bottom - 0.02 * height,
        label,
        color="white",
        ha="center",
        va="bottom",
        fontsize=8,
        bbox={"facecolor": "black", "alpha": 0.45, "pad": 1.5, "linewidth": 0},
    )


def round_length(length: float) -> float:
    """The largest of 1, 2, 5 times a power of ten that is not above `length`."""
    power = 10.0 ** np.floor(np.log10(length))
    return float(max(step * power for step in (1, 2, 5) if step * power <= length * (1 + 1e-9)))


def metric(length: float) -> str:
    """A length [m] with the unit that suits it: '200 nm', '5 µm'."""
    for unit, size in (("m", 1.0), ("mm", 1e-3), ("µm", 1e-6), ("nm", 1e-9)):
        if length >= size * 0.999:
            return f"{length / size:.3g} {unit}"
    return f"{length / 1e-12:.3g} pm"


def _probe(axes: Axes, result: Result) -> None:
    modes = result.probe[:MODES_SHOWN]
    powers = (np.abs(result.probe) ** 2).sum((1, 2))
    powers = powers / powers.sum()
    columns = 1 if len(modes) == 1 else 2
    empty = np.full((*modes.shape[1:], 3), 255, np.uint8)
    tiles = [render.complex_colours(mode) for mode in modes]
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
            fontsize=8,
        )
    hidden = len(result.probe) - len(modes)
    more = f", {hidden} more not shown" if hidden else ""
    axes.set(title=f"Probe modes (hue: phase){more}", xticks=[], yticks=[])


def _truth(page: Figure, places: list[Axes], comparison: Comparison, pixel_size: tuple[float, float] | None) -> None:
    size = np.abs(comparison.aligned - comparison.truth) / np.sqrt((np.abs(comparison.truth) ** 2).mean())
    title = f"|Error against the truth|, rms {comparison.error:.4f}"
    _image(page, places[0], size, title, "magma", pixel_size, (0.0, float(np.percentile(size, 99.5))))
    phase = render.flat_phase(comparison.truth)
    _image(page, places[1], phase, "True phase [rad]", PHASE_COLOURS, pixel_size)


def _slices(page: Figure, place: SubplotSpec, slices: NDArray[Any], pixel_size: tuple[float, float] | None) -> None:
    """Phases of some slices side by side, in one range of colours."""
    chosen = np.unique(np.linspace(0, len(slices) - 1, SLICES_SHOWN).round().astype(int))
    phases = [render.flat_phase(slices[index]) for index in chosen]
    limits = render.limits_of(np.array(phases))
    row = place.subgridspec(1, len(chosen))
    for column, (index, phase) in enumerate(zip(chosen, phases, strict=True)):
        title = f"Slice {index + 1} of {len(slices)}, phase [rad]"
        _image(page, page.add_subplot(row[0, column]), phase, title, PHASE_COLOURS, pixel_size, limits)


def _loss(axes: Axes, result: Result) -> None:
    numbers = [epoch.number for epoch in result.epochs]
    axes.semilogy(numbers, result.losses, color="#1f5fa8", marker="." if len(numbers) < 40 else "")
    for change in result.changes:
        axes.axvline(change.epoch + 1, color="0.6", linewidth=0.8, linestyle=":")
    axes.set(title="Loss", xlabel="epoch")
    axes.grid(visible=True, which="both", alpha=0.25)
