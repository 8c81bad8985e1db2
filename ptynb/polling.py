"""Waiting for what tells nobody that it has changed: files of other processes, a store, a queue of jobs, a device."""

from __future__ import annotations

import time
from collections.abc import Callable

PERIOD = 0.02
"""Period of the checks [s]."""


def comes(condition: Callable[[], object], seconds: float, period: float = PERIOD) -> bool:
    """Wait until a condition is true; return False if that takes longer. It may raise an error instead."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(period)
    return True
