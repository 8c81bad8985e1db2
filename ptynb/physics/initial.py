"""Where a reconstruction starts: a flat object, a probe from a guess or from the mean pattern, and higher modes."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def flat_object(shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """An object of transmission 1 (y, x)."""
    return torch.ones(shape, dtype=dtype)


def probe_from_mean_pattern(mean_pattern: Tensor, dtype: torch.dtype) -> Tensor:
    """The focused probe (1, y, x) whose far field is the square root of the mean pattern (y, x), in FFT order.

    It is centred in its window.
    """
    amplitude = mean_pattern.clamp(min=0).sqrt().to(dtype)
    return torch.fft.fftshift(torch.fft.ifft2(amplitude, norm="ortho"), dim=(-2, -1))[None]


def scale_to_counts(probe: Tensor, counts: float) -> Tensor:
    """The probe (mode, y, x) with Σ |P|² = counts a pattern, as the unitary transform of a transparent object gives."""
    power = probe.abs().square().sum()
    return probe * (counts / power).sqrt()


def add_modes(probe: Tensor, modes: int, fraction: float = 0.05) -> Tensor:
    """The probe (mode, y, x) extended to `modes` modes, or cut to them.

    A new mode is the first one times a product of Hermite polynomials over its own width, made orthogonal to the modes
    before it, and gets `fraction` of the total power. The total power stays. Horizontal ones come first: sources are
    mostly wider than high.
    """
    total = probe.abs().square().sum()
    given = probe[:modes]
    result = list(given)
    height, width = probe.shape[-2:]
    weight = probe[0].abs().square()
    weight = weight / weight.sum()
    y, x = (_standardised(side, weight.sum(1 - axis)) for axis, side in enumerate((height, width)))
    orders = ((k, n - k) for n in range(1, modes + 1) for k in range(n + 1))
    # The guess's own modes need not be orthogonal; what is orthogonal to this basis is orthogonal to all of them.
    basis = list(torch.linalg.qr(given.flatten(1).T)[0].T.reshape(given.shape))
    while len(result) < modes:
        order_y, order_x = next(orders)
        mode = probe[0] * (_hermite(order_y, y)[:, None] * _hermite(order_x, x)[None, :])
        for other in basis:
            mode = mode - other * torch.vdot(other.flatten(), mode.flatten())
        power = mode.abs().square().sum()
        result.append(mode * (fraction * total / power).sqrt())
        basis.append(mode / power.sqrt())
    extended = torch.stack(result)
    kept = 1 - fraction * (len(result) - len(given))
    extended[: len(given)] *= math.sqrt(max(kept, fraction))
    return extended * (total / extended.abs().square().sum()).sqrt()


def _standardised(side: int, weight: Tensor) -> Tensor:
    """Coordinates with mean 0 and variance 1 under `weight`."""
    coordinate = torch.arange(side, dtype=weight.dtype)
    mean = (coordinate * weight).sum()
    variance = ((coordinate - mean).square() * weight).sum()
    return (coordinate - mean) / variance.clamp(min=1e-12).sqrt()


def _hermite(order: int, x: Tensor) -> Tensor:
    """The probabilists' Hermite polynomial He_n(x), by its recurrence He_n = x He_{n-1} - (n - 1) He_{n-2}."""
    before, here = torch.zeros_like(x), torch.ones_like(x)
    for n in range(order):
        before, here = here, x * here - n * before
    return here
