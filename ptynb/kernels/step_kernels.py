"""The steps of the hot path for patterns `first` to `last`: loops and transforms, one compiled function per step.

Arrays are as in `elementwise`. Each step has a backward step, which overwrites the gradient of its output with that of
its input.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ptynb.kernels import elementwise
from ptynb.kernels.runtime import fft
from ptynb.kernels.runtime.compiler import inner


class Moving(NamedTuple):
    """Arguments of the probe shift.

    spectra: of the probes, (1, mode, y, x); or, if each pattern has its own, (pattern, mode, y, x), the probes
    themselves. still: whether all shifts (pattern, yx) are 0. along_y, along_x: buffers for the ramps. alone: whether
    `moved` contains only the current pattern of each share. moved: (pattern, mode, y, x), or (share, mode, y, x) if
    alone. totals: (share, mode, y, x), gradient of the shared spectra. slopes: (pattern, yx), gradient of the shifts.
    of_probes, of_shifts: which gradients to compute.
    """

    plans: fft.Plans
    spectra: Any
    shifts: Any
    still: bool
    along_y: Any
    along_x: Any
    moved: Any
    alone: bool
    totals: Any
    slopes: Any
    of_probes: bool
    of_shifts: bool


class Crossing(NamedTuple):
    """Arguments of the propagation through the object.

    kernel: (1 or pattern, y, x), of the space between two slices. probes: `Moving.moved`, with an axis for states.
    alone: whether arrays contain only the current pattern of each share. arriving: waves incident on each further
    slice, (1, slice less one, pattern, state, mode, y, x), or (share, slice less one, 1, …) if alone. waves: behind the
    object, (pattern, state, mode, y, x), or (share, …) if alone. changes: (share, …), gradient of the object summed by
    each share; empty if not alone.
    """

    plans: fft.Plans
    object: Any
    window_origins: Any
    kernel: Any
    probes: Any
    arriving: Any
    waves: Any
    alone: bool
    changes: Any


class Near(NamedTuple):
    """Arguments of the propagation to a detector in the near field, which is fixed to the probe.

    propagator: H (1, y, x). spectra: buffer for H F[ψ] of the shape of `Crossing.waves`; empty if shifts have no
    gradient. slopes: (pattern, yx), gradient of the shift back.
    """

    propagator: Any
    spectra: Any
    slopes: Any


class Seen(NamedTuple):
    """Measured counts and detector parameters; missing arrays are empty, and a background requires weights.

    stored: counts (…, y, x), with those of pattern j at index rows[j]. mask: (y, x). weights: w (pattern,).
    background: B (y, x). of_weights, of_background: gradients of weights and background, the latter (share, y, x).
    """

    stored: Any
    rows: Any
    mask: Any
    weights: Any
    background: Any
    of_weights: Any
    of_background: Any


@inner
def own(array: Any, alone: bool, share: int) -> Any:
    """Return a share's entry of an array with one entry per share (if alone); else the whole array of patterns."""
    return array[share : share + 1] if alone else array[0 : len(array)]


@inner
def move(moving: Moving, moved: Any, first: int, last: int) -> None:
    """P_jm = F⁻¹[R_j F[P_m]]; `spectra` with one entry per pattern contains the unshifted probes. moved: (one)."""
    along_y, along_x = moving.along_y, moving.along_x
    if moving.still:
        elementwise.ramped(moving.spectra, along_y, along_x, 1.0, first, last, moved)
        return
    if moving.spectra.shape[0] > 1:
        fft.forward(moving.plans, moving.spectra, first, last)
    elementwise.write_ramps(moving.shifts, 0, first, last, along_y)
    elementwise.write_ramps(moving.shifts, 1, first, last, along_x)
    elementwise.ramped(moving.spectra, along_y, along_x, 1 / (moved.shape[-2] * moved.shape[-1]), first, last, moved)
    fft.backward(moving.plans, moved, *span(moved, first, last))


@inner
def move_back(moving: Moving, moved: Any, total: Any, first: int, last: int) -> None:
    """Replace the gradient of the output of `move` by that of the probes; if it is summed, by its spectra.

    moved: (one). total: gradient sum of this share, which is added to; empty if each pattern has its own probes.
    """
    along_y, along_x, summed = moving.along_y, moving.along_x, total.shape[0] > 0
    if not moving.still:
        fft.forward(moving.plans, moved, *span(moved, first, last))
    if moving.of_probes and summed:
        elementwise.add_ramped(moved, along_y, along_x, first, last, total)
    if moving.still:
        return
    factor = 1 / (moved.shape[-2] * moved.shape[-1])
    if moving.of_shifts:
        elementwise.shift_slopes(
            moved, moving.spectra, along_y, along_x, moving.shifts, factor, first, last, moving.slopes
        )
    if moving.of_probes and not summed:
        elementwise.ramped_in_place(moved, along_y, along_x, True, factor, first, last)
        fft.backward(moving.plans, moved, first, last)


@inner
def cross(crossing: Crossing, probes: Any, arriving: Any, waves: Any, first: int, last: int) -> None:
    """ψ₁ = P O₁ and ψ_k = O_k F⁻¹[H F[ψ_k-1]]. probes, arriving, waves: arrays of this share, (one)."""
    plans, factor = crossing.plans, 1 / (waves.shape[-2] * waves.shape[-1])
    for layer in range(arriving.shape[0] + 1):
        before = probes if layer == 0 else arriving[layer - 1]
        if layer > 0:
            start, end = span(waves, first, last)
            fft.forward_into(plans, waves, before, start, end)
            elementwise.filtered(before, crossing.kernel, False, factor, first, last)
            fft.backward(plans, before, start, end)
        elementwise.through(before, crossing.object, layer, crossing.window_origins, first, last, waves)


@inner
def cross_back(crossing: Crossing, probes: Any, arriving: Any, waves: Any, first: int, last: int) -> None:
    """Replace the gradient of the output of `cross`, in `waves`, by that of the windows of the last slice.

    The incident waves of a slice are replaced by the gradient of the windows of the slice before it, the probes by
    their gradient.
    """
    plans, factor = crossing.plans, 1 / (waves.shape[-2] * waves.shape[-1])
    gaps = arriving.shape[0]
    for layer in range(gaps, -1, -1):
        change = waves if layer == gaps else arriving[layer]
        before = probes if layer == 0 else arriving[layer - 1]
        elementwise.through_back(change, before, crossing.object, layer, crossing.window_origins, first, last)
        if layer > 0:
            start, end = span(change, first, last)
            fft.forward(plans, before, start, end)
            elementwise.filtered(before, crossing.kernel, True, factor, first, last)
            fft.backward(plans, before, start, end)


@inner
def add_change(
    crossing: Crossing,
    arriving: Any,
    waves: Any,
    factor: float,
    patterns: tuple[int, int],
    rows: tuple[int, int],
    out: Any,
) -> None:
    """Add the output of `cross_back`, times a factor, to some rows of the gradient of the object.

    patterns: the first, and one past the last. rows: index of the share that owns the rows, and number of shares.
    """
    gaps = arriving.shape[0]
    for layer in range(gaps + 1):
        windows = waves if layer == gaps else arriving[layer]
        elementwise.add_windows(windows, layer, crossing.window_origins, factor, *patterns, *rows, out)


@inner
def propagate(plans: Any, waves: Any, first: int, last: int, intensity: Any) -> None:
    """M_j = Σ_m |F[ψ_jm]|²; overwrites the waves with those on the detector, times √(n_y n_x)."""
    fft.forward(plans, waves, *span(waves, first, last))
    elementwise.add_squares(waves, 1 / (waves.shape[-2] * waves.shape[-1]), first, last, intensity)


@inner
def propagate_back(plans: Any, waves: Any, slopes: Any, factor: float, first: int, last: int) -> None:
    """F⁻¹[(dL/dM) Ψ] times a factor, 2 for the gradient, which overwrites Ψ."""
    elementwise.scaled(waves, slopes, factor / (waves.shape[-2] * waves.shape[-1]), first, last)
    fft.backward(plans, waves, *span(waves, first, last))


@inner
def propagate_near(moving: Moving, near: Near, spectra: Any, waves: Any, first: int, last: int, intensity: Any) -> None:
    """M_j = Σ_m |F⁻¹[R_j* H F[ψ_jm]]|²; overwrites the waves with those on the detector. spectra: of this share, (one).

    R_j* shifts the waves back by the subpixel part of the position, by which the probe was shifted.
    """
    start, end = span(waves, first, last)
    fft.forward(moving.plans, waves, start, end)
    elementwise.filtered(waves, near.propagator, False, 1 / (waves.shape[-2] * waves.shape[-1]), first, last)
    if moving.of_shifts:
        elementwise.copy_planes(_merged(waves), first, last, _merged(spectra))
    if not moving.still:
        elementwise.ramped_in_place(_merged(waves), moving.along_y, moving.along_x, True, 1.0, first, last)
    fft.backward(moving.plans, waves, start, end)
    elementwise.add_squares(waves, 1.0, first, last, intensity)


@inner
def propagate_near_back(
    moving: Moving, near: Near, spectra: Any, waves: Any, slopes: Any, factor: float, first: int, last: int
) -> None:
    """F⁻¹[H* R_j F[(dL/dM) Ψ]] times a factor, 2 for the gradient, which overwrites Ψ."""
    elementwise.scaled(waves, slopes, factor, first, last)
    start, end = span(waves, first, last)
    fft.forward(moving.plans, waves, start, end)
    along_y, along_x, merged = moving.along_y, moving.along_x, _merged(waves)
    if moving.of_shifts:
        # Exchanged, since the conjugate of the ramp was applied: Re Σ a b* R' = Re Σ b a* R'*.
        elementwise.shift_slopes(
            _merged(spectra), merged, along_y, along_x, moving.shifts, 1.0, first, last, near.slopes
        )
    if not moving.still:
        elementwise.ramped_in_place(merged, along_y, along_x, False, 1.0, first, last)
    elementwise.filtered(waves, near.propagator, True, 1 / (waves.shape[-2] * waves.shape[-1]), first, last)
    fft.backward(moving.plans, waves, start, end)


@inner
def _merged(waves: Any) -> Any:
    """Return waves (pattern, state, mode, y, x) as (pattern, state · mode, y, x)."""
    patterns, states, modes, height, width = waves.shape
    return waves.reshape((patterns, states * modes, height, width))


@inner
def span(array: Any, first: int, last: int) -> tuple[int, int]:
    """Return the index range of patterns in an array that may have a single entry, for the current pattern."""
    return (first, last) if array.shape[0] > 1 or first == last else (0, 1)
