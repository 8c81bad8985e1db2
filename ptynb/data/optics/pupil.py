"""Apertures on a grid of spatial frequencies, their probes, and limits of a grid; in numpy."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.exceptions import InvalidValueError, check_positive


def frequencies(window: tuple[int, int], pixel: tuple[float, float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return spatial frequencies (y, 1) and (1, x) [1/m], FFT order. window: pixels (y, x). pixel: size (y, x) [m]."""
    y, x = (np.fft.fftfreq(side, size).astype(np.float64) for side, size in zip(window, pixel, strict=True))
    return y[:, None], x[None, :]


def free_space(
    y: NDArray[np.float64], x: NDArray[np.float64], wavelength: float, distance: float
) -> NDArray[np.float64]:
    """Return 2π z (√(1/λ² - f²) - 1/λ) [rad] for frequencies f [1/m], without the difference of two large numbers."""
    square = y**2 + x**2
    axial = np.sqrt(np.maximum(wavelength**-2 - square, 0))
    return -2 * np.pi * distance * square / (1 / wavelength + axial)


def slopes(
    y: NDArray[np.float64], x: NDArray[np.float64], wavelength: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return |dy/dz| and |dx/dz| of the ray of each frequency (y, x); infinite for evanescent waves."""
    square = y**2 + x**2
    runs = square < wavelength**-2
    axial = np.sqrt(np.where(runs, wavelength**-2 - square, 1))
    return np.where(runs, np.abs(y) / axial, np.inf), np.where(runs, np.abs(x) / axial, np.inf)


def covered(depth: ArrayLike) -> NDArray[np.float64]:
    """Return the fraction of a cell inside an edge at a distance of `depth` cells, positive inside."""
    return np.clip(np.asarray(depth, np.float64) + 0.5, 0, 1)


def disc(
    y: NDArray[np.float64], x: NDArray[np.float64], radius: float, steps: tuple[float, float], edge: float = 0.0
) -> NDArray[np.float64]:
    """Return 1 within the radius and 0 outside, with a linear edge of width `edge`, at least one grid step."""
    distance = np.hypot(y, x)
    away = np.where(distance > 0, distance, 1)
    step = np.where(distance > 0, np.hypot(y / away * steps[0], x / away * steps[1]), min(steps))
    return covered((radius - distance) / np.maximum(step, edge))


def probe_from_pupil(amplitude: NDArray[np.float64], phase: NDArray[np.float64], cause: str) -> NDArray[np.complex128]:
    """Return the probe (y, x) of power 1, centred in its window, whose spectrum is A exp(-iχ).

    amplitude: A, (y, x) in FFT order. phase: χ (y, x) [rad]. cause: named in the error message.

    Raises ValueError if a ray misses the window: it arrives (n / 2π) Δχ pixels from the centre, where Δχ is the change
    from one frequency to the next.
    """
    sides = amplitude.shape
    needed = list(sides)
    lit, shifted = np.fft.fftshift(amplitude) > 0, np.fft.fftshift(phase)
    for axis, side in enumerate(sides):
        # The slope at the rim exceeds all slopes on a finer grid, so the window size in the message suffices.
        before, after = (np.take(lit, range(first, side - 1 + first), axis=axis) for first in (0, 1))
        farthest = np.abs(np.diff(shifted, axis=axis)).max(initial=0.0, where=before | after) / np.pi
        if farthest > 1:
            needed[axis] = math.ceil(farthest * side)
    if needed != list(sides):
        raise InvalidValueError(
            f"Because of the {cause}, the probe does not fit in the window of {sides[0]} x {sides[1]} pixels; use at "
            f"least {needed[0]} x {needed[1]} of this size, or larger pixels.",
            code="probe.window-too-small",
        )
    return normalised(np.fft.fftshift(np.fft.ifft2(amplitude * np.exp(-1j * phase))))


def normalised(probe: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Return the probe scaled to Σ |P|² = 1."""
    return probe / np.sqrt((np.abs(probe) ** 2).sum())


def check_pupil(
    window: tuple[int, int],
    pixel: tuple[float, float],
    wavelength: float,
    reach: tuple[float, float],
    edge: float = 0.0,
) -> None:
    """Raise ValueError if the grid does not contain a pupil of half-widths `reach` (y, x) [1/m] with its `edge`."""
    for axis, side, size, half in zip("yx", window, pixel, reach, strict=True):
        outer, most = half + edge / 2, max(side / 2 - 1, 0)
        if outer * wavelength >= 1:
            raise InvalidValueError(
                f"The pupil has a numerical aperture of {outer * wavelength:.3g} along {axis}; expected less than 1.",
                code="argument.invalid-value",
            )
        if outer * side * size > most:
            raise InvalidValueError(
                f"The pupil has a half-angle of {outer * wavelength:.3g} rad along {axis}, and {side} pixels of "
                f"{size!r} m sample at most {most / (side * size) * wavelength:.3g} rad; use pixels of at most "
                f"{rounded_down(max(most, 1) / (side * outer))} m.",
                code="probe.pixels-too-large",
            )
        if half * side * size < 1:
            raise InvalidValueError(
                f"The pupil has a half-angle of {half * wavelength:.3g} rad along {axis}, and its focus is wider than "
                f"the window of {side} pixels; use at least {math.ceil(1 / (half * size))} of this size, or larger "
                "pixels.",
                code="probe.window-too-small",
            )


def rounded_down(value: float) -> str:
    """Return a positive number rounded down to three digits, for a limit in a message."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.floor(value / unit) * unit:.3g}"


def check_grid(window: tuple[int, int], pixel: tuple[float, float], wavelength: float) -> None:
    """Raise ValueError for a window without pixels, or lengths that are not positive."""
    if min(window) < 1:
        raise InvalidValueError(
            f"The window has {window[0]} x {window[1]} pixels; give at least 1 along y and x.",
            code="argument.invalid-value",
        )
    for size in pixel:
        check_positive(size, "pixel size", "m")
    check_positive(wavelength, "wavelength", "m")


def check_not_negative(value: float, name: str, unit: str) -> None:
    """Raise ValueError for a number that is negative or not finite."""
    if not (math.isfinite(value) and value >= 0):
        raise InvalidValueError(
            f"The {name} is {value!r} {unit}; expected a finite number of at least 0.", code="argument.invalid-value"
        )


def check_finite(value: float, name: str, unit: str) -> None:
    """Raise ValueError for a number that is not finite."""
    if not math.isfinite(value):
        raise InvalidValueError(
            f"The {name} is {value!r} {unit}; expected a finite number.", code="argument.invalid-value"
        )


def steps_of(window: tuple[int, int], pixel: tuple[float, float]) -> tuple[float, float]:
    """Return the steps between spatial frequencies (y, x) [1/m]. window: pixels (y, x). pixel: size (y, x) [m]."""
    return 1 / (window[0] * pixel[0]), 1 / (window[1] * pixel[1])
