"""Waiting for what tells nobody that it has changed: files of other processes, a store, a queue of jobs, a device."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

PERIOD = 0.02
"""Period of the checks [s]."""


def wait_while(find: Callable[[], Value], seconds: float, period: float = PERIOD) -> Value:
    """Wait while what a function returns is true, and return the last of it: true if that takes longer than `seconds`.

    The function may raise an error, which ends the wait.
    """
    until = time.monotonic() + seconds
    while (value := find()) and time.monotonic() <= until:
        time.sleep(period)
    return value


def wait_until(condition: Callable[[], object], seconds: float, period: float = PERIOD) -> bool:
    """Wait until a condition is true; return False if that takes longer than `seconds`."""
    return not wait_while(lambda: not condition(), seconds, period)
