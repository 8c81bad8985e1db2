"""Numbers that no experiment has: what a wrong unit makes of wavelength, distance, pixel size and positions.

What the user gave is believed, except for positions that make no scan; what a file says is not. Patterns that may be
right are not refused, but told: empty ones, and those that are much larger in memory than in their file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from ptynb.data.geometry import Geometry, energy_from_wavelength
from ptynb.data.patterns import Frames
from ptynb.data.scan import Scan
from ptynb.exceptions import FileError
from ptynb.io.reading.packed_patterns import PackedFrames
from ptynb.io.reading.records import FileRecord, Given
from ptynb.table import gigabytes

WAVELENGTHS = (1e-13, 2e-5)
"""[m]: electrons of some MeV to the far infrared."""
NO_SOURCE = (3.5e-8, 2.5e-7)
"""[m]: 5 to 35 eV, where nobody does ptychography, and 5 to 35 keV, where most do, lands when it is read as eV."""
DISTANCES = (1e-4, 500.0)
PIXELS = (1e-8, 1e-2)
WIDEST = 2.0
"""Detector's width over its distance; beyond 60 degrees to each side an object pixel is less than half a wavelength."""
UNITS = {1e-3: "millimetres", 1e-6: "micrometres", 1e-9: "nanometres", 1e-10: "angstrom", 1e3: "kilometres"}
FITTING = (0.002, 0.8)
"""Steps between neighbours over the window's width, of scans as they are."""
MOST_NEIGHBOURS = 20_000
SAMPLE = 8
"""Patterns spread over a scan that are looked at before it is called empty, beside the first and the last ones."""
MOST_BYTES = 2**30
"""Of chunks that are unpacked for this: fewer patterns are looked at where they are large."""
LARGEST_UNNOTICED = 2**28
"""Bytes of patterns in memory that surprise nobody, however small their file is."""
MOST_TIMES = 1000
"""How many times larger than in their file patterns are in memory before it is told: deflate packs 20 electrons on
512 x 512 pixels to 1/900."""


def check_geometry(found: FileRecord, given: Given, geometry: Geometry, window: tuple[int, int], path: Path) -> None:
    """Raises FileError for a wavelength, distance or pixel size of a file that can't be; the unit meant is named."""
    if given.beam is None:
        _check_beam(found, geometry.wavelength, path)
    in_angles = given.angular_pixel is not None or found.angular_pixel is not None
    if in_angles and given.distance is None and given.detector_pixel is None:
        return
    if given.distance is None:
        _check_length(found, "distance", geometry.distance, DISTANCES, path)
    for size in geometry.detector_pixel if given.detector_pixel is None else ():
        _check_length(found, "detector_pixel", size, PIXELS, path)
    width = max(side * size for side, size in zip(window, geometry.detector_pixel, strict=True))
    if width > 2 * WIDEST * geometry.distance and given.distance is None:
        raise FileError(
            f"{path} has a detector of {width:.3g} m at a distance of {geometry.distance:.3g} m"
            f"{_at(found, 'distance')}; no far field reaches so far to the sides, so one of them is in another unit: "
            "give distance= [m] or detector_pixel=(y, x) [m]."
        )


def _check_beam(found: FileRecord, wavelength: float, path: Path) -> None:
    place = _at(found, "wavelength") or _at(found, "energy")
    low, high = WAVELENGTHS
    if not low <= wavelength <= high:
        raise FileError(
            f"{path} has a wavelength of {wavelength:.6g} m{place}{_would_be(wavelength, WAVELENGTHS)}; expected "
            f"{low:g} to {high:g} m: give wavelength= [m] or energy= [eV]."
        )
    if NO_SOURCE[0] < wavelength < NO_SOURCE[1]:
        energy = energy_from_wavelength(wavelength)
        raise FileError(
            f"{path} has a photon energy of {energy:.6g} eV{place}, which looks like {energy:.6g} keV taken as eV; "
            f"give energy={energy * 1e3:.6g} [eV], or energy={energy:.6g} if it is so."
        )


def _check_length(found: FileRecord, name: str, value: float, limits: tuple[float, float], path: Path) -> None:
    if limits[0] <= value <= limits[1]:
        return
    words = {"distance": "a distance to the detector", "detector_pixel": "a detector pixel"}[name]
    give = {"distance": "distance= [m]", "detector_pixel": "detector_pixel=(y, x) [m]"}[name]
    raise FileError(
        f"{path} has {words} of {value:.6g} m{_at(found, name)}{_would_be(value, limits)}; expected {limits[0]:g} to "
        f"{limits[1]:g} m: give {give}."
    )


def check_positions(
    positions: NDArray[np.float64], window: tuple[int, int], pixel: tuple[float, float], found: FileRecord, path: Path
) -> None:
    """Raises FileError for positions that are no scan: all in one pixel, or none beside another.

    positions: (pattern, yx) [object pixels], from metres. pixel: an object pixel (y, x) [m].
    """
    if positions.ndim != 2 or positions.shape[1] != 2 or len(positions) < 4 or not np.isfinite(positions).all():
        return
    step = _step(positions)
    span = float(np.ptp(positions, axis=0).max())
    far, near = step > min(window), 0 < span < 0.5
    if not far and not near:
        return
    said = (
        f"neighbouring positions are {step:.3g} object pixels apart"
        if far
        else f"all positions lie within {span:.2g} object pixels"
    )
    # The first unit in which neighbours overlap as they do in scans.
    fits = [unit for scale, unit in UNITS.items() if FITTING[0] < step * scale / min(window) < FITTING[1]]
    fits_inverse = [unit for scale, unit in UNITS.items() if FITTING[0] < step / scale / min(window) < FITTING[1]]
    meant = f"; they would fit if they were in {fits[0]}" if fits else ""
    if not fits and fits_inverse:
        meant = f"; they would fit if they were metres taken as {fits_inverse[0]}"
    raise FileError(
        f"{path}: {said}{_at(found, 'positions')}, where a window has {window[0]} x {window[1]} and an object pixel is "
        f"{pixel[0]:.3g} m{meant}: give positions=array (pattern, yx) [m] (units='pixels' where they are pixels), or "
        "check wavelength, distance and pixel size."
    )


def _step(positions: NDArray[np.float64]) -> float:
    """Distance to the nearest other position, of most."""
    some = positions[:MOST_NEIGHBOURS]
    distances, _ = cKDTree(some).query(some, k=2)
    return float(np.median(distances[:, 1]))


def _would_be(value: float, limits: tuple[float, float]) -> str:
    """In which unit a length would be one."""
    if not (math.isfinite(value) and value > 0):
        return ""
    low, high = limits
    fits = [unit for scale, unit in UNITS.items() if low <= value * scale <= high and scale < 1]
    return f" (it could be {' or '.join(fits[:2])})" if fits and value > high else ""


def _at(found: FileRecord, name: str) -> str:
    return f" (at {found.places[name]})" if name in found.places else ""


def look_at(scan: Scan) -> tuple[str, ...]:
    """Looks at the first and the last pattern; returns what a user should know of all of them, a sentence each.

    That they are empty, as far as some of them show it, and that they take far more memory than room in their file.
    Those that would have to be unpacked for that are not looked at. Raises ScanError for counts that can't be.
    """
    return _look(scan.frames, scan.counts, masked=scan.mask is not None)


def look_at_frames(frames: Frames) -> tuple[str, ...]:
    """The same of patterns that are no scan yet, because something is missing."""
    return _look(frames, frames.read, masked=False)


def _look(frames: Frames, counts: Callable[[int, int], NDArray[Any]], *, masked: bool) -> tuple[str, ...]:
    found = [_large_for_its_file(frames)]
    if not isinstance(frames, PackedFrames):
        found.append(_empty(frames, counts, masked=masked))
    return tuple(sentence for sentence in found if sentence)


def _empty(frames: Frames, counts: Callable[[int, int], NDArray[Any]], *, masked: bool) -> str:
    """A sentence where all patterns that are looked at are zero: first and last, and more only where these are."""
    last = frames.shape[0] - 1
    ends = [counts(index, index + 1).any() for index in {0, last} if index >= 0]
    if any(ends) or not ends:
        return ""
    # One pattern is read for the price of a chunk.
    price = max(1, frames.stored_together * frames.nbytes // (last + 1))
    spread = np.linspace(0, last, int(np.clip(MOST_BYTES // price, 2, SAMPLE))).astype(int).tolist()
    near = [1, last // 2, last - 1] if len(spread) == SAMPLE else []
    looked = sorted({*spread, *near} & set(range(last + 1)))
    if any(counts(index, index + 1).any() for index in looked):
        return ""
    numbers = ", ".join(map(str, looked))
    sentence = f"All counts are zero in the patterns that were looked at ({numbers} of {last + 1})"
    if not masked:
        return f"{sentence}; name another dataset with patterns=..., or see whether the scan was written to its end."
    return f"{sentence}, where the mask is True; turn it round if it is inverted, or name another dataset: patterns=..."


def _large_for_its_file(frames: Frames) -> str:
    """A sentence where patterns take far more memory than files of measured ones do."""
    stored = frames.stored_bytes
    if stored is None or frames.nbytes < LARGEST_UNNOTICED or frames.nbytes <= MOST_TIMES * stored:
        return ""
    count, height, width = frames.shape
    return (
        f"{count} patterns of {height} x {width}, {frames.dtype}, take {gigabytes(frames.nbytes)} in memory and only "
        f"{gigabytes(stored)} in the file."
    )
