"""Parameter updates in one pass over memory, instead of one pass for every operation."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptynb.kernels.runtime.compiler import compiled
from ptynb.kernels.runtime.thread_pool import in_shares, part


def adam(
    values: Any,
    gradient: Any,
    mean: Any,
    square: Any,
    rate: float,
    betas: tuple[float, float],
    steps: int,
    epsilon: float,
) -> None:
    """Update `values` by Adam: Kingma and Ba, arXiv:1412.6980, algorithm 1. All arrays flat, changed in place.

    steps: number of updates including this one.
    """
    beta, of_square = betas
    numbers = _numbers(betas, (rate / (1 - beta**steps), 1 / np.sqrt(1 - of_square**steps), epsilon), values.dtype)

    _adam(values, gradient, mean, square, numbers)


@in_shares
def _adam(values: Any, gradient: Any, mean: Any, square: Any, numbers: Any, share: int, shares: int) -> None:
    keep, new, keep_square, new_square = numbers[0], numbers[1], numbers[2], numbers[3]
    length, unbiased, least = numbers[4], numbers[5], numbers[6]
    # Indices start at 0: numba would check each index that may be negative.
    first, last = part(len(values), share, shares)
    values, gradient = values[first:last], gradient[first:last]
    mean, square = mean[first:last], square[first:last]
    for index in range(len(values)):
        slope = gradient[index]
        first = keep * mean[index] + new * slope
        second = keep_square * square[index] + new_square * slope * slope
        mean[index], square[index] = first, second
        values[index] -= length * first / (np.sqrt(second) * unbiased + least)


def adam_of_rows(
    values: Any,
    gradient: Any,
    mean: Any,
    square: Any,
    steps: Any,
    rows: Any,
    rate: float,
    betas: tuple[float, float],
    epsilon: float,
) -> None:
    """Apply `adam` to some rows of arrays (row, number), each with its own `steps` (row,), incremented here."""
    _adam_of_rows(values, gradient, mean, square, steps, rows, _numbers(betas, (rate, epsilon), np.dtype(np.float64)))


def _numbers(betas: tuple[float, float], others: tuple[float, ...], dtype: Any) -> Any:
    """Return β₁, 1 - β₁, β₂, 1 - β₂ and `others` as an array.

    Computed here: compiled code would expand 1 - β, and lose digits for β = 0.999.
    """
    return np.array([part for beta in betas for part in (beta, 1 - beta)] + [*others], dtype)


@compiled
def _adam_of_rows(values: Any, gradient: Any, mean: Any, square: Any, steps: Any, rows: Any, numbers: Any) -> None:
    keep, new, keep_square, new_square = numbers[0], numbers[1], numbers[2], numbers[3]
    rate, least = numbers[4], numbers[5]
    for row in rows:
        steps[row] += 1
        length, unbiased = rate / (1 - keep ** steps[row]), 1 / np.sqrt(1 - keep_square ** steps[row])
        for column in range(values.shape[1]):
            slope = gradient[row, column]
            first = keep * mean[row, column] + new * slope
            second = keep_square * square[row, column] + new_square * slope * slope
            mean[row, column], square[row, column] = first, second
            values[row, column] -= length * first / (np.sqrt(second) * unbiased + least)
