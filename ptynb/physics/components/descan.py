"""Descan: a shift of each pattern on the detector.

A shift of pattern j by d_j [detector pixels] is a phase ramp on its exit waves, with r from the centre of the window:
Ψ_j(k - d_j) = F[ψ_j exp(2πi r·d_j / n)].

Two parts of the shifts cannot be determined from the patterns. A common shift is a phase ramp of the probe (or of the
object); it is fixed, so that the mean of the shifts is 0. And with q(r) = r·B r, B symmetric,

    P(r) exp(-i q(r)) · O(r + r_j) exp(i q(r + r_j)) = P(r) O(r + r_j) exp(2i r·B r_j) · a constant phase

so shifts that are linear in the position with a symmetric matrix are opposite curvatures of probe and object. These are
not fixed: they stay near the initial shifts, from which probe and object need no curvature to begin with.
"""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ptynb.physics.components.component import Batch, ModelComponent


class _Shifts(ModelComponent):
    """A shift of each pattern on the detector; parameter `shifts` (pattern, yx) [detector pixels]."""

    name = "descan"
    rows = frozenset({"shifts"})

    def __init__(self, shifts: Tensor, window: tuple[int, int], pattern_shape: tuple[int, int]) -> None:
        """shifts: initial ones (pattern, yx), with mean 0.

        window: size (y, x) of the exit waves, a multiple of `pattern_shape`, that of the patterns.
        """
        super().__init__()
        self.shifts = nn.Parameter(shifts.clone())
        self._coordinates = tuple(
            2 * math.pi / side * (torch.arange(whole, dtype=shifts.dtype, device=shifts.device) - whole // 2)
            for whole, side in zip(window, pattern_shape, strict=True)
        )

    def ramped(self, waves: Tensor, batch: Batch) -> Tensor:
        """Return waves (pattern or 1, mode, y, x) times exp(2πi r·d_j / n), (pattern, mode, y, x)."""
        ramped: Tensor = _Ramped.apply(waves, self.shifts[batch.patterns], *self._coordinates)
        return ramped

    def update_done(self) -> None:
        """Subtract the mean: a common shift belongs to the probe. Patterns that are not there yet keep theirs."""
        if self.admitted is None:
            self.shifts.sub_(self.shifts.mean(0))
        else:
            own = self.shifts[self.admitted]
            self.shifts[self.admitted] = own - own.mean(0)


@final
class Descan(_Shifts):
    """Descan for thick objects: a phase ramp on the exit waves."""

    def exit_wave(self, waves: Tensor, batch: Batch) -> Tensor:
        """Return ψ_j exp(2πi r·d_j / n)."""
        return self.ramped(waves.flatten(1, 2), batch).view_as(waves)


@final
class ThinObjectDescan(_Shifts):
    """Descan for one slice, where the phase ramp on the probe is the same and leaves the compiled steps undivided.

    An update of 16 patterns of 128 x 128 pixels took 1.2 ms without descan, 2.3 ms so, and 5.8 ms with a ramp on the
    exit waves by automatic differentiation.
    """

    def illuminate(self, probes: Tensor, batch: Batch) -> Tensor:
        """Return P exp(2πi r·d_j / n)."""
        return self.ramped(probes, batch)


class _Ramped(torch.autograd.Function):
    """Waves times phase ramps exp(i(c_y d_y + c_x d_x)).

    Backwards, with h = g exp(-i…) of the gradient g, dL/dψ = h (summed over patterns if they share the waves), and
    dL/dd = Σ c Im(h ψ*): for shared waves a product of h, as a matrix of reals, and two vectors c ψ.
    """

    @staticmethod
    def forward(ctx: Any, waves: Tensor, shifts: Tensor, along_y: Tensor, along_x: Tensor) -> Tensor:
        y, x = (shifts[:, axis, None] * along for axis, along in enumerate((along_y, along_x)))
        ramps = torch.polar(torch.ones_like(y), y)[:, :, None] * torch.polar(torch.ones_like(x), x)[:, None, :]
        ctx.save_for_backward(waves, ramps, along_y, along_x)
        return waves * ramps[:, None]

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        waves, ramps, along_y, along_x = ctx.saved_tensors
        change, slopes = outer[0] * ramps.conj()[:, None], None
        if ctx.needs_input_grad[1] and len(waves) == 1:
            weighted = torch.stack([waves * along_y[:, None], waves * along_x], -1)
            both = torch.stack([-weighted.imag, weighted.real], -2)
            slopes = torch.view_as_real(change).reshape(len(change), -1) @ both.reshape(-1, 2)
        elif ctx.needs_input_grad[1]:
            product = (change * waves.conj()).imag.sum(1)
            slopes = torch.stack([product.sum(2) @ along_y, product.sum(1) @ along_x], 1)
        shared = len(waves) == 1 and ctx.needs_input_grad[0]
        return change.sum(0, keepdim=True) if shared else change, slopes, None, None


def plane_through(centres: NDArray[np.float64], positions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return shifts (pattern, yx) linear in the position, with mean 0, fitted to centres of mass by least squares.

    centres: (pattern, yx) [detector pixels]; NaN for patterns without counts, which are left out.
    """
    away = positions - positions.mean(0)
    design = np.column_stack([away, np.ones(len(away))])
    present = np.isfinite(centres).all(1)
    slopes = np.linalg.lstsq(design[present], centres[present], rcond=None)[0][:2]
    plane: NDArray[np.float64] = away @ slopes
    return plane
