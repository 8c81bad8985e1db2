"""Simulated scans with a known ground truth, in plain numpy and independent of the reconstruction's model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ptynb.data.geometry import Geometry
from ptynb.data.patterns import AbsentFrames, ArrayFrames
from ptynb.data.scan import Scan, Truth
from ptynb.exceptions import InvalidValueError, check_positive
from ptynb.io import scan_file
from ptynb.simulation.diffraction import moved

Complex = NDArray[np.complex128]
MODE_POWERS = (1.0, 0.4, 0.25, 0.15, 0.1, 0.06, 0.04, 0.03)


def simulate(
    patterns: int = 400,
    *,
    window: int = 64,
    modes: int = 1,
    photons: float = 1e6,
    step: float | None = None,
    noise: bool = True,
    subpixel: bool = True,
    seed: int = 0,
    path: str | Path | None = None,
) -> Scan:
    """Simulate a far-field X-ray scan of a test object with known ground truth (`scan.ground_truth`).

    The initial probe (`scan.probe`) has one mode, the true aperture and three quarters of the true defocus. Equal
    arguments give scans that are equal bit by bit.

    Parameters
    ----------
    patterns : int
        Number of patterns, on a raster that is as square as possible; each position is displaced at random by up to 30%
        of a step.
    window : int
        Height and width of a pattern [pixels], at least 16.
    modes : int
        Number of incoherent probe modes, 1 to 8.
    photons : float
        Mean number of photons of a pattern without absorption by the object.
    step : float, optional
        Distance between positions [object pixels]; by default window / 16.
    noise : bool
        Whether counts are drawn from the Poisson distribution.
    subpixel : bool
        Whether positions are at fractions of a pixel; False rounds them to whole pixels.
    seed : int
        Seed of all random numbers.
    path : str or Path, optional
        HDF5 file to which patterns are written as they are computed, for scans larger than memory.

    Returns
    -------
    Scan
        The scan, in memory; with `path` it reads its patterns from the file.

    Raises
    ------
    InvalidValueError
        A number is out of range ("argument.invalid-value").
    """
    if not (1 <= modes <= len(MODE_POWERS)):
        raise InvalidValueError(f"modes is {modes}; expected 1 to {len(MODE_POWERS)}.", code="argument.invalid-value")
    if patterns < 1 or window < 16 or not photons > 0 or not math.isfinite(photons):
        raise InvalidValueError(
            f"patterns={patterns}, window={window}, photons={photons}; expected at least 1 pattern, a window of at "
            "least 16 pixels, and a positive, finite number of photons.",
            code="argument.invalid-value",
        )
    if step is not None:
        check_positive(step, "step", "object pixels")
    random = np.random.default_rng(seed)
    positions = _raster(patterns, window / 16 if step is None else step, subpixel, random)
    probe, guess = _probe(window, modes, photons)
    size = np.ceil(positions.max(0)).astype(int) + window + 4
    truth = Truth(_test_object((int(size[0]), int(size[1])), random).astype(np.complex64), probe.astype(np.complex64))
    chunks = _patterns(truth, positions, window, seed if noise else None)
    metadata: dict[str, Any] = {
        "positions": positions,
        "probe": guess.astype(np.complex64),
        "geometry": Geometry(wavelength=1.5e-10, distance=2.0, detector_pixel=(75e-6, 75e-6)),
        "ground_truth": truth,
        "name": "simulated",
    }
    if path is None:
        return Scan(frames=ArrayFrames.of(np.concatenate(list(chunks))), **metadata)
    frames = AbsentFrames((patterns, window, window), np.dtype(np.float32).str)
    return scan_file.write_scan(path, Scan(frames=frames, **metadata), chunks)


def _patterns(
    truth: Truth, positions: NDArray[np.float64], window: int, seed: int | None
) -> Iterator[NDArray[np.float32]]:
    """Yield centred patterns in chunks of limited size; each pattern has its own random numbers."""
    probe = truth.probe.astype(np.complex128)
    chunk = max(1, 2**22 // window**2)
    for start in range(0, len(positions), chunk):
        out = np.empty((min(chunk, len(positions) - start), window, window), np.float32)
        for index, position in enumerate(positions[start : start + chunk]):
            corner = np.rint(position).astype(int)
            patch = truth.object[corner[0] : corner[0] + window, corner[1] : corner[1] + window]
            waves = np.fft.fft2(moved(probe, position - corner) * patch, norm="ortho")
            intensity = np.fft.fftshift((np.abs(waves) ** 2).sum(0))
            if seed is not None:
                intensity = np.random.default_rng([seed, start + index]).poisson(intensity)
            out[index] = intensity
        yield out


def _raster(patterns: int, step: float, subpixel: bool, random: np.random.Generator) -> NDArray[np.float64]:
    columns = math.ceil(math.sqrt(patterns))
    index = np.arange(patterns)
    grid = np.stack([index // columns, index % columns], axis=1) * float(step)
    positions = grid + random.uniform(-0.3, 0.3, grid.shape) * step
    positions = positions - np.floor(positions.min(0)) + 4
    return positions if subpixel else np.rint(positions)


def _probe(window: int, modes: int, photons: float) -> tuple[Complex, Complex]:
    """Return the true probe (mode, y, x) and an initial guess (1, y, x): a soft disc aperture, defocused."""
    frequency = np.fft.fftfreq(window)
    squared = frequency[:, None] ** 2 + frequency[None, :] ** 2
    aperture = 1 / (1 + np.exp((np.sqrt(squared) - 0.13) / 0.006))
    # exp(+iφ|k|²) with φ > 0 is a negative defocus: the sample is upstream of the focus.
    defocus = np.pi * 2.2 * window

    def focus(phase: float) -> Complex:
        field = np.fft.fftshift(np.fft.ifft2(aperture * np.exp(1j * phase * squared)))
        return field / np.linalg.norm(field)

    main = focus(defocus)
    along = (np.arange(window) - window // 2) / window
    y, x = np.meshgrid(along, along, indexing="ij")
    shapes = (np.ones_like(x), x, y, x * y, x**2 - y**2, x**2 + y**2, x**3, y**3)
    orthonormal: list[Complex] = []
    for shape in shapes[:modes]:
        mode = main * shape
        for other in orthonormal:
            mode = mode - other * np.vdot(other, mode)
        orthonormal.append(mode / np.linalg.norm(mode))
    powers = np.array(MODE_POWERS[:modes])
    probe = np.array(orthonormal) * np.sqrt(powers / powers.sum())[:, None, None]
    return probe * math.sqrt(photons), focus(0.75 * defocus)[None] * math.sqrt(photons)


def _test_object(shape: tuple[int, int], random: np.random.Generator) -> Complex:
    """Return a Siemens star in phase on a mottled background with absorbing discs: sharp edges and smooth areas."""
    height, width = shape
    y, x = np.mgrid[:height, :width].astype(np.float64)
    centre_y, centre_x = (height - 1) / 2, (width - 1) / 2
    radius = np.hypot(y - centre_y, x - centre_x) / (0.42 * min(shape))
    angle = np.arctan2(y - centre_y, x - centre_x)
    star = ((np.sin(16 * angle) > 0) & (radius < 1) & (radius > 0.08)).astype(np.float64)
    rings = (np.abs(radius - 0.4) < 0.02) | (np.abs(radius - 0.7) < 0.02)
    star[rings] = 0

    def mottle(sigma: float) -> NDArray[np.float64]:
        field = ndimage.gaussian_filter(random.standard_normal(shape), sigma, mode="wrap")
        return field / np.abs(field).max()

    discs = np.zeros(shape)
    for _ in range(30):
        at_y, at_x, size = random.uniform(0, height), random.uniform(0, width), random.uniform(2, 9)
        discs[np.hypot(y - at_y, x - at_x) < size] = 1
    phase = ndimage.gaussian_filter(-0.8 * star, 0.7) + 0.35 * mottle(4)
    amplitude = 0.92 + 0.06 * mottle(3) - ndimage.gaussian_filter(0.12 * star + 0.25 * discs, 0.7)
    return amplitude * np.exp(1j * phase)
