"""Initial probe of a far-field scan that has none: a short reconstruction of some neighbouring patterns.

The transform of the square root of the mean pattern is the probe only if the object is weak and the probe in focus.
Of strong objects, diffusers, pinholes and defocused lenses it is 3 to 30 times too small, and no optimiser recovers
from it (object errors of 0.25 to 0.97 on seven scans that other packages simulated).

What patterns tell of the probe whatever its phase is its extent: the transform of a pattern is the autocorrelation of
the exit wave, which reaches as far as the diameter of the probe. So the initial probe is a disc of this extent, and
LSQML with small batches finds the probe from it: on all of these scans within 50 epochs of 128 patterns.

The trial is the same for any number of engines: rank 0 makes it, with patterns of all.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.data.geometry import Geometry
from ptynb.data.scan import Scan
from ptynb.settings import Settings

Array = NDArray[np.float64]

PATTERNS = 128
"""Most patterns of the trial."""
FEWEST_PATTERNS = 16
"""With fewer patterns there is no trial."""
WIDEST = 256
"""Largest side of the patterns of the trial, which are cropped to it about the zero frequency [pixels]."""
EPOCHS = 50
"""Epochs of the trial."""
RADIUS = 1.12
"""Radius of the disc relative to that within which half of the mean autocorrelation is: 1.19 of a disc in theory, less
where the probe is brightest in its centre."""
REACH = 2.5
"""Radius of the region of the trial's positions relative to that of the disc."""


def trial_settings(settings: Settings) -> Settings:
    """Return the settings of the trial for a run with these settings."""
    return Settings(optimiser="lsqml", batch=8, momentum=0.5, precision=settings.precision, seed=settings.seed)


def scans_without_probe(scan: Scan) -> list[int]:
    """Return which of `scan.probe_scans` need an initial probe that a trial can find."""
    if scan.probe is not None or not isinstance(scan.geometry, Geometry | None) or not scan.is_far_field:
        return []
    return [number for number, one in enumerate(scan.probe_scans) if one.probe is None]


def spread(patterns: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return at most so many of these patterns, evenly spread over their order."""
    return patterns[np.linspace(0, len(patterns) - 1, min(count, len(patterns))).round().astype(np.int64)]


def cropped_size(scan: Scan) -> tuple[int, int]:
    """Return the size (y, x) of the patterns of the trial."""
    height, width = (min(side, WIDEST) for side in scan.pattern_shape)
    return height, width


def cropped(counts: Tensor, size: tuple[int, int]) -> Tensor:
    """Return patterns (..., y, x) in the pixel order of the model with the zero frequency in the middle, cropped."""
    middle = torch.fft.fftshift(counts, dim=(-2, -1))
    starts = [whole // 2 - side // 2 for whole, side in zip(counts.shape[-2:], size, strict=True)]
    return middle[..., starts[0] : starts[0] + size[0], starts[1] : starts[1] + size[1]]


def disc_radius(counts: Tensor) -> float:
    """Return the radius of the initial disc from patterns (pattern, y, x) with the zero frequency in the middle.

    Relative to the sides of the window, which are those of the probe's.
    """
    transforms = torch.fft.fft2(counts.double())
    power = torch.fft.fftshift(transforms.abs().square().mean(0))
    height, width = power.shape
    y, x = (
        torch.arange(side, dtype=torch.float64, device=counts.device) / side - (side // 2) / side
        for side in (height, width)
    )
    distance = (y[:, None].square() + x.square()).sqrt()
    # Shot noise adds the same power everywhere, and all of it at 0, where the sum of counts is.
    power = (power - power[distance > 0.47].median()).clamp(min=0)
    power[height // 2, width // 2] = 0
    order = distance.flatten().argsort()
    inside = power.sqrt().flatten()[order].cumsum(0)
    half = int(torch.searchsorted(inside, inside[-1] / 2))
    return RADIUS * float(distance.flatten()[order][min(half, len(order) - 1)])


def disc(radius: float, size: tuple[int, int]) -> NDArray[np.complex64]:
    """Return the initial probe (1, y, x): a disc with a soft edge and a flat phase. radius: relative to the window."""
    y, x = (np.arange(side) - side // 2 for side in size)
    pixels = [radius * side for side in size]
    distance = np.hypot(y[:, None] / pixels[0], x / pixels[1])
    edge = max(0.07, 1 / min(pixels))
    return (1 / (1 + np.exp(np.clip((distance - 1) / edge, -50, 50)))).astype(np.complex64)[None]


def neighbours(positions: Array, patterns: NDArray[np.int64], reach: Array) -> NDArray[np.int64]:
    """Return the patterns of the trial, ascending: those about the centre of the scan.

    patterns: those that there are. reach: (y, x) half axes of the ellipse, of the positions in which there are so
    many that they are thinned out [object pixels].
    """
    distances = (positions[patterns] - np.median(positions[patterns], axis=0)) / reach
    radii = np.hypot(*distances.T)
    inside = np.argsort(radii, kind="stable")[: max(PATTERNS, int((radii <= 1).sum()))]
    chosen, gaps = [0], np.hypot(*(distances[inside] - distances[inside[0]]).T)
    while len(chosen) < min(PATTERNS, len(inside)):  # each is the one that is farthest from all others
        chosen.append(int(gaps.argmax()))
        gaps = np.minimum(gaps, np.hypot(*(distances[inside] - distances[inside[chosen[-1]]]).T))
    return np.sort(patterns[inside[chosen]])


def trial_scan(scan: Scan, patterns: NDArray[np.int64], counts: Tensor, mask: Tensor | None, radius: float) -> Scan:
    """Return the scan of the trial: these patterns (pattern, y, x), cropped, with a disc as probe. mask: cropped."""
    size = (counts.shape[-2], counts.shape[-1])
    ratio = np.array(size) / scan.pattern_shape
    return Scan.from_arrays(
        counts.cpu().numpy(),
        scan.positions[patterns] * ratio,
        probe=disc(radius, size),
        mask=None if mask is None else mask.cpu().numpy() > 0,
    )


def in_whole_window(probe: Tensor, window: tuple[int, int]) -> Tensor:
    """Return a probe (1, y, x) of cropped patterns with the pixels of whole ones, of this size."""
    field = torch.zeros((1, *window), dtype=probe.dtype)
    waves = torch.fft.fftshift(torch.fft.fft2(torch.fft.ifftshift(probe.cpu(), dim=(-2, -1))), dim=(-2, -1))
    starts = [whole // 2 - side // 2 for whole, side in zip(window, probe.shape[-2:], strict=True)]
    field[:, starts[0] : starts[0] + probe.shape[-2], starts[1] : starts[1] + probe.shape[-1]] = waves
    return torch.fft.fftshift(torch.fft.ifft2(torch.fft.ifftshift(field, dim=(-2, -1))), dim=(-2, -1))
