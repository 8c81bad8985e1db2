"""What a detector would record of a given object: plain numpy, apart from the reconstruction's own model.

Where the reconstruction takes one step (between two slices, to the detector), this takes several finer ones.
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
    background: ArrayLike = 0.0,
    oversampling: int = 1,
    blur: float = 0.0,
    saturation: float | None = None,
    noise: bool = True,
    seed: int = 0,
    guess: ArrayLike | None = None,
    name: str = "exposed",
) -> Scan:
    """A scan of a known object (`scan.ground_truth`), in memory, with centred patterns.

    object: complex (y, x), (slice, y, x), or (state, slice, y, x): incoherent states of equal weight.
    probe: complex (mode, y, x), or (pattern, mode, y, x) where it changes; in square roots of counts.
    positions: (pattern, yx), top-left corners of the probe windows in pixels of `object`.
    geometry: a near-field one makes shadows; a thick object needs one.
    thickness: distance between two slices [m], crossed in `steps` steps.
    tilt: of the beam, (yx) or (pattern, yx) [rad].
    weights: (pattern,), brightness. background: counts, a number or (y, x).
    oversampling: samples behind a detector pixel; the patterns are so much smaller than the probe.
    blur: standard deviation of the detector's point spread [detector pixels]. saturation: highest count.
    noise: counts are drawn from Poisson's distribution, a random stream for each pattern from `seed`.
    guess: first guess of the probe for the scan, (mode, y, x); none: the true one (of the first pattern).
    """
    objects = np.asarray(object, dtype=np.complex128)
    objects = objects.reshape((1,) * (4 - objects.ndim) + objects.shape)
    probes = np.asarray(probe, dtype=np.complex128)
    probes = probes[None] if probes.ndim == 3 else probes
    positions = np.asarray(positions, dtype=np.float64)
    if objects.shape[1] > 1 and (geometry is None or thickness is None):
        raise ScanError("An object of several slices needs geometry=... and thickness=... [m]; give both.")
    if len(probes) not in (1, len(positions)):
        raise ScanError(f"There are {len(probes)} probes for {len(positions)} positions; give one, or one for each.")
    window = (probes.shape[-2], probes.shape[-1])
    beam = _Beam(geometry, window, 0.0 if thickness is None else thickness, steps)
    tilts = np.broadcast_to(np.asarray(tilt, dtype=np.float64), positions.shape)
    brightness = np.ones(len(positions)) if weights is None else np.asarray(weights, dtype=np.float64)
    patterns = []
    for index, place in enumerate(positions):
        intensity = beam.intensity(objects, probes[index % len(probes)], place, tilts[index]) * brightness[index]
        intensity = _recorded(intensity, oversampling, blur) + np.asarray(background, dtype=np.float64)
        if noise:
            intensity = np.random.default_rng([seed, index]).poisson(intensity)
        patterns.append(np.minimum(intensity, np.inf if saturation is None else saturation).astype(np.float32))
    first = probes[0] if guess is None else np.asarray(guess)
    shift = (window[0] // 2 - window[0] // oversampling // 2, window[1] // 2 - window[1] // oversampling // 2)
    return Scan(
        frames=ArrayFrames.of(np.array(patterns)),
        positions=positions + shift,
        probe=_cut(first[None] if first.ndim == 2 else first, oversampling).astype(np.complex64),
        geometry=geometry,
        ground_truth=Truth(objects[0].squeeze(0) if objects.shape[1] == 1 else objects[0], probes[0]),
        name=name,
    )


@dataclass(frozen=True)
class _Beam:
    """What carries waves from the probe to the detector."""

    geometry: Geometry | NearField | None
    window: tuple[int, int]
    thickness: float
    steps: int

    def intensity(
        self, objects: Complex, probe: Complex, place: NDArray[np.float64], tilt: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Σ over states and modes of |wave|² (y, x), zero frequency in the middle where there is one."""
        corner = np.rint(place).astype(int)
        entering = moved(probe, place - corner)
        rows, columns = (slice(corner[axis], corner[axis] + self.window[axis]) for axis in (0, 1))
        total = np.zeros(self.window)
        for slices in objects:
            wave = entering * slices[0, rows, columns]
            for layer in slices[1:]:
                for _ in range(self.steps):
                    wave = self._free(wave, self.thickness / self.steps, tilt)
                wave = wave * layer[rows, columns]
            total += (np.abs(self._detected(wave, place - corner)) ** 2).sum(0)
        return total / len(objects)

    def _detected(self, wave: Complex, rest: NDArray[np.float64]) -> Complex:
        if isinstance(self.geometry, NearField):
            wave = moved(wave, -rest)  # the detector stands still with the probe, which was moved by the rest
            for _ in range(self.steps):
                wave = self._free(wave, self.geometry.effective_distance / self.steps, np.zeros(2))
            return wave
        return np.fft.fftshift(np.fft.fft2(wave, norm="ortho"), axes=(-2, -1))

    def _free(self, wave: Complex, distance: float, tilt: NDArray[np.float64]) -> Complex:
        """Free space, by its plane waves: each turns by k_z z, and a tilted beam moves by z tan(tilt)."""
        assert self.geometry is not None
        pixel = self.geometry.object_pixel(self.window)
        y, x = (np.fft.fftfreq(side, pitch) for side, pitch in zip(self.window, pixel, strict=True))
        wave_number = 1 / self.geometry.wavelength
        axial = np.sqrt(wave_number**2 - y[:, None] ** 2 - x[None, :] ** 2 + 0j)
        phase = 2j * np.pi * distance * (axial - wave_number)
        sideways = y[:, None] * np.tan(tilt[0]) + x[None, :] * np.tan(tilt[1])
        return np.fft.ifft2(np.fft.fft2(wave) * np.exp(phase - 2j * np.pi * distance * sideways))


def moved(field: Complex, shift: NDArray[np.float64]) -> Complex:
    """Fields (…, y, x) moved by (y, x) pixels, exactly for a periodic window; at Nyquist's frequency by the cosine."""
    ramps = []
    for side, along in zip(field.shape[-2:], shift, strict=True):
        ramp = np.exp(-2j * np.pi * np.fft.fftfreq(side) * along)
        if side % 2 == 0:
            ramp[side // 2] = np.cos(np.pi * along)
        ramps.append(ramp)
    result: Complex = np.fft.ifft2(np.fft.fft2(field) * ramps[0][:, None] * ramps[1][None, :])
    return result


def _recorded(intensity: NDArray[np.float64], oversampling: int, blur: float) -> NDArray[Any]:
    """Samples added up to pixels, each centred on its own frequency, and spread by the detector."""
    k = oversampling
    height, width = (side // k for side in intensity.shape)
    centred_on_pixels = np.roll(intensity, (k // 2, k // 2), (0, 1)) if k > 1 else intensity
    if k > 1:
        # The middle sample n // 2 has to fall into the middle pixel, whose first sample is k (n / k // 2).
        miss = (intensity.shape[0] // 2 - k * (height // 2), intensity.shape[1] // 2 - k * (width // 2))
        centred_on_pixels = np.roll(centred_on_pixels, (-miss[0], -miss[1]), (0, 1))
    pixels = centred_on_pixels.reshape(height, k, width, k).sum((1, 3))
    return ndimage.gaussian_filter(pixels, blur, mode="wrap", truncate=8) if blur > 0 else pixels


def _cut(probe: NDArray[Any], oversampling: int) -> NDArray[Any]:
    """The middle of a probe's window, as large as a pattern."""
    height, width = (side // oversampling for side in probe.shape[-2:])
    top, left = probe.shape[-2] // 2 - height // 2, probe.shape[-1] // 2 - width // 2
    return probe[:, top : top + height, left : left + width]
