"""Trials of a study as HTML: a table with small pictures, and the score against each parameter."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ptynb.data.trial_record import TunedTrial, best_of, value_text
from ptynb.settings.ranges import Between, Range
from ptynb.settings.schema import structure
from ptynb.table import duration
from ptynb.widgets.form.field_words import label_of_name, value_words
from ptynb.widgets.load.quantities import quantity
from ptynb.widgets.number_text import number
from ptynb.widgets.range_text import scan_unit

ROWS = 40
"""Maximum number of trials in the table; all its pictures are sent to the browser after each trial."""
PLOT_WIDTH, PLOT_HEIGHT = 240, 170
PICTURES = 24
"""Maximum number of trials among the pictures."""
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 14, 34
PICTURE_WIDTH = 192
"""Of the pictures that are shown side by side [px]."""
BLUE, GREY = "#2f7fd0", "var(--jp-ui-font-color2,#616161)"


def trials_table(trials: Sequence[TunedTrial], names: Sequence[str], best_first: bool = True) -> str:
    """Return a table of trials, the best one bold with a star; best first, or newest first."""
    if not trials:
        return ""
    best = best_of(tuple(trials))
    ordered = _ordered(trials, best_first)
    heads = ("trial", "object phase", *map(label_of_name, names), "score", "state", "epochs", "time", "engines")
    head = "".join(f'<th scope="col" style="text-align:left;padding:2px 10px">{html.escape(one)}</th>' for one in heads)
    rows = "".join(_row(trial, names, trial is best) for trial in ordered[:ROWS])
    more = len(ordered) - ROWS
    left_out = (
        f'<p style="margin:4px 0">and {more} more; <code>study.trials</code> has all of them.</p>' if more > 0 else ""
    )
    return (
        '<div style="max-width:100%;overflow-x:auto" tabindex="0" role="region" aria-label="trials">'
        f'<table style="border-collapse:collapse;line-height:1.4"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody>'
        f"</table>{left_out}</div>"
    )


def trial_pictures(trials: Sequence[TunedTrial], names: Sequence[str], best_first: bool = True) -> str:
    """Return pictures of trials side by side, with scores and values; best first, or newest first."""
    shown = [trial for trial in _ordered(trials, best_first) if trial.picture is not None]
    best = best_of(tuple(trials))
    figures = "".join(_figure(trial, names, trial is best) for trial in shown[:PICTURES])
    more = f'<p style="margin:4px 0">and {len(shown) - PICTURES} more.</p>' if len(shown) > PICTURES else ""
    return f'<div style="display:flex;flex-wrap:wrap;gap:10px;max-width:100%">{figures}</div>{more}' if shown else ""


def score_plots(trials: Sequence[TunedTrial], ranges: Mapping[str, Range]) -> str:
    """Return plots of score over each parameter: dots: complete trials, star: the best one, ticks: pruned ones."""
    if not any(trial.score is not None for trial in trials):
        return ""
    plots = "".join(_plot(trials, name, range) for name, range in ranges.items())
    words = "Score (small is good) against each parameter: dots complete, star best, ticks at the top pruned."
    style = "display:flex;flex-wrap:wrap;gap:8px;max-width:100%"
    return f'<p style="margin:4px 0">{words}</p><div style="{style}">{plots}</div>'


def _ordered(trials: Sequence[TunedTrial], best_first: bool) -> list[TunedTrial]:
    return sorted(trials, key=_rank) if best_first else sorted(trials, key=lambda trial: -trial.number)


def _rank(trial: TunedTrial) -> tuple[float, float, int]:
    """Return a sort key: complete trials by score, then running ones, then pruned ones by epochs."""
    if trial.score is not None:
        return (0, trial.score, trial.number)
    return (1 if trial.state == "running" else 2, -len(trial.losses), trial.number)


def _row(trial: TunedTrial, names: Sequence[str], best: bool) -> str:
    place = f"★ {trial.number} best" if best else str(trial.number)
    score = "" if trial.score is None else number(trial.score, 5)
    ranks = ", ".join(str(rank) for rank in trial.ranks) or "this process"
    time = duration(trial.seconds) if trial.seconds else ""
    cells = [html.escape(_value(name, trial.values.get(name, ""))) for name in names]
    cells = [place, _picture(trial), *cells, score, _state(trial), str(len(trial.losses)), time, ranks]
    inside = "".join(f'<td style="padding:2px 10px;text-align:left">{cell}</td>' for cell in cells)
    style = "border-top:1px solid var(--jp-border-color2,#ccc);vertical-align:middle"
    if best:
        style += ";font-weight:700;outline:2px solid var(--jp-ui-font-color1,#333);outline-offset:-2px"
    return f'<tr style="{style}">{inside}</tr>'


def _figure(trial: TunedTrial, names: Sequence[str], best: bool) -> str:
    score = trial.state if trial.score is None else number(trial.score, 5)
    lines = [f"{'★ ' if best else ''}trial {trial.number}{' best' if best else ''}: {score}"]
    lines += [f"{label_of_name(name)} {_value(name, trial.values.get(name, ''))}" for name in names]
    caption = "<br>".join(map(html.escape, lines))
    outline = ";outline:2px solid var(--jp-ui-font-color1,#333);outline-offset:3px;font-weight:700" if best else ""
    return (
        f'<figure style="margin:4px;width:{PICTURE_WIDTH}px{outline}">{_picture(trial, PICTURE_WIDTH)}'
        f'<figcaption style="line-height:1.3;overflow-wrap:anywhere">{caption}</figcaption></figure>'
    )


def _picture(trial: TunedTrial, width: int = 64) -> str:
    if trial.picture is None:
        return ""
    kind = "png" if trial.picture.image.startswith(b"\x89PNG") else "jpeg"
    data = base64.b64encode(trial.picture.image).decode()
    return (
        f'<img src="data:image/{kind};base64,{data}" alt="object phase of trial {trial.number}" '
        f'style="width:{width}px;height:{width}px;object-fit:contain;display:block">'
    )


def _state(trial: TunedTrial) -> str:
    if not trial.reason:
        return trial.state
    reason = html.escape(trial.reason.split("\n", 1)[0])
    return f"<details><summary>{trial.state}</summary><small>{reason}</small></details>"


def _plot(trials: Sequence[TunedTrial], name: str, range: Range) -> str:
    complete = [(trial, trial.score) for trial in trials if trial.score is not None]
    best = best_of(tuple(trials))
    low, high = min(score for _, score in complete), max(score for _, score in complete)
    logarithmic = low > 0 and high > 10 * low

    def y(score: float) -> float:
        ends = [math.log10(end) for end in (low, high, score)] if logarithmic else [low, high, score]
        part = (ends[2] - ends[0]) / (ends[1] - ends[0]) if high > low else 0.5
        return PLOT_HEIGHT - BOTTOM - 10 - part * (PLOT_HEIGHT - TOP - BOTTOM - 18)

    parts = [_text(LEFT - 6, y(score) + 4, number(score, 3), "end") for score in sorted({low, high})]
    parts += [_text(x, PLOT_HEIGHT - BOTTOM + 16, word, anchor) for x, word, anchor in _ends(name, range)]
    parts.append(_text((LEFT + PLOT_WIDTH - RIGHT) / 2, PLOT_HEIGHT - 4, label_of_name(name), "middle"))
    frame = f"M{LEFT} {TOP}V{PLOT_HEIGHT - BOTTOM}H{PLOT_WIDTH - RIGHT}"
    parts.append(f'<path d="{frame}" fill="none" stroke="currentColor" stroke-opacity="0.4"/>')
    for trial in trials:
        if trial.state == "pruned":
            x = _x(trial.values[name], range)
            parts.append(
                f'<path d="M{x:.1f} {TOP - 8}v8" stroke="{GREY}" stroke-width="2"><title>{_title(trial)}</title></path>'
            )
    for trial, score in complete:
        at = (_x(trial.values[name], range), y(score))
        parts.append(_star(*at, trial) if trial is best else _dot(*at, trial))
    label = html.escape(f"score against {label_of_name(name)}")
    return (
        f'<svg viewBox="0 0 {PLOT_WIDTH} {PLOT_HEIGHT}" width="{PLOT_WIDTH}" height="{PLOT_HEIGHT}" role="img" '
        f'aria-label="{label}" style="color:var(--jp-ui-font-color1,#333)">{"".join(parts)}</svg>'
    )


def _value(name: str, value: Any) -> str:
    if structure().has(name) and value != "":
        return value_words(structure().setting(name), value)
    unit = scan_unit(name)
    return quantity((value,), unit) if unit and isinstance(value, int | float) else value_text(value)


def _x(value: object, range: Range) -> float:
    inside = PLOT_WIDTH - LEFT - RIGHT
    if isinstance(range, Between):
        assert isinstance(value, int | float)
        low, high, at = (math.log(end) if range.log else float(end) for end in (range.low, range.high, value))
        return LEFT + (at - low) / (high - low) * inside
    return LEFT + (range.index(value) + 0.5) / len(range) * inside


def _ends(name: str, range: Range) -> list[tuple[float, str, str]]:
    """Return position, text and anchor of the labels below the axis."""
    if isinstance(range, Between):
        return [(LEFT, _value(name, range.low), "start"), (PLOT_WIDTH - RIGHT, _value(name, range.high), "end")]
    return [(_x(choice, range), _value(name, choice), "middle") for choice in range]


def _dot(x: float, y: float, trial: TunedTrial) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{BLUE}"><title>{_title(trial)}</title></circle>'


def _star(x: float, y: float, trial: TunedTrial) -> str:
    corners = [(math.pi / 5 * corner, 8.0 if corner % 2 == 0 else 3.2) for corner in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)]
    points = " ".join(f"{x + r * math.sin(angle):.1f},{y - r * math.cos(angle):.1f}" for angle, r in corners)
    return f'<polygon points="{points}" fill="#d9822b" stroke="currentColor"><title>{_title(trial)}</title></polygon>'


def _title(trial: TunedTrial) -> str:
    score = "pruned" if trial.score is None else number(trial.score, 5)
    return html.escape(f"trial {trial.number}: {score}")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="11" font-family="sans-serif" '
        f'fill="currentColor">{html.escape(text)}</text>'
    )
