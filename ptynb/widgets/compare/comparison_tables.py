"""Tables and text about results, as HTML."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ptynb.analysis.result_comparison import Difference, facts_of, settings_that_differ
from ptynb.data.engine_records import Result
from ptynb.widgets.number_text import number
from ptynb.widgets.svg_curves import Curve, CurvePanel, curves

CELL = "text-align:left;padding:2px 14px 2px 0;vertical-align:top"


def facts_table(results: Mapping[str, Result]) -> str:
    """Return a table of quality, duration, devices and versions of each result."""
    columns = [facts_of(result) for result in results.values()]
    names = dict.fromkeys(name for column in columns for name in column)
    return _table("Facts", list(results), {name: [column.get(name) for column in columns] for name in names})


def settings_table(results: Mapping[str, Result]) -> str:
    """Return a table of the settings that differ between results."""
    rows = settings_that_differ(results)
    if not rows:
        return "<p><b>Settings that differ</b>: none</p>"
    return _table("Settings that differ", list(results), rows)


def loss_curves(results: Mapping[str, Result]) -> str:
    """Return curves of losses over epochs and over seconds, and why they are not comparable if they are not."""
    over_epochs, over_seconds = [], []
    for name, result in results.items():
        losses = [epoch.loss for epoch in result.epochs]
        over_epochs.append(Curve(name, [epoch.number for epoch in result.epochs], losses))
        over_seconds.append(Curve(name, np.cumsum([epoch.seconds for epoch in result.epochs]).tolist(), losses))
    picture = curves(
        [
            CurvePanel("Loss over epochs", "epoch", tuple(over_epochs)),
            CurvePanel("Loss over seconds", "s", tuple(over_seconds)),
        ]
    )
    kinds = {name: str(result.settings.get("loss", "unknown")) for name, result in results.items()}
    if len(set(kinds.values())) > 1:
        said = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
        picture += f"<p>{html.escape(f'The losses are of different kinds ({said}); their heights do not compare.')}</p>"
    return picture


def difference_facts(difference: Difference, pair: tuple[str, str], pixel_size: tuple[float, float] | None) -> str:
    """Return the registration of a pair, their difference, and the Fourier ring correlation."""
    found = difference.registered
    moved = f"({found.shift[0]:.3f}, {found.shift[1]:.3f}) pixels"
    if pixel_size is not None:
        nanometres = [1e9 * shift * side for shift, side in zip(found.shift, pixel_size, strict=True)]
        moved += f" = ({nanometres[0]:.3g}, {nanometres[1]:.3g}) nm"
    parts = [
        f"{pair[0]} was moved onto {pair[1]} by {moved}",
        f"multiplied by {number(abs(found.factor))}, phase {np.angle(found.factor):.3f} rad",
        f"given a ramp of ({number(found.ramp[0], 3)}, {number(found.ramp[1], 3)}) rad/pixel",
        f"what is left is {found.error:.2%} of it",
    ]
    return f"<p>{html.escape('; '.join(parts) + '.')}</p>" + _correlation(difference, pair, pixel_size)


def _correlation(difference: Difference, pair: tuple[str, str], pixel_size: tuple[float, float] | None) -> str:
    rings = difference.correlation
    scale, unit = (1.0, "pixel") if pixel_size is None else (1e9, "nm")
    frequencies = (rings.frequencies / scale).tolist()
    crossing = rings.crossing()
    period = rings.resolution * scale
    if crossing is None:
        marks: tuple[tuple[float, str], ...] = ()
        said = f"It stays above the half-bit threshold up to the last ring, {period:.3g} {unit}."
    else:
        marks = ((crossing / scale, f"{period:.3g} {unit}"),)
        said = (
            f"It falls below the half-bit threshold at a period of {period:.3g} {unit} (half: {period / 2:.3g} {unit})."
        )
    panel = CurvePanel(
        f"Fourier ring correlation of {pair[0]} and {pair[1]}",
        f"spatial frequency [1/{unit}]",
        (
            Curve("FRC", frequencies, rings.correlation.tolist()),
            Curve("half-bit", frequencies, rings.half_bit.tolist(), faint=True),
        ),
        logarithmic=False,
        lowest=0.0,
        highest=1.0,
        marks=marks,
    )
    sentences = html.escape(f"{said} {difference.meaning}")
    return f'<div style="max-width:560px">{curves([panel])}</div><p>{sentences}</p>'


def _table(title: str, columns: Sequence[str], rows: Mapping[str, Sequence[Any]]) -> str:
    heads = "".join(f'<th scope="col" style="{CELL}">{html.escape(name)}</th>' for name in columns)
    lines = []
    for name, values in rows.items():
        # Differences are bold rather than coloured.
        weight = "font-weight:600" if any(value != values[0] for value in values) else ""
        cells = "".join(f'<td style="{CELL};{weight}">{html.escape(_said(value))}</td>' for value in values)
        lines.append(f'<tr><th scope="row" style="{CELL};font-weight:normal">{html.escape(name)}</th>{cells}</tr>')
    return (
        '<div style="overflow-x:auto"><table style="font-variant-numeric:tabular-nums;line-height:1.5">'
        f'<caption style="text-align:left;font-weight:600">{title}</caption>'
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _said(value: Any) -> str:
    if value is None:
        return "—"
    if isinstance(value, float):
        return number(value, 5)
    if isinstance(value, tuple):
        return " × ".join(_said(item) for item in value)
    return str(value)
