"""A loss: the Huber function of the difference of amplitudes, on which single outliers have a limited effect."""

import torch
from torch import Tensor

from ptynb.plugin_api import Loss, Sums

LIMIT = 2.0
"""Difference above which the loss is linear [square roots of counts]; the noise of counts has 0.5."""


class HuberLoss(Loss):
    """Σ h(√(M + ε) - √(I + ε)), with h(d) = d² up to |d| = `LIMIT` and linear above it.

    Huber, Ann. Math. Statist. 35, 73 (1964).
    """

    def normaliser(self, sums: Sums) -> float:
        """Return Σ I, by which the loss is divided."""
        return sums.counts

    def value_and_slope(self, model: Tensor, counts: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the loss and its derivative dL/dM = h'(d) / (2 √(M + ε)).

        model: intensities M (pattern, y, x). counts: I in any type. mask: (y, x), 1 at valid pixels; None: everywhere.
        """
        amplitude = (model + self.floor).sqrt()
        difference = amplitude - (counts.to(model.dtype) + self.floor).sqrt()
        if mask is not None:
            difference = difference * mask
        size = difference.abs()
        terms = torch.where(size <= LIMIT, difference.square(), LIMIT * (2 * size - LIMIT))
        return terms.sum(dtype=torch.float64), difference.clamp(-LIMIT, LIMIT) / amplitude
