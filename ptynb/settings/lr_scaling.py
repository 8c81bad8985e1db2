"""Scaling of learning rates with the size of the batch.

The mean gradient of n times as many patterns has 1/√n of the noise. The steps of SGD are proportional to the gradient,
so its rate can be n times as high: Goyal et al., arXiv:1706.02677. Adam and similar optimisers divide by the size of
the gradient; their rate grows with √n: Malladi et al., arXiv:2205.10330. Krizhevsky, arXiv:1404.5997, compares both.
These are starting points, which no longer hold where noise does not dominate the gradient.
"""

from __future__ import annotations

import math

SQUARE_ROOT = ("adam", "adamw", "nadam", "radam", "rmsprop")
"""Optimisers whose steps do not grow with the gradient; those of SGD do, all others compute their step length."""


def rate_factor(optimiser: str, part: str, growth: float, by_pattern: bool) -> float:
    """Return the factor for the learning rate of a part when the batch grows by the factor `growth`.

    by_pattern: whether the parameters belong to single patterns.
    """
    if optimiser == "sgd":
        return growth
    if optimiser in SQUARE_ROOT:
        return 1.0 if by_pattern else math.sqrt(growth)
    # rPIE computes the step length of object and probe; its other parts are updated by Adam.
    if optimiser == "rpie" and part not in ("object", "probe") and not by_pattern:
        return math.sqrt(growth)
    return 1.0
