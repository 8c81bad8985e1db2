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

    start: plans, spectra, shifts, whether all of these are 0, and ramps along y and x. moved: (one).
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
    transforms.backward(plans, moved, *_span(moved, first, last))


@compiled
def move_back(
    start: Any, wanted: tuple[bool, bool], first: int, last: int, moved: Any, slopes: Any, total: Any
) -> None:
    """The gradient of what `move` gave becomes that of the probes, or of their spectra where patterns share these.

    moved: (one). total: the sum of the gradients of what patterns share, to which they are added (mode, y, x).
    """
    plans, spectra, shifts, still, along_y, along_x = start
    of_probes, of_shifts = wanted
    if not still:
        transforms.forward(plans, moved, *_span(moved, first, last))
    if of_probes and spectra.shape[0] == 1:
        passes.add_ramped(moved, along_y, along_x, first, last, total)
    if still:
        return
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
        span = _span(waves, first, last)
        transforms.forward_into(plans, waves, between, *span)
        passes.filtered(between, kernel, False, factor, first, last)
        transforms.backward(plans, between, *span)
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
        span = _span(change, first, last)
        transforms.forward(plans, arriving[gap], *span)
        passes.filtered(arriving[gap], kernel, True, factor, first, last)
        transforms.backward(plans, arriving[gap], *span)
    passes.through_back(arriving[0] if gaps else waves, probes, object, 0, corners, first, last)


@compiled
def propagate(plans: Any, waves: Any, first: int, last: int, intensity: Any) -> None:
    """M_j = Σ_m |F[ψ_jm]|²; the waves become those on the detector, times √(n_y n_x)."""
    transforms.forward(plans, waves, *_span(waves, first, last))
    passes.add_squares(waves, 1 / (waves.shape[-2] * waves.shape[-1]), first, last, intensity)


@compiled
def propagate_back(plans: Any, waves: Any, slopes: Any, first: int, last: int) -> None:
    """F⁻¹[2 (dL/dM) Ψ], where Ψ was."""
    passes.scaled(waves, slopes, 2 / (waves.shape[-2] * waves.shape[-1]), first, last)
    transforms.backward(plans, waves, *_span(waves, first, last))


@compiled
def add_change(crossing: Any, waves: Any, factor: float, first: int, last: int, rows: Any, out: Any) -> None:
    """Adds what `cross_back` left, times a factor, to the gradient of the object.

    rows: the share whose rows these are, and the number of shares.
    """
    _, _, corners, _, arriving, _ = crossing
    share, shares = rows
    for gap in range(arriving.shape[0]):
        passes.add_windows(arriving[gap], gap, corners, factor, first, last, share, shares, out)
    passes.add_windows(waves, arriving.shape[0], corners, factor, first, last, share, shares, out)


@compiled
def misfit(
    moving: Any,
    moved: Any,
    total: Any,
    crossing: Any,
    waves: Any,
    change: Any,
    intensity: Any,
    seen: Any,
    floor: float,
    backwards: bool,
    wanted: tuple[bool, bool],
    values: Any,
    slopes: Any,
    first: int,
    last: int,
) -> None:
    """All steps, the amplitude loss, and the way back: pattern by pattern, while each is in the second-level cache.

    moving, crossing: where `move` and `cross` start. moved, waves, intensity: (one), which then stays there. total: as
    for `move_back`. change: the sum of the gradients of the object, if it has any room, else waves are kept. seen: as
    for `passes.amplitude_loss`. Sums begin with anything in them.
    """
    plans, of_background = moving[0], seen[-1]
    total[...] = 0
    change[...] = 0
    of_background[...] = 0
    for one in range(first, last):
        end = one + 1
        move(moving, one, end, moved)
        cross(crossing, one, end, waves)
        propagate(plans, waves, one, end, intensity)
        passes.amplitude_loss(intensity, seen, floor, one, end, values)
        if backwards:
            propagate_back(plans, waves, intensity, one, end)
            cross_back(crossing, one, end, waves)
            if change.size > 0:
                add_change(crossing, waves, 1.0, one, end, (0, 1), change)
            move_back(moving, wanted, one, end, moved, slopes, total)


@compiled
def _span(array: Any, first: int, last: int) -> tuple[int, int]:
    """Where patterns lie in an array that may have one entry for whatever pattern it is the turn of."""
    return (first, last) if array.shape[0] > 1 or first == last else (0, 1)
