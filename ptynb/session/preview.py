"""Initial object, probe and positions of a reconstruction, computed without engines."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from ptynb.data.engine_records import Picture
from ptynb.data.images import picture, pictures_html
from ptynb.data.scan import Scan
from ptynb.engine.initial_probe import find_start
from ptynb.engine.loop import short_result
from ptynb.exceptions import ScanError
from ptynb.loading.engine_patterns import detector_mask, in_middle
from ptynb.loading.pattern_reader import shifted
from ptynb.physics.model_builder import check_together, initial_arrays, object_frame, window_positions
from ptynb.preparation.recorded_steps import check_measured
from ptynb.settings import Settings
from ptynb.text import counted

Array = NDArray[Any]
PATTERNS = 256
"""Largest number of patterns that are averaged: enough to estimate the probe, and fast for scans of any size."""


@dataclass(frozen=True, eq=False)
class Preview:
    """Initial state of a reconstruction.

    Parameters
    ----------
    object : array of complex, (mode, slice, y, x)
        Initial object.
    probe : array of complex, (mode, y, x)
        Initial probe [square root of counts].
    positions : array of float, (pattern, yx)
        Top-left corners of the probe windows [pixels of `object`].
    origin : tuple of int
        Position (y, x) of the object's first pixel in the scan's coordinates [object pixels].
    pixel_size : tuple of float or None
        Size (y, x) of an object pixel [m]; None if it is unknown.
    note : str
        Patterns that were averaged to estimate the probe.
    """

    object: Array = field(repr=False)
    probe: Array = field(repr=False)
    positions: NDArray[np.float64] = field(repr=False)
    origin: tuple[int, int]
    pixel_size: tuple[float, float] | None
    note: str

    @property
    def centres(self) -> NDArray[np.float64]:
        """Centres (pattern, yx) of the probe windows [pixels of `object`]."""
        return self.positions + np.array(self.probe.shape[-2:]) / 2

    @property
    def illumination(self) -> NDArray[np.float64]:
        """Total number of photons (y, x) through each pixel of the object, summed over all patterns."""
        intensity = (np.abs(self.probe) ** 2).sum(0).astype(np.float64)
        sides = [side - inner + 1 for side, inner in zip(self.object.shape[-2:], intensity.shape, strict=True)]
        corners = np.zeros(sides)
        y, x = np.rint(self.positions).astype(np.int64).T
        np.add.at(corners, (y, x), 1.0)
        # A single convolution, independent of the number of positions.
        light: NDArray[np.float64] = fftconvolve(corners, intensity).clip(min=0)
        return light

    def pictures(self, modes: int = 4) -> tuple[Picture, ...]:
        """Return images of illumination, first slice of the object and first probe modes, for a `Viewer`.

        Parameters
        ----------
        modes : int
            Largest number of probe modes.

        Returns
        -------
        tuple of Picture
            Images in grey levels or colours, with titles and units.
        """
        powers = (np.abs(self.probe) ** 2).sum((1, 2))
        states, slices, height, width = self.object.shape
        size = self.pixel_size
        light = picture(
            self.illumination, "positions", "Illumination", unit="photons", pixel_size=size, colours="viridis"
        )
        what = f"{height} × {width} pixels, {counted(slices, 'slice')}, {counted(states, 'mode')}"
        first = self.object[0, 0]
        varies = np.ptp(first.real) > 0 or np.ptp(first.imag) > 0  # of a constant object only the amplitude is shown
        flat = float(abs(first.flat[0]))
        # Limits by percentiles would both equal the constant, and show it black.
        limits = None if varies else (0.0, 2.0 * flat) if flat else (-1.0, 1.0)
        start = picture(
            first if varies else np.abs(first), "object", "Object", limits=limits, pixel_size=size, note=what
        )
        shown = [
            picture(
                mode,
                f"probe {number}",
                f"Probe, mode {number}",
                pixel_size=size,
                note=f"{power / powers.sum():.1%} of the power",
            )
            for number, (mode, power) in enumerate(zip(self.probe[:modes], powers[:modes], strict=True), 1)
        ]
        return (light, start, *shown)

    def _repr_html_(self) -> str:
        """Return the pictures side by side as HTML, for notebooks."""
        return f"{pictures_html(self.pictures())}<small>{html.escape(self.note)}</small>"


def preview(scan: Scan, settings: Settings | None = None) -> Preview:
    """Compute the initial state of a reconstruction of this scan with these settings, on the CPU of this process.

    The result differs from that of the engines in one respect: the mean pattern, from which the scale of the probe
    and, without an initial guess, that of the near field are estimated, is that of at most 256 evenly spaced patterns.

    Parameters
    ----------
    scan : Scan
        Scan to reconstruct.
    settings : Settings, optional
        Settings of the reconstruction. None: `Settings()`.

    Returns
    -------
    Preview
        Initial object, probe and positions.

    Raises
    ------
    ScanError
        If these patterns are empty ("scan.empty"), or the scan is being measured ("scan.live").
    SettingsError
        If scan and settings are incompatible.
    """
    settings = settings or Settings()
    check_measured(scan, "preview")
    check_together(scan, settings)
    chosen = np.unique(np.linspace(0, len(scan) - 1, min(PATTERNS, len(scan))).astype(np.int64))
    total = np.zeros(scan.pattern_shape)
    for index in chosen:
        total += scan.counts(int(index), int(index) + 1)[0]
    if not total.any():
        raise ScanError(
            f"{len(chosen)} of {len(scan)} patterns were read, and all are empty: no pixel has a count above 0.",
            code="scan.empty",
        )
    mean = total / len(chosen)
    mean = np.fft.ifftshift(mean) if shifted(scan) else mean
    dtype = torch.complex128 if settings.precision == "double" else torch.complex64

    def gathered(patterns: NDArray[np.int64], size: tuple[int, int]) -> torch.Tensor:
        counts = np.concatenate([scan.counts(int(index), int(index) + 1) for index in patterns]).astype(np.float64)
        counts = np.fft.ifftshift(counts, axes=(-2, -1)) if shifted(scan) else counts
        return in_middle(torch.from_numpy(counts).to(dtype.to_real()), size)

    found = find_start(
        scan, settings, gathered, detector_mask(scan, dtype.to_real()), np.arange(len(scan)), short_result
    )
    object, probe = initial_arrays(scan, settings, torch.from_numpy(mean), dtype, *found)
    return Preview(
        object=object.numpy(),
        probe=probe.numpy(),
        positions=window_positions(scan, settings),
        origin=object_frame(scan, settings).origin,
        pixel_size=scan.pixel_size,
        note=f"Mean of {'all' if len(chosen) == len(scan) else 'every few of the'} {len(scan)} patterns"
        + ("" if len(chosen) == len(scan) else f", {len(chosen)} together"),
    )
