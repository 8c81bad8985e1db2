"""Crop, pad and resample complex fields and objects, by Fourier and cosine series."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from ptynb.preparation.shared_transforms import Array, Window


def cut(field: Array, start: tuple[int, int], window: Window) -> Array:
    """Return `window` pixels of `field` (…, y, x) from index `start`; 0 outside the field."""
    out = np.zeros((*field.shape[:-2], *window), field.dtype)
    target, source = [], []
    for begin, side, length in zip(start, window, field.shape[-2:], strict=True):
        low, high = max(0, begin), min(length, begin + side)
        source.append(slice(low, high))
        target.append(slice(low - begin, high - begin))
    out[..., target[0], target[1]] = field[..., source[0], source[1]]
    return out


def cut_patterns(start: tuple[int, int], window: Window, patterns: Array, first: int) -> Array:
    """Return `cut` of patterns, for `transformed`."""
    return cut(patterns, start, window)


def middle_start(outer: Window, inner: Window) -> tuple[int, int]:
    """Return the start of a window of `inner` pixels in one of `outer` pixels, both with their centre at n // 2."""
    return outer[0] // 2 - inner[0] // 2, outer[1] // 2 - inner[1] // 2


def cut_spectrum(field: Array, start: tuple[int, int], window: Window) -> Array:
    """Return the field (…, y, x) whose far field is a window of that of `field`, as of `cut`; both centred at n // 2.

    Both transforms are unitary: intensities on the detector are preserved, and the sum of squares if no part is lost.
    The field stays centred; a start other than that of the centre adds a phase ramp.
    """
    axes = (-2, -1)
    spectrum = np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(field, axes=axes), norm="ortho"), axes=axes)
    part = np.fft.ifftshift(cut(spectrum, start, window), axes=axes)
    return np.fft.fftshift(np.fft.ifft2(part, norm="ortho"), axes=axes)


def ramped(field: Array, shift: tuple[float, float]) -> Array:
    """Multiply (…, y, x) by exp(-2πi d·r / n), r from its centre: Ψ(k) becomes Ψ(k + d), d = `shift` [pixels]."""
    y, x = (
        np.exp(-2j * np.pi * distance * (np.arange(side) - side // 2) / side)
        for side, distance in zip(field.shape[-2:], shift, strict=True)
    )
    return field * (y[:, None] * x[None, :])


def resampled(field: Array, ratios: tuple[float, float]) -> Array:
    """Resample an object (…, y, x) to a grid `ratios` (y, x) times as fine, with its first pixel at the same position.

    Each axis is a cosine series (the object is mirrored at its edges, so that nothing wraps around); frequencies above
    the Nyquist frequency of the new grid are removed.
    """
    for axis, ratio in zip((-2, -1), ratios, strict=True):
        if ratio != 1:
            # The tolerance avoids an additional pixel due to rounding of the ratio.
            count = int(np.ceil((field.shape[axis] - 1) * ratio - 1e-9)) + 1
            field = cosine_series(field, axis, np.arange(count) / ratio, ratio)
    return field


def cosine_series(field: Array, axis: int, places: NDArray[np.float64], ratio: float) -> Array:
    """Return f(x) = Σ_k c_k cos(π k (x + ½) / N) along an axis at `places` x, for k / 2N below ratio / 2."""
    side = field.shape[axis]
    coefficients = scipy.fft.dct(np.moveaxis(field, axis, -1), type=2, axis=-1) / side
    coefficients[..., 0] /= 2
    used = min(side, int(np.ceil(side * ratio)))
    basis = np.cos(np.pi * np.arange(used)[:, None] * (places + 0.5)[None, :] / side)
    return np.moveaxis(coefficients[..., :used] @ basis, -1, axis)
