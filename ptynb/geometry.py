"""Wavelength, distance and pixel sizes: the only place where units are converted."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ELECTRON_VOLT = 1.602176634e-19
"""[J], exact since 2019."""
PLANCK_CONSTANT_TIMES_LIGHT_SPEED = 6.62607015e-34 * 299792458.0 / ELECTRON_VOLT
"""h c [eV m], from the exact SI values of 2019."""


def wavelength_from_energy(energy: float) -> float:
    """Wavelength [m] of a photon of this energy [eV]: λ = h c / E."""
    return PLANCK_CONSTANT_TIMES_LIGHT_SPEED / _positive(energy, "photon energy", "eV")


def energy_from_wavelength(wavelength: float) -> float:
    """Energy [eV] of a photon of this wavelength [m]: E = h c / λ."""
    return PLANCK_CONSTANT_TIMES_LIGHT_SPEED / _positive(wavelength, "wavelength", "m")


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """A far-field measurement: what turns metres into object pixels.

    wavelength: of the beam [m].
    distance: from the sample to the detector [m].
    detector_pixel: size of a detector pixel (y, x) [m].
    """

    wavelength: float
    distance: float
    detector_pixel: tuple[float, float]

    def __post_init__(self) -> None:
        _positive(self.wavelength, "wavelength", "m")
        _positive(self.distance, "distance", "m")
        for size in self.detector_pixel:
            _positive(size, "detector pixel size", "m")

    def object_pixel(self, window: tuple[int, int]) -> tuple[float, float]:
        """Size of an object pixel (y, x) [m] for patterns of `window` pixels.

        The discrete Fourier transform of n samples of pitch p at distance z gives λ z / (n p).
        """
        height, width = (
            self.wavelength * self.distance / (n * p) for n, p in zip(window, self.detector_pixel, strict=True)
        )
        return height, width

    @property
    def energy(self) -> float:
        """Photon energy [eV]."""
        return energy_from_wavelength(self.wavelength)


def metres_to_pixels(positions: NDArray[np.float64], pixel: tuple[float, float]) -> NDArray[np.float64]:
    """Positions (pattern, yx) from metres to pixels of size `pixel` (y, x) [m]."""
    return positions / np.asarray(pixel, dtype=np.float64)


def lit_area(positions: NDArray[np.float64], window: tuple[int, int]) -> tuple[slice, slice]:
    """The part of the object under the middle half of some probe window: what is worth looking at.

    positions: (pattern, yx), in pixels of the object's array.
    """
    low = np.rint(positions.min(0) + np.array(window) / 4).astype(int)
    high = np.rint(positions.max(0) + np.array(window) * 3 / 4).astype(int)
    return slice(int(low[0]), int(high[0])), slice(int(low[1]), int(high[1]))


def _positive(value: float, name: str, unit: str) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"The {name} is {value!r} {unit}; it has to be a positive, finite number.")
    return value
