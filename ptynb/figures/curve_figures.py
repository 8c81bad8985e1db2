"""Figures of curves and positions: loss, Fourier ring correlation, probe positions."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ptynb.analysis import PositionRefinement, Together, position_refinement
from ptynb.analysis.ring_correlation import ONE_SEVENTH, RingCorrelation, Threshold, ring_correlation
from ptynb.data.engine_records import Result
from ptynb.data.scan import Truth
from ptynb.exceptions import InvalidValueError
from ptynb.figures.figure_page import Page
from ptynb.figures.scale_marks import colour_bar, metric, unit_for
from ptynb.figures.truth_error import compare_with_truth

GOLDEN = 0.65
"""Ratio of height to width of a panel of curves."""
BLUE, RED, GREY = "#1f5fa8", "#b5382a", "0.45"


def loss(page: Page, result: Result) -> list[Axes]:
    """Draw loss over epochs, measured R-factors, and a dotted line at each change of settings."""
    axes = page.add_subplot(box_aspect=GOLDEN)
    numbers = [epoch.number for epoch in result.epochs]
    axes.plot(numbers, result.losses, color=BLUE, marker="." if len(numbers) < 40 else "")
    if (result.losses > 0).any():
        axes.set_yscale("log")
    for change in result.changes:
        axes.axvline(change.epoch + 1, color="0.6", linewidth=0.8, linestyle=":")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="Epoch", ylabel="Loss")
    axes.grid(visible=True, alpha=0.25)
    if len(result.r_factors) > 1:
        beside = axes.twinx()
        beside.set_box_aspect(GOLDEN)
        beside.plot(*zip(*result.r_factors, strict=True), color=RED, marker=".", linestyle="--")
        beside.set_ylabel("R-factor", color=RED)
        beside.set_ylim(bottom=0)
    names = list(dict.fromkeys(change.name for change in result.changes))
    changes = f" Dotted: changes of {', '.join(names)}." if names else ""
    page.caption = f"Loss over {len(numbers)} epochs; the R-factor at the end is {result.r_factor:.4f}.{changes}"
    return [axes]


def frc(page: Page, result: Result, against: Truth | Result) -> list[Axes]:
    """Draw the Fourier ring correlation with its thresholds and crossings."""
    correlation, meaning = correlated(result, against)
    known = result.pixel_size is not None
    finest = 1 / float(correlation.frequencies[-1])
    unit, size = unit_for(1000 * finest) if known else ("px", 1.0)  # frequencies of 1 to 1000
    places = correlation.frequencies * size
    axes = page.add_subplot(box_aspect=GOLDEN)
    axes.plot(places, correlation.correlation, color=BLUE)
    levels: tuple[tuple[str, Threshold, NDArray[np.float64], str], ...] = (
        ("½ bit", "half-bit", correlation.half_bit, "--"),
        ("1/7", "one-seventh", np.full(len(places), ONE_SEVENTH), ":"),
    )
    for name, threshold, level, line in levels:
        at = correlation.crossing(threshold)
        period = finest if at is None else 1 / at
        length = metric(period) if known else f"{period:.3g} px"
        label = f"{name}: {'not reached, below ' if at is None else ''}{length}"
        axes.plot(places, np.minimum(level, 1.5), color=GREY if line == "--" else RED, linestyle=line, label=label)
        if at is not None:
            height = float(np.interp(at * size, places, level))
            axes.plot([at * size], [height], "o", color=GREY if line == "--" else RED)
    axes.set(xlabel=f"Spatial frequency [1/{unit}]", ylabel="Fourier ring correlation")
    axes.set(xlim=(0, float(places[-1])), ylim=(min(-0.05, float(correlation.correlation.min()) - 0.02), 1.05))
    axes.legend(loc="best")
    axes.grid(visible=True, alpha=0.25)
    page.caption = f"Fourier ring correlation; lengths are full periods. {meaning}"
    return [axes]


def correlated(result: Result, against: Truth | Result) -> tuple[RingCorrelation, str]:
    """Return the correlation of a result with a ground truth or another result, and a sentence that interprets it.

    Raises InvalidValueError if their areas do not overlap.
    """
    if isinstance(against, Result):
        together = Together({"this result": result, "the other": against})
        difference = together.difference("the other", "this result")
        return difference.correlation, difference.meaning
    comparison = compare_with_truth(result, against)
    meaning = "The comparison is with the ground truth, so this is the resolution."
    return ring_correlation(comparison.aligned, comparison.ground_truth, result.pixel_size), meaning


def positions(page: Page, result: Result, against: Result | None) -> list[Axes]:
    """Draw probe centres, coloured by the order of patterns, and how they were refined, as arrows.

    With another result: arrows from its positions.
    """
    found = position_refinement(result)
    window = np.array(result.probe.shape[-2:])
    pixel = np.array((1.0, 1.0) if result.pixel_size is None else result.pixel_size)
    centres = (result.positions + result.origin + window / 2) * pixel
    centres = centres - centres.mean(0)
    extent = float(max(np.ptp(centres, axis=0).max(), pixel.max()))
    unit, size = ("pixels", 1.0) if result.pixel_size is None else unit_for(extent)
    axes = page.add_subplot(aspect="equal")
    y, x = centres.T / size
    # Markers are smaller in a scan of many positions, so that they do not overlap.
    area = float(np.clip(2500 / max(len(x), 1), 0.3, 12))
    if against is None:
        order = axes.scatter(x, y, c=np.arange(len(x)), s=area, cmap="viridis", linewidths=0)
        colour_bar(page, axes, order, "Pattern")  # type: ignore[arg-type]
        page.caption = f"Centres of the probe of {len(x)} patterns, in their order."
        if found.largest > 0:
            _refinement(axes, found, (x, y), pixel / size, page)
    else:
        _moves(axes, result, against, (x, y), unit, size, page)
    margin = 0.05 * extent / size
    axes.set(xlim=(x.min() - margin, x.max() + margin), ylim=(y.max() + margin, y.min() - margin))
    axes.set(xlabel=f"x [{unit}]", ylabel=f"y [{unit}]")
    return [axes]


def _refinement(
    axes: Axes,
    found: PositionRefinement,
    at: tuple[NDArray[np.float64], NDArray[np.float64]],
    scale: NDArray[np.float64],
    page: Page,
) -> None:
    """Draw arrows to the refined positions, longer than the moves by a factor that the caption states.

    scale: size (y, x) of an object pixel in the unit of the axes.
    """
    factor = found.exaggeration()
    down, across = ((found.arrows(factor) - found.measured) * scale).T
    measured = (found.measured - found.refined) * scale
    axes.quiver(
        at[0] + measured[:, 1], at[1] + measured[:, 0], across, down, angles="xy", scale_units="xy", scale=1,
        color=BLUE, width=0.003,
    )  # fmt: skip
    rms, largest, rest = map(found.length_text, (found.rms, found.largest, found.residual_rms))
    page.caption += (
        f" Arrows from the measured positions, {factor:g} times as long as the moves: {rms} rms, at most {largest}, "
        f"without the mean shift; without scale, rotation and shear {rest} rms."
    )


def _moves(
    axes: Axes,
    result: Result,
    against: Result,
    at: tuple[NDArray[np.float64], NDArray[np.float64]],
    unit: str,
    size: float,
    page: Page,
) -> None:
    if len(against.positions) != len(result.positions):
        raise InvalidValueError(
            f"The results have {len(result.positions)} and {len(against.positions)} positions; expected equal numbers.",
            code="array.shape-mismatch",
        )
    moved = (result.positions + result.origin) - (against.positions + against.origin)
    moved = moved - moved.mean(0)  # a common shift is a shift of the object
    pixel = np.array((1.0, 1.0) if result.pixel_size is None else result.pixel_size)
    lengths = np.hypot(*(moved * pixel).T)
    rms = float(np.sqrt((lengths**2).mean()))
    down, across = (moved * pixel / size).T
    spread = float(np.hypot(np.ptp(at[0]), np.ptp(at[1])) / max(np.sqrt(len(at[0])), 1))
    largest = float(np.percentile(lengths, 95)) / size
    factor = 1.0 if largest <= 0 else spread / largest
    axes.scatter(*at, s=1.5, color=GREY, linewidths=0)
    axes.quiver(*at, across * factor, down * factor, angles="xy", scale_units="xy", scale=1, color=BLUE, width=0.003)
    size_text = f"{rms:.3g} px" if result.pixel_size is None else metric(rms)
    page.caption = (
        f"Differences of the positions from those of the other result: {size_text} rms, arrows {factor:.3g} times as "
        "long, without the mean shift."
    )
