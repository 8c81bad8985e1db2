"""Patterns that a result models, beside the measured ones, and how they depend on positions and defocus."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ptynb.analysis.faults.fault_measures import Residuals
from ptynb.data.result import OF_PATTERNS, Result
from ptynb.data.scan import Scan
from ptynb.simulation.from_result import simulate_from_result

STEP = 0.25
"""Change of the positions by which the model is differentiated [object pixels]."""
DEFOCUS = 10.0
"""Change of the probe's defocus [(object pixel)² / wavelength]."""


def model_residuals(result: Result, scan: Scan, indices: NDArray[np.int64]) -> Residuals:
    """Return measured and modelled patterns of a result's scan, and derivatives of the model.

    indices: of the patterns. A result of several scans together has to be split before.
    """
    shown = part_of_patterns(result, indices)
    measured = np.concatenate([scan.counts(index, index + 1) for index in indices.tolist()]).astype(np.float32)
    good = np.ones(scan.pattern_shape, bool) if scan.mask is None else scan.mask
    if scan.is_far_field and not scan.centred:
        measured, good = np.fft.fftshift(measured, axes=(-2, -1)), np.fft.fftshift(good)
    modelled = _patterns(shown)
    amplitude = np.sqrt(modelled)
    last = np.array(result.object.shape[-2:]) - result.probe.shape[-2:]
    moved = []
    for axis in (0, 1):
        sign = np.where(np.rint(shown.positions[:, axis] + STEP) > last[axis], -1, 1)
        step = np.zeros(shown.positions.shape)
        step[:, axis] = STEP * sign
        there = np.sqrt(_patterns(dataclasses.replace(shown, positions=shown.positions + step)))
        moved.append((there - amplitude) / (STEP * sign[:, None, None]))
    y, x = (np.fft.fftfreq(side) for side in result.probe.shape[-2:])
    transfer = np.exp(-1j * np.pi * DEFOCUS * (y[:, None] ** 2 + x[None] ** 2))
    probe = np.fft.ifft2(np.fft.fft2(result.probe) * transfer).astype(result.probe.dtype)
    defocused = np.sqrt(_patterns(dataclasses.replace(shown, probe=probe))) - amplitude
    return Residuals(indices, measured, modelled, good, np.stack(moved), defocused)


def part_of_patterns(result: Result, indices: NDArray[np.int64]) -> Result:
    """Return a result with some of its positions, and the values of these patterns."""
    count = len(result.positions)
    own = {
        name: values[indices] if name in (*OF_PATTERNS, "fly_scan/motion") and len(values) == count else values
        for name, values in result.parameters.items()
    }
    return dataclasses.replace(result, positions=result.positions[indices], parameters=own)


def _patterns(result: Result) -> NDArray[np.float32]:
    scan = simulate_from_result(result, noise=False)
    return np.asarray(scan.frames.read(0, len(scan)), dtype=np.float32)
