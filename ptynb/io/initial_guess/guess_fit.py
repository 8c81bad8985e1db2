"""Test of initial guesses: a few patterns are modelled and compared with the measured ones.

The model is the simplest form of ptynb's (`ptynb/conventions.md`): far field, one object, incoherent probe modes, no
background. It is written in numpy because files are read without torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data.geometry import Geometry
from ptynb.data.scan import Scan
from ptynb.data.tilted_geometry import TiltedGeometry

Array = NDArray[Any]
PATTERNS = 24
"""Number of modelled patterns: gives the R-factor with a relative error of a few per cent in a fraction of a second."""
ORIENTATIONS: dict[str, tuple[bool, tuple[int, ...]]] = {
    "mirrored along y": (False, (-2,)),
    "mirrored along x": (False, (-1,)),
    "mirrored along y and x": (False, (-2, -1)),
    "transposed": (True, ()),
    "transposed, then mirrored along y": (True, (-2,)),
    "transposed, then mirrored along x": (True, (-1,)),
    "transposed, then mirrored along y and x": (True, (-2, -1)),
}
"""(whether transposed, mirrored axes) of other orientations of the patterns."""


@dataclass(frozen=True)
class Fit:
    """Comparison of modelled with measured patterns.

    scale: factor from modelled to measured counts.
    r_factor: amplitude R-factor Σ|√I - √M| / Σ√I with this factor; of_mean: R-factor with the mean pattern as model.
    better: orientation of the measured patterns that fits much better, and its R-factor.
    """

    scale: float
    r_factor: float
    of_mean: float
    better: tuple[str, float] | None = None


def fit(scan: Scan, thickness: float | None) -> Fit | None:
    """Compare the scan's guesses of object and probe with its patterns; None if the model does not apply.

    thickness: distance between slices [m], if the object has several.
    """
    if scan.object is None or scan.probe is None or not scan.is_far_field or isinstance(scan.geometry, TiltedGeometry):
        return None
    if scan.object.ndim == 3 and len(scan.object) > 1 and (thickness is None or scan.geometry is None):
        return None
    indices = np.unique(np.linspace(0, len(scan) - 1, min(PATTERNS, len(scan))).astype(int))
    measured = np.concatenate([scan.counts(int(index), int(index) + 1) for index in indices]).astype(np.float64)
    mask = np.ones(scan.pattern_shape, bool) if scan.mask is None else scan.mask
    if scan.centred:  # to FFT order, where mirroring is k to -k for any side
        measured, mask = np.fft.ifftshift(measured, axes=(-2, -1)), np.fft.ifftshift(mask)
    modelled = np.stack([_pattern(scan, int(index), thickness) for index in indices])
    total, counts = modelled[:, mask].sum(), measured[:, mask].sum()
    if not (total > 0 and counts > 0):
        return None
    modelled = modelled * (counts / total)
    r_factor = _r_factor(measured, modelled, mask)
    others = {
        name: _r_factor(_oriented(measured, transposed, axes), modelled, _oriented(mask, transposed, axes))
        for name, (transposed, axes) in ORIENTATIONS.items()
        if not transposed or measured.shape[-1] == measured.shape[-2]
    }
    name, best = min(others.items(), key=lambda item: item[1])
    return Fit(
        scale=float(counts / total),
        r_factor=r_factor,
        of_mean=_r_factor(measured, np.broadcast_to(measured.mean(0), measured.shape), mask),
        better=(name, best) if best < r_factor / 2 else None,
    )


def _pattern(scan: Scan, index: int, thickness: float | None) -> Array:
    """Return the modelled counts (y, x) of a pattern, in FFT order."""
    assert scan.object is not None
    assert scan.probe is not None
    window, corner = scan.pattern_shape, np.rint(scan.positions[index]).astype(int)
    shift = scan.positions[index] - corner
    y, x = (np.fft.fftfreq(side) for side in window)
    phase = np.exp(-2j * np.pi * (y[:, None] * shift[0] + x * shift[1]))
    waves = np.fft.ifft2(np.fft.fft2(scan.probe.astype(np.complex128)) * phase)
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
    """Return the angular spectrum propagator (y, x) in FFT order; see `ptynb.physics.propagation`."""
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


def _oriented(values: Array, transposed: bool, axes: tuple[int, ...]) -> Array:
    """Return an array (…, y, x) in FFT order, transposed if requested and then mirrored (k to -k) along some axes."""
    values = values.swapaxes(-1, -2) if transposed else values
    return np.roll(np.flip(values, axes), 1, axes) if axes else values
