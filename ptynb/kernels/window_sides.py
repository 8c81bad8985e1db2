"""Factors of a window's sides, and which ones make updates slow on a CPU; without the compiler that `fft` needs."""

from __future__ import annotations

import functools
import itertools

RADICES = (8, 4, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31)
"""Radices of passes; a larger prime factor of a side is transformed by a convolution (`fft.Convolution`)."""
QUICK = 13
"""Largest prime factor of the sides that are recommended instead of slow ones."""


@functools.cache
def radices(side: int) -> tuple[int, ...]:
    """Return the radices of a side, smallest first; those above the largest of `RADICES` are prime."""
    found, rest = list[int](), side
    for radix in itertools.chain(RADICES, range(RADICES[-1] + 2, side + 1, 2)):
        while rest % radix == 0:
            found.append(radix)
            rest //= radix
    return tuple(sorted(found))


def is_zero_padded(radix: int) -> bool:
    """Return whether a radix is a prime p whose convolution, of p - 1 values, is zero-padded to twice the length.

    On a Xeon an epoch takes 1.8 to 3.5 times as long with such a factor in both sides (83, 107, 149, 166, 167, 173,
    179, 214, 249, 263, 298) as with quick sides next to them, with others above 31 mostly 1.1 to 1.7 times.
    """
    return radix > RADICES[-1] and radices(radix - 1)[-1] > RADICES[-1]


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
