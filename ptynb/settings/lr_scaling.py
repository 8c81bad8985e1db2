"""The effective batch, and the step sizes that go with a larger one.

The mean gradient of n times as many patterns has 1/√n of the noise. SGD, whose steps are as long as the gradient, then
bears a rate n times as high: Goyal et al., arXiv:1706.02677. Adam and its kin divide by the gradient's size; theirs
grows with √n: Malladi et al., arXiv:2205.10330. Krizhevsky, arXiv:1404.5997, compares both. They are starting points,
which stop to hold where the gradient is hardly noise any more.
"""

from __future__ import annotations

import math

SQUARE_ROOT = ("adam", "adamw", "nadam", "radam", "rmsprop")
"""Optimisers whose steps do not grow with the gradient; SGD's do, and all others find the length of theirs."""
BY_PATTERN = ("positions", "pattern_intensities", "opr")
"""Parts that have rows for each pattern, of which only those of a batch move: its size does not matter to them."""


def rate_factor(optimiser: str, part: str, growth: float, by_pattern: bool) -> float:
    """What the rate of a part is to be multiplied by where the batch grows by the factor `growth`.

    by_pattern: whether its parameters belong to single patterns.
    """
    if optimiser == "sgd":
        return growth
    if optimiser in SQUARE_ROOT:
        return 1.0 if by_pattern else math.sqrt(growth)
    # rPIE's steps of object and probe find their length; its other parts move by Adam.
    if optimiser == "rpie" and part not in ("object", "probe") and not by_pattern:
        return math.sqrt(growth)
    return 1.0
