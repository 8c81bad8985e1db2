"""Several curves in one SVG: told apart by dashes and by a name at their ends, so that no colour has to be seen."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

WIDTH, HEIGHT = 480, 260
LEFT, RIGHT, TOP, BOTTOM = 62, 112, 30, 36
POINTS = 600
"""More points than this can't be seen apart; a longer curve is thinned, its last point kept."""
SMALLEST, LARGEST = 1e-300, 1e300
NAME_HEIGHT = 13
"""Names closer than this would overlap."""
NAME_LENGTH = 13
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9")
"""M. Okabe and K. Ito's, told apart with any colour vision; their yellow is darker here, for white pages."""
DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "5 2 1 2 1 2")


@dataclass(frozen=True)
class Curve:
    """Values over places; a point that is not finite is left out. faint: thin and grey, for a threshold."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    faint: bool = False


@dataclass(frozen=True)
class Panel:
    """Curves with common axes.

    logarithmic: whether heights are logarithms; a value that is not positive is left out then. lowest, highest: of
    the height, where it is linear; None: that of the curves. marks: (place, text) of dotted lines.
    """

    title: str
    x_title: str
    curves: tuple[Curve, ...]
    logarithmic: bool = True
    lowest: float | None = None
    highest: float | None = None
    marks: tuple[tuple[float, str], ...] = field(default=())


def curves(panels: Sequence[Panel]) -> str:
    """SVG text of the panels beside each other; a curve has one colour and dash in all, by its place among them."""
    width = WIDTH * max(len(panels), 1)
    titles = html.escape(", ".join(panel.title for panel in panels), quote=True)
    inside = "".join(
        f'<g transform="translate({WIDTH * number} 0)">{_panel(panel)}</g>' for number, panel in enumerate(panels)
    )
    return (
        f'<svg viewBox="0 0 {width} {HEIGHT}" role="img" aria-label="{titles}" '
        f'style="display:block;width:100%;max-width:{width * 1.25:.0f}px;color:var(--jp-ui-font-color1,#333)">'
        f"{inside}</svg>"
    )


def _panel(panel: Panel) -> str:
    drawn = [_points(curve, panel.logarithmic) for curve in panel.curves]
    title = _text(LEFT, 16, panel.title, "start", bold=True)
    everything = [point for points in drawn for point in points]
    if not everything:
        return title + _text(WIDTH / 2, HEIGHT / 2, "nothing to draw yet", "middle")
    heights = [y for _, y in everything]
    low = min(heights) if panel.lowest is None or panel.logarithmic else panel.lowest
    high = max(heights) if panel.highest is None or panel.logarithmic else panel.highest
    low, high, ticks = _decades(low, high) if panel.logarithmic else _linear(low, high)
    left, right, across = _linear(0.0, max(max(x for x, _ in everything), 1e-12), tight=True)
    scale = math.log10 if panel.logarithmic else float

    def place(x: float, y: float) -> tuple[float, float]:
        part = (scale(y) - scale(low)) / (scale(high) - scale(low))
        inside = TOP + (1 - min(max(part, 0.0), 1.0)) * (HEIGHT - TOP - BOTTOM)
        return LEFT + (x - left) / (right - left) * (WIDTH - LEFT - RIGHT), inside

    parts = [title, _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, panel.x_title, "middle")]
    for tick in ticks:
        at = place(left, tick)[1]
        parts += [_line(LEFT, at, WIDTH - RIGHT, at), _text(LEFT - 6, at + 4, _number(tick, panel.logarithmic), "end")]
    for tick in across:
        at = place(tick, low)[0]
        parts += [_line(at, TOP, at, HEIGHT - BOTTOM), _text(at, HEIGHT - BOTTOM + 15, _number(tick), "middle")]
    for x, text in panel.marks:
        at = place(min(max(x, left), right), low)[0]
        parts += [_line(at, TOP, at, HEIGHT - BOTTOM, 'stroke-dasharray="2 2" stroke-opacity="0.9"')]
        parts += [_text(at + 4, TOP + 12, text, "start")]
    lines = [[place(x, y) for x, y in points] for points in drawn]
    parts += [
        _polyline(curve, line, number) for number, (curve, line) in enumerate(zip(panel.curves, lines, strict=True))
    ]
    return "".join(parts) + _names(panel.curves, lines)


def _points(curve: Curve, logarithmic: bool) -> list[tuple[float, float]]:
    smallest = SMALLEST if logarithmic else -LARGEST
    points = [
        (float(x), float(y))
        for x, y in zip(curve.x, curve.y, strict=True)
        if math.isfinite(x) and smallest <= y <= LARGEST
    ]
    every = max(1, -(-len(points) // POINTS))
    return [*points[:-1:every], *points[-1:]]


def _polyline(curve: Curve, line: Sequence[tuple[float, float]], number: int) -> str:
    if not line:
        return ""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in line)
    dash = DASHES[number % len(DASHES)]
    look = f'stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="2"'
    if curve.faint:
        look, dash = 'stroke="currentColor" stroke-opacity="0.6" stroke-width="1"', "4 3"
    end_x, end_y = line[-1]
    end = "" if curve.faint else f'<circle cx="{end_x:.1f}" cy="{end_y:.1f}" r="3" fill="{COLOURS[number % 6]}"/>'
    return f'<polyline points="{path}" fill="none" stroke-dasharray="{dash}" {look}/>{end}'


def _names(named: Sequence[Curve], lines: Sequence[Sequence[tuple[float, float]]]) -> str:
    """The names right of the panel at the heights of the curves' ends, moved apart, with a line from each end."""
    ends = sorted((line[-1][1], line[-1][0], number) for number, line in enumerate(lines) if line)
    heights: list[float] = []
    for end, _, _ in ends:
        heights.append(max(end, heights[-1] + NAME_HEIGHT) if heights else max(end, TOP + 6.0))
    overflow = heights[-1] - (HEIGHT - BOTTOM) if heights else 0.0
    for index in reversed(range(len(heights))):
        limit = heights[index + 1] - NAME_HEIGHT if index + 1 < len(heights) else HEIGHT - BOTTOM
        heights[index] = min(heights[index], limit) if overflow > 0 else heights[index]
    parts = []
    for (y, x, number), height in zip(ends, heights, strict=True):
        colour = "currentColor" if named[number].faint else COLOURS[number % len(COLOURS)]
        beside = WIDTH - RIGHT + 8
        look = f'stroke="{colour}" stroke-opacity="0.5" fill="none"'
        parts.append(f'<path d="M{x + 4:.1f} {y:.1f}L{beside - 2} {height:.1f}" {look}/>')
        parts.append(_text(beside, height + 4, _short(named[number].name), "start", full=named[number].name))
    return "".join(parts)


def _decades(low: float, high: float) -> tuple[float, float, list[float]]:
    """Limits and ticks at 1, 2, 5 times powers of ten around the values, at most ten of them."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    steps = (1, 2, 5) if high / low < 1000 else (1,)
    grid = [s * 10.0**p for p in powers if -300 <= p <= 300 for s in steps]
    below = max((tick for tick in grid if tick <= low * (1 + 1e-9)), default=low / 2)
    above = min((tick for tick in grid if tick >= high * (1 - 1e-9)), default=high * 2)
    if not below < above:
        below, above = below / 2, above * 2
    ticks = [tick for tick in grid if below <= tick <= above]
    return below, above, ticks[:: -(-len(ticks) // 10) or 1]


def _linear(low: float, high: float, tight: bool = False) -> tuple[float, float, list[float]]:
    """Limits and round ticks around the values; tight: the limits are the values."""
    extent = high - low if high > low else max(abs(high), 1.0)
    power = 10.0 ** math.floor(math.log10(extent / 5))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= extent / 5 * (1 - 1e-9))
    if not tight:
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
        high = high if high > low else low + step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return low, high, [number * step for number in range(first, last + 1)]


def _number(value: float, logarithmic: bool = False) -> str:
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e+") if logarithmic else f"{value:.4g}"


def _short(name: str) -> str:
    return name if len(name) <= NAME_LENGTH else name[: NAME_LENGTH - 1] + "…"


def _line(x1: float, y1: float, x2: float, y2: float, look: str = 'stroke-opacity="0.15"') -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="currentColor" {look}/>'


def _text(x: float, y: float, text: str, anchor: str, bold: bool = False, full: str = "") -> str:
    weight = ' font-weight="600"' if bold else ""
    whole = f"<title>{html.escape(full)}</title>" if full and full != text else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12" font-family="sans-serif"{weight} '
        f'fill="currentColor">{whole}{html.escape(text)}</text>'
    )
