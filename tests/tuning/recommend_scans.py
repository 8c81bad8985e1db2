"""Simulated scans with known ground truth, each with one or more defects that the default settings do not model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

import ptynb as pt
from ptynb.analysis import compare
from ptynb.data.patterns import ArrayFrames
from ptynb.data.scan import Scan

PATTERNS, WINDOW = 121, 64


def error(result: pt.Result, scan: Scan) -> float:
    """Normalised complex error of the object between the outermost probe centres, after registration."""
    assert scan.ground_truth is not None
    window, truth = np.array(scan.pattern_shape), scan.ground_truth.object
    low = np.ceil(scan.positions.min(0) + window / 2).astype(int)
    high = np.floor(scan.positions.max(0) + window / 2).astype(int)
    area = slice(int(low[0]), int(high[0])), slice(int(low[1]), int(high[1]))
    true = truth if truth.ndim == 2 else truth.prod(0)
    return compare(result.projection, true, area, result.origin).error


def base(**choices: Any) -> Scan:
    return pt.simulate(**{"patterns": PATTERNS, "window": WINDOW, "seed": 1, **choices})


def far(photons: float = 1e6, **choices: Any) -> Scan:
    """A far-field scan with defects that `simulate_diffraction` knows."""
    scan = base(photons=photons)
    assert scan.ground_truth is not None
    return pt.simulate_diffraction(
        scan.ground_truth.object,
        choices.pop("probe", scan.ground_truth.probe),
        scan.positions,
        geometry=scan.geometry,
        guess=scan.probe,
        **choices,
    )


def displaced(scan: Scan, rms: float, seed: int = 0) -> Scan:
    wrong = np.random.default_rng(seed).normal(0, rms / math.sqrt(2), scan.positions.shape)
    return dataclasses.replace(scan, positions=scan.positions + wrong)


def flicker(rms: float, count: int = PATTERNS) -> NDArray[np.float64]:
    weights = 1 + rms * np.random.default_rng(0).standard_normal(count)
    return weights / weights.mean()


def halo(mean: float, shape: tuple[int, int]) -> NDArray[np.float64]:
    """A smooth background with this mean, stronger at the centre."""
    y, x = np.ogrid[-1 : 1 : shape[0] * 1j, -1 : 1 : shape[1] * 1j]
    shape_of_it = 0.5 + np.exp(-(y**2 + x**2) / 0.3)
    return mean * shape_of_it / shape_of_it.mean()


def drifting() -> Scan:
    scan = base()
    assert scan.ground_truth is not None
    probe = scan.ground_truth.probe[0].astype(complex)
    y, x = np.meshgrid(*[(np.arange(WINDOW) - WINDOW // 2) / WINDOW] * 2, indexing="ij")
    time = np.linspace(-1, 1, len(scan))[:, None, None]
    probes = probe * (1 + 1.8j * time * x + 1.2 * np.cos(5 * time) * y)
    probes = probes[:, None] * math.sqrt(1e6 / (np.abs(probes) ** 2).sum((1, 2)).mean())
    return far(probe=probes)


def thick(count: int = 2) -> Scan:
    scan = base(step=4.0, photons=1e7)
    assert scan.ground_truth is not None
    assert scan.pixel_size is not None

    def mottled(seed: int) -> NDArray[np.complex128]:
        field = ndimage.gaussian_filter(np.random.default_rng(seed).standard_normal(shape), 2.0)
        field = (field - field.min()) / np.ptp(field)
        return np.exp((0.8j - 0.1) * field)

    shape = scan.ground_truth.object.shape
    slices = np.array([mottled(seed) for seed in range(count)])
    thickness = 120 * scan.pixel_size[0] ** 2 / 1.5e-10
    return pt.simulate_diffraction(
        slices, scan.ground_truth.probe, scan.positions, geometry=scan.geometry, thickness=thickness, guess=scan.probe
    )


def hot_pixels() -> Scan:
    scan = base()
    patterns = np.array(scan.frames.read(0, len(scan)))
    random = np.random.default_rng(0)
    y, x = random.integers(0, WINDOW, (2, 12))
    patterns[:, y, x] = 40 * patterns.mean()
    return dataclasses.replace(scan, frames=ArrayFrames.of(patterns))


def near(weights: float = 0.0, background: float = 0.0, wrong: float = 0.0, patterns: int = 25) -> Scan:
    """Shadows of an object in a structured, diverging beam."""
    shape = (96, 96)
    geometry = pt.NearField(
        wavelength=1e-10, focus_to_sample=0.02, sample_to_detector=0.98, detector_pixel=(5e-6, 5e-6)
    )
    random = np.random.default_rng(2)

    def field(sigma: float, size: tuple[int, int]) -> NDArray[np.float64]:
        values = ndimage.gaussian_filter(random.standard_normal(size), sigma, mode="wrap")
        return values / values.std()

    beam = (1 + 0.15 * field(3, shape)) * np.exp(1j * (0.6 * field(3, shape)))
    beam *= 30 / np.sqrt((np.abs(beam) ** 2).mean())
    positions = 4 + 24 * random.random((patterns, 2))
    size = (shape[0] + 34, shape[1] + 34)
    truth = (0.95 + 0.03 * field(3, size)).clip(0.5, 1) * np.exp(0.3j * field(2, size))
    scan = pt.simulate_diffraction(
        truth,
        beam[None],
        positions,
        geometry=geometry,
        weights=flicker(weights, patterns),
        background=halo(background * 900, shape),
        guess=np.full((1, *shape), 30.0 + 0j),
    )
    return displaced(scan, wrong) if wrong else scan


def defocused() -> Scan:
    """The initial probe has 20% less defocus than the true one."""
    scan = base()
    assert scan.probe is not None
    spectrum = np.fft.fft2(np.fft.ifftshift(scan.probe[0]))
    frequency = np.fft.fftfreq(WINDOW)
    squared = frequency[:, None] ** 2 + frequency[None, :] ** 2
    # The initial probe has 0.75 of the defocus π 2.2 n of the true one.
    guess = np.fft.fftshift(np.fft.ifft2(spectrum * np.exp(1j * 0.05 * np.pi * 2.2 * WINDOW * squared)))
    return dataclasses.replace(scan, probe=guess[None].astype(np.complex64))


def strong(patterns: int = 64, window: int = 48) -> Scan:
    """A strong object, in amplitude and phase, in a rough beam without an initial probe; no defects."""
    random, size = np.random.default_rng(3), window + 60
    y, x = np.ogrid[-1 : 1 : window * 1j, -1 : 1 : window * 1j]
    rough = ndimage.gaussian_filter(random.normal(0, 4, (window, window)), 2)
    probe = np.exp(-(y**2 + x**2) / 0.18 + 2.5j * rough)
    fields = [ndimage.gaussian_filter(random.normal(size=(size, size)), 1.5) for _ in range(2)]
    amplitude, phase = (np.clip(field / field.std() / 2, -1, 1) for field in fields)
    side = math.isqrt(patterns)
    grid = np.stack(np.meshgrid(*[5.0 * np.arange(side)] * 2, indexing="ij"), -1).reshape(-1, 2)
    positions = grid + random.uniform(-1.5, 1.5, grid.shape) + 3
    probe *= math.sqrt(1e6 / (np.abs(probe) ** 2).sum())
    return pt.simulate_diffraction((0.6 + 0.4 * amplitude) * np.exp(1j * np.pi * phase), probe[None], positions)


SCANS: dict[str, Callable[[], Scan]] = {
    "far field": base,
    "wrong positions": lambda: displaced(base(), 1.5),
    "background": lambda: far(background=halo(0.05 * 1e6 / WINDOW**2, (WINDOW, WINDOW))),
    "partial coherence": lambda: base(modes=3),
    "low dose": lambda: base(photons=4e3),
    "thick": thick,
    "beam intensity": lambda: far(weights=flicker(0.1)),
    "beam shape": drifting,
    "bad pixels": hot_pixels,
    "defocus": defocused,
    "descan": lambda: far(descan=np.random.default_rng(5).normal(0, 0.5, (PATTERNS, 2))),
    "near field": near,
    "near field, all": lambda: near(0.05, 0.05, 1.0),
    "all": lambda: displaced(
        far(weights=flicker(0.05), background=halo(0.02 * 1e6 / WINDOW**2, (WINDOW, WINDOW))), 1.0
    ),
}
