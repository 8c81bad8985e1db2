"""Probes: powers of the modes, orthogonal modes, propagation through the focus."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.data.optics.pupil import free_space, frequencies, slopes
from ptynb.exceptions import InvalidValueError, check_positive

Array = NDArray[Any]
Floats = NDArray[np.float64]


def mode_powers(probe: Array) -> Floats:
    """Return the fraction of the power in each mode, Σ |P_m|² / Σ |P|².

    The fractions depend on the mixing of the modes; those of `orthogonal_modes` do not.

    Parameters
    ----------
    probe : ndarray of complex
        Probe (…, mode, y, x).

    Returns
    -------
    ndarray of float64
        Fractions (…, mode).

    Raises
    ------
    InvalidValueError
        If the probe is 0 everywhere, or not finite.
    """
    probe = _modes(probe)
    powers = (np.abs(probe) ** 2).sum((-2, -1))
    total = powers.sum(-1, keepdims=True)
    if not (total > 0).all():
        raise InvalidValueError(
            "The probe is 0 everywhere; expected a probe (mode, y, x) with power.",
            code="argument.invalid-value",
        )
    return powers / total


def orthogonal_modes(probe: Array) -> Array:
    """Return orthogonal modes, sorted by power, that give the same patterns.

    Mixing modes by a unitary matrix preserves the sum of their intensities everywhere, also behind an object. With the
    singular values P = U S V the modes S V are U* P. P. Thibault and A. Menzel, Nature 494, 68 (2013). Each new mode
    has the phase of the old one with the largest contribution.

    Parameters
    ----------
    probe : ndarray of complex
        Probe (…, mode, y, x).

    Returns
    -------
    ndarray of complex
        Modes (…, mode, y, x).

    Raises
    ------
    InvalidValueError
        If the probe is not finite.
    """
    probe = _modes(probe)
    height, width = probe.shape[-2:]
    left, values, right = np.linalg.svd(probe.reshape(*probe.shape[:-2], height * width), full_matrices=False)
    result = values[..., :, None] * right
    # Column m of U is the contribution of new mode m to each old one; its largest entry is made real and positive.
    largest = np.take_along_axis(left, np.abs(left).argmax(-2)[..., None, :], -2)[..., 0, :]
    result = result * np.exp(1j * np.angle(largest))[..., None]
    padded = np.zeros((*probe.shape[:-2], height * width), dtype=result.dtype)
    padded[..., : result.shape[-2], :] = result
    return padded.reshape(probe.shape).astype(probe.dtype, copy=False)


def caustic(probe: Array, pixel: tuple[float, float], wavelength: float, distances: Iterable[float]) -> Floats:
    """Return the intensities of a probe through its focus, Σ_modes |P|², by the angular spectrum.

    The probe is 0 outside its window, and light that leaves the window is lost instead of wrapping around.

    Parameters
    ----------
    probe : ndarray of complex
        Probe (mode, y, x) or (y, x).
    pixel : (float, float)
        Size (y, x) of an object pixel [m].
    wavelength : float
        Wavelength [m].
    distances : Iterable of float
        Distances from the sample [m], positive downstream.

    Returns
    -------
    ndarray of float64
        Intensities (distance, y, x).

    Raises
    ------
    InvalidValueError
        If sizes are not positive and finite, or distances are not finite.
    """
    for value, name in ((pixel[0], "pixel size"), (pixel[1], "pixel size"), (wavelength, "wavelength")):
        check_positive(value, name, "m")
    positions = np.array(list(distances), dtype=np.float64)
    if positions.ndim != 1 or not positions.size or not np.isfinite(positions).all():
        raise InvalidValueError(
            f"distances is {positions} m; expected at least one value, all finite.",
            code="argument.invalid-value",
        )
    modes = _modes(probe)
    stack = np.zeros((len(positions), *modes.shape[-2:]))
    # One mode at a time, to limit the memory for padded transforms.
    for mode in modes:
        spectrum = _padded_transform(mode)
        for plane, position in zip(stack, positions, strict=True):
            plane += np.abs(_propagated_spectrum(spectrum, mode.shape, pixel, wavelength, float(position))) ** 2
    return stack


def focus_distance(intensities: Array, distances: ArrayLike) -> float:
    """Return the distance at which a through-focus stack is sharpest, with the largest Σ I².

    The parabola through the inverses of the three largest values is used, which is exact for a Gaussian beam:
    Σ I² is proportional to 1 / (1 + (Δz / z_R)²).

    Parameters
    ----------
    intensities : ndarray
        Stack (distance, y, x).
    distances : array_like
        Distances (distance,) [m], increasing.

    Returns
    -------
    float
        Distance [m].

    Raises
    ------
    InvalidValueError
        If the sharpest image is at an end of the stack (code "probe.focus-outside").
    """
    positions = np.asarray(distances, dtype=np.float64)
    if (
        intensities.ndim != 3
        or positions.shape != (len(intensities),)
        or len(positions) < 3
        or (np.diff(positions) <= 0).any()
    ):
        raise InvalidValueError(
            f"The stack has shape {intensities.shape} and there are {positions.size} distances; expected "
            "(distance, y, x) and at least 3 increasing distances.",
            code="array.shape-mismatch",
        )
    sharpness = (intensities**2).sum((-2, -1))
    best = int(sharpness.argmax())
    if best in (0, len(positions) - 1):
        raise InvalidValueError(
            f"The probe is sharpest at the end of the stack, at {positions[best]:.4g} m; expected the focus between "
            f"{positions[0]:.4g} and {positions[-1]:.4g} m. Extend the distances.",
            code="probe.focus-outside",
        )
    near = slice(best - 1, best + 2)
    # In units of the step, relative to the central value: powers of metres would lose all digits.
    scale = positions[best + 1] - positions[best - 1]
    bend, slope, _ = np.polyfit((positions[near] - positions[best]) / scale, sharpness[best] / sharpness[near], 2)
    return float(positions[best] - scale * slope / (2 * bend)) if bend > 0 else float(positions[best])


def _padded_transform(field: Array) -> Array:
    """Transform a field (…, y, x), padded with 0 to a window three times as wide."""
    return np.fft.fft2(field, s=tuple(3 * side for side in field.shape[-2:]))


def _propagated_spectrum(
    spectrum: Array, window: tuple[int, ...], pixel: tuple[float, float], wavelength: float, distance: float
) -> Array:
    """Return the field (…, y, x) in its window after `distance`, from its `_padded_transform`.

    Light of a plane wave moves along an axis by Δz k / sqrt(1/λ² - |k|²). Up to one window width, the part inside is
    preserved. From two widths on it would enter again at the other side, so that the wave is removed, as by
    K. Matsushima and T. Shimobaba, Opt. Express 17, 19662 (2009). In between it is not visible, and the waves are
    faded out, since a sharp limit would cause diffraction.
    """
    y, x = frequencies((3 * window[0], 3 * window[1]), pixel)
    across = slopes(y, x, wavelength)
    transfer = np.where(np.isfinite(across[0]), np.exp(1j * free_space(y, x, wavelength, distance)), 0)
    for slope, side, size in zip(across, window, pixel, strict=True):
        widths = abs(distance) * np.where(transfer, slope, 0) / (side * size)
        transfer *= np.cos(0.5 * np.pi * np.clip(widths - 1, 0, 1)) ** 2
    return np.fft.ifft2(spectrum * transfer)[..., : window[0], : window[1]]


def _modes(probe: Array) -> Array:
    """Return the modes of a probe, of which one (y, x) has one; check them."""
    probe = np.asarray(probe)
    probe = probe[None] if probe.ndim == 2 else probe
    if probe.ndim < 3 or not np.isfinite(probe).all():
        raise InvalidValueError(
            f"The probe has shape {probe.shape}; expected finite values (mode, y, x).",
            code="array.shape-mismatch",
        )
    return probe
