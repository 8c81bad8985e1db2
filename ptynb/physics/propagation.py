"""Propagation of waves between parallel planes: free space by the angular spectrum, and the far field.

A plane wave of spatial frequency f (y, x) [1/m] gains the phase 2π z √(1/λ² - f²). The term common to all
waves, 2π z / λ, is omitted: it has no effect on intensities, and would cause rounding errors of the rest. So

    H(f) = exp(-2πi z f² / (1/λ + √(1/λ² - f²)))        for f < 1/λ; evanescent waves are removed

which is √(1/λ² - f²) - 1/λ without the difference of two large, almost equal numbers. Goodman, Introduction to Fourier
Optics (2005), 3.10. Small f give the Fresnel propagator exp(-iπ λ z f²): z > 0 is downstream.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ptynb.data.optics.pupil import check_grid
from ptynb.exceptions import InvalidValueError


def angular_spectrum_kernel(
    window: tuple[int, int],
    pixel: tuple[float, float],
    wavelength: float,
    distance: float | Tensor,
    *,
    tilt: Tensor | None = None,
    band_limited: bool = False,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return the free-space transfer function for `propagate`, (…, y, x) complex128 in FFT order.

    Computed in double precision, since phases of thousands of radians are common; cast it to the type of the waves.

    window: pixels (y, x). pixel: their size (y, x) [m]. wavelength: [m].
    distance: [m], negative upstream; a number or a tensor (…), differentiable.
    tilt: of the beam (…, yx) [rad], differentiable: the field moves by +distance tan(tilt) along each axis, as in
        multislice through a tilted crystal. Valid for small tilts: diffraction remains that of a beam along the normal.
    band_limited: whether to remove frequencies whose phase the grid undersamples, which would wrap around the edges.
        Matsushima and Shimobaba, Opt. Express 17, 19662 (2009), with the slope taken in both axes.
    device: of the result; None: that of `distance` or `tilt`, else the CPU.

    Raises ValueError for sizes that are not positive.
    """
    check_grid(window, pixel, wavelength)
    if device is None:
        device = next((value.device for value in (distance, tilt) if isinstance(value, Tensor)), torch.device("cpu"))
    y, x = (
        torch.fft.fftfreq(side, pitch, dtype=torch.float64, device=device)
        for side, pitch in zip(window, pixel, strict=True)
    )
    y = y[:, None]
    square = y**2 + x**2
    axial = (wavelength**-2 - square).clamp(min=0).sqrt()
    length = torch.as_tensor(distance, dtype=torch.float64, device=device)[..., None, None]
    turns = -length * (square / (1 / wavelength + axial))
    if tilt is not None:
        slope = tilt.to(device, torch.float64).tan()[..., None, None]
        turns = turns - length * (y * slope[..., 0, :, :] + x * slope[..., 1, :, :])
    transmitted = square < wavelength**-2
    if band_limited:
        far = length.detach().abs()
        for frequency, side, pitch in ((y, window[0], pixel[0]), (x, window[1], pixel[1])):
            transmitted = transmitted & (far * frequency.abs() <= side * pitch / 2 * axial)
    return torch.polar(transmitted.to(turns).expand_as(turns), 2 * torch.pi * turns)


def largest_distance(window: tuple[int, int], pixel: tuple[float, float], wavelength: float) -> float:
    """Return the largest distance [m] over which `angular_spectrum_kernel` propagates all waves of this grid.

    Between adjacent frequencies, 1/(n p) apart, the phase of the kernel may change by at most π. It changes fastest at
    the corner of the grid, f = (1/2p_y, 1/2p_x); along an axis of n pixels of size p the condition is

        z (1/2p) / √(1/λ² - f²)  ≤  n p / 2

    so z is about n p² / λ, the smaller value of both axes. Equivalently: the steepest ray crosses half the window, and
    waves that move farther wrap around. Voelz, Computational Fourier Optics (2011), 5.2. A field without these waves
    may be propagated farther. Return 0 if the grid contains evanescent waves (pixels of about λ/√2 or less).

    window: pixels (y, x). pixel: their size (y, x) [m]. wavelength: [m]. Raises ValueError for sizes not positive.
    """
    check_grid(window, pixel, wavelength)
    axial = math.sqrt(max(wavelength**-2 - sum((2 * pitch) ** -2 for pitch in pixel), 0.0))
    return min(side * pitch**2 * axial for side, pitch in zip(window, pixel, strict=True))


def propagate(field: Tensor, kernel: Tensor) -> Tensor:
    """Return F⁻¹[kernel · F[field]]: fields (…, y, x) propagated through free space; `kernel` broadcasts."""
    return torch.fft.ifft2(torch.fft.fft2(field) * kernel)


def far_field(waves: Tensor) -> Tensor:
    """Return the unitary Fourier transform of waves (…, y, x), in FFT order: Fraunhofer diffraction."""
    return torch.fft.fft2(waves, norm="ortho")


def fresnel_scaling(focus_to_sample: float, sample_to_detector: float) -> tuple[float, float]:
    """Return the magnification and effective distance [m] of a diverging or converging beam.

    The pattern of a spherical wave at z₂ is that of a plane wave at z₂ / M, magnified by M = (z₁ + z₂) / z₁. Paganin,
    Coherent X-Ray Optics (2006), appendix B.

    focus_to_sample: z₁ [m], negative if the focus is downstream of the sample, infinite for a parallel beam.
    sample_to_detector: z₂ [m].

    Raises ValueError if the detector is in the focus or beyond it, or not downstream of the sample.
    """
    if not (math.isfinite(sample_to_detector) and sample_to_detector > 0):
        raise InvalidValueError(
            f"The distance from sample to detector is {sample_to_detector!r} m; expected a positive, finite number.",
            code="argument.invalid-value",
        )
    if math.isnan(focus_to_sample) or focus_to_sample == 0 or 1 + sample_to_detector / focus_to_sample <= 0:
        raise InvalidValueError(
            f"The distance from focus to sample is {focus_to_sample!r} m with the detector {sample_to_detector!r} m "
            "behind the sample; expected a positive number, a negative one with the detector before the focus, or "
            "math.inf.",
            code="argument.invalid-value",
        )
    magnification = 1 + sample_to_detector / focus_to_sample
    return magnification, sample_to_detector / magnification
