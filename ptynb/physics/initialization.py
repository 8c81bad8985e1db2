"""Where a reconstruction starts: a flat object, a probe from a guess or from the mean pattern, and higher modes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ptynb.exceptions import InvalidValueError

STATE_PHASE = 0.05
"""How far the phases of an object's states lie apart at the start [rad]: equal ones would stay equal for ever."""

NOTHING_NEW = 1e-6
"""Power left of a mode without those before it, as a part of its own, at or below which it is rounding."""


def flat_object(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """An object of transmission 1 (slice, y, x)."""
    return torch.ones(shape, dtype=dtype)


def split_in_depth(object: Tensor, slices: int) -> Tensor:
    """An object (y, x) as equal slices (slice, y, x) whose product it is; phases beyond ±π are not unwrapped."""
    root = torch.polar(object.abs() ** (1 / slices), object.angle() / slices)
    return root.expand(slices, *object.shape).clone() if slices > 1 else object[None]


def object_states(slices: Tensor, states: int, seed: int) -> Tensor:
    """States (state, slice, y, x) of an object (slice, y, x); those after the first differ by small random phases."""
    if states == 1:
        return slices[None]
    random = torch.Generator().manual_seed(seed)
    phases = STATE_PHASE * torch.randn((states, *slices.shape), generator=random, dtype=torch.float64)
    phases[0] = 0
    return slices * torch.polar(torch.ones_like(phases), phases).to(slices.dtype)


def centred_in(probe: Tensor, window: tuple[int, int]) -> Tensor:
    """The probe (mode, y, x) in the middle of a window that is not smaller, dark around it."""
    larger = probe.new_zeros((len(probe), *window))
    top, left = (outer // 2 - inner // 2 for outer, inner in zip(window, probe.shape[-2:], strict=True))
    larger[:, top : top + probe.shape[-2], left : left + probe.shape[-1]] = probe
    return larger


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
    mostly wider than high. One that is among the modes already, as after a run, is passed over.

    Raises ValueError where the probe lights too few pixels for so many.
    """
    total = probe.abs().square().sum()
    given = probe[:modes]
    result = list(given)
    height, width = probe.shape[-2:]
    weight = probe[0].abs().square()
    weight = weight / weight.sum()
    y, x = (_standardised(side, weight.sum(1 - axis)) for axis, side in enumerate((height, width)))
    orders = ((k, n - k) for n in range(1, modes + 2) for k in range(n + 1))
    # The guess's own modes need not be orthogonal; what is orthogonal to this basis is orthogonal to all of them.
    basis = list(torch.linalg.qr(given.flatten(1).T)[0].T.reshape(given.shape))
    while len(result) < modes:
        order_y, order_x = next(orders, (None, None))
        if order_y is None or order_x is None:
            raise InvalidValueError(f"The probe lights too few pixels for {modes} modes that differ; ask for fewer.")
        mode = probe[0] * (_hermite(order_y, y)[:, None] * _hermite(order_x, x)[None, :])
        whole = mode.abs().square().sum()
        for other in basis:
            mode = mode - other * torch.vdot(other.flatten(), mode.flatten())
        power = mode.abs().square().sum()
        if power <= NOTHING_NEW * whole:
            continue
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
