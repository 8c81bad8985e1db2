"""Scans that a plain numpy model fits to rounding errors, and that model, for what the transformations must keep."""

import dataclasses

import numpy as np

from ptynb.data.geometry import Geometry, NearField
from ptynb.data.patterns import ArrayFrames, Frames
from ptynb.data.scan import Scan, Truth

FAR = Geometry(wavelength=1e-10, distance=2.0, detector_pixel=(50e-6, 80e-6))
NEAR = NearField(wavelength=1e-10, focus_to_sample=0.01, sample_to_detector=0.99, detector_pixel=(50e-6, 60e-6))
BAD = [(3, 5), (20, 11), (0, 0)]


def phase_ramp(side, shift):
    ramp = np.exp(-2j * np.pi * np.fft.fftfreq(side) * shift)
    if side % 2 == 0:
        ramp[side // 2] = np.cos(np.pi * shift)
    return ramp


def exit_waves(object, probe, position):
    """Waves (mode, y, x) behind the object, which is transparent beyond its edges."""
    window = probe.shape[-2:]
    corner = np.rint(position).astype(int)
    rest = position - corner
    moved = np.fft.fft2(probe) * phase_ramp(window[0], rest[0])[:, None] * phase_ramp(window[1], rest[1])[None, :]
    border = 200
    wide = np.pad(object, border, constant_values=1)
    y, x = corner + border
    return np.fft.ifft2(moved) * wide[y : y + window[0], x : x + window[1]]


def modelled(object, probe, positions, geometry):
    """Patterns (pattern, y, x), centred, of object (y, x) and probe (mode, y, x)."""
    patterns = []
    for position in positions:
        waves = exit_waves(object, probe, position)
        if isinstance(geometry, NearField):
            pixel = geometry.object_pixel(waves.shape[-2:])
            k = [np.fft.fftfreq(side, size) for side, size in zip(waves.shape[-2:], pixel, strict=True)]
            squared = k[0][:, None] ** 2 + k[1][None, :] ** 2
            step = np.exp(-1j * np.pi * geometry.wavelength * geometry.effective_distance * squared)
            # Detector and probe stand still: the shadow lies where the probe does, not on the object's whole pixels.
            rest = position - np.rint(position)
            back = np.exp(2j * np.pi * (np.fft.fftfreq(waves.shape[-2])[:, None] * rest[0]))
            back = back * np.exp(2j * np.pi * (np.fft.fftfreq(waves.shape[-1])[None, :] * rest[1]))
            detected = np.fft.ifft2(np.fft.fft2(waves) * step * back)
        else:
            detected = np.fft.fftshift(np.fft.fft2(waves, norm="ortho"), axes=(-2, -1))
        patterns.append((np.abs(detected) ** 2).sum(0))
    return np.array(patterns)


def smooth_probe(window, sigma):
    """Two Gaussian modes (mode, y, x) without symmetry, centred at n // 2; Σ|P|² is 1000 counts."""
    y, x = np.meshgrid(*(np.arange(side) - side // 2 for side in window), indexing="ij")
    across = ((y - 0.4) / sigma) ** 2 + ((x + 0.7) / (0.8 * sigma)) ** 2
    first = np.exp(-across / 2 + 0.32j * (y**2 + 2 * x * y) / sigma**2)
    second = 0.2 * first * (x + 0.5 * y + 1j) / sigma
    probe = np.array([first, second])
    return probe * np.sqrt(1000 / (np.abs(probe) ** 2).sum())


def smooth_object(shape, sigma=5.0, seed=3):
    """Transmission (y, x) of a few Gaussian bumps, 1 at its edges."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[: shape[0], : shape[1]]
    field = np.zeros(shape, complex)
    for _ in range(8):
        at = np.array(shape) / 2 + random.uniform(-6, 6, 2)
        field += (random.uniform(-1, 1) + 1j * random.uniform(-1, 1)) * np.exp(
            -((y - at[0]) ** 2 + (x - at[1]) ** 2) / (2 * sigma**2)
        )
    return 1 + 0.6 * field / np.abs(field).max()


def smooth_scan(
    window=(48, 45), *, geometry=FAR, sigma=4.0, object_sigma=5.0, guesses=True, centred=True, bad=False, seed=0
):
    """Eight patterns without noise, with truth; guesses: of the true probe and the true object.

    bad: some pixels show nonsense and are masked.
    """
    random = np.random.default_rng(seed)
    positions = random.uniform(0, 12, (8, 2)) + np.array([6, 7])
    object = smooth_object((window[0] + 26, window[1] + 29), object_sigma)
    probe = smooth_probe(window, sigma)
    patterns = modelled(object, probe, positions, geometry)
    mask = None
    if bad:
        mask = np.ones(window, bool)
        for index, pixel in enumerate(BAD):
            mask[pixel] = False
            patterns[:, *pixel] = (np.nan, -1e30, np.inf)[index]
    if not centred and geometry is not NEAR:
        patterns = np.fft.ifftshift(patterns, axes=(-2, -1))
        mask = None if mask is None else np.fft.ifftshift(mask)
    return Scan(
        frames=ArrayFrames.of(patterns),
        positions=positions,
        mask=mask,
        centred=centred,
        probe=probe if guesses else None,
        object=object if guesses else None,
        geometry=geometry,
        ground_truth=Truth(object, probe),
    )


def misfit(scan, *, object=None, probe=None):
    """Largest difference between the patterns and the model of the truth (or of what is given), over its peak."""
    object = scan.ground_truth.object if object is None else object
    probe = scan.ground_truth.probe if probe is None else probe
    counts = scan.counts(0, len(scan))
    mask = np.ones(scan.pattern_shape, bool) if scan.mask is None else scan.mask
    if not scan.centred and scan.is_far_field:
        counts, mask = np.fft.fftshift(counts, axes=(-2, -1)), np.fft.fftshift(mask)
    model = modelled(object, probe, scan.positions, scan.geometry)
    return np.abs((counts - model)[:, mask]).max() / model.max()


def guess_misfit(scan):
    return misfit(scan, object=scan.object, probe=scan.probe)


class WatchedFrames(Frames):
    """Frames that refuse to be read while a scan is made ready."""

    def __init__(self, source):
        self.source, self.reads = source, []

    @property
    def shape(self):
        return self.source.shape

    @property
    def dtype(self):
        return self.source.dtype

    def read(self, start, stop):
        self.reads.append((start, stop))
        return self.source.read(start, stop)

    def part(self, patterns):
        return WatchedFrames(self.source.part(patterns))


def watched(scan):
    return dataclasses.replace(scan, frames=WatchedFrames(scan.frames))
