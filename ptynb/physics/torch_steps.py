"""The steps of the hot path as torch operations, for any device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def shift_ramps(shifts: Tensor, window: tuple[int, int]) -> Tensor:
    """Return exp(-2πi k·s) (pattern, y, x), complex, which shifts a field by `shifts` (pattern, yx) [pixels].

    At the Nyquist frequency of an even side, where ±½ coincide, the cosine is used: real fields remain real.
    """
    y, x = (ramp(shifts[:, axis], window[axis]) for axis in (0, 1))
    return y[:, :, None] * x[:, None, :]


def product_of_slices(slices: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the product (y, x) of slices (slice, y, x). out: tensor (y, x) in which it is stored.

    Not by torch.prod, whose kernel for complex numbers is compiled at its first use on a GPU: 4.4 s on an H100.
    """
    product = slices[0].clone() if out is None else out.copy_(slices[0])
    for one in slices[1:]:
        product *= one
    return product


class MovedProbes(torch.autograd.Function):
    """`hotpath.moved_probes`."""

    @staticmethod
    def forward(ctx: Any, probes: Tensor, shifts: Tensor) -> Tensor:
        spectrum = torch.fft.fft2(probes)
        ramps = shift_ramps(shifts, (probes.shape[-2], probes.shape[-1]))[:, None]
        ctx.save_for_backward(spectrum, ramps, shifts)
        return torch.fft.ifft2(spectrum * ramps)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        spectrum, ramps, shifts = ctx.saved_tensors
        want_probes, want_shifts = ctx.needs_input_grad
        change = torch.fft.fft2(outer[0])
        slopes = slopes_of_shifts(change, spectrum, shifts) if want_shifts else None
        if not want_probes:
            return None, slopes
        change.mul_(ramps.conj_physical_())
        return torch.fft.ifft2(change.sum(0, keepdim=True) if len(spectrum) == 1 else change), slopes


def slopes_of_shifts(change: Tensor, spectrum: Tensor, shifts: Tensor) -> Tensor:
    """Return dL/ds (pattern, yx); `change` is F[G] (not unitary) of the gradient G of the moved probes.

    With Parseval's n_y n_x, dL/ds = Re Σ_k (F[G] F[P]*)* dR/ds / (n_y n_x); R is a product of a ramp along y and
    one along x, so the sums are taken along one axis after the other.
    """
    height, width = change.shape[-2:]
    product = (change * spectrum.conj()).sum(1)
    y, x = ramp(shifts[:, 0], height), ramp(shifts[:, 1], width)
    along_y = torch.bmm(product, x.conj()[:, :, None])[..., 0]
    along_x = torch.bmm(y.conj()[:, None, :], product)[:, 0]
    slopes = [
        (along * _slope_of_ramp(shifts[:, axis], side).conj()).sum(1).real
        for axis, (along, side) in enumerate(((along_y, height), (along_x, width)))
    ]
    return torch.stack(slopes, dim=1) / (height * width)


def ramp(shift: Tensor, side: int) -> Tensor:
    """Return exp(-2πi k s) (pattern, k) along one axis, real at the Nyquist frequency."""
    angle, odd = _angles(shift, side)
    return torch.complex(angle.cos(), angle.sin() * odd)


def _slope_of_ramp(shift: Tensor, side: int) -> Tensor:
    """Return the derivative of `ramp` with respect to the shift, (pattern, k)."""
    angle, odd = _angles(shift, side)
    turn = -2 * torch.pi * torch.fft.fftfreq(side, device=shift.device, dtype=shift.dtype)
    return torch.complex(-turn * angle.sin(), turn * angle.cos() * odd)


def _angles(shift: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Return -2π k s (pattern, k), and (k,) 0 at the Nyquist frequency of an even side, 1 elsewhere."""
    frequency = torch.fft.fftfreq(side, device=shift.device, dtype=shift.dtype)
    odd = torch.ones_like(frequency)
    if side % 2 == 0:
        odd[side // 2] = 0
    return -2 * torch.pi * shift[:, None] * frequency[None, :], odd


class ExitWaves(torch.autograd.Function):
    """`hotpath.exit_waves` for object windows (pattern, state, slice, y, x), which the backward step overwrites."""

    @staticmethod
    def forward(ctx: Any, windows: Tensor, probes: Tensor, kernel: Tensor | None) -> Tensor:
        waves = probes[:, None] * windows[:, :, 0, None]
        ctx.arriving = []
        for layer in range(1, windows.shape[2]):
            assert kernel is not None, "several slices need a kernel"
            arriving = torch.fft.ifft2(torch.fft.fft2(waves).mul_(_for_waves(kernel)))
            waves = arriving * windows[:, :, layer, None]
            ctx.arriving.append(arriving)
        ctx.save_for_backward(windows, probes, kernel)
        return waves

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        windows, probes, kernel = ctx.saved_tensors
        want_windows, want_probes, want_kernel = ctx.needs_input_grad
        arriving, change = ctx.arriving, outer[0]
        del ctx.arriving
        windows.conj_physical_()
        kernel_slope = torch.zeros_like(kernel) if want_kernel else None
        for layer in reversed(range(1, windows.shape[2])):
            before = arriving.pop()
            of_window = before.conj_physical_().mul_(change).sum(2) if want_windows else None
            spectrum = torch.fft.fft2(torch.mul(change, windows[:, :, layer, None], out=before))
            if kernel_slope is not None:
                lit = arriving[-1] if arriving else probes[:, None]
                kernel_slope += _slope_of_kernel(lit * windows[:, :, layer - 1, None].conj(), spectrum, kernel)
            change = torch.fft.ifft2(spectrum.mul_(_for_waves(kernel).conj()))
            if of_window is not None:
                windows[:, :, layer] = of_window
        return *_through_first_slice(windows, probes, change, want_windows, want_probes), kernel_slope


def _through_first_slice(
    windows: Tensor, probes: Tensor, change: Tensor, want_windows: bool, want_probes: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of all windows and of the probes, from that of the waves behind the first slice.

    windows: conjugate; those of further slices are already replaced by their gradients.
    """
    states, slices, modes = windows.shape[1], windows.shape[2], probes.shape[1]
    # With one state the moved probes have the size of the waves, and are not needed again.
    space = probes[:, None] if states == 1 else torch.empty_like(change)
    first = windows[:, :, 0, None]
    of_windows, of_probes = None, None
    if want_windows:
        product = torch.mul(change, probes[:, None].conj_physical_(), out=space)
        of_windows = product.sum(2) if modes > 1 else product[:, :, 0]
    if want_probes:
        kept = modes == 1 and of_windows is not None
        product = torch.mul(change, first, out=(first if slices == 1 else None) if kept else space)
        of_probes = product.sum(1) if states > 1 else product[:, 0]
    if of_windows is None:
        return None, of_probes
    if slices == 1:
        return of_windows[:, :, None], of_probes
    windows[:, :, 0] = of_windows
    return windows, of_probes


def _slope_of_kernel(waves: Tensor, spectrum: Tensor, kernel: Tensor) -> Tensor:
    """Return dL/dH* of one gap, from waves (pattern, state, mode, y, x) before it and F of the gradient behind it."""
    slope = (torch.fft.fft2(waves).conj() * spectrum).sum((1, 2) if kernel.ndim == 3 else (0, 1, 2))
    return slope / (waves.shape[-2] * waves.shape[-1])


def _for_waves(kernel: Tensor) -> Tensor:
    """Reshape a kernel (y, x) or (pattern, y, x) to broadcast against (pattern, state, mode, y, x)."""
    return kernel[:, None, None] if kernel.ndim == 3 else kernel


class FarFieldIntensity(torch.autograd.Function):
    """`hotpath.far_field_intensity`."""

    @staticmethod
    def forward(ctx: Any, waves: Tensor) -> Tensor:
        ctx.waves = torch.fft.fft2(waves, norm="ortho")
        return intensity_of(ctx.waves)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor]:
        waves = ctx.waves
        del ctx.waves
        return (torch.fft.ifft2(waves.mul_((2 * outer[0])[:, None, None]), norm="ortho"),)


def intensity_of(waves: Tensor) -> Tensor:
    """Return Σ |Ψ|² (pattern, y, x) over states, modes, or both, of waves (pattern, …, y, x)."""
    first, *others = torch.view_as_real(waves.flatten(1, -3)).unbind(1)
    squares = first.square()
    for other in others:
        squares.addcmul_(other, other)
    # Seven times faster on a CPU than a sum over an axis of length 2.
    return squares[..., 0] + squares[..., 1]
