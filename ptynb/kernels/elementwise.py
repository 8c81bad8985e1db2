"""Passes over memory: each function is a loop over rows of pixels, compiled by numba.

torch takes one pass for every operation; here several operations share one. A share takes patterns, or rows of arrays
that patterns have in common, so no two threads write the same pixel. The order of sums depends only on the number of
threads: with the same number results are equal bit by bit, with another up to rounding.

Arrays are numpy's: waves (pattern, state, mode, y, x), probes without states, object (state, slice, y, x), all
complex; ramps along an axis (pattern, y or x) complex; real planes (pattern, y, x); corners (pattern, yx) int64.
Arrays marked (one) may instead have a single entry, which is reused for each pattern.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ptynb.kernels.runtime.compiler import inner


@inner
def _place(array: Any, pattern: int) -> int:
    """Return the index of a pattern in an array that may have a single entry for all patterns."""
    return pattern if array.shape[0] > 1 else 0


@inner
def clear(planes: Any, share: int, shares: int) -> None:
    """Set a share's rows of planes (…, y, x) to 0."""
    flat = planes.reshape(-1, planes.shape[-2], planes.shape[-1])
    for plane in range(len(flat)):
        for y in range(share, flat.shape[1], shares):
            flat[plane, y] = 0


@inner
def write_ramps(shifts: Any, axis: int, first: int, last: int, out: Any) -> None:
    """out (pattern, k) = exp(-2πi k s) along one axis, and the cosine at the Nyquist frequency of an even side."""
    side = out.shape[1]
    for pattern in range(first, last):
        turn = -2 * np.pi * np.float64(shifts[pattern, axis]) / side
        out[pattern, 0] = 1
        for k in range(1, (side + 1) // 2):
            ramp = complex(np.cos(k * turn), np.sin(k * turn))
            out[pattern, k] = ramp
            out[pattern, side - k] = ramp.conjugate()
        if side % 2 == 0:
            out[pattern, side // 2] = np.cos(side // 2 * turn)


@inner
def ramped(spectra: Any, along_y: Any, along_x: Any, factor: float, first: int, last: int, out: Any) -> None:
    """out = factor · spectra · ramp. spectra, out: (one)."""
    _, modes, height, width = out.shape
    for pattern in range(first, last):
        own, place = _place(spectra, pattern), _place(out, pattern)
        ramp = along_x[pattern]
        for mode in range(modes):
            for y in range(height):
                source, target = spectra[own, mode, y], out[place, mode, y]
                along = along_y[pattern, y] * along_y.dtype.type(factor)
                for x in range(width):
                    target[x] = source[x] * (along * ramp[x])


@inner
def ramped_in_place(
    spectra: Any, along_y: Any, along_x: Any, backwards: bool, factor: float, first: int, last: int
) -> None:
    """spectra *= factor · ramp, in place; ramp* if backwards. spectra: (one)."""
    _, modes, height, width = spectra.shape
    for pattern in range(first, last):
        place, ramp = _place(spectra, pattern), along_x[pattern]
        for mode in range(modes):
            for y in range(height):
                target = spectra[place, mode, y]
                along = along_y[pattern, y] * along_y.dtype.type(factor)
                if backwards:
                    for x in range(width):
                        target[x] *= np.conj(along * ramp[x])
                else:
                    for x in range(width):
                        target[x] *= along * ramp[x]


@inner
def copy_planes(waves: Any, first: int, last: int, out: Any) -> None:
    """out (pattern, mode, y, x) = waves. waves, out: (one)."""
    _, modes, height, width = out.shape
    for pattern in range(first, last):
        own, place = _place(waves, pattern), _place(out, pattern)
        for mode in range(modes):
            for y in range(height):
                source, target = waves[own, mode, y], out[place, mode, y]
                for x in range(width):
                    target[x] = source[x]


@inner
def add_ramped(spectra: Any, along_y: Any, along_x: Any, first: int, last: int, out: Any) -> None:
    """out (mode, y, x) += Σ_pattern spectra · ramp*. spectra: (one)."""
    modes, height, width = out.shape
    for pattern in range(first, last):
        own, ramp = _place(spectra, pattern), along_x[pattern]
        for mode in range(modes):
            for y in range(height):
                source, target = spectra[own, mode, y], out[mode, y]
                along = np.conj(along_y[pattern, y])
                for x in range(width):
                    target[x] += source[x] * (along * np.conj(ramp[x]))


@inner
def sum_of_shares(totals: Any, factor: float, first: int, last: int, out: Any) -> None:
    """out (mode, y, x) = factor · Σ_share totals (share, mode, y, x), in the rows from `first` to `last`."""
    shares, modes, _, width = totals.shape
    scale = totals.real.dtype.type(factor)
    for mode in range(modes):
        for y in range(first, last):
            target = out[mode, y]
            for x in range(width):
                target[x] = 0
            for share in range(shares):
                source = totals[share, mode, y]
                for x in range(width):
                    target[x] += source[x] * scale


@inner
def through(waves: Any, object: Any, layer: int, window_origins: Any, first: int, last: int, out: Any) -> None:
    """out = waves · windows of the object in slice `layer`; waves of one state, or of each. waves, out: (one)."""
    _, states, modes, height, width = out.shape
    for pattern in range(first, last):
        place, end = _place(waves, pattern), _place(out, pattern)
        top, left = window_origins[pattern]
        for state in range(states):
            own = state if waves.shape[1] > 1 else 0
            for mode in range(modes):
                for y in range(height):
                    source, target = waves[place, own, mode, y], out[end, state, mode, y]
                    window = object[state, layer, top + y, left : left + width]
                    for x in range(width):
                        target[x] = source[x] * window[x]


@inner
def through_back(change: Any, waves: Any, object: Any, layer: int, window_origins: Any, first: int, last: int) -> None:
    """Backward step of `through`, in place: `change` becomes the gradient of the windows, `waves` that of the waves.

    These are waves* · change and window* · change, the latter summed over states that share their waves. change, waves:
    (one).
    """
    _, states, modes, height, width = change.shape
    each = waves.shape[1] > 1
    summed = np.empty(width, change.dtype)
    for pattern in range(first, last):
        place, end = _place(waves, pattern), _place(change, pattern)
        top, left = window_origins[pattern]
        for mode in range(modes):
            for y in range(height):
                for state in range(states):
                    slope, wave = change[end, state, mode, y], waves[place, state if each else 0, mode, y]
                    window = object[state, layer, top + y, left : left + width]
                    if each or states == 1:
                        for x in range(width):
                            back = np.conj(window[x]) * slope[x]
                            slope[x] *= np.conj(wave[x])
                            wave[x] = back
                    else:
                        for x in range(width):
                            back = np.conj(window[x]) * slope[x]
                            slope[x] *= np.conj(wave[x])
                            summed[x] = back if state == 0 else summed[x] + back
                if not each and states > 1:
                    wave = waves[place, 0, mode, y]
                    for x in range(width):  # an assignment of the row takes a second longer to compile
                        wave[x] = summed[x]


@inner
def add_windows(
    windows: Any,
    layer: int,
    window_origins: Any,
    factor: float,
    first: int,
    last: int,
    share: int,
    shares: int,
    object: Any,
) -> None:
    """Add factor · windows, all modes, to a share's rows of one slice of the object. windows: (one)."""
    _, states, modes, height, width = windows.shape
    scale = windows.real.dtype.type(factor)
    for pattern in range(first, last):
        place = _place(windows, pattern)
        top, left = window_origins[pattern]
        for y in range((share - top) % shares, height, shares):
            for state in range(states):
                target = object[state, layer, top + y, left : left + width]
                for mode in range(modes):
                    source = windows[place, state, mode, y]
                    for x in range(width):
                        target[x] += source[x] * scale


@inner
def filtered(waves: Any, kernel: Any, backwards: bool, factor: float, first: int, last: int) -> None:
    """waves *= factor · kernel (pattern, y, x), in place; kernel* if backwards. waves, kernel: (one)."""
    _, states, modes, height, width = waves.shape
    for pattern in range(first, last):
        own, place = _place(kernel, pattern), _place(waves, pattern)
        for state in range(states):
            for mode in range(modes):
                for y in range(height):
                    target, along = waves[place, state, mode, y], kernel[own, y]
                    if backwards:
                        for x in range(width):
                            target[x] *= np.conj(along[x]) * kernel.dtype.type(factor)
                    else:
                        for x in range(width):
                            target[x] *= along[x] * kernel.dtype.type(factor)


@inner
def add_squares(waves: Any, factor: float, first: int, last: int, out: Any) -> None:
    """out (pattern, y, x) = factor · Σ |waves|² over states and modes. waves, out: (one)."""
    _, states, modes, height, width = waves.shape
    for pattern in range(first, last):
        place, own = _place(out, pattern), _place(waves, pattern)
        for y in range(height):
            target = out[place, y]
            for x in range(width):
                target[x] = 0
            for state in range(states):
                for mode in range(modes):
                    source = waves[own, state, mode, y]
                    for x in range(width):
                        target[x] += source[x].real * source[x].real + source[x].imag * source[x].imag
            for x in range(width):
                target[x] *= out.dtype.type(factor)


@inner
def scaled(waves: Any, planes: Any, factor: float, first: int, last: int) -> None:
    """waves *= factor · planes (pattern, y, x), in place. waves, planes: (one).

    In place, since a loop with the same array as two arguments is not vectorised, and takes four times as long.
    """
    _, states, modes, height, width = waves.shape
    for pattern in range(first, last):
        own, place = _place(planes, pattern), _place(waves, pattern)
        for state in range(states):
            for mode in range(modes):
                for y in range(height):
                    target, plane = waves[place, state, mode, y], planes[own, y]
                    for x in range(width):
                        target[x] *= plane[x] * planes.dtype.type(factor)


@inner
def shift_slopes(
    change: Any,
    spectra: Any,
    along_y: Any,
    along_x: Any,
    shifts: Any,
    factor: float,
    first: int,
    last: int,
    out: Any,
) -> None:
    """out (pattern, yx) = factor · Re Σ_k (change · spectra*) (dR/ds)*, the derivative of `ramped` by its shifts.

    change, spectra: (one).
    """
    _, modes, height, width = change.shape
    of_x = np.empty(width, change.dtype)
    of_y = np.empty(height, change.dtype)
    for pattern in range(first, last):
        own, place = _place(spectra, pattern), _place(change, pattern)
        of_x[:] = 0
        of_y[:] = 0
        for mode in range(modes):
            for y in range(height):
                slope, source = change[place, mode, y], spectra[own, mode, y]
                ramp, along = along_x[pattern], np.conj(along_y[pattern, y])
                total = change.dtype.type(0)
                for x in range(width):
                    product = slope[x] * np.conj(source[x])
                    total += product * np.conj(ramp[x])
                    of_x[x] += product * along
                of_y[y] += total
        out[pattern, 0] = factor * _along(of_y, along_y[pattern], shifts[pattern, 0])
        out[pattern, 1] = factor * _along(of_x, along_x[pattern], shifts[pattern, 1])


@inner
def _along(sums: Any, ramp: Any, shift: float) -> float:
    """Return Re Σ_k sums (dR/ds)* along one axis, with dR/ds = -2πi k R, and -π sin(πs) at the Nyquist frequency."""
    side = len(ramp)
    total = 0.0
    for k in range(side):
        if 2 * k == side:
            total -= np.pi * np.sin(np.pi * np.float64(shift)) * sums[k].real
        else:
            frequency = (k if 2 * k < side else k - side) / side
            total -= 2 * np.pi * frequency * (sums[k] * np.conj(ramp[k])).imag
    return total


@inner
def amplitude_loss(
    model: Any, seen: Any, of_background: Any, floor: float, damping: float, first: int, last: int, values: Any
) -> None:
    """values = Σ (√(D + ε) - √(I + ε))² of each pattern, D = w M + B; `model` is overwritten by the slope dL/dM.

    model: (one). seen: `step_kernels.Seen`. of_background: (y, x), added to. damping: δ of `losses.AmplitudeLoss`.
    """
    _, height, width = model.shape
    masked, detected, lit = seen.mask.size > 0, seen.weights.size > 0, seen.background.size > 0
    number = model.dtype.type
    least, weight, damped = number(floor), number(1), number(damping)
    for pattern in range(first, last):
        total, brightness = 0.0, 0.0
        if detected:
            weight = seen.weights[pattern]
        for y in range(height):
            modelled, measured = model[_place(model, pattern), y], seen.stored[seen.rows[pattern], y]
            row, bright = number(0), number(0)
            for x in range(width):
                bare = modelled[x]
                whole = weight * bare
                if lit:
                    whole += seen.background[y, x]
                amplitude = np.sqrt(whole + least)
                difference = amplitude - np.sqrt(number(measured[x]) + least)
                if masked:
                    difference *= seen.mask[y, x]
                if damping > 0:
                    slope = difference * amplitude / (amplitude * amplitude + damped)
                else:
                    slope = difference / amplitude
                row += difference * difference
                bright += bare * slope
                modelled[x] = weight * slope
                if lit:
                    of_background[y, x] += slope
            total += row
            brightness += bright
        values[pattern] = total
        if detected:
            seen.of_weights[pattern] = brightness


@inner
def poisson_loss(model: Any, seen: Any, of_background: Any, floor: float, first: int, last: int, values: Any) -> None:
    """`amplitude_loss` with Σ D - I + I log(I / D), where D and I include ε. Its value is computed in double."""
    _, height, width = model.shape
    masked, detected, lit = seen.mask.size > 0, seen.weights.size > 0, seen.background.size > 0
    number = model.dtype.type
    least, weight = number(floor), number(1)
    for pattern in range(first, last):
        total, brightness = 0.0, 0.0
        if detected:
            weight = seen.weights[pattern]
        for y in range(height):
            modelled, measured = model[_place(model, pattern), y], seen.stored[seen.rows[pattern], y]
            bright = number(0)
            for x in range(width):
                bare = modelled[x]
                whole = weight * bare
                if lit:
                    whole += seen.background[y, x]
                expected, counted = np.float64(whole) + floor, np.float64(measured[x]) + floor
                slope = number(1) - number(counted) / (whole + least)
                term = expected - counted + counted * np.log(counted / expected)
                if masked:
                    slope *= seen.mask[y, x]
                    term *= seen.mask[y, x]
                total += term
                bright += bare * slope
                modelled[x] = weight * slope
                if lit:
                    of_background[y, x] += slope
            brightness += bright
        values[pattern] = total
        if detected:
            seen.of_weights[pattern] = brightness
