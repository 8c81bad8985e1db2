"""What has come of a scan that is being measured, as plain values."""

from __future__ import annotations

from typing import Any

from ptynb.data.arrivals import Arrivals

SILENT_SECONDS = 3.0
"""Silence of the receiver that is shown."""


def arrival_facts(arrivals: Arrivals | None) -> dict[str, Any]:
    """Return what has come of a scan that is being measured; nothing of one that was measured before.

    used: whether patterns in use are counted. remarks: (text, meaning) of further counts.
    """
    if arrivals is None:
        return {}
    going, silent = arrivals.ended is None, arrivals.silence > SILENT_SECONDS
    return {
        "planned": arrivals.planned,
        "arrived": arrivals.arrived,
        "placed": arrivals.placed,
        "admitted": arrivals.admitted,
        "remarks": [list(one) for one in arrivals.remarks()],
        "rate": f"{arrivals.rate:,.3g}" if arrivals.rate else "",
        "lag": _short(arrivals.lag) if arrivals.lag and going else "",
        "ended": arrivals.ended or "",
        "silence": f"{arrivals.silence:.0f} s" if going and silent else "",
    }


def _short(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
