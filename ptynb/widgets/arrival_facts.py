"""What has come of a scan that is being measured, as plain values."""

from __future__ import annotations

from typing import Any

from ptynb.data.arrivals import Arrivals
from ptynb.table import duration

SILENT_SECONDS = 3.0
"""Silence of the receiver that is shown."""


def arrival_facts(arrivals: Arrivals | None) -> dict[str, Any]:
    """Return what has come of a scan that is being measured; nothing of one that was measured before.

    admitted: patterns in use; None without a reconstruction. remarks: (text, meaning) of further counts. The others are
    texts, "" if they have nothing to say.
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
        "lag": duration(arrivals.lag) if arrivals.lag and going else "",
        "ended": arrivals.ended or "",
        "silence": f"{arrivals.silence:.0f} s" if going and silent else "",
    }
