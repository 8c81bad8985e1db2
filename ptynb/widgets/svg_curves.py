"""Several curves in one SVG, distinguished by dashes and by names at their ends as well as by colour."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ptynb.widgets.svg_axes import Point, decades, decimal, drawable, line, linear, path, scientific, text

WIDTH, HEIGHT = 480, 260
LEFT, RIGHT, TOP, BOTTOM = 62, 112, 30, 36
NAME_HEIGHT = 13
"""Smallest vertical distance of names."""
NAME_LENGTH = 13
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9")
"""The colours of M. Okabe and K. Ito for all kinds of colour vision, with a darker yellow for white pages."""
DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "5 2 1 2 1 2")


@dataclass(frozen=True)
class Curve:
    """Values over coordinates; points that are not finite are omitted. faint: thin and grey, for a threshold."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    faint: bool = False


@dataclass(frozen=True)
class CurvePanel:
    """Curves with common axes.

    logarithmic: whether heights are logarithms; a value that is not positive is left out then. lowest, highest: limits
    of a linear height axis; None: those of the curves. marks: (coordinate, text) of dotted lines.
    """

    title: str
    x_title: str
    curves: tuple[Curve, ...]
    logarithmic: bool = True
    lowest: float | None = None
    highest: float | None = None
    marks: tuple[tuple[float, str], ...] = field(default=())


def curves(panels: Sequence[CurvePanel]) -> str:
    """Return SVG of panels side by side; a curve has the same colour and dash in all panels, by its index."""
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


def _panel(panel: CurvePanel) -> str:
    drawn = [drawable(zip(curve.x, curve.y, strict=True), panel.logarithmic) for curve in panel.curves]
    title = text(LEFT, 16, panel.title, "start", bold=True)
    everything = [point for points in drawn for point in points]
    if not everything:
        return title + text(WIDTH / 2, HEIGHT / 2, "nothing to draw yet", "middle")
    heights = [y for _, y in everything]
    low = min(heights) if panel.lowest is None or panel.logarithmic else panel.lowest
    high = max(heights) if panel.highest is None or panel.logarithmic else panel.highest
    low, high, ticks = decades(low, high) if panel.logarithmic else linear(low, high)
    left, right, across = linear(0.0, max(max(x for x, _ in everything), 1e-12), tight=True)
    scale, said = (math.log10, scientific) if panel.logarithmic else (float, decimal)

    def place(x: float, y: float) -> tuple[float, float]:
        part = (scale(y) - scale(low)) / (scale(high) - scale(low))
        inside = TOP + (1 - min(max(part, 0.0), 1.0)) * (HEIGHT - TOP - BOTTOM)
        return LEFT + (x - left) / (right - left) * (WIDTH - LEFT - RIGHT), inside

    parts = [title, text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, panel.x_title, "middle")]
    for tick in ticks:
        at = place(left, tick)[1]
        parts += [line(LEFT, at, WIDTH - RIGHT, at), text(LEFT - 6, at + 4, said(tick), "end")]
    for tick in across:
        at = place(tick, low)[0]
        parts += [line(at, TOP, at, HEIGHT - BOTTOM), text(at, HEIGHT - BOTTOM + 15, decimal(tick), "middle")]
    for x, mark in panel.marks:
        at = place(min(max(x, left), right), low)[0]
        parts += [line(at, TOP, at, HEIGHT - BOTTOM, 'stroke-dasharray="2 2" stroke-opacity="0.9"')]
        parts += [text(at + 4, TOP + 12, mark, "start")]
    lines = [[place(x, y) for x, y in points] for points in drawn]
    parts += [
        _polyline(curve, points, number) for number, (curve, points) in enumerate(zip(panel.curves, lines, strict=True))
    ]
    return "".join(parts) + _names(panel.curves, lines)


def _polyline(curve: Curve, points: Sequence[Point], number: int) -> str:
    if not points:
        return ""
    dash = DASHES[number % len(DASHES)]
    look = f'stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="2"'
    if curve.faint:
        look, dash = 'stroke="currentColor" stroke-opacity="0.6" stroke-width="1"', "4 3"
    end_x, end_y = points[-1]
    end = "" if curve.faint else f'<circle cx="{end_x:.1f}" cy="{end_y:.1f}" r="3" fill="{COLOURS[number % 6]}"/>'
    return f'<polyline points="{path(points)}" fill="none" stroke-dasharray="{dash}" {look}/>{end}'


def _names(named: Sequence[Curve], lines: Sequence[Sequence[Point]]) -> str:
    """Return the names right of the panel near the ends of the curves, without overlap, with a line from each end."""
    ends = sorted((points[-1][1], points[-1][0], number) for number, points in enumerate(lines) if points)
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
        parts.append(text(beside, height + 4, _short(named[number].name), "start", full=named[number].name))
    return "".join(parts)


def _short(name: str) -> str:
    return name if len(name) <= NAME_LENGTH else name[: NAME_LENGTH - 1] + "…"
