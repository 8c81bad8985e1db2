"""Text about a scan, a pattern and the progress of a survey."""

from __future__ import annotations

import html

import numpy as np

from ptynb.analysis import Survey
from ptynb.data.electrons import LONGEST_ELECTRON, electron_voltage
from ptynb.data.engine_records import Array
from ptynb.data.scan import Scan
from ptynb.text import counted


def facts(scan: Scan) -> str:
    """Return the facts of a scan as a line of HTML."""
    height, width = scan.object_frame(0).shape
    entries = [
        f"<b>{html.escape(scan.name)}</b>",
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
    return '<div style="line-height:1.8">' + " &nbsp;·&nbsp; ".join(entries) + "</div>"


def pattern_note(scan: Scan, index: int, counts: Array) -> str:
    """Return counts and position of a pattern (y, x)."""
    y, x = scan.positions[index]
    return f"{counts.sum():,.0f} counts, maximum {counts.max():,.0f}; position y {y:.2f}, x {x:.2f} object pixels"


def progress(seen: Survey | None, patterns: int, *, paused: bool) -> str:
    """Return the progress of a survey as a bar and text (HTML)."""
    done = 0 if seen is None else seen.patterns
    state = "complete" if done == patterns else "paused" if paused else "running in the background"
    return (
        f'<progress value="{done}" max="{patterns}" aria-label="patterns surveyed" style="width:160px"></progress> '
        f"<span>{done:,} of {patterns:,} patterns surveyed, {state}</span>"
    )


def histogram(seen: Survey, width: int = 420, height: int = 150) -> str:
    """Return an SVG histogram of the counts of pixels, by octaves, on a logarithmic axis."""
    filled = np.flatnonzero(seen.octaves[1:])
    first, last = (int(filled[0]), int(filled[-1])) if len(filled) else (20, 20)
    numbers = [int(seen.octaves[0]), *seen.octaves[1 + first : last + 2].tolist()]
    names = ["0", *(_short(2.0 ** (octave - 20)) for octave in range(first, last + 1))]
    highest = max(np.log10(max(numbers) + 1), 1e-9)
    left, bottom = 56, 34
    step = (width - left - 4) / len(numbers)
    bars, labels = [], []
    for position, (number, name) in enumerate(zip(numbers, names, strict=True)):
        tall = float(np.log10(number + 1) / highest) * (height - bottom - 6)
        x, y = left + position * step, height - bottom - tall
        bars.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(step - 1, 0.5):.1f}" height="{tall:.1f}" fill="#0072b2">'
            f"<title>from {name} counts: {number:,} pixels</title></rect>"
        )
        if position % max(1, round(len(numbers) / 9)) == 0:
            labels.append(f'<text x="{x + step / 2:.1f}" y="{height - 20}" text-anchor="middle">{name}</text>')
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="histogram of counts" font-size="10" '
        f'style="color:var(--jp-ui-font-color1,#333)" fill="currentColor">{"".join(bars)}{"".join(labels)}'
        f'<text x="{left - 4}" y="14" text-anchor="end">{_short(max(numbers))}</text>'
        f'<text x="{left - 4}" y="{height - bottom}" text-anchor="end">0</text>'
        f'<text x="{(width + left) / 2:.0f}" y="{height - 5}" text-anchor="middle">counts of a pixel, from</text></svg>'
    )


def _short(number: float) -> str:
    """Return a number with few characters: 512, 32k, 1M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if letter == 'k' else size):.0f}{letter}"
    return f"{number:.4g}"
