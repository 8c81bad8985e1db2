"""Diffraction patterns of a known object, in plain numpy and independent of the reconstruction's model.

Each propagation step of the reconstruction (between two slices, to the detector) is divided into several smaller ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from ptynb.data.geometry import Geometry, NearField
from ptynb.data.patterns import ArrayFrames
from ptynb.data.scan import Scan, Truth
from ptynb.exceptions import ScanError
from ptynb.preparation.field_resampling import cut, middle_start

Complex = NDArray[np.complex128]


def simulate_diffraction(
    object: ArrayLike,
    probe: ArrayLike,
    positions: ArrayLike,
    *,
    geometry: Geometry | NearField | None = None,
    thickness: float | None = None,
    steps: int = 4,
    tilt: ArrayLike = (0.0, 0.0),
    weights: ArrayLike | None = None,
    descan: ArrayLike | None = None,
    motion: ArrayLike | None = None,
    motion_steps: int = 32,
    background: ArrayLike = 0.0,
    oversampling: int = 1,
    blur: float = 0.0,
    saturation: float | None = None,
    noise: bool = True,
    seed: int = 0,
    guess: ArrayLike | None = None,
    name: str = "exposed",
) -> Scan:
    """Simulate the diffraction patterns of a known object (`scan.ground_truth`).

    Parameters
    ----------
    object : array_like
        Complex object (y, x), (slice, y, x), or (mode, slice, y, x) with incoherent modes of equal weight.
    probe : array_like
        Complex probe (mode, y, x), or (pattern, mode, y, x) if it varies [square roots of counts].
    positions : array_like
        Top-left corners (pattern, yx) of the probe windows [object pixels].
    geometry : Geometry or NearField, optional
        Geometry of the scan; required for several slices. With NearField the patterns are holograms.
    thickness : float, optional
        Distance between two slices [m]; required for several slices.
    steps : int
        Number of propagation steps between two slices, and to a near-field detector.
    tilt : array_like
        Tilt of the beam, (yx) or (pattern, yx) [rad].
    weights : array_like, optional
        Relative intensity (pattern,) of each pattern.
    descan : array_like, optional
        Shift (pattern, yx) of each pattern on the detector [detector pixels]; far field only.
    motion : array_like, optional
        Displacement (pattern, yx) of each position during its exposure, whose middle the position is [object pixels].
    motion_steps : int
        Number of positions along the motion whose intensities are averaged.
    background : array_like
        Background, a number or (y, x) [counts].
    oversampling : int
        Number of samples along y and x that are summed to a detector pixel.
    blur : float
        Standard deviation of the detector's point spread function [detector pixels].
    saturation : float, optional
        Largest count.
    noise : bool
        Whether counts are drawn from the Poisson distribution.
    seed : int
        Seed of the random numbers; each pattern has its own stream.
    guess : array_like, optional
        Initial probe (mode, y, x) of the scan; by default the true one (of the first pattern).
    name : str
        Name of the scan.

    Returns
    -------
    Scan
        The scan, in memory, with centred patterns.

    Raises
    ------
    ScanError
        An argument is missing for several slices ("argument.missing"), the number of probes is neither 1 nor that of
        the positions, or shifts or motion have another shape ("array.shape-mismatch"), or descan is given in the near
        field ("scan.near-field").
    """
    objects = np.asarray(object, dtype=np.complex128)
    objects = objects.reshape((1,) * (4 - objects.ndim) + objects.shape)
    probes = np.asarray(probe, dtype=np.complex128)
    probes = probes[None] if probes.ndim == 3 else probes
    positions = np.asarray(positions, dtype=np.float64)
    if objects.shape[1] > 1 and (geometry is None or thickness is None):
        raise ScanError(
            "An object of several slices requires geometry=... and thickness=... [m]; give both.",
            code="argument.missing",
        )
    if len(probes) not in (1, len(positions)):
        raise ScanError(
            f"There are {len(probes)} probes and {len(positions)} positions; give one probe, or one for each position.",
            code="array.shape-mismatch",
        )
    if descan is not None and isinstance(geometry, NearField):
        raise ScanError(
            "descan is given with a near-field geometry, which has no descan; leave it out.", code="scan.near-field"
        )
    shifts, ways = (
        np.zeros(positions.shape) if given is None else np.asarray(given, dtype=np.float64)
        for given in (descan, motion)
    )
    if not shifts.shape == ways.shape == positions.shape:
        raise ScanError(
            f"descan has shape {shifts.shape} and motion {ways.shape}; expected {positions.shape}, (y, x) for each "
            "position.",
            code="array.shape-mismatch",
        )
    window = (probes.shape[-2], probes.shape[-1])
    times = (np.arange(motion_steps) + 0.5) / motion_steps - 0.5 if motion is not None else np.zeros(1)
    beam = _Beam(geometry, window, 0.0 if thickness is None else thickness, steps)
    tilts = np.broadcast_to(np.asarray(tilt, dtype=np.float64), positions.shape)
    brightness = np.ones(len(positions)) if weights is None else np.asarray(weights, dtype=np.float64)
    patterns = []
    for index, position in enumerate(positions):
        intensity = np.mean(
            [
                beam.intensity(objects, probes[index % len(probes)], place, tilts[index], oversampling * shifts[index])
                for place in position + times[:, None] * ways[index]
            ],
            axis=0,
        )
        intensity *= brightness[index]
        intensity = _detector_pixels(intensity, oversampling, blur) + np.asarray(background, dtype=np.float64)
        if noise:
            intensity = np.random.default_rng([seed, index]).poisson(intensity)
        patterns.append(np.minimum(intensity, np.inf if saturation is None else saturation).astype(np.float32))
    first = probes[0] if guess is None else np.asarray(guess)
    detector = (window[0] // oversampling, window[1] // oversampling)
    shift = middle_start(window, detector)
    return Scan(
        frames=ArrayFrames.of(np.array(patterns)),
        positions=positions + shift,
        probe=cut(first, shift, detector).astype(np.complex64),
        geometry=geometry,
        motion=None if motion is None else ways,
        ground_truth=Truth(objects[0].squeeze(0) if objects.shape[1] == 1 else objects[0], probes[0]),
        name=name,
    )


@dataclass(frozen=True)
class _Beam:
    """Propagation from the probe to the detector."""

    geometry: Geometry | NearField | None
    window: tuple[int, int]
    thickness: float
    steps: int

    def intensity(
        self,
        objects: Complex,
        probe: Complex,
        position: NDArray[np.float64],
        tilt: NDArray[np.float64],
        shift: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the pattern (y, x): Σ |wave|² over probe modes, mean over object modes; the far field is centred.

        shift: of the far field (y, x) [samples].
        """
        corner = np.rint(position).astype(int)
        entering = moved(probe, position - corner)
        rows, columns = (slice(corner[axis], corner[axis] + self.window[axis]) for axis in (0, 1))
        total = np.zeros(self.window)
        for slices in objects:
            wave = entering * slices[0, rows, columns]
            for layer in slices[1:]:
                for _ in range(self.steps):
                    wave = self._free(wave, self.thickness / self.steps, tilt)
                wave = wave * layer[rows, columns]
            y, x = (
                np.exp(2j * np.pi * (np.arange(side) - side // 2) * along / side)
                for side, along in zip(self.window, shift, strict=True)
            )
            total += (np.abs(self._detected(wave * y[:, None] * x, position - corner)) ** 2).sum(0)
        return total / len(objects)

    def _detected(self, wave: Complex, remainder: NDArray[np.float64]) -> Complex:
        if isinstance(self.geometry, NearField):
            wave = moved(wave, -remainder)  # the detector is fixed to the probe, which was shifted by the subpixel part
            for _ in range(self.steps):
                wave = self._free(wave, self.geometry.effective_distance / self.steps, np.zeros(2))
            return wave
        return np.fft.fftshift(np.fft.fft2(wave, norm="ortho"), axes=(-2, -1))

    def _free(self, wave: Complex, distance: float, tilt: NDArray[np.float64]) -> Complex:
        """Propagate in free space: each plane wave has the phase k_z z, and a tilted beam moves by z tan(tilt)."""
        assert self.geometry is not None
        pixel = self.geometry.object_pixel(self.window)
        y, x = (np.fft.fftfreq(side, pitch) for side, pitch in zip(self.window, pixel, strict=True))
        wave_number = 1 / self.geometry.wavelength
        axial = np.sqrt(wave_number**2 - y[:, None] ** 2 - x[None, :] ** 2 + 0j)
        phase = 2j * np.pi * distance * (axial - wave_number)
        slope = y[:, None] * np.tan(tilt[0]) + x[None, :] * np.tan(tilt[1])
        return np.fft.ifft2(np.fft.fft2(wave) * np.exp(phase - 2j * np.pi * distance * slope))


def moved(field: Complex, shift: NDArray[np.float64]) -> Complex:
    """Shift fields (…, y, x) by (y, x) pixels, exact for a periodic window; the cosine at the Nyquist frequency."""
    ramps = []
    for side, along in zip(field.shape[-2:], shift, strict=True):
        ramp = np.exp(-2j * np.pi * np.fft.fftfreq(side) * along)
        if side % 2 == 0:
            ramp[side // 2] = np.cos(np.pi * along)
        ramps.append(ramp)
    return np.fft.ifft2(np.fft.fft2(field) * ramps[0][:, None] * ramps[1][None, :])


def _detector_pixels(intensity: NDArray[np.float64], oversampling: int, blur: float) -> NDArray[Any]:
    """Sum samples to pixels, each centred on its own frequency, and apply the point spread function."""
    k = oversampling
    height, width = (side // k for side in intensity.shape)
    centred_on_pixels = np.roll(intensity, (k // 2, k // 2), (0, 1)) if k > 1 else intensity
    if k > 1:
        # The middle sample n // 2 has to be in the middle pixel, whose first sample is k (n / k // 2).
        excess = (intensity.shape[0] // 2 - k * (height // 2), intensity.shape[1] // 2 - k * (width // 2))
        centred_on_pixels = np.roll(centred_on_pixels, (-excess[0], -excess[1]), (0, 1))
    pixels = centred_on_pixels.reshape(height, k, width, k).sum((1, 3))
    return ndimage.gaussian_filter(pixels, blur, mode="wrap", truncate=8) if blur > 0 else pixels
