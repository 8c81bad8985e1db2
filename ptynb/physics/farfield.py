"""The hot path: probe times object, Fourier transform, loss, and the gradient of all of it in one fused step.

For pattern j at position r_j = c_j + s_j (whole pixels + a rest in [-½, ½]) and probe mode m

    P_jm = F⁻¹[ exp(-2πi k·s_j) F[P_m] ]            the probe moved by the rest, exactly for a periodic window
    ψ_jm = P_jm · O[c_j : c_j + n]                   exit wave
    Ψ_jm = F[ψ_jm],  M_j = Σ_m |Ψ_jm|²               wave and intensity on the detector
    L    = Σ_j loss(M_j, I_j)

F is the unitary discrete Fourier transform ("ortho"). All arrays on the detector are in FFT order, zero frequency at
index 0: no fftshift is ever needed, since a shift of the window by n/2 only multiplies Ψ by a phase.

The gradient is written out rather than recorded. With g = F⁻¹[(dL/dM) Ψ], the derivative of L with respect to ψ*,

    dL/dO*  = Σ_jm  P_jm* g_jm  added at c_j
    dL/dP_m* = F⁻¹[ Σ_j exp(+2πi k·s_j) F[O_j* g_jm] ]

PyTorch's gradient of a complex number z is 2 dL/dz*. Thibault and Guizar-Sicairos, New J. Phys. 14, 063004 (2012).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ptynb.physics.losses import Loss
from ptynb.physics.windows import add_windows, read_windows


def shift_ramps(shifts: Tensor, window: tuple[int, int]) -> Tensor:
    """exp(-2πi k·s) (pattern, y, x), complex: moves a field by `shifts` (pattern, yx) [pixels] in Fourier space.

    At the Nyquist frequency of an even side, where ±½ are one sample, the cosine is taken: real fields stay real.
    """
    y, x = (_ramp(shifts[:, axis], window[axis]) for axis in (0, 1))
    return y[:, :, None] * x[:, None, :]


def _ramp(shift: Tensor, side: int) -> Tensor:
    frequency = torch.fft.fftfreq(side, device=shift.device, dtype=shift.dtype)
    angle = -2 * torch.pi * shift[:, None] * frequency[None, :]
    odd = torch.ones_like(frequency)
    if side % 2 == 0:
        odd[side // 2] = 0
    return torch.complex(angle.cos(), angle.sin() * odd)


def moved_probes(probe: Tensor, ramps: Tensor) -> Tensor:
    """The probe's modes, (mode, y, x) or (pattern, mode, y, x), moved for each pattern: (pattern, mode, y, x)."""
    return torch.fft.ifft2(torch.fft.fft2(probe) * ramps[:, None])


def intensities(object: Tensor, probe: Tensor, corners: Tensor, ramps: Tensor) -> Tensor:
    """Modelled patterns (pattern, y, x) in FFT order [the square of the probe's unit].

    object (y, x) and probe (mode, y, x) complex; corners (pattern, yx) int64; ramps from `shift_ramps`.
    """
    patches = read_windows(object, corners, (probe.shape[-2], probe.shape[-1]))
    waves = torch.fft.fft2(moved_probes(probe, ramps).mul_(patches[:, None]), norm="ortho")
    return _sum_of_modes(waves)


class FarFieldLoss(torch.autograd.Function):
    """Loss of a batch with its analytic gradient; `far_field_loss` is the way to call it."""

    @staticmethod
    def forward(
        ctx: Any,
        object: Tensor,
        probe: Tensor,
        corners: Tensor,
        ramps: Tensor,
        prepared: Tensor,
        mask: Tensor | None,
        loss: Loss,
    ) -> Tensor:
        """Loss and, where asked for, both gradients; see the module's text for the equations."""
        want_object, want_probe = ctx.needs_input_grad[:2]
        if len(corners) == 0:
            ctx.gradients = [torch.zeros_like(object), torch.zeros_like(probe)]
            return prepared.new_zeros(())
        patches = read_windows(object, corners, (probe.shape[-2], probe.shape[-1]))
        probes = moved_probes(probe, ramps)
        waves = torch.fft.fft2(probes * patches[:, None], norm="ortho")
        value, slope = loss.value_and_slope(_sum_of_modes(waves), prepared, mask)
        gradients: list[Tensor | None] = [None, None]
        # Every product below overwrites one of its factors that nobody needs again.
        if want_object or want_probe:
            exit_gradient = torch.fft.ifft2(waves.mul_(slope.mul_(2)[:, None]), norm="ortho")
            if want_object:
                windows = (probes.conj_physical_().mul_(exit_gradient)).sum(1)
                gradients[0] = add_windows(torch.zeros_like(object), corners, windows)
            if want_probe:
                moved = torch.fft.fft2(exit_gradient.mul_(patches.conj_physical_()[:, None]))
                back = moved.mul_(ramps.conj()[:, None]).sum(0)
                gradients[1] = torch.fft.ifft2(back)
        ctx.gradients = gradients
        return value

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of `forward`, times what comes from outside."""
        scaled = [None if gradient is None else gradient.mul_(outer[0]) for gradient in ctx.gradients]
        ctx.gradients = None
        return (*scaled, None, None, None, None, None)


def far_field_loss(
    object: Tensor,
    probe: Tensor,
    corners: Tensor,
    ramps: Tensor,
    prepared: Tensor,
    mask: Tensor | None,
    loss: Loss,
) -> Tensor:
    """Loss of a batch of patterns, a sum (scalar), differentiable once in `object` and `probe`.

    object: (y, x) complex. probe: (mode, y, x) complex. corners: (pattern, yx) int64. ramps: from `shift_ramps`.
    prepared: what `loss.prepare` made of the counts, (pattern, y, x), FFT order. mask: (y, x) 0 or 1, FFT order.
    A batch without patterns gives 0 and gradients of 0.
    """
    value: Tensor = FarFieldLoss.apply(object, probe, corners, ramps, prepared, mask, loss)
    return value


def _sum_of_modes(waves: Tensor) -> Tensor:
    """Σ_m |Ψ_m|²: (pattern, y, x) from (pattern, mode, y, x)."""
    parts = torch.view_as_real(waves)
    return parts.square().sum((1, 4))
