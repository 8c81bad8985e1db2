"""The steps of the hot path for patterns from `first` to `last`: passes and transforms, in one compiled loop each.

Arrays are those of `passes`. Each step has its way back, which puts the gradient at its start where its output was.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ptynb.kernels import elementwise, fft
from ptynb.kernels.compiler import compiled


class Moving(NamedTuple):
    """What moves the probes.

    spectra: of the probes (1, mode, y, x); or the probes, of each pattern. still: whether all shifts (pattern, yx) are
    0. along_y, along_x: room for the ramps. moved: (pattern, mode, y, x); or, alone, (share, mode, y, x), for whatever
    pattern it is the share's turn of. totals: (share, mode, y, x), the gradient of what patterns have in common.
    slopes: (pattern, yx), that of the shifts. of_probes, of_shifts: which of these are wanted.
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
    """What takes the probes through the object.

    kernel: (1 or pattern, y, x), of what lies between two slices. probes: `Moving.moved`, with an axis for states.
    arriving: (1, slice less one, pattern, state, mode, y, x), what comes to each further slice; alone, (share, slice
    less one, 1, …). waves: behind the object, (pattern or share, state, mode, y, x). changes: (share, …), where each
    share adds the gradient of the object by itself, else empty.
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


class Seen(NamedTuple):
    """What the detector saw, and how; what is missing is empty, and with a background there are weights.

    stored: counts (…, y, x), of which pattern j has number rows[j]. mask: (y, x). weights: w (pattern,). background:
    B (y, x). of_weights, of_background: their gradients, the latter (share, y, x).
    """

    stored: Any
    rows: Any
    mask: Any
    weights: Any
    background: Any
    of_weights: Any
    of_background: Any


@compiled
def own(array: Any, alone: bool, share: int) -> Any:
    """A share's room in an array that has one for each; all of an array of patterns."""
    return array[share : share + 1] if alone else array[0 : len(array)]


@compiled
def move(moving: Moving, moved: Any, first: int, last: int) -> None:
    """P_jm = F⁻¹[R_j F[P_m]]; with one spectrum for each pattern, these are the probes before. moved: (one)."""
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


@compiled
def move_back(moving: Moving, moved: Any, total: Any, first: int, last: int) -> None:
    """The gradient of what `move` gave becomes that of the probes, or of their spectra where patterns share these.

    moved: (one). total: a share's own, to which is added.
    """
    along_y, along_x, shared = moving.along_y, moving.along_x, moving.spectra.shape[0] == 1
    if not moving.still:
        fft.forward(moving.plans, moved, *span(moved, first, last))
    if moving.of_probes and shared:
        elementwise.add_ramped(moved, along_y, along_x, first, last, total)
    if moving.still:
        return
    factor = 1 / (moved.shape[-2] * moved.shape[-1])
    if moving.of_shifts:
        elementwise.shift_slopes(
            moved, moving.spectra, along_y, along_x, moving.shifts, factor, first, last, moving.slopes
        )
    if moving.of_probes and not shared:
        elementwise.ramped_back(moved, along_y, along_x, factor, first, last)
        fft.backward(moving.plans, moved, first, last)


@compiled
def cross(crossing: Crossing, probes: Any, arriving: Any, waves: Any, first: int, last: int) -> None:
    """ψ₁ = P O₁ and ψ_k = O_k F⁻¹[H F[ψ_k-1]]. The three arrays are those of the share, (one)."""
    plans, factor = crossing.plans, 1 / (waves.shape[-2] * waves.shape[-1])
    for layer in range(arriving.shape[0] + 1):
        before = probes if layer == 0 else arriving[layer - 1]
        if layer > 0:
            start, end = span(waves, first, last)
            fft.forward_into(plans, waves, before, start, end)
            elementwise.filtered(before, crossing.kernel, False, factor, first, last)
            fft.backward(plans, before, start, end)
        elementwise.through(before, crossing.object, layer, crossing.window_origins, first, last, waves)


@compiled
def cross_back(crossing: Crossing, probes: Any, arriving: Any, waves: Any, first: int, last: int) -> None:
    """The gradient of what `cross` gave becomes that of the last slice's windows.

    What arrived at a slice becomes the gradient of the windows before it, and the probes become their own gradient.
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


@compiled
def add_change(
    crossing: Crossing,
    arriving: Any,
    waves: Any,
    factor: float,
    patterns: tuple[int, int],
    rows: tuple[int, int],
    out: Any,
) -> None:
    """Adds what `cross_back` left, times a factor, to some rows of the gradient of the object.

    patterns: the first, and the first that is not. rows: the share whose they are, and the number of shares.
    """
    gaps = arriving.shape[0]
    for layer in range(gaps + 1):
        windows = waves if layer == gaps else arriving[layer]
        elementwise.add_windows(windows, layer, crossing.window_origins, factor, *patterns, *rows, out)


@compiled
def propagate(plans: Any, waves: Any, first: int, last: int, intensity: Any) -> None:
    """M_j = Σ_m |F[ψ_jm]|²; the waves become those on the detector, times √(n_y n_x)."""
    fft.forward(plans, waves, *span(waves, first, last))
    elementwise.add_squares(waves, 1 / (waves.shape[-2] * waves.shape[-1]), first, last, intensity)


@compiled
def propagate_back(plans: Any, waves: Any, slopes: Any, first: int, last: int) -> None:
    """F⁻¹[2 (dL/dM) Ψ], where Ψ was."""
    elementwise.scaled(waves, slopes, 2 / (waves.shape[-2] * waves.shape[-1]), first, last)
    fft.backward(plans, waves, *span(waves, first, last))


@compiled
def span(array: Any, first: int, last: int) -> tuple[int, int]:
    """Where patterns lie in an array that may have one entry for whatever pattern it is the turn of."""
    return (first, last) if array.shape[0] > 1 or first == last else (0, 1)
