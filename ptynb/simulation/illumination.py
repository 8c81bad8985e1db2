"""Probes of lenses, zone plates, mirrors and pinholes, as initial guesses.

Each probe is complex128 (y, x), centred at index n // 2 of its window, with Σ |P|² = 1. `defocus` and `distance` are
positive downstream (see `ptynb/conventions.md`), and 2π z / λ, common to all waves, is omitted.

Focused probes are computed from the wave in the pupil: the probe is the inverse transform of the spectrum A exp(-iχ) at
spatial frequencies up to NA / λ. So its far field has the shape of the pupil, sampled as by the detector.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ptynb.data.optics.aberrations import Aberrations
from ptynb.data.optics.lens import electron_probe
from ptynb.data.optics.pupil import (
    check_finite,
    check_grid,
    check_not_negative,
    check_pupil,
    covered,
    disc,
    free_space,
    frequencies,
    normalised,
    probe_from_pupil,
    rounded_down,
    slopes,
    steps_of,
)
from ptynb.exceptions import InvalidValueError, check_positive

__all__ = [
    "Aberrations",
    "electron_probe",
    "focused_probe",
    "pinhole_probe",
    "propagate",
    "zone_plate_probe",
]
MOST_LOST = 0.05
"""Largest fraction of the power that may leave the window; it allows for three rings of a far pinhole's pattern."""


def zone_plate_probe(
    window: tuple[int, int],
    pixel: tuple[float, float],
    wavelength: float,
    diameter: float,
    outermost_zone_width: float,
    *,
    central_stop: float = 0.0,
    defocus: float = 0.0,
) -> NDArray[np.complex128]:
    """Return the probe at, or downstream of, the first-order focus of a Fresnel zone plate.

    Its outermost zones, of period 2 Δr, give NA = λ / (2 Δr); its focal length is D Δr / λ. All other orders are
    assumed to be blocked by a central stop and an order-sorting aperture.

    Parameters
    ----------
    window : tuple of int
        Pixels (y, x) of the probe.
    pixel : tuple of float
        Pixel size (y, x) of the object [m].
    wavelength : float
        Wavelength [m]; for electrons see `ptynb.electrons`.
    diameter : float
        Diameter D of the zone plate [m].
    outermost_zone_width : float
        Width Δr of the outermost zone [m].
    central_stop : float
        Diameter of the central stop [m].
    defocus : float
        Distance from the focus to the sample [m], positive downstream.

    Returns
    -------
    ndarray
        Probe (y, x), complex128.

    Raises
    ------
    InvalidValueError
        As for `electron_probe`.

    References
    ----------
    Attwood, Soft X-Rays and Extreme Ultraviolet Radiation (1999), 9.3.
    """
    check_grid(window, pixel, wavelength)
    check_positive(diameter, "diameter of the zone plate", "m")
    check_positive(outermost_zone_width, "width of the outermost zone", "m")
    check_finite(defocus, "defocus", "m")
    if not 0 <= central_stop < diameter:
        raise InvalidValueError(
            f"The central stop is {central_stop!r} m wide and the zone plate {diameter!r} m; use a smaller stop, or 0 "
            "for none.",
            code="argument.invalid-value",
        )
    y, x = frequencies(window, pixel)
    reach, steps = 1 / (2 * outermost_zone_width), steps_of(window, pixel)
    check_pupil(window, pixel, wavelength, (reach, reach))
    aperture = disc(y, x, reach, steps)
    if central_stop > 0:
        aperture = aperture - disc(y, x, reach * central_stop / diameter, steps)
    return probe_from_pupil(aperture, -free_space(y, x, wavelength, defocus), "defocus")


def focused_probe(
    window: tuple[int, int],
    pixel: tuple[float, float],
    wavelength: float,
    aperture: tuple[float, float],
    focal_length: tuple[float, float],
    *,
    defocus: float | tuple[float, float] = 0.0,
) -> NDArray[np.complex128]:
    """Return the probe of a rectangular aperture, as of a pair of Kirkpatrick-Baez mirrors behind slits.

    In focus it is sinc(a_y y / λ f_y) sinc(a_x x / λ f_x).

    Parameters
    ----------
    window : tuple of int
        Pixels (y, x) of the probe.
    pixel : tuple of float
        Pixel size (y, x) of the object [m].
    wavelength : float
        Wavelength [m]; for electrons see `ptynb.electrons`.
    aperture : tuple of float
        Full widths a (y, x) [m].
    focal_length : tuple of float
        Distance f (y, x) from each mirror to its focus [m].
    defocus : float or tuple of float
        Distance from the focus to the sample [m], positive downstream; two (y, x) for astigmatic mirrors: their mean is
        exact, their difference paraxial.

    Returns
    -------
    ndarray
        Probe (y, x), complex128.

    Raises
    ------
    InvalidValueError
        As for `electron_probe`.

    References
    ----------
    Born and Wolf, Principles of Optics (1999), 8.5.1.
    """
    check_grid(window, pixel, wavelength)
    for size, length in zip(aperture, focal_length, strict=True):
        check_positive(size, "width of the aperture", "m")
        check_positive(length, "focal length", "m")
    along_y, along_x = defocus if isinstance(defocus, tuple) else (defocus, defocus)
    check_finite(along_y, "defocus", "m")
    check_finite(along_x, "defocus", "m")
    y, x = frequencies(window, pixel)
    reach_y, reach_x = (a / (2 * wavelength * f) for a, f in zip(aperture, focal_length, strict=True))
    check_pupil(window, pixel, wavelength, (reach_y, reach_x))
    step_y, step_x = steps_of(window, pixel)
    slits = covered((reach_y - np.abs(y)) / step_y) * covered((reach_x - np.abs(x)) / step_x)
    phase = -free_space(y, x, wavelength, (along_y + along_x) / 2)
    phase += math.pi * wavelength * (along_y - along_x) / 2 * (y**2 - x**2)
    return probe_from_pupil(slits, phase, "defocus")


def pinhole_probe(
    window: tuple[int, int],
    pixel: tuple[float, float],
    wavelength: float,
    diameter: float,
    *,
    distance: float = 0.0,
    edge: float = 0.0,
) -> NDArray[np.complex128]:
    """Return the probe behind a round pinhole in a plane wave.

    Parameters
    ----------
    window : tuple of int
        Pixels (y, x) of the probe.
    pixel : tuple of float
        Pixel size (y, x) of the object [m].
    wavelength : float
        Wavelength [m]; for electrons see `ptynb.electrons`.
    diameter : float
        Diameter of the pinhole [m].
    distance : float
        Distance from the pinhole to the sample [m], at least 0.
    edge : float
        Width [m] of the pinhole's edge, over which the amplitude falls to 0; at least a pixel.

    Returns
    -------
    ndarray
        Probe (y, x), complex128.

    Raises
    ------
    InvalidValueError
        As for `electron_probe`.
    """
    check_grid(window, pixel, wavelength)
    check_positive(diameter, "diameter of the pinhole", "m")
    check_not_negative(distance, "distance from the pinhole", "m")
    check_not_negative(edge, "width of the pinhole's edge", "m")
    if diameter < 2 * max(pixel):
        raise InvalidValueError(
            f"The pinhole is {diameter!r} m wide and the pixels {max(pixel)!r} m; use pixels of at most "
            f"{rounded_down(diameter / 2)} m.",
            code="probe.pixels-too-large",
        )
    needed = [
        max(side, math.ceil((diameter + max(edge, size)) / size) + 1) for side, size in zip(window, pixel, strict=True)
    ]
    if needed != [*window]:
        raise InvalidValueError(
            f"The pinhole is {diameter!r} m wide and does not fit in the window of {window[0]} x {window[1]} pixels; "
            f"use at least {needed[0]} x {needed[1]} of this size, or larger pixels.",
            code="probe.window-too-small",
        )
    y, x = (((np.arange(n) - n // 2) * p).astype(np.float64) for n, p in zip(window, pixel, strict=True))
    hole = disc(y[:, None], x[None, :], diameter / 2, pixel, edge)
    return normalised(propagate(hole, pixel, wavelength, distance))


def propagate(
    field: NDArray[np.complexfloating] | NDArray[np.floating],
    pixel: tuple[float, float],
    wavelength: float,
    distance: float,
) -> NDArray[np.complex128]:
    """Propagate fields through free space by their angular spectrum.

    The phase of each plane wave is 2π z (√(1/λ² - f²) - 1/λ); evanescent waves are removed. The field is padded with
    zeros to twice its size, and frequencies whose rays cross more than the window are removed, so that nothing wraps
    around.

    Parameters
    ----------
    field : ndarray
        Fields (…, y, x), real or complex.
    pixel : tuple of float
        Pixel size (y, x) [m].
    wavelength : float
        Wavelength [m].
    distance : float
        Distance [m], negative upstream.

    Returns
    -------
    ndarray
        Fields (…, y, x), complex128.

    Raises
    ------
    InvalidValueError
        A length is out of range or the field is zero ("argument.invalid-value"), the field has less than two axes
        ("array.shape-mismatch"), or more than 5% of the power leaves the window ("probe.window-too-small").

    References
    ----------
    Goodman, Introduction to Fourier Optics (2005), 3.10; Matsushima and Shimobaba, Opt. Express 17, 19662 (2009).
    """
    if field.ndim < 2:
        raise InvalidValueError(f"field has shape {field.shape}; expected (…, y, x).", code="array.shape-mismatch")
    window = (field.shape[-2], field.shape[-1])
    check_grid(window, pixel, wavelength)
    check_finite(distance, "distance", "m")
    padded = (2 * window[0], 2 * window[1])
    y, x = frequencies(padded, pixel)
    rays = slopes(y, x, wavelength)
    transmitted = np.isfinite(rays[0])
    for slope, side, size in zip(rays, window, pixel, strict=True):
        transmitted &= abs(distance) * np.where(transmitted, slope, 0) <= side * size
    spectrum = np.fft.fft2(field.astype(np.complex128), s=padded, axes=(-2, -1))
    kernel = np.where(transmitted, np.exp(1j * free_space(y, x, wavelength, distance)), 0)
    moved = np.fft.ifft2(spectrum * kernel, axes=(-2, -1))[..., : window[0], : window[1]]
    _check_lost(field, spectrum, moved, rays, pixel, distance)
    return moved


def _check_lost(
    field: NDArray[np.complexfloating] | NDArray[np.floating],
    spectrum: NDArray[np.complex128],
    moved: NDArray[np.complex128],
    rays: tuple[NDArray[np.float64], NDArray[np.float64]],
    pixel: tuple[float, float],
    distance: float,
) -> None:
    """Raise ValueError if more than MOST_LOST of the power of the propagating waves (`rays` finite) leaves the window.

    rays: slopes |dy/dz| and |dx/dz| of each plane wave (y, x).
    """
    window, finite = field.shape[-2:], np.isfinite(rays[0])
    power = (np.abs(spectrum) ** 2).reshape(-1, *finite.shape).sum(0)[finite]
    total = float(power.sum()) / finite.size
    if not (math.isfinite(total) and total > 0):
        raise InvalidValueError(
            "field is zero, evanescent or not finite; expected a field with propagating waves.",
            code="argument.invalid-value",
        )
    lost = 1 - float((np.abs(moved) ** 2).sum()) / total
    if lost <= MOST_LOST:
        return
    light = (np.abs(field) ** 2).reshape(-1, *window).sum(0)
    needed = []
    for axis, (side, size) in enumerate(zip(window, pixel, strict=True)):
        extent = _extent(np.abs(np.arange(side) - side // 2) * size, light.sum(1 - axis))
        needed.append(max(side, 2 * math.ceil((extent + abs(distance) * _extent(rays[axis][finite], power)) / size)))
    raise InvalidValueError(
        f"Over {distance!r} m, {lost:.0%} of the power leaves the window of {window[0]} x {window[1]} pixels; use one "
        f"of {needed[0]} x {needed[1]}, or larger pixels, or a shorter distance.",
        code="probe.window-too-small",
    )


def _extent(reach: NDArray[np.float64], power: NDArray[np.float64]) -> float:
    """Return the smallest `reach` along an axis beyond which there is at most half of the allowed loss of `power`."""
    order = np.argsort(reach)
    share = np.cumsum(power[order])
    return float(reach[order][np.searchsorted(share, (1 - MOST_LOST / 2) * share[-1])])
