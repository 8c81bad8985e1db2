"""Bragg and reflection geometry: a flat sample at any angle to the beam and to the detector.

All vectors are (3,) in one laboratory frame; r = 0 is where the beam meets the sample. The sample is a thin plane whose
pixels step along the columns of a basis A (3, 2: y, x), a parallelogram in general. Carrier phases are omitted from the
waves: exp(ik b·r) of the beam's direction b before the sample, exp(ik s·r) of the outgoing direction s after it. The
deflection between them (by a mirror, a lattice plane) is not part of the object, which stays smooth.

A plane wave K, |K| = 1/λ, has on the sample's grid the frequency f_a = n_a A_a·(K - s/λ) [cycles per window], and it
meets the detector in the direction of K. So for a detector pixel in the direction u, with the sample's normal n,
distance R, step vectors d, N pixels and S = |A_y × A_x|,

    f_a = n_a A_a·(u - s) / λ,     counts = |Ψ(f)|² · N S (u·n)² |u·(d_y × d_x)| / (λ² R² s·n)

Ψ the unitary spectrum of the exit wave: the Rayleigh-Sommerfeld integral in the far field. The factor is the density of
frequencies |∂f/∂pixel|, which contains one u·n, times u·n / s·n, the flux of a plane wave through an inclined plane:
counts are conserved. Born and Wolf, Principles of Optics (1999), 8.11. No small-angle approximation is made.
Neglected: the sample's thickness and roughness, and polarisation.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.data.tilted_geometry import Reals, Tilted, cross_of, normal_of, steps_of
from ptynb.physics.resampling import Resampling, resampling, spectrum_at


def far_field_resampling(
    window: tuple[int, int],
    geometry: Tilted,
    *,
    curved: bool = True,
    dtype: torch.dtype = torch.complex64,
    device: torch.device | str = "cpu",
) -> Resampling:
    """Return the position of each detector pixel in the spectrum of the exit wave, (y, x), for `tilted_far_field`.

    window: pixels (y, x) of waves and detector. curved: False uses the small-angle approximation on the detector (or a
    lens in front of it): on the `conjugate_basis` this is the plain far field. dtype: complex type of the waves.

    The result is in FFT order. Pixels at frequencies beyond the grid, or behind the sample plane, are 0; mask them by
    `covered`.
    """
    pixels = _whole_numbers(window)
    distance = np.linalg.norm(geometry.detector_centre)
    centre = geometry.detector_centre / distance
    normal = normal_of(geometry.sample_basis, geometry.reference)
    vectors = geometry.detector_centre + pixels @ geometry.detector_basis.T
    lengths = np.linalg.norm(vectors, axis=-1)
    if curved:
        directions = vectors / lengths[..., None]
        cosine = directions @ normal
        across = np.abs(directions @ cross_of(geometry.detector_basis))
    else:
        directions = centre + pixels @ (steps_of(geometry.detector_basis, centre) / distance).T
        lengths = np.full(window, distance)
        cosine = np.full(window, centre @ normal)
        across = np.full(window, abs(centre @ cross_of(geometry.detector_basis)))
    frequencies = np.array(window) * ((directions - geometry.reference) @ geometry.sample_basis) / geometry.wavelength
    frequencies[cosine <= 0] = np.inf
    area = np.linalg.norm(cross_of(geometry.sample_basis))
    counts = cosine**2 * across * area * math.prod(window) / (geometry.wavelength * lengths) ** 2
    scale = np.sqrt(counts / (geometry.reference @ normal))
    return resampling(window, frequencies, scale, dtype=dtype, device=device)


def tilted_far_field(waves: Tensor, points: Resampling) -> Tensor:
    """Propagate waves (…, y, x) behind the sample to the detector (…, y, x), in FFT order; their squares are counts.

    points: from `far_field_resampling`. Differentiable in `waves`.
    """
    return spectrum_at(waves, points)


def tilted_kernel(window: tuple[int, int], geometry: Tilted, distances: float | Tensor) -> Tensor:
    """Return the propagator of a probe along the beam on the sample plane, (…, y, x) complex128, for `propagate`.

    The wave of frequency f on the inclined grid is the one plane wave K with A_a·(K - b/λ) = f_a / n_a that crosses the
    plane with the beam; over a distance z its phase changes by 2π z (K·b - 1/λ) relative to the beam. Exact; equals
    `angular_spectrum_kernel` for a plane perpendicular to the beam.

    window: pixels (y, x). distances: (…) [m], positive downstream, differentiable.
    """
    offsets, travelling = _offsets(window, geometry)
    device = distances.device if isinstance(distances, Tensor) else torch.device("cpu")
    # |K - b/λ|² = 2 (1/λ² - K·b/λ) avoids a difference of large numbers.
    turns = torch.from_numpy(-geometry.wavelength / 2 * (offsets**2).sum(-1)).to(device)
    length = torch.as_tensor(distances, dtype=torch.float64, device=device)[..., None, None]
    kept = torch.from_numpy(travelling).to(turns)
    return torch.polar(kept.expand(length.shape[:-2] + kept.shape), 2 * torch.pi * length * turns)


def probe_resampling(
    window: tuple[int, int],
    geometry: Tilted,
    *,
    dtype: torch.dtype = torch.complex64,
    device: torch.device | str = "cpu",
) -> Resampling:
    """Return the resampling for `probe_on_sample`: frequencies g, perpendicular to the beam, of the frequencies f.

    The probe's pixels there are the sample's, projected along the beam. Then g_a = f_a + n_a A_a·b (1/λ - K·b), with K
    as in `tilted_kernel`: a beam of small aperture is unchanged, the rest is diffraction over each pixel's distance
    A_a·b j_a. The density of frequencies is |∂g/∂f| = (K·b)(b·n) / (K·n). No small-angle approximation is made.
    """
    offsets, travelling = _offsets(window, geometry)
    lag = geometry.wavelength / 2 * (offsets**2).sum(-1)
    along = geometry.sample_basis.T @ geometry.beam
    moved = along * lag[..., None]
    frequencies = _whole_numbers(window) + np.array(window) * moved
    frequencies[~travelling] = np.inf
    normal = normal_of(geometry.sample_basis, geometry.beam)
    wave = offsets + geometry.beam / geometry.wavelength
    inclined = np.where(travelling, wave @ normal, 1.0)
    scale = (wave @ geometry.beam) * (geometry.beam @ normal) / inclined
    # Both planes intersect in the windows' middle pixel, while spectra count from the first one.
    turned = np.exp(2j * np.pi * moved @ np.array([side // 2 for side in window]))
    return resampling(window, frequencies, scale * turned, dtype=dtype, device=device)


def probe_on_sample(probe: Tensor, points: Resampling) -> Tensor:
    """Propagate probes (…, y, x) from a plane perpendicular to the beam, through its centre, to the sample (…, y, x).

    Each pixel is the probe propagated over its own distance along the beam. points: from `probe_resampling`. The probe
    has to fit into its window on both planes. Differentiable in `probe`.
    """
    return torch.fft.ifft2(spectrum_at(probe, points), norm="ortho")


def _offsets(window: tuple[int, int], geometry: Tilted) -> tuple[Reals, NDArray[np.bool_]]:
    """Return K - b/λ (y, x, 3) [1/m] of the plane waves of the sample's grid, and which of them propagate.

    The in-plane part follows from the frequency, the part along the normal n from |K| = 1/λ.
    """
    basis, wave_number = geometry.sample_basis, 1 / geometry.wavelength
    dual = basis @ np.linalg.inv(basis.T @ basis)
    within = (_whole_numbers(window) / np.array(window)) @ dual.T
    normal = normal_of(basis, geometry.beam)
    inclined = wave_number * (geometry.beam @ normal)
    change = 2 * wave_number * (within @ geometry.beam) + (within**2).sum(-1)
    square = inclined**2 - change
    travelling: NDArray[np.bool_] = square > 0
    along = -change / (inclined + np.sqrt(np.where(travelling, square, 0.0)))
    offsets: Reals = within + along[..., None] * normal
    return offsets, travelling


def _whole_numbers(window: tuple[int, int]) -> Reals:
    """Return pixel indices relative to the middle, (y, x, yx), in FFT order."""
    axes = [np.fft.fftfreq(side, 1 / side) for side in window]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
