"""How well a start fits a scan, before anything is updated: a few patterns, modelled here, against the measured ones.

The model is ptynb's own, in its simplest form (README of conventions: `ptynb/conventions.md`): far field, one object,
incoherent probe modes, no background. It is written out here in numpy because files are read without torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data.geometry import Geometry
from ptynb.data.scan import Scan
from ptynb.data.tilted_geometry import TiltedGeometry

Array = NDArray[Any]
PATTERNS = 24
"""How many are modelled: enough for an R-factor to a few per cent of itself, in a fraction of a second."""
TURNED: dict[str, Callable[[Array], Array]] = {
    "mirrored along y": lambda counts: _mirrored(counts, (-2,)),
    "mirrored along x": lambda counts: _mirrored(counts, (-1,)),
    "mirrored along y and x": lambda counts: _mirrored(counts, (-2, -1)),
    "transposed": lambda counts: counts.swapaxes(-1, -2),
    "transposed, then mirrored along y": lambda counts: _mirrored(counts.swapaxes(-1, -2), (-2,)),
    "transposed, then mirrored along x": lambda counts: _mirrored(counts.swapaxes(-1, -2), (-1,)),
    "transposed, then mirrored along y and x": lambda counts: _mirrored(counts.swapaxes(-1, -2), (-2, -1)),
}


@dataclass(frozen=True)
class Fit:
    """How a start's patterns compare with measured ones.

    scale: what the model's counts are to be multiplied by to be as many as the measured ones.
    r_factor: amplitude R-factor Σ|√I - √M| / Σ√I after that; of_mean: that of the mean pattern, in every model's place.
    better: how the measured patterns would have to be turned to fit, where that fits much better, and its R-factor.
    """

    scale: float
    r_factor: float
    of_mean: float
    better: tuple[str, float] | None = None


def fit(scan: Scan, thickness: float | None) -> Fit | None:
    """How the scan's guesses of object and probe fit its patterns; None where this model does not hold for it.

    thickness: between slices [m], of an object that has them.
    """
    if scan.object is None or scan.probe is None or not scan.is_far_field or isinstance(scan.geometry, TiltedGeometry):
        return None
    if scan.object.ndim == 3 and len(scan.object) > 1 and (thickness is None or scan.geometry is None):
        return None
    indices = np.unique(np.linspace(0, len(scan) - 1, min(PATTERNS, len(scan))).astype(int))
    measured = np.concatenate([scan.counts(int(index), int(index) + 1) for index in indices]).astype(np.float64)
    # In FFT order, where mirroring is k to -k for any side.
    measured = np.fft.ifftshift(measured, axes=(-2, -1)) if scan.centred else measured
    modelled = np.stack([_pattern(scan, int(index), thickness) for index in indices])
    mask = np.ones(scan.pattern_shape, bool) if scan.mask is None else scan.mask
    mask = np.fft.ifftshift(mask) if scan.centred else mask
    total, counts = modelled[:, mask].sum(), measured[:, mask].sum()
    if not (total > 0 and counts > 0):
        return None
    modelled = modelled * (counts / total)
    found = _r_factor(measured, modelled, mask)
    of_mean = _r_factor(measured, np.broadcast_to(measured.mean(0), measured.shape), mask)
    return Fit(float(counts / total), found, of_mean, _turned(measured, modelled, mask, found))


def _turned(measured: Array, modelled: Array, mask: Array, found: float) -> tuple[str, float] | None:
    square = measured.shape[-1] == measured.shape[-2]
    tried = {
        name: _r_factor(turn(measured), modelled, turn(mask[None])[0])
        for name, turn in TURNED.items()
        if square or "transposed" not in name
    }
    name = min(tried, key=lambda turn: tried[turn])
    return (name, tried[name]) if tried[name] < found / 2 else None


def _pattern(scan: Scan, index: int, thickness: float | None) -> Array:
    """The modelled counts (y, x) of a pattern, in FFT order."""
    assert scan.object is not None
    assert scan.probe is not None
    corner = np.rint(scan.positions[index]).astype(int)
    rest = scan.positions[index] - corner
    window = scan.pattern_shape
    y, x = (np.fft.fftfreq(side) for side in window)
    moved = np.exp(-2j * np.pi * (y[:, None] * rest[0] + x * rest[1]))
    waves = np.fft.ifft2(np.fft.fft2(scan.probe.astype(np.complex128)) * moved)
    slices = scan.object.reshape(-1, *scan.object.shape[-2:])
    part = slices[:, corner[0] : corner[0] + window[0], corner[1] : corner[1] + window[1]]
    for number, layer in enumerate(part):
        if number:
            assert thickness is not None
            waves = np.fft.ifft2(np.fft.fft2(waves) * _free_space(scan, thickness))
        waves = waves * layer
    intensity: Array = (np.abs(np.fft.fft2(waves, norm="ortho")) ** 2).sum(0)
    return intensity


def _free_space(scan: Scan, distance: float) -> Array:
    """The angular spectrum's factor (y, x) in FFT order; see `ptynb.physics.propagation`."""
    assert isinstance(scan.geometry, Geometry)
    pixel, wavelength = scan.geometry.object_pixel(scan.pattern_shape), scan.geometry.wavelength
    y, x = (np.fft.fftfreq(side, pitch) for side, pitch in zip(scan.pattern_shape, pixel, strict=True))
    squared = y[:, None] ** 2 + x**2
    axial = np.sqrt(np.maximum(wavelength**-2 - squared, 0))
    kernel: Array = np.where(
        squared < wavelength**-2, np.exp(-2j * np.pi * distance * squared / (1 / wavelength + axial)), 0
    )
    return kernel


def _r_factor(measured: Array, modelled: Array, mask: Array) -> float:
    amplitudes = np.sqrt(measured[:, mask])
    return float(np.abs(amplitudes - np.sqrt(modelled[:, mask])).sum() / amplitudes.sum())


def _mirrored(counts: Array, axes: tuple[int, ...]) -> Array:
    """The patterns with k as -k along some axes, in FFT order."""
    return np.roll(np.flip(counts, axes), 1, axes)
