"""Rearrangement of stored patterns into the model's pixel order, and their sum, in one pass instead of four."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.kernels.runtime.compiler import compiled


def arrange(
    stored: NDArray[Any], shifts: tuple[int, int], out: NDArray[Any], total: NDArray[np.float64] | None = None
) -> None:
    """out[j, y, x] = stored[j, y + shift_y, x + shift_x], periodically; total += Σ_j out unless it is None.

    stored, out: (pattern, y, x) of real types. total: (y, x), exact for integer counts.
    """
    if not readable_by_loops(stored.dtype):
        stored = stored.astype(out.dtype)  # a type that loops do not support
    _arrange(stored, *shifts, out, total is not None, np.empty(out.shape[1:]) if total is None else total)


def readable_by_loops(kind: np.dtype[Any]) -> bool:
    """Whether loops can be compiled for arrays of this type."""
    return kind.isnative and kind.kind in "uif" and kind != np.float16


@compiled
def _arrange(stored: Any, shift_y: int, shift_x: int, out: Any, summing: bool, total: Any) -> None:
    patterns, height, width = stored.shape
    cut = width - shift_x
    for pattern in range(patterns):
        for y in range(height):
            source = stored[pattern, (y + shift_y) % height]
            row_into(source[shift_x:], out[pattern, y, :cut])
            row_into(source[:shift_x], out[pattern, y, cut:])
            if summing:
                row, sums = out[pattern, y], total[y]
                for x in range(width):
                    sums[x] += row[x]


@compiled
def row_into(source: Any, target: Any) -> None:
    """Copy numbers into an array, possibly of another type."""
    for x in range(len(source)):
        target[x] = source[x]
