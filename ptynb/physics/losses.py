"""How far modelled intensities are from measured counts: value and slope together, in one place.

A loss sees intensities only, so the steps of `hotpath` work with any of them: with Ψ the wave on the detector
and M = Σ_modes |Ψ|², the gradient with respect to Ψ* is (dL/dM) Ψ.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from ptynb.physics.hotpath import compiled_for, compiled_steps


@final
class Sums:
    """Sums over all pixels of all patterns of all engines: counts, Σ I, and squares, Σ I², which few losses need."""

    def __init__(self, counts: float, squares: Callable[[], float]) -> None:
        """squares: computes Σ I² when it is first asked for, by all engines."""
        self.counts, self._squares = counts, squares

    @functools.cached_property
    def squares(self) -> float:
        """Σ I²."""
        return self._squares()


class Loss(ABC):
    """A sum over pixels of a function of the modelled intensity M and the measured counts I.

    floor: intensity [counts] that keeps square roots and logarithms away from zero, far below one count's worth.
    """

    def __init__(self, floor: float) -> None:
        self.floor = floor

    @abstractmethod
    def normaliser(self, sums: Sums) -> float:
        """What the loss of all patterns is divided by, so that it has no unit."""

    @abstractmethod
    def value_and_slope(self, model: Tensor, counts: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Loss (a sum, scalar) and its derivative dL/dM (pattern, y, x).

        counts: (pattern, y, x) in any type. mask: (y, x), 1 where the detector works, 0 elsewhere; None: 1 everywhere.
        """


@final
class Amplitude(Loss):
    """Σ (√(M + ε) - √(I + ε))², the variance-stabilised error of Poisson counts.

    Godard et al., Opt. Express 20, 25914 (2012), eq. 12.
    """

    def normaliser(self, sums: Sums) -> float:
        """Σ I."""
        return sums.counts

    def value_and_slope(self, model: Tensor, counts: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """dL/dM = 1 - √(I + ε) / √(M + ε)."""
        if compiled_for(model.device, model.shape[-2:]):
            return compiled_steps().amplitude_loss(model, counts, mask, self.floor)
        amplitude = (model + self.floor).sqrt_()
        difference = amplitude - (counts.to(model.dtype) + self.floor).sqrt_()
        if mask is not None:
            difference.mul_(mask)
        return sum_of_squares(difference), difference.div_(amplitude)


@final
class Poisson(Loss):
    """Σ M - I + I log(I / M), the negative logarithm of the Poisson likelihood, 0 for a perfect fit.

    Thibault and Guizar-Sicairos, New J. Phys. 14, 063004 (2012), eq. 3, less its value at M = I.
    """

    def normaliser(self, sums: Sums) -> float:
        """Σ I."""
        return sums.counts

    def value_and_slope(self, model: Tensor, counts: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """dL/dM = 1 - (I + ε) / (M + ε)."""
        model = model + self.floor
        # With d = (I - M) / M the terms are M ((1 + d) log(1 + d) - d): near the fit this keeps the digits that
        # M - I + I log(I / M) loses (in single precision 4% of the value, at 0.1% from the fit).
        d = (counts.to(model.dtype) + self.floor).sub_(model).div_(model)
        terms = torch.special.xlog1py(1 + d, d).sub_(d).mul_(model)
        slope = d.neg_()
        if mask is not None:
            terms.mul_(mask)
            slope.mul_(mask)
        return terms.sum(), slope


@final
class Intensity(Loss):
    """Σ (M - I)²."""

    def normaliser(self, sums: Sums) -> float:
        """Σ I²."""
        return sums.squares

    def value_and_slope(self, model: Tensor, counts: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """dL/dM = 2 (M - I)."""
        difference = model - counts.to(model.dtype)
        if mask is not None:
            difference.mul_(mask)
        return sum_of_squares(difference), difference.mul_(2)


@final
class WeightedSum(Loss):
    """Σ_i w_i L_i / N_i: several losses with their weights, each divided by its normaliser as if it were alone.

    The first one has the weight 1 and lends its unit: the sum is in units of N_1.
    """

    def __init__(self, losses: Sequence[Loss], weights: Sequence[float], sums: Sums) -> None:
        """losses: made for the same patterns. weights: one for each. sums: of these patterns."""
        super().__init__(losses[0].floor)
        self.losses, self.weights = [*losses], [*weights]
        self.units = [losses[0].normaliser(sums) / loss.normaliser(sums) for loss in losses]

    def normaliser(self, sums: Sums) -> float:
        """That of the first one, N_1."""
        return self.losses[0].normaliser(sums)

    def value_and_slope(self, model: Tensor, counts: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Σ_i w_i u_i L_i."""
        values, slopes = model.new_zeros(()), torch.zeros_like(model)
        for loss, weight, unit in zip(self.losses, self.weights, self.units, strict=True):
            value, slope = loss.value_and_slope(model, counts, mask)
            values = values + weight * unit * value
            slopes.add_(slope, alpha=weight * unit)
        return values, slopes


def make_loss(name: str, mean_count: float) -> Loss:
    """The loss of this name in the settings, for patterns of `mean_count` counts a pixel.

    The floor is a millionth of that: too little to matter, enough for single precision.
    """
    losses: dict[str, type[Loss]] = {"amplitude": Amplitude, "poisson": Poisson, "intensity": Intensity}
    return losses[name](floor=1e-6 * mean_count)


def loss_of(model: Tensor, counts: Tensor, mask: Tensor | None, loss: Loss) -> Tensor:
    """The loss of modelled intensities (pattern, y, x), a sum (scalar), differentiable in `model`."""
    value: Tensor = _LossOf.apply(model, counts, mask, loss)
    return value


class _LossOf(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, model: Tensor, counts: Tensor, mask: Tensor | None, loss: Loss) -> Tensor:
        value, ctx.slope = loss.value_and_slope(model, counts, mask)
        return value

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        slope = ctx.slope
        del ctx.slope
        return slope.mul_(outer[0]), None, None, None


def amplitude_residual(model: Tensor, counts: Tensor, mask: Tensor | None) -> Tensor:
    """Σ |√I - √M|, the numerator of the amplitude R-factor (divide by Σ √I), a scalar."""
    residual = (counts.to(model.dtype).sqrt() - model.sqrt()).abs_()
    if mask is not None:
        residual.mul_(mask)
    return residual.sum(dtype=torch.float64)


def sum_of_squares(values: Tensor) -> Tensor:
    """Σ v² of a real tensor as one pass: a dot product with itself."""
    flat = values.reshape(-1)
    return torch.dot(flat, flat)
