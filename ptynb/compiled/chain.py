"""The steps of the hot path for patterns from `first` to `last`: passes and transforms, in one compiled loop each.

Arrays are those of `passes`. Each step has its way back, which puts the gradient at its start where its output was.
"""

from __future__ import annotations

from typing import Any

from ptynb.compiled import passes, transforms
from ptynb.compiled.compiler import compiled


@compiled
def move(start: Any, first: int, last: int, moved: Any) -> None:
    """P_jm = F⁻¹[R_j F[P_m]]; with one spectrum for each pattern, these are the probes before.

    start: plans, spectra, shifts, whether all of these are 0, and ramps along y and x.
    """
    plans, spectra, shifts, still, along_y, along_x = start
    if still:
        passes.ramped(spectra, along_y, along_x, 1.0, first, last, moved)
        return
    if spectra.shape[0] > 1:
        transforms.forward(plans, spectra, first, last)
    passes.write_ramps(shifts, 0, first, last, along_y)
    passes.write_ramps(shifts, 1, first, last, along_x)
    passes.ramped(spectra, along_y, along_x, 1 / (moved.shape[-2] * moved.shape[-1]), first, last, moved)
    transforms.backward(plans, moved, first, last)


@compiled
def move_back(start: Any, wanted: tuple[bool, bool], first: int, last: int, moved: Any, slopes: Any) -> None:
    """The gradient of what `move` gave becomes that of the probes, or of their spectra where patterns share these."""
    plans, spectra, shifts, still, along_y, along_x = start
    of_probes, of_shifts = wanted
    if still:
        return
    transforms.forward(plans, moved, first, last)
    factor = 1 / (moved.shape[-2] * moved.shape[-1])
    if of_shifts:
        passes.shift_slopes(moved, spectra, along_y, along_x, shifts, factor, first, last, slopes)
    if of_probes and spectra.shape[0] > 1:
        passes.ramped_back(moved, along_y, along_x, factor, first, last)
        transforms.backward(plans, moved, first, last)


@compiled
def cross(start: Any, first: int, last: int, waves: Any) -> None:
    """ψ₁ = P O₁ and ψ_k = O_k F⁻¹[H F[ψ_k-1]].

    start: plans, object, corners, probes, arriving (slice less one, pattern, state, mode, y, x), and the kernel.
    """
    plans, object, corners, probes, arriving, kernel = start
    factor = 1 / (waves.shape[-2] * waves.shape[-1])
    passes.through(probes, object, 0, corners, first, last, waves)
    for gap in range(arriving.shape[0]):
        between = arriving[gap]
        transforms.forward_into(plans, waves, between, first, last)
        passes.filtered(between, kernel, False, factor, first, last)
        transforms.backward(plans, between, first, last)
        passes.through(between, object, gap + 1, corners, first, last, waves)


@compiled
def cross_back(start: Any, first: int, last: int, waves: Any) -> None:
    """The gradient of what `cross` gave becomes that of the last slice's windows.

    What arrived at a slice becomes the gradient of the windows before it, and the probes become their own gradient.
    """
    plans, object, corners, probes, arriving, kernel = start
    factor = 1 / (waves.shape[-2] * waves.shape[-1])
    gaps = arriving.shape[0]
    for gap in range(gaps - 1, -1, -1):
        change = waves if gap == gaps - 1 else arriving[gap + 1]
        passes.through_back(change, arriving[gap], object, gap + 1, corners, first, last)
        transforms.forward(plans, arriving[gap], first, last)
        passes.filtered(arriving[gap], kernel, True, factor, first, last)
        transforms.backward(plans, arriving[gap], first, last)
    passes.through_back(arriving[0] if gaps else waves, probes, object, 0, corners, first, last)


@compiled
def propagate(plans: Any, waves: Any, first: int, last: int, intensity: Any) -> None:
    """M_j = Σ_m |F[ψ_jm]|²; the waves become those on the detector, times √(n_y n_x)."""
    transforms.forward(plans, waves, first, last)
    passes.add_squares(waves, 1 / (waves.shape[-2] * waves.shape[-1]), first, last, intensity)


@compiled
def propagate_back(plans: Any, waves: Any, slopes: Any, first: int, last: int) -> None:
    """F⁻¹[2 (dL/dM) Ψ], where Ψ was."""
    passes.scaled(waves, slopes, 2 / (waves.shape[-2] * waves.shape[-1]), first, last)
    transforms.backward(plans, waves, first, last)


@compiled
def misfit(
    moving: Any,
    moved: Any,
    crossing: Any,
    waves: Any,
    intensity: Any,
    frames: Any,
    mask: Any,
    floor: float,
    backwards: bool,
    wanted: tuple[bool, bool],
    values: Any,
    slopes: Any,
    first: int,
    last: int,
) -> None:
    """All steps, the amplitude loss, and the way back: pattern by pattern, while each is in the second-level cache.

    moving, crossing: where `move` and `cross` start.
    """
    plans = moving[0]
    for one in range(first, last):
        end = one + 1
        move(moving, one, end, moved)
        cross(crossing, one, end, waves)
        propagate(plans, waves, one, end, intensity)
        passes.amplitude_loss(intensity, frames, mask, floor, one, end, values)
        if backwards:
            propagate_back(plans, waves, intensity, one, end)
            cross_back(crossing, one, end, waves)
            move_back(moving, wanted, one, end, moved, slopes)
