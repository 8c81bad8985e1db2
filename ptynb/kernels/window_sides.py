"""Sides of windows that make updates slow on a CPU."""

from __future__ import annotations

import functools
import itertools

from ptynb.kernels.runtime.radices import is_zero_padded, radices

QUICK = 13
"""Largest prime factor of the sides that are recommended instead of slow ones."""


@functools.cache
def slow_window(window: tuple[int, int]) -> tuple[str, ...]:
    """Return a remark on a window (y, x) that takes far longer than one next to it, or nothing."""
    factors = sorted({radix for side in window for radix in radices(side) if is_zero_padded(radix)})
    if not factors:
        return ()
    smaller, larger = (" x ".join(str(_quick(side, step)) for side in window) for step in (-1, 1))
    return (
        f"On a CPU an epoch of patterns of {window[0]} x {window[1]} takes 1.5 to 3 times as long as one without the "
        f"prime factor {' and '.join(map(str, factors))} in the sides: crop them to {smaller} (preparation.crop), or "
        f"pad them to {larger} with unmeasured pixels (preparation.pad).",
    )


def _quick(side: int, step: int) -> int:
    """Return the side itself, if it is not slow, or the next quick one in this direction."""
    if not any(map(is_zero_padded, radices(side))):
        return side
    return next(one for one in itertools.count(side, step) if radices(one)[-1] <= QUICK)
