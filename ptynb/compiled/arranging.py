"""Stored patterns put into the model's order and added up, in one pass instead of four."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.compiled.compiler import compiled


def arrange(
    stored: NDArray[Any], shifts: tuple[int, int], out: NDArray[Any], total: NDArray[np.float64] | None = None
) -> None:
    """out[j, y, x] = stored[j, y + shift_y, x + shift_x], around the edges, and total += Σ_j out where it is given.

    stored, out: (pattern, y, x) of real types. total: (y, x), exact where counts are integers.
    """
    if not stored.dtype.isnative or stored.dtype.kind not in "uif" or stored.dtype == np.float16:
        stored = stored.astype(out.dtype)  # what loops cannot be compiled for
    _arrange(stored, *shifts, out, total is not None, np.empty(out.shape[1:]) if total is None else total)


@compiled
def _arrange(stored: Any, shift_y: int, shift_x: int, out: Any, summing: bool, total: Any) -> None:
    patterns, height, width = stored.shape
    cut = width - shift_x
    for pattern in range(patterns):
        for y in range(height):
            source = stored[pattern, (y + shift_y) % height]
            _row(source[shift_x:], out[pattern, y, :cut], summing, total[y, :cut])
            _row(source[:shift_x], out[pattern, y, cut:], summing, total[y, cut:])


@compiled
def _row(source: Any, target: Any, summing: bool, total: Any) -> None:
    for x in range(len(source)):
        target[x] = source[x]
    if summing:
        for x in range(len(source)):
            total[x] += target[x]
