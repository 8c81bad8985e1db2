"""The curves of loss and R-factor as SVG: light enough to be drawn anew several times a second, sharp at any size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

WIDTH, HEIGHT = 460, 240
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 12, 34
POINTS = 600
"""More points than this can't be seen apart; a longer curve is thinned, its last point kept."""
SMALLEST, LARGEST = 1e-300, 1e300
LABELS = 10
"""More labels than this on the axis of losses would overlap."""


def loss_curve(
    losses: Sequence[float],
    marks: Sequence[int] = (),
    *,
    r_factors: Sequence[tuple[int, float]] = (),
    seconds: Sequence[float] | None = None,
) -> str:
    """SVG text of losses over epochs, on a logarithmic axis, with a dotted line before each epoch in `marks`.

    r_factors: (epochs completed, R-factor), on the same axis: dashed, with squares. seconds: of each epoch; where they
    are given, the axis below is the time that epochs took.

    Values that are not positive and finite have no logarithm and are left out. Colours follow the notebook's theme.
    """
    curves = [_drawable(enumerate(losses, 1)), _drawable(r_factors)]
    if not curves[0]:
        return _frame(_text(WIDTH / 2, HEIGHT / 2, "no epoch yet", "middle"))
    low, high = _decade_limits([value for points in curves for _, value in points])
    last = max(len(losses), 2, *marks)
    times = None if seconds is None else [0.0, *itertools.accumulate(seconds)]
    span = (1.0, float(last)) if times is None else (0.0, max(times[-1], 1e-9))

    def x(at: float) -> float:
        return LEFT + (at - span[0]) / (span[1] - span[0]) * (WIDTH - LEFT - RIGHT)

    def when(epoch: int) -> float:
        """Where on the axis below an epoch ends."""
        return epoch if times is None else times[min(epoch, len(times) - 1)]

    def y(loss: float) -> float:
        return TOP + (math.log10(high) - math.log10(loss)) / (math.log10(high) - math.log10(low)) * (
            HEIGHT - TOP - BOTTOM
        )

    parts = []
    ticks = _log_ticks(low, high)
    for tick in ticks[:: -(-len(ticks) // LABELS)]:
        parts.append(_line(LEFT, y(tick), WIDTH - RIGHT, y(tick), 0.15))
        parts.append(_text(LEFT - 6, y(tick) + 4, f"{tick:.0e}".replace("e-0", "e-"), "end"))
    for at in _epoch_ticks(last) if times is None else _second_ticks(span[1]):
        parts.append(_line(x(at), TOP, x(at), HEIGHT - BOTTOM, 0.15))
        parts.append(_text(x(at), HEIGHT - BOTTOM + 16, f"{at:g}", "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, "epoch" if times is None else "time [s]", "middle"))
    for mark in marks:
        at = x(min(max(mark, 1), last) if times is None else when(mark - 1))
        parts.append(
            f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}" '
            'stroke="#d9822b" stroke-dasharray="3 3"/>'
        )
    loss, r_factor = ([(x(when(epoch)), y(value)) for epoch, value in points] for points in curves)
    parts.append(_curve(loss, "#2f7fd0"))
    if r_factor:
        parts += [_curve(r_factor, "#c2571a", "6 3"), *_legend()]
    return _frame("".join(parts), "epochs" if times is None else "seconds")


def _drawable(values: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    """Those that have a logarithm, thinned to what can be seen, the last one kept."""
    points = [(at, value) for at, value in values if SMALLEST <= value <= LARGEST]
    return [*points[: -1 : -(-len(points) // POINTS)], points[-1]] if points else []


def _curve(points: Sequence[tuple[float, float]], colour: str, dashes: str = "") -> str:
    """A line through the points, and a dot (a square on a dashed line) at the last one."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    line = f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashed}/>'
    x, y = points[-1]
    if dashes:
        return f'{line}<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" fill="{colour}"/>'
    return f'{line}<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'


def _legend() -> list[str]:
    right = WIDTH - RIGHT - 8
    return [
        _text(right, TOP + 14, "loss ●", "end", "#2f7fd0"),
        _text(right, TOP + 30, "R-factor ■", "end", "#c2571a"),
    ]


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


def _second_ticks(last: float) -> list[float]:
    power = 10.0 ** math.floor(math.log10(last / 6))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= last / 6)
    return [number * step for number in range(int(last / step + 1e-9) + 1)]


def _frame(inside: str, over: str = "epochs") -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="loss over {over}" '
        'style="display:block;width:100%;color:var(--jp-ui-font-color1,#333)">'
        f"{inside}</svg>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, opacity: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="currentColor" stroke-opacity="{opacity}"/>'
    )


def _text(x: float, y: float, text: str, anchor: str, colour: str = "currentColor") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12" font-family="sans-serif" '
        f'fill="{colour}">{text}</text>'
    )
