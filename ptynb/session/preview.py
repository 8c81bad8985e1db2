"""What a reconstruction begins with: object, probe and positions, computed without engines."""

from __future__ import annotations

import base64
import html
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from ptynb.data.images import picture
from ptynb.data.scan import Scan
from ptynb.data.snapshot import Picture
from ptynb.exceptions import ScanError
from ptynb.loading.pattern_reader import shifted
from ptynb.physics.model_builder import check_together, initial_arrays, object_frame, window_positions
from ptynb.settings import Settings

Array = NDArray[Any]
PATTERNS = 256
"""Patterns of the mean pattern: enough for an estimate of the probe, in a moment for a scan of any size."""


@dataclass(frozen=True, eq=False)
class Preview:
    """What a reconstruction begins with.

    Parameters
    ----------
    object : array of complex, (mode, slice, y, x)
        The object.
    probe : array of complex, (mode, y, x)
        The probe [square root of counts].
    positions : array of float, (pattern, yx)
        Top-left corners of the probe windows [pixels of `object`].
    origin : tuple of int
        (y, x) of the object's first pixel in the scan's coordinates [object pixels].
    pixel_size : tuple of float or None
        (y, x) of an object pixel [m]; None where it is unknown.
    note : str
        Which patterns the mean pattern behind the probe is of.
    """

    object: Array = field(repr=False)
    probe: Array = field(repr=False)
    positions: NDArray[np.float64] = field(repr=False)
    origin: tuple[int, int]
    pixel_size: tuple[float, float] | None
    note: str

    @property
    def centres(self) -> NDArray[np.float64]:
        """Centres (pattern, yx) of the probe's windows in pixels of the object."""
        return self.positions + np.array(self.probe.shape[-2:]) / 2

    @property
    def illumination(self) -> NDArray[np.float64]:
        """Photons (y, x) of all patterns together through each pixel of the object."""
        intensity = (np.abs(self.probe) ** 2).sum(0).astype(np.float64)
        sides = [side - inner + 1 for side, inner in zip(self.object.shape[-2:], intensity.shape, strict=True)]
        corners = np.zeros(sides)
        y, x = np.rint(self.positions).astype(np.int64).T
        np.add.at(corners, (y, x), 1.0)
        # One convolution, however many positions there are.
        light: NDArray[np.float64] = fftconvolve(corners, intensity).clip(min=0)
        return light

    def pictures(self, modes: int = 4) -> tuple[Picture, ...]:
        """Illumination of the object, the object's first slice, and the first probe modes, for a `Viewer`.

        Parameters
        ----------
        modes : int
            Number of probe modes at most.

        Returns
        -------
        tuple of Picture
            Grey levels or colours, with titles and units.
        """
        powers = (np.abs(self.probe) ** 2).sum((1, 2))
        states, slices, height, width = self.object.shape
        size = self.pixel_size
        light = picture(
            self.illumination, "positions", "Illumination", unit="photons", pixel_size=size, colours="viridis"
        )
        what = f"{height} × {width} pixels, {slices} slice(s), {states} state(s)"
        first = self.object[0, 0]
        varies = np.ptp(first.real) > 0 or np.ptp(first.imag) > 0  # a constant one has no phase worth a colour
        flat = float(abs(first.flat[0]))
        # The percentiles of a constant are that constant, and values up to the lower limit are black.
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
        """Its pictures side by side, for notebooks."""
        shown = "".join(
            f'<figure style="margin:0"><figcaption><b>{html.escape(one.title)}</b></figcaption>'
            f'<img alt="{html.escape(one.title)}" src="data:image/png;base64,{base64.b64encode(one.image).decode()}"'
            ' style="height:180px;image-rendering:pixelated;display:block">'
            f"<small>{html.escape(one.note)}</small></figure>"
            for one in self.pictures()
        )
        return f'<div style="display:flex;flex-wrap:wrap;gap:14px">{shown}</div><small>{html.escape(self.note)}</small>'


def preview(scan: Scan, settings: Settings | None = None) -> Preview:
    """Compute what a reconstruction of this scan with these settings begins with, on the CPU of this process.

    As on the engines, but for the mean pattern behind a probe without a guess, and behind its scale, which is that of
    at most 256 patterns evenly taken from the scan.

    Parameters
    ----------
    scan : Scan
        To reconstruct.
    settings : Settings, optional
        Default: `Settings()`.

    Returns
    -------
    Preview
        Object, probe, positions, and pictures of them.

    Raises
    ------
    ScanError
        These patterns are empty ("scan.empty").
    SettingsError
        Scan and settings do not fit together.
    """
    settings = settings or Settings()
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
    object, probe = initial_arrays(scan, settings, torch.from_numpy(mean), dtype)
    return Preview(
        object=object.numpy(),
        probe=probe.numpy(),
        positions=window_positions(scan, settings),
        origin=object_frame(scan, settings).origin,
        pixel_size=scan.pixel_size,
        note=f"Mean of {'all' if len(chosen) == len(scan) else 'every few of the'} {len(scan)} patterns"
        + ("" if len(chosen) == len(scan) else f", {len(chosen)} together"),
    )
