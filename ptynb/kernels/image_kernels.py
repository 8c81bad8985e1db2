"""Phases of complex images and grey levels for the screen, each in one vectorised pass over memory.

Numpy and torch take a pass for every operation: for 1024 x 1024 pixels 10 ms for the phases and 3 ms for the grey
levels, and memory bandwidth that updates need. These functions take 3 and 0.2 ms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ptynb.kernels.runtime.compiler import compiled

ARCTANGENT = (
    0.9999999842, -0.3333306678, 0.1999248358, -0.1420257051, 0.106367541,
    -0.07495445443, 0.04258760746, -0.0160050305, 0.002834064299,
)  # fmt: skip
"""Coefficients of arctan(r) / r on [0, 1] in powers of r², interpolated at Chebyshev nodes; errors below 1.2e-8."""
QUARTER, HALF = np.float32(np.pi / 2), np.float32(np.pi)
WHOLE = np.float32(2 * np.pi)
_C = tuple(np.float32(value) for value in ARCTANGENT)
_ZERO, _ONE = np.float32(0), np.float32(1)


@compiled
def mean_steps(field: Any) -> tuple[complex, complex]:
    """Return Σ O[y+1, x] O*[y, x] and Σ O[y, x+1] O*[y, x] of a complex field as reals (y, 2x), parts interleaved.

    Rows are summed in the field's precision, their sums in twice that precision.
    """
    height, width = field.shape[0], field.shape[1] // 2
    down, across = 0j, 0j
    for y in range(height):
        here = field[y]
        real, imaginary = _ZERO, _ZERO
        for x in range(width - 1):
            real += here[2 * x + 2] * here[2 * x] + here[2 * x + 3] * here[2 * x + 1]
            imaginary += here[2 * x + 3] * here[2 * x] - here[2 * x + 2] * here[2 * x + 1]
        across += complex(real, imaginary)
        if y + 1 < height:
            below = field[y + 1]
            real, imaginary = _ZERO, _ZERO
            for x in range(width):
                real += below[2 * x] * here[2 * x] + below[2 * x + 1] * here[2 * x + 1]
                imaginary += below[2 * x + 1] * here[2 * x] - below[2 * x] * here[2 * x + 1]
            down += complex(real, imaginary)
    return down, across


@compiled
def turned_sum(field: Any, down: Any, across: Any) -> complex:
    """Return Σ O[y, x] d[y] a[x] of a complex field as reals (y, 2x), with d (y,) complex and a (2x,) as the field."""
    height, width = field.shape[0], field.shape[1] // 2
    total = 0j
    for y in range(height):
        row, real, imaginary = field[y], _ZERO, _ZERO
        for x in range(width):
            real += row[2 * x] * across[2 * x] - row[2 * x + 1] * across[2 * x + 1]
            imaginary += row[2 * x] * across[2 * x + 1] + row[2 * x + 1] * across[2 * x]
        total += down[y] * complex(real, imaginary)
    return total


@compiled
def phases(field: Any, down: Any, across: Any, out: Any) -> None:
    """out = arg(field) - down - across, in [-π, π]; NaN stays NaN.

    field: float32 (y, 2x), parts interleaved; down (y,), across (x,) in [-π, π], out (y, x): float32.
    """
    height, width = out.shape
    for y in range(height):
        row, target, shift = field[y], out[y], down[y]
        for x in range(width):
            real, imaginary = row[2 * x], row[2 * x + 1]
            beside, above = abs(real), abs(imaginary)
            steep = above > beside
            large = above if steep else beside
            small = beside if steep else above
            ratio = small / (large if large != _ZERO else _ONE)
            square = ratio * ratio
            tail = _C[5] + square * (_C[6] + square * (_C[7] + square * _C[8]))
            angle = ratio * (
                _C[0] + square * (_C[1] + square * (_C[2] + square * (_C[3] + square * (_C[4] + square * tail))))
            )
            angle = QUARTER - angle if steep else angle
            angle = HALF - angle if real < _ZERO else angle
            angle = (-angle if imaginary < _ZERO else angle) - shift - across[x]
            angle = angle - WHOLE if angle > HALF else angle
            target[x] = angle + WHOLE if angle < -HALF else angle


@compiled
def greys(values: Any, low: Any, high: Any, out: Any) -> None:
    """out = 0 at `low` and below (and for NaN) to 255 at `high` and above; float32 and uint8, (y, x)."""
    scale = np.float32(255.999) / (high - low)
    for y in range(out.shape[0]):
        row, target = values[y], out[y]
        for x in range(out.shape[1]):
            value = row[x] if row[x] > low else low
            value = value if value < high else high
            target[x] = np.uint8(np.int32((value - low) * scale))
