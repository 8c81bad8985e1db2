"""Geometry of the measurement: wavelength, distance, pixel sizes, and conversion of units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptynb.exceptions import InvalidValueError, check_positive

ELECTRON_VOLT = 1.602176634e-19
"""[J], exact since 2019."""
PLANCK_CONSTANT_TIMES_LIGHT_SPEED = 6.62607015e-34 * 299792458.0 / ELECTRON_VOLT
"""h c [eV m], from the exact SI values of 2019."""


def wavelength_from_energy(energy: float) -> float:
    """Return the wavelength [m] of a photon of this energy [eV]: λ = h c / E."""
    check_positive(energy, "photon energy", "eV", "energy")
    return PLANCK_CONSTANT_TIMES_LIGHT_SPEED / energy


def energy_from_wavelength(wavelength: float) -> float:
    """Return the energy [eV] of a photon of this wavelength [m]: E = h c / λ."""
    check_positive(wavelength, "wavelength", "m", "wavelength")
    return PLANCK_CONSTANT_TIMES_LIGHT_SPEED / wavelength


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """Geometry of a far-field measurement.

    Electron microscopes are calibrated in angles: use a distance of 1 m and a detector pixel in radians.

    Parameters
    ----------
    wavelength : float
        Wavelength of the beam [m].
    distance : float
        Distance from the sample to the detector [m].
    detector_pixel : (float, float)
        Size (y, x) of a detector pixel [m].
    """

    wavelength: float
    distance: float
    detector_pixel: tuple[float, float]

    def __post_init__(self) -> None:
        check_positive(self.wavelength, "wavelength", "m", "wavelength")
        check_positive(self.distance, "distance", "m", "distance")
        for size in self.detector_pixel:
            check_positive(size, "detector pixel size", "m", "detector_pixel")

    def object_pixel(self, window: tuple[int, int]) -> tuple[float, float]:
        """Return the size of an object pixel, λ z / (n p) for n detector pixels of size p at distance z.

        Parameters
        ----------
        window : (int, int)
            Size (y, x) of the patterns [pixels].

        Returns
        -------
        (float, float)
            Size (y, x) [m].
        """
        height, width = (
            self.wavelength * self.distance / (n * p) for n, p in zip(window, self.detector_pixel, strict=True)
        )
        return height, width

    @property
    def energy(self) -> float:
        """Photon energy [eV]."""
        return energy_from_wavelength(self.wavelength)


@dataclass(frozen=True, kw_only=True)
class NearField:
    """Geometry of a near-field measurement: the shadow of the sample, magnified by a beam from a focus.

    By Fresnel scaling the pattern is the magnified one of a parallel beam at the effective distance. Paganin, Coherent
    X-Ray Optics (2006), appendix B.

    Parameters
    ----------
    wavelength : float
        Wavelength of the beam [m].
    focus_to_sample : float
        Distance from the focus to the sample [m]; infinite for a parallel beam.
    sample_to_detector : float
        Distance from the sample to the detector [m].
    detector_pixel : (float, float)
        Size (y, x) of a detector pixel [m].
    """

    wavelength: float
    focus_to_sample: float
    sample_to_detector: float
    detector_pixel: tuple[float, float]

    def __post_init__(self) -> None:
        check_positive(self.wavelength, "wavelength", "m", "wavelength")
        if not self.focus_to_sample > 0:
            raise InvalidValueError(
                f"focus_to_sample is {self.focus_to_sample!r} m; expected a positive distance, or math.inf for a "
                "parallel beam.",
                code="argument.invalid-value",
                fields=("focus_to_sample",),
            )
        check_positive(self.sample_to_detector, "distance from sample to detector", "m", "distance")
        for size in self.detector_pixel:
            check_positive(size, "detector pixel size", "m", "detector_pixel")

    @property
    def magnification(self) -> float:
        """Magnification (z₁ + z₂) / z₁, 1 for a parallel beam."""
        return 1 + self.sample_to_detector / self.focus_to_sample

    @property
    def effective_distance(self) -> float:
        """Effective distance, z₂ divided by the magnification [m]."""
        return self.sample_to_detector / self.magnification

    def object_pixel(self, window: tuple[int, int]) -> tuple[float, float]:
        """Return the size of an object pixel: that of the detector, divided by the magnification.

        Parameters
        ----------
        window : (int, int)
            Size (y, x) of the patterns [pixels]; not used.

        Returns
        -------
        (float, float)
            Size (y, x) [m].
        """
        return self.detector_pixel[0] / self.magnification, self.detector_pixel[1] / self.magnification

    def fresnel_number(self, sides: tuple[int, int] = (1, 1)) -> tuple[float, float]:
        """Return Fresnel numbers (n p)² / (λ z), with object pixel p and effective distance z.

        Features of n pixels are sharp edges in a pattern if it is far above 1, and diffract over the whole of their
        surroundings if it is far below 1.

        Parameters
        ----------
        sides : (int, int), default (1, 1)
            Size (y, x) of the feature [pixels].

        Returns
        -------
        (float, float)
            Fresnel numbers (y, x).
        """
        y, x = (
            (n * p) ** 2 / (self.wavelength * self.effective_distance)
            for n, p in zip(sides, self.object_pixel(sides), strict=True)
        )
        return y, x

    @property
    def energy(self) -> float:
        """Photon energy [eV]."""
        return energy_from_wavelength(self.wavelength)


def metres_to_pixels(positions: NDArray[np.float64], pixel: tuple[float, float]) -> NDArray[np.float64]:
    """Convert positions (pattern, yx) from metres to pixels of size `pixel` (y, x) [m]."""
    return positions / np.asarray(pixel, dtype=np.float64)


def illuminated_area(positions: NDArray[np.float64], window: tuple[int, int]) -> tuple[slice, slice]:
    """Return the part of the object under the central half of some probe window.

    positions: (pattern, yx), in pixels of the object array.
    """
    low = np.rint(positions.min(0) + np.array(window) / 4).astype(int)
    high = np.rint(positions.max(0) + np.array(window) * 3 / 4).astype(int)
    return slice(int(low[0]), int(high[0])), slice(int(low[1]), int(high[1]))
