"""Losses between modelled intensities and measured counts, each with its value and derivative.

A loss depends on intensities only, so the steps of `hotpath` work with any of them: with Ψ the wave on the detector
and M = Σ_modes |Ψ|², the gradient with respect to Ψ* is (dL/dM) Ψ.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import torch
from torch import Tensor

from ptynb import plugins
from ptynb.data.electrons import LONGEST_ELECTRON
from ptynb.data.scan import AnyGeometry
from ptynb.physics.hotpath import compiled_for, compiled_steps
from ptynb.plugins import Plugin

FLOOR = 1e-6
"""ε in units of the mean count of a pixel: negligible for the loss, sufficient for single precision."""
SLOPE_DAMPING = 3e-4
"""δ for algorithms that replace the amplitudes of waves by measured ones, in units of the mean count of a pixel.

With δ = 0 results of several engines differed from one engine's in single precision (rPIE in batches of 4: 0.6% of
object and probe after 4 epochs, now 1e-6). Objects are as accurate with it: the errors after 40 epochs of problem A of
the benchmarks are 0.0316 without and 0.0302 with it (rPIE), 0.0341 and 0.0326 (LSQML), 0.0363 and 0.0347 (RAAR), 0.0630
and 0.0645 (DM). Ten times more would slow down noise-free fits: LSQML with a known probe reaches 0.4% of its first
loss, not 0.1%.
"""


POISSON_BELOW = 10.0
"""Mean count of a pixel below which counts are compared by their Poisson likelihood, if no loss is chosen.

The mean of √I is less than √M by about 1 / (8 √M), which the amplitude loss takes for contrast: of a weak object (MoS2
by multislice) it finds 0.31 of the phase with 0.2 counts a pixel, 0.58 with 2, 0.85 with 22 and 0.95 with 220, the
Poisson likelihood 0.80, 0.94, 0.97 and 0.98. But that weighs what the model does not describe more: a Siemens star that
was measured by X-rays, with 28 counts a pixel, ends at an R-factor of 0.154 with it, and of 0.132 with amplitudes.
"""
POISSON_BELOW_FOR_ELECTRONS = 30.0
"""The same for electrons, whose objects are weak, and whose patterns have their few counts beside the bright field."""


@final
class Sums:
    """Sums over all pixels of all patterns of all engines: of counts, Σ I, and their squares, Σ I² (for few losses).

    whole: whether the sum over the patterns is a whole number at each pixel, as it is of counts.
    """

    def __init__(self, counts: float, squares: Callable[[], float], whole: bool = True) -> None:
        """squares: computes Σ I²; called at most once, on all engines."""
        self.counts, self.whole, self._squares = counts, whole, squares

    @functools.cached_property
    def squares(self) -> float:
        """Σ I², computed on first access."""
        return self._squares()


class Loss(ABC):
    """A sum over pixels of a function of the modelled intensity M and the measured counts I.

    floor: intensity ε [counts], far below one count, that avoids square roots and logarithms of zero.
    """

    def __init__(self, floor: float) -> None:
        self.floor = floor

    @abstractmethod
    def normaliser(self, sums: Sums) -> float:
        """Return the divisor that makes the loss of all patterns dimensionless."""

    @abstractmethod
    def value_and_slope(self, model: Tensor, counts: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the loss (a sum, scalar float64) and its derivative dL/dM (pattern, y, x), in the model's precision.

        counts: (pattern, y, x) in any type. mask: (y, x), 1 at valid pixels, 0 elsewhere; None: 1 everywhere.
        """


@final
class AmplitudeLoss(Loss):
    """Σ (√(M + ε) - √(I + ε))², the variance-stabilised error of Poisson counts.

    Godard et al., Opt. Express 20, 25914 (2012), eq. 12.

    damping: δ [counts]; above 0 the slope is (M + ε) / (M + ε + δ) of the loss's slope. An algorithm that adds -slope Ψ
    to the wave Ψ sets the measured amplitude and keeps the phase; if M is nearly 0, that phase is rounding error, which
    the step multiplies by √(I / M). So it is damped there, as in a Wiener filter.
    """

    name: Final = "amplitude"

    def __init__(self, floor: float, damping: float = 0.0) -> None:
        super().__init__(floor)
        self.damping = damping

    def normaliser(self, sums: Sums) -> float:
        """Return Σ I."""
        return sums.counts

    def value_and_slope(self, model: Tensor, counts: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the loss and dL/dM = 1 - √(I + ε) / √(M + ε), damped."""
        if compiled_for(model.device):
            return compiled_steps().loss_of_counts(model, counts, mask, self.floor, self.damping)
        amplitude = (model + self.floor).sqrt_()
        difference = amplitude - (counts.to(model.dtype) + self.floor).sqrt_()
        if mask is not None:
            difference.mul_(mask)
        value = sum_of_squares(difference)
        if self.damping > 0:
            return value, difference.mul_(amplitude).div_(amplitude.square_().add_(self.damping))
        return value, difference.div_(amplitude)


@final
class PoissonLoss(Loss):
    """Σ M - I + I log(I / M), the negative log-likelihood of Poisson counts, 0 for a perfect fit.

    Thibault and Guizar-Sicairos, New J. Phys. 14, 063004 (2012), eq. 3, less its value at M = I.
    """

    name: Final = "poisson"

    def normaliser(self, sums: Sums) -> float:
        """Return Σ I."""
        return sums.counts

    def value_and_slope(self, model: Tensor, counts: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the loss and dL/dM = 1 - (I + ε) / (M + ε)."""
        if compiled_for(model.device):
            return compiled_steps().loss_of_counts(model, counts, mask, self.floor, poisson=True)
        model = model + self.floor
        # With d = (I - M) / M the terms are M ((1 + d) log(1 + d) - d): near a perfect fit this avoids the cancellation
        # in M - I + I log(I / M) (in single precision 4% of the value, at 0.1% from the fit).
        d = (counts.to(model.dtype) + self.floor).sub_(model).div_(model)
        terms = torch.special.xlog1py(1 + d, d).sub_(d).mul_(model)
        slope = d.neg_()
        if mask is not None:
            terms.mul_(mask)
            slope.mul_(mask)
        return terms.sum(dtype=torch.float64), slope


@final
class IntensityLoss(Loss):
    """Σ (M - I)²."""

    name: Final = "intensity"

    def normaliser(self, sums: Sums) -> float:
        """Return Σ I²."""
        return sums.squares

    def value_and_slope(self, model: Tensor, counts: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the loss and dL/dM = 2 (M - I)."""
        difference = model - counts.to(model.dtype)
        if mask is not None:
            difference.mul_(mask)
        return sum_of_squares(difference), difference.mul_(2)


@final
class WeightedSum(Loss):
    """Σ_i w_i L_i N_1 / N_i: a weighted sum of several losses, each relative to its own normaliser N_i.

    The first loss has the weight 1 and defines the unit.
    """

    def __init__(self, losses: Sequence[Loss], weights: Sequence[float], sums: Sums) -> None:
        """losses: for the same patterns. weights: one per loss. sums: over these patterns."""
        super().__init__(losses[0].floor)
        self.losses, self.weights = [*losses], [*weights]
        self.units = [losses[0].normaliser(sums) / loss.normaliser(sums) for loss in losses]

    def normaliser(self, sums: Sums) -> float:
        """Return the normaliser of the first loss, N_1."""
        return self.losses[0].normaliser(sums)

    def value_and_slope(self, model: Tensor, counts: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the weighted sums of the losses and of their derivatives."""
        values, slopes = model.new_zeros((), dtype=torch.float64), torch.zeros_like(model)
        for loss, weight, unit in zip(self.losses, self.weights, self.units, strict=True):
            value, slope = loss.value_and_slope(model, counts, mask)
            values = values + weight * unit * value
            slopes.add_(slope, alpha=weight * unit)
        return values, slopes


@final
class PluginLoss(Loss):
    """The loss of a plug-in, whose errors name it."""

    def __init__(self, plugin: Plugin, floor: float) -> None:
        """Raise PluginError if the plug-in has no loss that can be made."""
        super().__init__(floor)
        self._plugin = plugin
        kind = plugins.class_of(plugin, Loss)  # type: ignore[type-abstract]
        with plugins.guarded(plugin):
            self._loss = kind(floor)

    def normaliser(self, sums: Sums) -> float:
        """Return its normaliser."""
        with plugins.guarded(self._plugin):
            return self._loss.normaliser(sums)

    def value_and_slope(self, model: Tensor, counts: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return its value and derivative."""
        with plugins.guarded(self._plugin):
            return self._loss.value_and_slope(model, counts, mask)


def poisson_below(geometry: AnyGeometry | None) -> float:
    """Return the mean count of a pixel below which the Poisson likelihood is the default for a scan."""
    electrons = geometry is not None and geometry.wavelength < LONGEST_ELECTRON
    return POISSON_BELOW_FOR_ELECTRONS if electrons else POISSON_BELOW


def make_loss(name: str, mean_count: float, damped: bool = False) -> Loss:
    """Return the loss with this name in the settings, for patterns of `mean_count` counts per pixel.

    damped: whether to damp the slope of the amplitude loss, for an algorithm that replaces amplitudes.
    """
    if name == "amplitude":
        return AmplitudeLoss(FLOOR * mean_count, SLOPE_DAMPING * mean_count * damped)
    losses: dict[str, type[Loss]] = {"poisson": PoissonLoss, "intensity": IntensityLoss}
    if name in losses:
        return losses[name](FLOOR * mean_count)
    return PluginLoss(plugins.used("losses", name), FLOOR * mean_count)


def loss_of(model: Tensor, counts: Tensor, mask: Tensor | None, loss: Loss) -> Tensor:
    """Return the loss of modelled intensities (pattern, y, x), a sum (scalar), differentiable in `model`."""
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


def amplitude_residuals(model: Tensor, counts: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return Σ |√I - √M| and Σ √I of each pattern, float64 (pattern,), whose ratio is its amplitude R-factor."""
    measured = counts.to(model.dtype).sqrt()
    residual = (measured - model.sqrt()).abs_()
    if mask is not None:
        residual.mul_(mask)
        measured.mul_(mask)
    return tuple(values.flatten(1).sum(1, dtype=torch.float64) for values in (residual, measured))  # type: ignore[return-value]


def sum_of_squares(values: Tensor) -> Tensor:
    """Return Σ v² of a real tensor, a scalar float64.

    Rows are summed in their own precision, as dot products in one pass; the sums of rows in double precision.
    """
    rows = values.reshape(-1, values.shape[-1])
    return torch.linalg.vecdot(rows, rows).sum(dtype=torch.float64)
