"""How good a reconstructed object is: its error and its resolution against the truth of a simulated problem.

What ptychography cannot know is fitted first: a shift, a complex factor, and a linear phase. Only the scanned area
counts. Needs numpy alone, so that no package judges itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
HALF = 0.5
"""The Fourier ring correlation (FRC) with the truth below which a ring counts as not resolved."""
ITERATIONS = 12
BORDER = 16
"""Pixels around the area that a shift may bring in; the object fades out there, as it is shifted by its spectrum."""


def scanned_area(positions: Array, window: int) -> tuple[slice, slice]:
    """Return the area (y, x) that the centres of the windows span."""
    first = np.ceil(positions.min(0) + window / 2).astype(int)
    last = np.floor(positions.max(0) + window / 2).astype(int)
    return slice(first[0], last[0]), slice(first[1], last[1])


def fitted(object: Array, problem: dict[str, Array]) -> tuple[Array, Array] | None:
    """Return the object in the scanned area, fitted to the truth, and the truth; None if it is flat or lies elsewhere.

    The shift is found to a pixel by the correlation of phase gradients, which a linear phase does not change; then
    shift, linear phase and factor together by Gauss-Newton steps.
    """
    area = scanned_area(problem["positions"], problem["patterns"].shape[-1])
    truth = problem["object"][area].astype(complex)
    found = object.astype(complex)
    height, width = truth.shape
    if not np.ptp(np.abs(found)) and not np.ptp(np.angle(found)):
        return None  # nothing was reconstructed yet
    top, left = _place(found, truth)
    if top < 0 or left < 0 or top + height > found.shape[0] or left + width > found.shape[1]:
        return None
    border = [min(BORDER, room) for room in (top, left, found.shape[0] - top - height, found.shape[1] - left - width)]
    part = found[top - border[0] : top + height + border[2], left - border[1] : left + width + border[3]]
    inside = slice(border[0], border[0] + height), slice(border[1], border[1] + width)
    y, x = (np.linspace(-1, 1, side) for side in truth.shape)
    y, x = np.broadcast_arrays(y[:, None], x[None, :])
    slope = _coarse_slope(part[inside], truth)
    shift = np.zeros(2)
    ky, kx = (2j * np.pi * np.fft.fftfreq(side) for side in part.shape)
    fading = np.outer(*(_fade(part.shape[axis], border[axis], border[axis + 2]) for axis in (0, 1)))
    transformed = np.fft.fft2(part * fading)
    factor = 1.0 + 0j
    for _ in range(ITERATIONS):
        moved = transformed * np.exp(-ky[:, None] * shift[0] - kx[None, :] * shift[1])
        turned = np.exp(1j * (slope[0] * y + slope[1] * x))
        wave = np.fft.ifft2(moved)[inside] * turned
        factor = np.vdot(wave, truth) / np.vdot(wave, wave).real
        along = [-factor * np.fft.ifft2(moved * k)[inside] * turned for k in (ky[:, None], kx[None, :])]
        columns = np.stack([*along, 1j * y * factor * wave, 1j * x * factor * wave, wave, 1j * wave], -1).reshape(-1, 6)
        normal = (columns.conj().T @ columns).real
        step = np.linalg.solve(
            normal + 1e-9 * np.diag(normal.diagonal()), (columns.conj().T @ (truth - factor * wave).ravel()).real
        )
        shift, slope = shift + np.clip(step[:2], -0.5, 0.5), slope + step[2:4]
        if np.abs(step[:4]).max() < 1e-5:
            break
    return factor * wave, truth


def error_of(found: Array, truth: Array) -> float:
    """Return the root of Σ |found - truth|² / Σ |truth|²."""
    return float(np.sqrt((np.abs(found - truth) ** 2).sum() / (np.abs(truth) ** 2).sum()))


def resolved(found: Array, truth: Array) -> float:
    """Return the frequency, as a part of the Nyquist frequency, up to which the FRC with the truth is above 0.5.

    van Heel and Schatz, J. Struct. Biol. 151, 250 (2005). The mean is subtracted, and a Hann window applied.
    """
    weight = np.outer(*(np.hanning(side) for side in truth.shape))
    one, other = (np.fft.fft2((field - field.mean()) * weight) for field in (found, truth))
    radius = np.hypot(*np.meshgrid(*(2 * np.fft.fftfreq(side) for side in truth.shape), indexing="ij"))
    rings = min(truth.shape) // 4
    ring = np.minimum((radius * rings).astype(int), rings).ravel()
    sums = [
        np.bincount(ring, values.ravel(), rings + 1)[:rings]
        for values in ((one * other.conj()).real, np.abs(one) ** 2, np.abs(other) ** 2)
    ]
    correlation = sums[0] / np.sqrt(sums[1] * sums[2])
    below = np.flatnonzero(correlation[1:] < HALF)
    return float((below[0] + 1) / rings) if below.size else 1.0


def _place(found: Array, truth: Array) -> tuple[int, int]:
    one, other = (_gradient(field) for field in (found, truth))
    shape = tuple(a + b for a, b in zip(one.shape, other.shape, strict=True))
    correlated = np.abs(np.fft.ifft2(np.fft.fft2(one, shape) * np.fft.fft2(other, shape).conj()))
    top, left = (int(place) for place in np.unravel_index(correlated.argmax(), shape))
    return top if top < one.shape[0] else top - shape[0], left if left < one.shape[1] else left - shape[1]


def _gradient(field: Array) -> Array:
    """Return the gradient of the phase; of the phase alone, since an object can be huge where there is no light."""
    field = field / np.maximum(np.abs(field), np.finfo(float).tiny)
    corner = field[:-1, :-1].conj()
    both = field[1:, :-1] * corner + 1j * field[:-1, 1:] * corner
    return both - both.mean()


def _coarse_slope(found: Array, truth: Array) -> Array:
    spectrum = np.abs(np.fft.fft2(truth * found.conj(), [4 * side for side in truth.shape]))
    peak = np.unravel_index(spectrum.argmax(), spectrum.shape)
    return np.array(
        [
            np.pi * np.fft.fftfreq(size)[place] * side
            for size, place, side in zip(spectrum.shape, peak, truth.shape, strict=True)
        ]
    )


def _fade(size: int, first: int, last: int) -> Array:
    """Return weights that rise from 0 to 1 over the `first` pixels, and fall to 0 over the `last`."""
    weights = np.ones(size)
    weights[:first] = np.sin(np.pi / 2 * (np.arange(first) + 0.5) / max(first, 1)) ** 2
    weights[size - last :] = np.sin(np.pi / 2 * (np.arange(last) + 0.5) / max(last, 1))[::-1] ** 2
    return weights
