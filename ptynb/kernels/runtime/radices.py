"""Radices of the passes of a transform; without the compiler that `fft` needs."""

from __future__ import annotations

import functools
import itertools

RADICES = (8, 4, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31)
"""Radices of passes; a larger prime factor of a side is transformed by a convolution (`fft.Convolution`)."""


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
