"""Axes of curves in SVG: points, limits, ticks, lines and texts."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

from ptynb.widgets.number_text import number

POINTS = 600
"""Maximum number of points; a longer curve is thinned, except for its last point."""
SMALLEST, LARGEST = 1e-300, 1e300
LABELS = 10
"""Maximum number of labels on a logarithmic axis."""
FAINT = 'stroke-opacity="0.15"'
ROUNDED = 1e-9
"""Tolerance of ticks, as a fraction of their step."""

Point = tuple[float, float]


def drawable(points: Iterable[Point], logarithmic: bool = True) -> list[Point]:
    """Return the finite points (positive ones for a logarithmic axis), thinned, with the last one."""
    smallest = SMALLEST if logarithmic else -LARGEST
    found = [(float(x), float(y)) for x, y in points if math.isfinite(x) and smallest <= y <= LARGEST]
    return [*found[: -1 : -(-len(found) // POINTS) or 1], *found[-1:]]


def decades(low: float, high: float) -> tuple[float, float, list[float]]:
    """Return limits and ticks at 1, 2, 5 times powers of ten around the values."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    steps = (1, 2, 5) if high / low < 1000 else (1,)
    grid = [s * 10.0**p for p in powers if -300 <= p <= 300 for s in steps]
    below = max((tick for tick in grid if tick <= low * (1 + ROUNDED)), default=low / 2)
    above = min((tick for tick in grid if tick >= high * (1 - ROUNDED)), default=high * 2)
    if not below < above:
        below, above = below / 2, above * 2
    ticks = [tick for tick in grid if below <= tick <= above]
    return below, above, ticks[:: -(-len(ticks) // LABELS) or 1]


def linear(low: float, high: float, *, tight: bool = False, whole: bool = False) -> tuple[float, float, list[float]]:
    """Return limits and round ticks around the values; tight: limits are the values; whole: ticks are integers."""
    extent = high - low if high > low else max(abs(high), 1.0)
    rough = max(extent / 5, 1.0) if whole else extent / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough * (1 - ROUNDED))
    if not tight:
        low, high = math.floor(low / step + ROUNDED) * step, math.ceil(high / step - ROUNDED) * step
        high = high if high > low else low + step
    first, last = math.ceil(low / step - ROUNDED), math.floor(high / step + ROUNDED)
    return low, high, [number * step for number in range(first, last + 1)]


def decimal(value: float) -> str:
    """Return the text of a tick on a linear axis."""
    return number(value)


def scientific(value: float) -> str:
    """Return the text of a tick on a logarithmic axis."""
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e+")


def path(points: Sequence[Point]) -> str:
    """Return the attribute `points` of a polyline."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def line(x1: float, y1: float, x2: float, y2: float, look: str = FAINT) -> str:
    """Return a line in the colour of the page's text."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="currentColor" {look}/>'


def text(
    x: float, y: float, said: str, anchor: str, *, colour: str = "currentColor", bold: bool = False, full: str = ""
) -> str:
    """Return a text at a point; full: its tooltip."""
    weight = ' font-weight="600"' if bold else ""
    whole = f"<title>{html.escape(full)}</title>" if full and full != said else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12" font-family="sans-serif"{weight} '
        f'fill="{colour}">{whole}{html.escape(said)}</text>'
    )
