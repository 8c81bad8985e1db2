"""The curves of loss, R-factor and changes per epoch as SVG, small enough to be drawn several times per second."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from ptynb.data.record import Epoch
from ptynb.widgets.svg_axes import Point, decades, decimal, drawable, line, linear, path, scientific, text
from ptynb.widgets.svg_curves import Curve, CurvePanel, curves

WIDTH, HEIGHT = 460, 240
LEAST_SIZE, LABEL_HEIGHT = (200, 100), 16
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 12, 34
LOSS, R_FACTOR, MARK = "#2f7fd0", "#c2571a", "#d9822b"
NARROWEST = 1e-9
"""Smallest length of a time axis [s]."""


def loss_curve(
    losses: Sequence[float],
    marks: Sequence[int] = (),
    *,
    r_factors: Sequence[tuple[int, float]] = (),
    seconds: Sequence[float] | None = None,
    size: tuple[int, int] = (WIDTH, HEIGHT),
) -> str:
    """Return SVG of losses over epochs, on a logarithmic axis, with a dotted line before each epoch in `marks`.

    r_factors: (epochs completed, R-factor), on the same axis: dashed, with squares. seconds: of each epoch; if they
    are given, the axis below is the time that epochs took. size: width and height [screen pixels]; texts have the size
    of the page's, so that a curve in a small place should be drawn for it.

    Values that are not positive and finite have no logarithm and are left out. Colours follow the notebook's theme.
    """
    width, height = max(size[0], LEAST_SIZE[0]), max(size[1], LEAST_SIZE[1])
    points = [drawable(enumerate(losses, 1)), drawable(r_factors)]
    if not points[0]:
        return _frame((width, height), text(width / 2, height / 2, "no epoch yet", "middle"))
    heights = [value for one in points for _, value in one]
    low, high, ticks = decades(min(heights), max(heights))
    ticks = ticks[:: -(-len(ticks) * LABEL_HEIGHT // (height - TOP - BOTTOM))]
    last = max(len(losses), 2, *marks)
    times = None if seconds is None else [0.0, *itertools.accumulate(seconds)]
    span = (1.0, float(last)) if times is None else (0.0, max(times[-1], NARROWEST))
    left, right, across = linear(*span, tight=True, whole=times is None)

    def x(at: float) -> float:
        return LEFT + (at - left) / (right - left) * (width - LEFT - RIGHT)

    def when(epoch: float) -> float:
        """Return the coordinate of the end of an epoch."""
        return epoch if times is None else times[min(int(epoch), len(times) - 1)]

    def y(loss: float) -> float:
        return TOP + (math.log10(high) - math.log10(loss)) / (math.log10(high) - math.log10(low)) * (
            height - TOP - BOTTOM
        )

    parts = []
    for tick in ticks:
        parts.append(line(LEFT, y(tick), width - RIGHT, y(tick)))
        parts.append(text(LEFT - 6, y(tick) + 4, scientific(tick), "end"))
    for tick in across:
        parts.append(line(x(tick), TOP, x(tick), height - BOTTOM))
        parts.append(text(x(tick), height - BOTTOM + 16, decimal(tick), "middle"))
    parts.append(text((LEFT + width - RIGHT) / 2, height - 4, "epoch" if times is None else "time [s]", "middle"))
    for mark in marks:
        at = x(min(max(mark, 1), last) if times is None else when(mark - 1))
        parts.append(
            f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{height - BOTTOM}" '
            f'stroke="{MARK}" stroke-dasharray="3 3"/>'
        )
    loss, r_factor = ([(x(when(epoch)), y(value)) for epoch, value in one] for one in points)
    parts.append(_curve(loss, LOSS))
    if r_factor:
        parts += [_curve(r_factor, R_FACTOR, "6 3"), *_legend(width)]
    else:
        parts.append(text(LEFT - 6, height - 4, "loss", "end"))
    return _frame((width, height), "".join(parts), "epochs" if times is None else "seconds")


def change_curves(epochs: Sequence[Epoch], seconds: Sequence[float] | None = None) -> str:
    """Return SVG of the changes of object, probe and positions per epoch; empty if none is known.

    seconds: as for `loss_curve`.
    """
    at = [*itertools.accumulate(seconds)] if seconds is not None else [float(epoch.number) for epoch in epochs]
    named = {
        "object": [epoch.object_change for epoch in epochs],
        "probe": [epoch.probe_change for epoch in epochs],
        "positions": [epoch.position_change for epoch in epochs],
    }
    drawn = tuple(
        Curve(name, at, [math.nan if value is None else value for value in values])
        for name, values in named.items()
        if any(value is not None for value in values)
    )
    across = "epoch" if seconds is None else "time [s]"
    return curves([CurvePanel("Change in an epoch (positions: pixels)", across, drawn)]) if drawn else ""


def _curve(points: Sequence[Point], colour: str, dashes: str = "") -> str:
    """Return a line through the points, and a dot (a square on a dashed line) at the last one."""
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    drawn = f'<polyline points="{path(points)}" fill="none" stroke="{colour}" stroke-width="2"{dashed}/>'
    x, y = points[-1]
    if dashes:
        return f'{drawn}<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" fill="{colour}"/>'
    return f'{drawn}<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'


def _legend(width: int) -> list[str]:
    right = width - RIGHT - 8
    return [
        text(right, TOP + 14, "loss ●", "end", colour=LOSS),
        text(right, TOP + 30, "R-factor ■", "end", colour=R_FACTOR),
    ]


def _frame(size: tuple[int, int], inside: str, over: str = "epochs") -> str:
    return (
        f'<svg viewBox="0 0 {size[0]} {size[1]}" role="img" aria-label="loss over {over}" '
        'style="display:block;width:100%;color:var(--jp-ui-font-color1,#333)">'
        f"{inside}</svg>"
    )
