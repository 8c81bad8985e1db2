"""The bar of a scan that is being measured: what has come, what is used, and how fast it comes."""

from __future__ import annotations

import html

from ptynb.data.arrivals import Arrivals

SILENT_SECONDS = 3.0
"""Silence of the receiver that is shown."""
USED, WAITING, EMPTY = "#1565c0", "#e08a00", "rgba(128,128,128,0.35)"


def arrival_bar(arrivals: Arrivals | None) -> str:
    """Return HTML of a bar and its numbers; "" for a scan that was measured before."""
    if arrivals is None:
        return ""
    planned = arrivals.planned
    used = arrivals.placed if arrivals.admitted is None else arrivals.admitted
    waiting = max(arrivals.arrived - used, 0)
    parts = [f"<b>{arrivals.arrived:,}</b> of {planned:,} patterns came"]
    if arrivals.admitted is not None:
        parts.append(f"<b>{used:,}</b> used")
    parts += [f'<span title="{meaning.capitalize()}">{text}</span>' for text, meaning in arrivals.remarks()]
    if arrivals.rate:
        over = "over the latest seconds" if arrivals.ended is None else "from the first pattern to the last"
        parts.append(f'<span title="Patterns that come, {over}">rate {arrivals.rate:,.3g}/s</span>')
    if arrivals.lag and arrivals.ended is None:
        meaning = "Median time from the arrival of a pattern until it can be used"
        parts.append(f'<span title="{meaning}">lag {_short(arrivals.lag)}</span>')
    if arrivals.ended is not None:
        # The sentence is also a notice below, if patterns are missing.
        parts.append(f'<b title="{html.escape(arrivals.ended)}">scan ended</b>')
    elif arrivals.silence > SILENT_SECONDS:
        parts.append(f"<b>no sign of the receiver for {arrivals.silence:.0f} s</b>")
    style = "margin-right:18px;display:inline-block"  # a line is not broken within a part
    spans = "".join(f'<span style="{style}">{part}</span>' for part in parts)
    return (
        f'<div role="progressbar" aria-label="Patterns that have come" aria-valuemin="0" aria-valuemax="{planned}" '
        f'aria-valuenow="{arrivals.arrived}" style="display:flex;height:6px;border-radius:3px;overflow:hidden;'
        f'background:{EMPTY};max-width:100%;margin-top:3px">'
        f'<div title="Used" style="width:{_percent(used, planned)};background:{USED}"></div>'
        f'<div title="Waiting" style="width:{_percent(waiting, planned)};background:{WAITING}"></div></div>'
        f'<div style="font-variant-numeric:tabular-nums;line-height:1.8">{spans}</div>'
    )


def _percent(part: int, whole: int) -> str:
    return f"{min(100 * part / whole, 100):.2f}%"


def _short(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
