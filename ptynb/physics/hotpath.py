"""The hot path: what every pattern of every update goes through, with gradients written out.

For pattern j at position r_j = c_j + s_j (whole pixels + a rest in [-½, ½]) and probe mode m

    P_jm = F⁻¹[R_j F[P_m]],  R_j = exp(-2πi k·s_j)    `moved_probes`: exactly, for a periodic window
    ψ_jm = P_jm · O[c_j : c_j + n]                    `exit_waves`: through one slice of the object, or several
    Ψ_jm = F[ψ_jm],  M_j = Σ_m |Ψ_jm|²                `far_field_intensity`
    L    = Σ_j loss(M_j, I_j)                         `losses.loss_of`

F is the unitary discrete Fourier transform ("ortho"). All arrays on the detector are in FFT order, zero frequency at
index 0: no fftshift is ever needed, since a shift of the window by n/2 only multiplies Ψ by a phase.

Backwards, with g = F⁻¹[(dL/dM) Ψ], the derivative of L with respect to ψ*,

    dL/dO*   = Σ_jm  P_jm* g_jm  added at c_j
    dL/dP_m* = F⁻¹[ Σ_j R_j* Q_jm ],  Q_jm = F[O_j* g_jm]
    dL/ds_j  = 2 Re Σ_km  Q_jm* (dR_j/ds) F[P_m]

PyTorch's gradient of a complex number z is 2 dL/dz*. Thibault and Guizar-Sicairos, New J. Phys. 14, 063004 (2012).

So a pattern costs four Fourier transforms a mode, and four more for each further slice (on a CPU two less, where all
rests are 0). Of the passes over memory around them, one that overwrites its array takes a third of the time of one that
fills a new one. So these functions own what they keep for the gradient, and overwrite it there: gradients can be taken
once. Everything around them is recorded by automatic differentiation, so that a new piece of the model is a few lines.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def shift_ramps(shifts: Tensor, window: tuple[int, int]) -> Tensor:
    """exp(-2πi k·s) (pattern, y, x), complex: moves a field by `shifts` (pattern, yx) [pixels] in Fourier space.

    At the Nyquist frequency of an even side, where ±½ are one sample, the cosine is taken: real fields stay real.
    """
    y, x = (_ramp(shifts[:, axis], window[axis]) for axis in (0, 1))
    return y[:, :, None] * x[:, None, :]


def moved_probes(probes: Tensor, shifts: Tensor) -> Tensor:
    """Modes (mode, y, x) or (pattern, mode, y, x) moved by `shifts` (pattern, yx) [pixels]: (pattern, mode, y, x).

    Differentiable in both.
    """
    moved: Tensor = _MovedProbes.apply(probes if probes.ndim == 4 else probes[None], shifts)
    return moved


def exit_waves(windows: Tensor, probes: Tensor, kernel: Tensor | None = None) -> Tensor:
    """Waves right behind the object, (pattern, state, mode, y, x).

    ψ₁ = P O₁ and ψ_k = O_k F⁻¹[H F[ψ_k-1]]: each slice multiplies, free space lies between two slices, and none follows
    the last one. Cowley and Moodie, Acta Cryst. 10, 609 (1957).

    windows: (pattern, state, slice, y, x), of the object. probes: (pattern or 1, mode, y, x).
    kernel: (y, x) or (pattern, y, x), from `propagate.angular_spectrum_kernel`; needed for more than one slice.

    Differentiable in all three. `windows` and `probes` are used up: taking the gradient overwrites them.
    """
    waves: Tensor = _ExitWaves.apply(windows, probes, kernel)
    return waves


def far_field_intensity(waves: Tensor) -> Tensor:
    """Σ |F[ψ]|² (pattern, y, x) over states and modes of exit waves (pattern, state, mode, y, x); differentiable."""
    intensity: Tensor = _FarFieldIntensity.apply(waves)
    return intensity


def intensity_of(waves: Tensor) -> Tensor:
    """Σ |Ψ|² (pattern, y, x) over states, modes, or both, of waves (pattern, …, y, x); differentiable."""
    intensity: Tensor = _Intensity.apply(waves)
    return intensity


class _MovedProbes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, probes: Tensor, shifts: Tensor) -> Tensor:
        # Whether they are 0 is asked on a CPU only: a GPU would have to be waited for.
        ctx.still = shifts.device.type == "cpu" and not shifts.requires_grad and not shifts.any()
        if ctx.still:
            ctx.shared = len(probes) == 1
            return probes.expand(len(shifts), -1, -1, -1).clone()
        spectrum = torch.fft.fft2(probes)
        ramps = shift_ramps(shifts, (probes.shape[-2], probes.shape[-1]))[:, None]
        ctx.save_for_backward(spectrum, ramps, shifts)
        return torch.fft.ifft2(spectrum * ramps)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.still:
            return outer[0].sum(0, keepdim=True) if ctx.shared else outer[0], None
        spectrum, ramps, shifts = ctx.saved_tensors
        want_probes, want_shifts = ctx.needs_input_grad
        change = torch.fft.fft2(outer[0])
        slopes = _slopes_of_shifts(change, spectrum, shifts) if want_shifts else None
        if not want_probes:
            return None, slopes
        change.mul_(ramps.conj_physical_())
        return torch.fft.ifft2(change.sum(0, keepdim=True) if len(spectrum) == 1 else change), slopes


def _slopes_of_shifts(change: Tensor, spectrum: Tensor, shifts: Tensor) -> Tensor:
    """dL/ds (pattern, yx), where `change` is F[G] (not unitary) of the gradient G of the moved probes.

    With Parseval's n_y n_x, dL/ds = Re Σ_k (F[G] F[P]*)* dR/ds / (n_y n_x); R is a product of a ramp along y and
    one along x, so the sums are taken along one axis after the other.
    """
    height, width = change.shape[-2:]
    product = (change * spectrum.conj()).sum(1)
    y, x = _ramp(shifts[:, 0], height), _ramp(shifts[:, 1], width)
    along_y = torch.bmm(product, x.conj()[:, :, None])[..., 0]
    along_x = torch.bmm(y.conj()[:, None, :], product)[:, 0]
    slopes = [
        (along * _slope_of_ramp(shifts[:, axis], side).conj()).sum(1).real
        for axis, (along, side) in enumerate(((along_y, height), (along_x, width)))
    ]
    return torch.stack(slopes, dim=1) / (height * width)


def _ramp(shift: Tensor, side: int) -> Tensor:
    """exp(-2πi k s) (pattern, k) along one axis, real at the Nyquist frequency."""
    angle, odd = _angles(shift, side)
    return torch.complex(angle.cos(), angle.sin() * odd)


def _slope_of_ramp(shift: Tensor, side: int) -> Tensor:
    """The derivative of `_ramp` with respect to the shift, (pattern, k)."""
    angle, odd = _angles(shift, side)
    turn = -2 * torch.pi * torch.fft.fftfreq(side, device=shift.device, dtype=shift.dtype)
    return torch.complex(-turn * angle.sin(), turn * angle.cos() * odd)


def _angles(shift: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """-2π k s (pattern, k), and (k,) 0 at the Nyquist frequency of an even side, 1 elsewhere."""
    frequency = torch.fft.fftfreq(side, device=shift.device, dtype=shift.dtype)
    odd = torch.ones_like(frequency)
    if side % 2 == 0:
        odd[side // 2] = 0
    return -2 * torch.pi * shift[:, None] * frequency[None, :], odd


class _ExitWaves(torch.autograd.Function):
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
    """Gradients of all windows and of the probes, from that of the waves behind the first slice.

    Windows come conjugated, those of further slices replaced by their gradients.
    """
    states, slices, modes = windows.shape[1], windows.shape[2], probes.shape[1]
    shared = len(probes) < len(change)
    # One state and a probe for each pattern: the moved probes have the waves' size, and nobody needs them again.
    space = probes[:, None] if states == 1 and not shared else torch.empty_like(change)
    first = windows[:, :, 0, None]
    of_windows, of_probes = None, None
    if want_windows:
        product = torch.mul(change, probes[:, None].conj_physical_(), out=space)
        of_windows = product.sum(2) if modes > 1 else product[:, :, 0]
    if want_probes:
        kept = modes == 1 and of_windows is not None
        product = torch.mul(change, first, out=(first if slices == 1 else None) if kept else space)
        of_probes = product.sum(1) if states > 1 else product[:, 0]
        of_probes = of_probes.sum(0, keepdim=True) if shared else of_probes
    if of_windows is None:
        return None, of_probes
    if slices == 1:
        return of_windows[:, :, None], of_probes
    windows[:, :, 0] = of_windows
    return windows, of_probes


def _slope_of_kernel(waves: Tensor, spectrum: Tensor, kernel: Tensor) -> Tensor:
    """dL/dH* of one gap, for the waves (pattern, state, mode, y, x) before it and F of the gradient behind it."""
    slope = (torch.fft.fft2(waves).conj() * spectrum).sum((1, 2) if kernel.ndim == 3 else (0, 1, 2))
    return slope / (waves.shape[-2] * waves.shape[-1])


def _for_waves(kernel: Tensor) -> Tensor:
    """A kernel (y, x) or (pattern, y, x), to be multiplied with (pattern, state, mode, y, x)."""
    return kernel[:, None, None] if kernel.ndim == 3 else kernel


class _FarFieldIntensity(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, waves: Tensor) -> Tensor:
        ctx.waves = torch.fft.fft2(waves, norm="ortho")
        return _summed_squares(ctx.waves)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor]:
        waves = ctx.waves
        del ctx.waves
        return (torch.fft.ifft2(waves.mul_((2 * outer[0])[:, None, None]), norm="ortho"),)


class _Intensity(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, waves: Tensor) -> Tensor:
        ctx.save_for_backward(waves)
        return _summed_squares(waves)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor]:
        (waves,) = ctx.saved_tensors
        return (waves * (2 * outer[0]).unflatten(0, (-1,) + (1,) * (waves.ndim - 3)),)


def _summed_squares(waves: Tensor) -> Tensor:
    """Σ |Ψ|² (pattern, y, x) of waves (pattern, …, y, x)."""
    first, *others = torch.view_as_real(waves.flatten(1, -3)).unbind(1)
    squares = first.square()
    for other in others:
        squares.addcmul_(other, other)
    # Seven times faster on a CPU than a sum over an axis of length 2.
    return squares[..., 0] + squares[..., 1]
