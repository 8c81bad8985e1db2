"""What a probe looks like: its modes' powers, orthogonal modes, and its shape through the focus."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.exceptions import InvalidValueError

Array = NDArray[Any]
Floats = NDArray[np.float64]


def mode_powers(probe: Array) -> Floats:
    """The part of the power in each mode of a probe (…, mode, y, x): Σ |P_m|² over Σ |P|², (…, mode).

    The parts depend on how the modes are mixed; those of `orthogonal_modes` do not.
    """
    _check_probe(probe)
    powers = (np.abs(probe) ** 2).sum((-2, -1))
    total = powers.sum(-1, keepdims=True)
    if not (total > 0).all():
        raise InvalidValueError(
            "The probe is 0 everywhere and has no power to share out; expected a probe (mode, y, x).",
            code="argument.invalid-value",
        )
    return powers / total


def orthogonal_modes(probe: Array) -> Array:
    """The modes (…, mode, y, x) that are orthogonal, strongest first, and give the same patterns.

    Mixing modes by a unitary matrix leaves the sum of their intensities everywhere the same, here and behind any
    object. With the singular values P = U S V the modes S V are U* P. P. Thibault and A. Menzel, Nature 494, 68 (2013).
    Each new mode has the phase of the old one that it has most of.
    """
    _check_probe(probe)
    height, width = probe.shape[-2:]
    left, values, right = np.linalg.svd(probe.reshape(*probe.shape[:-2], height * width), full_matrices=False)
    result = values[..., :, None] * right
    # Column m of U says how much of new mode m is in each old one; its largest entry is made real and positive.
    largest = np.take_along_axis(left, np.abs(left).argmax(-2)[..., None, :], -2)[..., 0, :]
    result = result * np.exp(1j * np.angle(largest))[..., None]
    padded = np.zeros((*probe.shape[:-2], height * width), dtype=result.dtype)
    padded[..., : result.shape[-2], :] = result
    return padded.reshape(probe.shape).astype(probe.dtype, copy=False)


def propagated(field: Array, pixel: tuple[float, float], wavelength: float, distance: float) -> Array:
    """A field (…, y, x) after `distance` [m] of free space, positive downstream, by the angular spectrum.

    Its transform is multiplied by exp(2πi Δz (sqrt(1/λ² - |k|²) - 1/λ)); evanescent waves are left out. The field is
    dark around its window, and light that leaves the window is lost: it does not come back at the other side.

    pixel: (y, x) [m]. wavelength: [m].
    """
    return _after(_padded_transform(field), field.shape[-2:], pixel, wavelength, distance)


def caustic(probe: Array, pixel: tuple[float, float], wavelength: float, distances: Iterable[float]) -> Floats:
    """Intensities (distance, y, x) of a probe (mode, y, x) or (y, x) through its focus: Σ_modes |P|².

    pixel: of the object (y, x) [m]. wavelength: [m].
    distances: [m] from where the probe is known (the sample), positive downstream. See `propagated`.

    Raises ValueError for sizes that are not positive and finite, and for distances that are not finite.
    """
    for values, name in ((pixel, "pixel size"), ((wavelength,), "wavelength")):
        if not all(np.isfinite(value) and value > 0 for value in values):
            raise InvalidValueError(
                f"The {name} is {values} m; expected positive, finite numbers of metres.", code="argument.invalid-value"
            )
    places = np.array(list(distances), dtype=np.float64)
    if places.ndim != 1 or not places.size or not np.isfinite(places).all():
        raise InvalidValueError(
            f"The distances are {places} m; expected at least one, all of them finite numbers of metres.",
            code="argument.invalid-value",
        )
    modes = np.asarray(probe)
    modes = modes[None] if modes.ndim == 2 else modes
    _check_probe(modes)
    stack = np.zeros((len(places), *modes.shape[-2:]))
    # A mode at a time: the padded transforms of many modes need not be in memory at once.
    for mode in modes:
        spectrum = _padded_transform(mode)
        for plane, place in zip(stack, places, strict=True):
            plane += np.abs(_after(spectrum, mode.shape, pixel, wavelength, float(place))) ** 2
    return stack


def focus_distance(intensities: Array, distances: ArrayLike) -> float:
    """The distance [m] at which a through-focus stack (distance, y, x) is sharpest: where Σ I² is largest.

    distances: [m], increasing. Between them the parabola through the three largest values' inverses is followed, which
    for a Gaussian beam is exact, as Σ I² goes with 1 / (1 + (Δz / z_R)²).

    Raises ValueError where it is sharpest at an end of the stack: the focus lies beyond it.
    """
    places = np.asarray(distances, dtype=np.float64)
    if intensities.ndim != 3 or places.shape != (len(intensities),) or len(places) < 3 or (np.diff(places) <= 0).any():
        raise InvalidValueError(
            f"The stack has shape {intensities.shape} and there are {places.size} distances; expected (distance, y, x) "
            "with at least 3 distances, in increasing order.",
            code="array.shape-mismatch",
        )
    sharpness = (intensities**2).sum((-2, -1))
    best = int(sharpness.argmax())
    if best in (0, len(places) - 1):
        raise InvalidValueError(
            f"The probe is sharpest at the end of the stack, at {places[best]:.4g} m; expected the focus between "
            f"{places[0]:.4g} and {places[-1]:.4g} m. Take distances further out.",
            code="probe.focus-outside",
        )
    near = slice(best - 1, best + 2)
    # Counted from the middle one in units of the step: powers of metres would lose all digits.
    scale = places[best + 1] - places[best - 1]
    bend, slope, _ = np.polyfit((places[near] - places[best]) / scale, sharpness[best] / sharpness[near], 2)
    return float(places[best] - scale * slope / (2 * bend)) if bend > 0 else float(places[best])


def _padded_transform(field: Array) -> Array:
    """The transform of a field (…, y, x), dark around, in a window three times as wide."""
    return np.fft.fft2(field, s=tuple(3 * side for side in field.shape[-2:]))


def _after(
    spectrum: Array, window: tuple[int, ...], pixel: tuple[float, float], wavelength: float, distance: float
) -> Array:
    """The field (…, y, x) in its window after `distance`, from its `_padded_transform`.

    A wave's way along an axis, Δz k / sqrt(1/λ² - |k|²), tells where its light goes. Within one window's width it stays
    in part and is kept. From two widths on it would come in again at the other side, so that wave is left out, as
    K. Matsushima and T. Shimobaba, Opt. Express 17, 19662 (2009) do. In between it can't be seen, and the waves fade:
    a sharp limit would itself spread light by diffraction.
    """
    ky, kx = (np.fft.fftfreq(3 * side, size) for side, size in zip(window, pixel, strict=True))
    squared = ky[:, None] ** 2 + kx[None, :] ** 2
    along = np.sqrt(np.maximum(1 / wavelength**2 - squared, 0))
    # Two large numbers' difference would lose the digits that count; this is the same.
    transfer = np.exp(-2j * np.pi * distance * squared / (along + 1 / wavelength)) * (along > 0)
    steepness = abs(distance) / np.where(along > 0, along, np.inf)
    for k, side, size in ((ky[:, None], window[0], pixel[0]), (kx[None, :], window[1], pixel[1])):
        widths = np.abs(k) * steepness / (side * size)
        transfer *= np.cos(0.5 * np.pi * np.clip(widths - 1, 0, 1)) ** 2
    return np.fft.ifft2(spectrum * transfer)[..., : window[0], : window[1]]


def _check_probe(probe: Array) -> None:
    if probe.ndim < 3 or not np.isfinite(probe).all():
        raise InvalidValueError(
            f"The probe has shape {probe.shape}; expected finite values (mode, y, x). Check the probe.",
            code="array.shape-mismatch",
        )
