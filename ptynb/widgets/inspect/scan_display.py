"""What is shown of a scan: facts as text, and patterns as pictures on a linear, logarithmic or power scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ptynb.analysis import Survey
from ptynb.data import images
from ptynb.data.electrons import LONGEST_ELECTRON, electron_voltage
from ptynb.data.engine_records import Array, Picture
from ptynb.data.scan import Scan
from ptynb.polling import wait_until
from ptynb.text import counted
from ptynb.widgets.viewer.viewer import Viewer

SCALES = ("log", "linear", "gamma")
MASKED, FOUND = (230, 159, 0), (86, 180, 233)
"""Colours of masked and of detected bad pixels: orange and sky blue, distinguishable with colour blindness."""


def facts(scan: Scan) -> list[str]:
    """Return the facts of a scan, its name first."""
    height, width = scan.object_frame(0).shape
    entries = [
        scan.name,
        f"{len(scan)} patterns of {scan.pattern_shape[0]} × {scan.pattern_shape[1]}, {scan.frames.dtype}",
        f"scanned area {height} × {width} pixels",
    ]
    pixel = scan.pixel_size
    if scan.geometry is not None and pixel is not None:
        wavelength, photons = scan.geometry.wavelength, f"{scan.geometry.energy / 1e3:.4g} keV"
        # No X-ray ptychography has such wavelengths.
        beam = f"electrons of {electron_voltage(wavelength) / 1e3:.4g} kV" if wavelength < LONGEST_ELECTRON else photons
        entries.append(f"{beam}, object pixel {pixel[0] * 1e9:.4g} × {pixel[1] * 1e9:.4g} nm")
    if scan.mask is not None:
        entries.append(f"{counted(int((~scan.mask).sum()), 'bad pixel')} masked")
    if scan.probe is not None:
        entries.append(f"initial guess of {counted(len(scan.probe), 'probe mode')}")
    return entries


def pattern_note(scan: Scan, index: int, counts: Array) -> str:
    """Return counts and position of a pattern (y, x)."""
    y, x = scan.positions[index]
    return f"{counts.sum():,.0f} counts, maximum {counts.max():,.0f}; position y {y:.2f}, x {x:.2f} object pixels"


def is_shifted(scan: Scan) -> bool:
    """Return whether the scan's patterns have their zero frequency at index 0."""
    return scan.is_far_field and not scan.centred


def centred(scan: Scan, field: Array) -> Array:
    """Return a field (y, x) in the order of the patterns, with the zero frequency in the middle."""
    return np.fft.fftshift(field) if is_shifted(scan) else field


def pattern_of(scan: Scan, index: int) -> Array:
    """Return a pattern (y, x), centred; bad pixels and values that are not finite are 0."""
    counts = scan.frames.read(index, index + 1)[0].astype(np.float64)
    good = np.isfinite(counts) if scan.mask is None else np.isfinite(counts) & scan.mask
    return centred(scan, np.where(good, counts, 0))


def scaled(counts: Array, scale: str, exponent: float) -> Array:
    """Return counts on a scale; negative ones are 0 except on the linear scale."""
    if scale == "linear":
        return counts
    return np.log10(np.maximum(counts, 0) + 1) if scale == "log" else np.maximum(counts, 0) ** exponent


def pattern_picture(counts: Array, name: str, title: str, scale: str, exponent: float, unit: str = "counts") -> Picture:
    """Return the picture of a pattern, from 0 or its smallest value to its largest."""
    values = scaled(counts, scale, exponent)
    low, high = min(0.0, float(values.min())), float(values.max())
    limits = (low, high if high > low else low + 1.0)
    shown = {"linear": unit, "log": f"log10(1 + {unit})", "gamma": f"({unit})^{exponent:g}"}[scale]
    return images.picture(values, name, title, limits=limits, unit=shown, colours="magma")


def statistics_pictures(scan: Scan, survey: Survey, scale: str, exponent: float) -> list[Picture]:
    """Return mean, maximum and variance of the surveyed patterns."""
    # Masked pixels may have any value and would set the contrast.
    good = survey.finite if scan.mask is None else survey.finite & scan.mask
    fields = {"mean": survey.mean, "maximum": survey.maximum, "variance": survey.variance}
    return [
        pattern_picture(
            centred(scan, field * good), name, name, scale, exponent, "counts²" if name == "variance" else "counts"
        )
        for name, field in fields.items()
    ]


def mask_picture(counts: Array, good: Array, found: Array | None, name: str, title: str) -> Picture:
    """Return the logarithm of a pattern (y, x) in greys; masked pixels are orange, bad ones not yet masked blue."""
    values = scaled(counts, "log", 1.0)
    values = values / max(float(values[good].max(initial=0)), 1e-9)
    colours = images.coloured(values, (0.0, 1.0))
    if found is not None:
        colours[found & good] = FOUND
    colours[~good] = MASKED
    height, width = good.shape
    return Picture(name, title, images.png(colours), (height, width))


def show(viewer: Viewer, pictures: Sequence[Picture]) -> None:
    """Show pictures after the browser has drawn the last ones; wait a second at most."""
    wait_until(lambda: viewer.ready, 1.0, 0.005)
    viewer.show(pictures)
