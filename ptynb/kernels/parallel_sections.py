"""Parallel sections of the hot path: each thread runs the steps for its share of patterns, or of rows of shared arrays.

A section ends when all threads have finished; `step_kernels` defines the steps and the arrays.
"""

from __future__ import annotations

from typing import Any

from ptynb.kernels import elementwise, step_kernels
from ptynb.kernels.runtime import fft
from ptynb.kernels.runtime.thread_pool import in_shares, part
from ptynb.kernels.step_kernels import Crossing, Moving, Near, Seen


@in_shares
def transform(plans: Any, planes: Any, backwards: bool, share: int, shares: int) -> None:
    """Transform planes (plane, y, x) in place; see `fft`."""
    first, last = part(len(planes), share, shares)
    if backwards:
        fft.backward(plans, planes, first, last)
    else:
        fft.forward(plans, planes, first, last)


@in_shares
def move(moving: Moving, share: int, shares: int) -> None:
    """`step_kernels.move`."""
    step_kernels.move(moving, moving.moved, *part(len(moving.shifts), share, shares))


@in_shares
def move_back(moving: Moving, share: int, shares: int) -> None:
    """`step_kernels.move_back`."""
    total = moving.totals[share]
    total[...] = 0
    step_kernels.move_back(moving, moving.moved, total, *part(len(moving.shifts), share, shares))


@in_shares
def cross(crossing: Crossing, share: int, shares: int) -> None:
    """`step_kernels.cross`."""
    first, last = part(len(crossing.window_origins), share, shares)
    step_kernels.cross(crossing, crossing.probes, crossing.arriving[0], crossing.waves, first, last)


@in_shares
def cross_back(crossing: Crossing, share: int, shares: int) -> None:
    """`step_kernels.cross_back`."""
    first, last = part(len(crossing.window_origins), share, shares)
    step_kernels.cross_back(crossing, crossing.probes, crossing.arriving[0], crossing.waves, first, last)


@in_shares
def propagate(plans: Any, waves: Any, intensity: Any, share: int, shares: int) -> None:
    """`step_kernels.propagate`."""
    step_kernels.propagate(plans, waves, *part(len(intensity), share, shares), intensity)


@in_shares
def propagate_back(plans: Any, waves: Any, slopes: Any, share: int, shares: int) -> None:
    """`step_kernels.propagate_back`."""
    step_kernels.propagate_back(plans, waves, slopes, 2.0, *part(len(slopes), share, shares))


@in_shares
def patterns(moving: Moving, crossing: Crossing, near: Near | None, intensity: Any, share: int, shares: int) -> None:
    """Compute the intensity from the probes: `step_kernels.move`, `cross` and `propagate`, or `propagate_near`."""
    first, last = part(len(intensity), share, shares)
    step_kernels.move(moving, moving.moved, first, last)
    step_kernels.cross(crossing, crossing.probes, crossing.arriving[0], crossing.waves, first, last)
    # numba omits the branch that the type of `near` excludes.
    if near is None:
        step_kernels.propagate(moving.plans, crossing.waves, first, last, intensity)
    else:
        step_kernels.propagate_near(moving, near, near.spectra, crossing.waves, first, last, intensity)


@in_shares
def patterns_back(moving: Moving, crossing: Crossing, near: Near | None, slopes: Any, share: int, shares: int) -> None:
    """Backward step of `patterns`."""
    first, last = part(len(slopes), share, shares)
    total = moving.totals[share]
    total[...] = 0
    if near is None:
        step_kernels.propagate_back(moving.plans, crossing.waves, slopes, 2.0, first, last)
    else:
        step_kernels.propagate_near_back(moving, near, near.spectra, crossing.waves, slopes, 2.0, first, last)
    step_kernels.cross_back(crossing, crossing.probes, crossing.arriving[0], crossing.waves, first, last)
    step_kernels.move_back(moving, moving.moved, total, first, last)


@in_shares
def misfit(
    moving: Moving,
    crossing: Crossing,
    near: Near | None,
    intensity: Any,
    seen: Seen,
    floor: float,
    damping: float,
    poisson: bool,
    backwards: bool,
    values: Any,
    share: int,
    shares: int,
) -> None:
    """Compute patterns, loss and gradients, pattern by pattern, while each is in the second-level cache.

    intensity: buffer (share, y, x). values: (pattern,), the losses. Arrays of sums need not be initialised.
    """
    moved, total = step_kernels.own(moving.moved, moving.alone, share), moving.totals[share]
    probes, waves = (
        step_kernels.own(crossing.probes, moving.alone, share),
        step_kernels.own(crossing.waves, crossing.alone, share),
    )
    arriving, change = crossing.arriving[share if crossing.alone else 0], crossing.changes[share]
    pattern, of_background = intensity[share : share + 1], seen.of_background[share]
    total[...] = 0
    change[...] = 0
    of_background[...] = 0
    first, last = part(len(values), share, shares)
    for one in range(first, last):
        end = one + 1
        step_kernels.move(moving, moved, one, end)
        step_kernels.cross(crossing, probes, arriving, waves, one, end)
        if near is None:
            step_kernels.propagate(moving.plans, waves, one, end, pattern)
        else:
            spectra = step_kernels.own(near.spectra, crossing.alone, share)
            step_kernels.propagate_near(moving, near, spectra, waves, one, end, pattern)
        if poisson:
            elementwise.poisson_loss(pattern, seen, of_background, floor, one, end, values)
        else:
            elementwise.amplitude_loss(pattern, seen, of_background, floor, damping, one, end, values)
        if backwards:
            if near is None:
                step_kernels.propagate_back(moving.plans, waves, pattern, 2.0, one, end)
            else:
                spectra = step_kernels.own(near.spectra, crossing.alone, share)
                step_kernels.propagate_near_back(moving, near, spectra, waves, pattern, 2.0, one, end)
            step_kernels.cross_back(crossing, probes, arriving, waves, one, end)
            if change.size > 0:
                step_kernels.add_change(crossing, arriving, waves, 1.0, (one, end), (0, 1), change)
            step_kernels.move_back(moving, moved, total, one, end)


@in_shares
def gather_probes(moving: Moving, factor: float, share: int, shares: int) -> None:
    """Overwrite the spectra with factor · Σ_j R_j* Q_jm, summed over the shares."""
    spectrum = moving.spectra[0]
    elementwise.sum_of_shares(moving.totals, factor, *part(spectrum.shape[-2], share, shares), spectrum)


@in_shares
def gather_object(crossing: Crossing, factor: float, change: Any, share: int, shares: int) -> None:
    """Compute factor · Σ_j P_j* g_j at c_j for each slice, from the sums of the shares, or from the waves."""
    states, slices, height, width = change.shape
    if crossing.alone:
        own = crossing.changes.reshape(len(crossing.changes), states * slices, height, width)
        planes = change.reshape(states * slices, height, width)
        elementwise.sum_of_shares(own, factor, *part(height, share, shares), planes)
    else:
        elementwise.clear(change, share, shares)
        patterns, rows = (0, len(crossing.window_origins)), (share, shares)
        step_kernels.add_change(crossing, crossing.arriving[0], crossing.waves, factor, patterns, rows, change)


@in_shares
def loss_of_counts(
    model: Any, seen: Seen, floor: float, damping: float, poisson: bool, values: Any, share: int, shares: int
) -> None:
    """`elementwise.amplitude_loss` or `elementwise.poisson_loss` for all patterns."""
    first, last = part(len(values), share, shares)
    if poisson:
        elementwise.poisson_loss(model, seen, seen.of_background[share], floor, first, last, values)
    else:
        elementwise.amplitude_loss(model, seen, seen.of_background[share], floor, damping, first, last, values)
