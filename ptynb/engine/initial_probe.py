"""Initial probe of a far-field scan that has none, and object, from a short reconstruction of neighbouring patterns.

The transform of the square root of the mean pattern is the probe only if the object is weak and the probe in focus.
Of strong objects, diffusers, pinholes and defocused lenses it is 3 to 30 times too small, and no optimiser recovers
from it (object errors of 0.25 to 0.97 on seven scans that other packages simulated).

What patterns tell of the probe whatever its phase is its extent: the transform of a pattern is the autocorrelation of
the exit wave, which reaches as far as the diameter of the probe. So the short reconstruction begins with a disc of this
extent, and LSQML with small batches finds the probe from it: on all of these scans within 50 epochs of 128 patterns.

Objects with structures of 2 pixels behind a pinhole it does not find, as no gradient does. The difference map (DM)
does: of ptypy's simulation of one, the R-factor after 60 epochs is 0.038 instead of 0.44, and the object error of the
run that follows 0.011 instead of 0.89; of five of our own 0.005 to 0.007 instead of 0.73 to 0.88 (RAAR finds three of
these). So DM is tried where the R-factor of LSQML is larger than noise explains, and then LSQML with more epochs and
other seeds: of an opaque ring the object error is 0.013 with all of five seeds, instead of 0.013 to 0.54.

The run begins with its object, too, in the part of the array that it has illuminated; the rest is flat. From there
gradients find strong objects whose phase wraps, which from a flat object they do not, even with the true probe (object
error after 100 epochs of Adam 0.037 instead of 0.25).

It is the same for any number of engines: rank 0 makes it, with patterns of all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.data.geometry import Geometry
from ptynb.data.scan import Scan
from ptynb.loading.engine_patterns import in_middle
from ptynb.physics.model_builder import object_frame
from ptynb.preparation.field_resampling import cut_spectrum, middle_start
from ptynb.settings import Settings

Array = NDArray[np.float64]
Field = NDArray[np.complexfloating[Any, Any]]


class ShortResult(NamedTuple):
    """Result of the short reconstruction: probe (1, y, x); object (y, x), 1 where it is dark; where that begins (y, x).

    The latter in the coordinates of the positions.
    """

    probe: Field
    object: Field
    origin: tuple[int, int]
    r_factor: float


class Start(NamedTuple):
    """Initial probes (1, y, x) by the number of the scan in `Scan.probe_scans`, and initial object (y, x)."""

    probes: dict[int, Field]
    object: Field | None = None


Reconstruct = Callable[[Scan, Settings, torch.device, int], ShortResult | None]
"""Function that returns the result after so many epochs; None if the reconstruction diverged."""

PATTERNS = 128
"""Most patterns of the short reconstruction."""
FEWEST_PATTERNS = 16
"""With fewer patterns there is none."""
WIDEST = 256
"""Largest side of its patterns, which are cropped to it about the zero frequency [pixels]."""
EPOCHS = 50
NOT_NOISE = 2.0
"""Ratio of the R-factor to that of noise above which the search is continued, with DM and then with LSQML.

It is 0.9 to 1.5 of nine scans of other packages whose object is found, 3.2 of one with an opaque ring, 18 of the one
with structures of 2 pixels.
"""
NOISE = 0.1
"""R-factor of noise where it is not known, as the counts are no whole numbers.

Of patterns in other units than counts DM and more epochs of LSQML may be tried for nothing, which takes five times as
long as the first ones.
"""
DM_EPOCHS = 60
MORE_EPOCHS = 150
"""Epochs of LSQML if neither has found the object.

Of an opaque ring (PtyLab's simulation; R-factor of noise 0.079) it has 0.15 to 0.27 after 50 epochs with five seeds,
0.078 to 0.20 after 100, and after 150 0.078 with three seeds and 0.123 with two, also after 300.
"""
SEEDS = 3
"""Most seeds with which that is tried, one after the other."""
CONVERGED = 1.25
"""Ratio of its R-factor to that of noise below which no other seed is tried."""
BETTER = 0.7
"""Ratio of two R-factors below which the lower one has found the object, or more of it."""
RADIUS = 1.12
"""Radius of the disc relative to that within which half of the mean autocorrelation is, if its phase is flat."""
REACH = 2.5
"""Radius of the region of the positions relative to that of the disc."""
AT_ONCE = 16
"""Patterns that are transformed together."""
LIT = 0.03
"""Least illumination of the part of its object with which the run begins, relative to the brightest."""
MOST_KNOWN = 4

_known: dict[bytes, ShortResult | None] = {}
"""Results of the last short reconstructions of this process, by what they depend on: runs of one scan repeat them."""


def find_start(
    scan: Scan,
    settings: Settings,
    gathered: Callable[[NDArray[np.int64], tuple[int, int]], Tensor],
    mask: Tensor | None,
    present: NDArray[np.int64],
    reconstruct: Reconstruct,
    rank: int = 0,
) -> Start:
    """Return the probes of those of `scan.probe_scans` that have none, and the object; empty on other ranks than 0.

    Called by all ranks. gathered: `EnginePatterns.gathered`. mask: (y, x) of the detector, in the pixel order of the
    model. present: the patterns that there are, of a scan that is being measured. reconstruct: `loop.short_result`.
    """
    probes, object = dict[int, Field](), None
    if not searches(scan, settings):
        return Start(probes)
    height, width = (min(side, WIDEST) for side in scan.pattern_shape)
    size = (height, width)
    for number, one in enumerate(scan.probe_scans):
        if one.probe is not None:
            continue
        patterns = np.sort(present)
        if scan.probe_of_pattern is not None:
            patterns = patterns[scan.probe_of_pattern[patterns] == number]
        # Those of one of the scans that share a probe, whose objects are far apart.
        patterns = max((patterns[_within(patterns, span)] for span in scan.spans), key=len)
        if len(patterns) < FEWEST_PATTERNS:
            continue
        radius = disc_radius(gathered(_spread(patterns), size))
        if radius == 0:  # all patterns are even
            continue
        patterns = neighbours(scan.positions, patterns, REACH * radius * np.array(scan.pattern_shape))
        counts = gathered(patterns, size)
        if rank == 0:
            short = Scan.from_arrays(
                counts.cpu().numpy(),
                scan.positions[patterns] * size / scan.pattern_shape,
                probe=disc(radius, size),
                mask=None if mask is None else in_middle(mask, size).cpu().numpy() > 0,
            )
            found = _searched(short, run_settings(settings), counts.device, reconstruct)
            if found is None:
                continue
            # The pixels of whole patterns: the far field of the probe is 0 outside of the cropped ones.
            probes[number] = cut_spectrum(found.probe, middle_start(size, scan.pattern_shape), scan.pattern_shape)
            # Of several probes each has its own phase and scale against the object that they share.
            if scan.object is None and len(scan.probe_scans) == 1 and settings.object.learning_rate > 0:
                object = _in_frame(found, scan, settings, size)
    return Start(probes, object)


def _in_frame(found: ShortResult, scan: Scan, settings: Settings, size: tuple[int, int]) -> Field:
    """Return the object of cropped patterns of this size in the array of the run's object, in whose pixels it is."""
    frame = object_frame(scan, settings)
    whole = np.ones(frame.shape, found.object.dtype)
    rows_and_columns, places = [], []
    for side, first, cropped, window, start, last in zip(
        frame.shape, frame.origin, size, scan.pattern_shape, found.origin, found.object.shape, strict=True
    ):
        along = (np.arange(side) + first) * cropped / window - start
        inside = np.flatnonzero((along >= 0) & (along <= last - 1))
        rows_and_columns.append(inside)
        places.append(along[inside])
    whole[np.ix_(*rows_and_columns)] = scipy.ndimage.map_coordinates(
        found.object, np.meshgrid(*places, indexing="ij"), order=1
    )
    return whole


def searches(scan: Scan, settings: Settings) -> bool:
    """Return whether a run of this scan with these settings begins with the search for a probe."""
    wanted = settings.probe.start == "reconstruction" and scan.is_far_field
    plane = isinstance(scan.geometry, Geometry | None)  # not a tilted detector
    return wanted and plane and scan.probe is None and any(one.probe is None for one in scan.probe_scans)


def run_settings(settings: Settings) -> Settings:
    """Return the settings of the short reconstruction before a run with these settings."""
    return Settings(optimiser="lsqml", batch=8, momentum=0.5, precision=settings.precision, seed=settings.seed)


def dm_settings(settings: Settings) -> Settings:
    """Return the settings with which the short reconstruction is repeated if LSQML has not found the object."""
    return Settings(optimiser="dm", precision=settings.precision, seed=settings.seed)


def _searched(scan: Scan, settings: Settings, device: torch.device, reconstruct: Reconstruct) -> ShortResult | None:
    content = hashlib.blake2b(f"{device} {settings!r}".encode())
    for array in (scan.counts(0, len(scan)), scan.positions, scan.probe, scan.mask):
        content.update(b"-" if array is None else np.ascontiguousarray(array).data)
    key = content.digest()
    if key not in _known:
        while len(_known) >= MOST_KNOWN:
            del _known[next(iter(_known))]
        found, level = reconstruct(scan, settings, device, EPOCHS), noise(scan.counts(0, len(scan)))
        if found is None or found.r_factor > NOT_NOISE * level:
            found = _better(found, reconstruct(scan, dm_settings(settings), device, DM_EPOCHS))
        if found is None or found.r_factor > NOT_NOISE * level:
            found = _continued(scan, settings, device, reconstruct, found, level)
        _known[key] = found
    return _known[key]


def _continued(
    scan: Scan,
    settings: Settings,
    device: torch.device,
    reconstruct: Reconstruct,
    found: ShortResult | None,
    level: float,
) -> ShortResult | None:
    """Return the best of `found` and of reconstructions with more epochs, with other seeds if that has helped."""
    for seed in range(settings.seed, settings.seed + SEEDS):
        before = found
        found = _better(found, reconstruct(scan, settings.replace(seed=seed), device, MORE_EPOCHS))
        if found is None or (seed == settings.seed and found is before) or found.r_factor < CONVERGED * level:
            break
    return found


def _better(one: ShortResult | None, other: ShortResult | None) -> ShortResult | None:
    """Return `other` if its R-factor is clearly lower, otherwise `one`."""
    if one is None or other is None:
        return one or other
    return other if other.r_factor < BETTER * one.r_factor else one


def noise(counts: NDArray[np.floating[Any]]) -> float:
    """Return about the R-factor that shot noise alone causes, Σ E|√n - √λ| / Σ √n, of counts (pattern, y, x).

    E|√n - √λ| is √λ of few counts, and sqrt(1 / 2π) = 0.4 of many; λ is taken from the mean pattern.
    """
    if not np.array_equal(counts, np.rint(counts)):
        return NOISE
    expected = np.minimum(np.sqrt(counts.mean(0, dtype=np.float64)), 0.45)
    total = np.sqrt(counts).sum(dtype=np.float64) / len(counts)
    return float(expected.sum() / total) if total > 0 else NOISE


def _within(patterns: NDArray[np.int64], span: slice) -> NDArray[np.bool_]:
    return (patterns >= span.start) & (patterns < span.stop)


def _spread(patterns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return at most `PATTERNS` of these patterns, evenly spread over their order."""
    return patterns[np.linspace(0, len(patterns) - 1, min(PATTERNS, len(patterns))).round().astype(np.int64)]


def disc_radius(counts: Tensor) -> float:
    """Return the radius of the initial disc from patterns (pattern, y, x) with the zero frequency in the middle.

    Relative to the sides of the window, which are those of the probe's.
    """
    power = torch.zeros(counts.shape[-2:], dtype=torch.float64, device=counts.device)
    for portion in counts.split(AT_ONCE):
        power += torch.fft.fft2(portion.double()).abs().square().sum(0)
    power = torch.fft.fftshift(power / len(counts))
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
    """Return the patterns of the short reconstruction, ascending: those about the centre of the scan.

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
