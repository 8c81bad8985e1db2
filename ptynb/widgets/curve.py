"""The loss curve as SVG: light enough to be drawn anew several times a second, sharp at any size."""

from __future__ import annotations

import math
from collections.abc import Sequence

WIDTH, HEIGHT = 460, 240
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 12, 34
POINTS = 600
"""More points than this can't be seen apart; a longer curve is thinned, its last point kept."""
SMALLEST, LARGEST = 1e-300, 1e300
LABELS = 10
"""More labels than this on the axis of losses would overlap."""


def loss_curve(losses: Sequence[float], marks: Sequence[int] = ()) -> str:
    """SVG text of losses over epochs, on a logarithmic axis, with a dotted line before each epoch in `marks`.

    Values that are not positive and finite have no logarithm and are left out. Colours follow the notebook's theme.
    """
    points = [(number, loss) for number, loss in enumerate(losses, 1) if SMALLEST <= loss <= LARGEST]
    if not points:
        return _frame(_text(WIDTH / 2, HEIGHT / 2, "no epoch yet", "middle"))
    low, high = _decade_limits([loss for _, loss in points])
    last = max(len(losses), 2, *marks)

    def x(number: float) -> float:
        return LEFT + (number - 1) / (last - 1) * (WIDTH - LEFT - RIGHT)

    def y(loss: float) -> float:
        return TOP + (math.log10(high) - math.log10(loss)) / (math.log10(high) - math.log10(low)) * (
            HEIGHT - TOP - BOTTOM
        )

    parts = []
    ticks = _log_ticks(low, high)
    for tick in ticks[:: -(-len(ticks) // LABELS)]:
        parts.append(_line(LEFT, y(tick), WIDTH - RIGHT, y(tick), 0.15))
        parts.append(_text(LEFT - 6, y(tick) + 4, f"{tick:.0e}".replace("e-0", "e-"), "end"))
    for tick in _epoch_ticks(last):
        parts.append(_line(x(tick), TOP, x(tick), HEIGHT - BOTTOM, 0.15))
        parts.append(_text(x(tick), HEIGHT - BOTTOM + 16, str(tick), "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, "epoch", "middle"))
    for mark in marks:
        at = x(min(max(mark, 1), last))
        parts.append(
            f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}" '
            'stroke="#d9822b" stroke-dasharray="3 3"/>'
        )
    every = -(-len(points) // POINTS)
    drawn = [*points[:-1:every], points[-1]]
    path = " ".join(f"{x(number):.1f},{y(loss):.1f}" for number, loss in drawn)
    parts.append(f'<polyline points="{path}" fill="none" stroke="#2f7fd0" stroke-width="2"/>')
    end_x, end_y = x(points[-1][0]), y(points[-1][1])
    parts.append(f'<circle cx="{end_x:.1f}" cy="{end_y:.1f}" r="3" fill="#2f7fd0"/>')
    return _frame("".join(parts))


def _decade_limits(losses: Sequence[float]) -> tuple[float, float]:
    """Round limits on the grid of 1, 2, 5 times powers of ten around the losses."""
    low, high = min(losses), max(losses)
    grid = _log_ticks(low / 10, high * 10)
    below = max((tick for tick in grid if tick <= low), default=low / 2)
    above = min((tick for tick in grid if tick >= high), default=high * 2)
    return (below, above) if below < above else (below / 2, above * 2)


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low < 1000 else (1,)
    tolerance = 1 + 1e-9
    return [s * 10.0**p for p in powers for s in steps if low / tolerance <= s * 10.0**p <= high * tolerance]


def _epoch_ticks(last: int) -> list[int]:
    rough = max(last / 6, 1)
    power = 10 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough)
    return list(range(step, last + 1, step))


def _frame(inside: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="loss over epochs" '
        'style="display:block;width:100%;color:var(--jp-ui-font-color1,#333)">'
        f"{inside}</svg>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, opacity: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="currentColor" stroke-opacity="{opacity}"/>'
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12" font-family="sans-serif" '
        f'fill="currentColor">{text}</text>'
    )
