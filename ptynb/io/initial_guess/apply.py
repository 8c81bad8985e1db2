"""A start put on a scan: what does not fit is said in one sentence, and nothing is turned round silently."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates
from scipy.spatial import cKDTree

from ptynb.data.geometry import Geometry
from ptynb.data.scan import Scan, Truth
from ptynb.exceptions import ScanError
from ptynb.io.initial_guess.guess_fit import fit
from ptynb.io.initial_guess.imported_guess import Array, InitialGuessWarning, Start

SAME_PIXEL = 0.01
"""Object pixels that differ by less are the same: packages round, and positions count in the package's own."""


def onto(start: Start, scan: Scan, *, probe: bool, object: bool, positions: bool, resample: bool) -> Scan:
    """The scan with what `start` found as its first guesses; see `ptynb.load_initial_guess`. Raises ScanError."""
    remarks = list(start.notes)
    if object and (start.object is None or (start.positions is None and start.origin is None)):
        object = False
        remarks.append("Its object can't be placed without positions, and was left out.")
    if positions and start.positions is None:
        positions = False
        remarks.append("It holds no positions, so the scan keeps its own.")
    if not (probe or object or positions):
        raise ScanError(f"Nothing of {start.label} was asked for or is there; ask for its probe, object or positions.")
    _check_count(start, scan, object, positions)
    start = _sampled(_curved(start, scan, remarks), scan, resample)
    if positions:
        _tell_shift(start, scan, remarks)
    changed = _placed(start, scan, object, positions)
    if probe:
        changed["probe"] = start.probe
    whole = dataclasses.replace(scan, **changed)
    whole = _scaled(whole, start, remarks)
    for remark in remarks:
        warnings.warn(f"{start.label}: {remark}", InitialGuessWarning, stacklevel=3)
    return whole


def _check_count(start: Start, scan: Scan, object: bool, positions: bool) -> None:
    if start.positions is None or len(start.positions) == len(scan):
        return
    if positions or (object and start.origin is None):
        remedy = "positions=False and object=False leave its probe" if start.origin is None else "positions=False"
        raise ScanError(
            f"{start.label} has {len(start.positions)} positions, and the scan has {len(scan)} patterns; expected as "
            f"many. Select the same patterns (ptynb.preparation.select), or {remedy}."
        )


def _curved(start: Start, scan: Scan, notes: list[str]) -> Start:
    """The probe with the phase of the way to the detector, where the package keeps that out of it."""
    if not start.curved:
        return start
    if not isinstance(scan.geometry, Geometry) or start.pixel_size is None:
        notes.append(
            "The probe lacks the phase of the way to the detector, exp(iπ r² / λz), which the scan's geometry does "
            "not tell; give the scan one."
        )
        return dataclasses.replace(start, curved=False)
    reach = scan.geometry.wavelength * scan.geometry.distance
    y, x = ((np.arange(n) - n // 2) * size for n, size in zip(start.window, start.pixel_size, strict=True))
    phase = np.exp(1j * np.pi * (y[:, None] ** 2 + x**2) / reach)
    return dataclasses.replace(start, probe=(start.probe * phase).astype(start.probe.dtype), curved=False)


def _sampled(start: Start, scan: Scan, resample: bool) -> Start:
    """The start on the scan's pixels and in its window. Raises ScanError where that needs the user's word."""
    theirs, ours = start.pixel_size, scan.pixel_size
    factor = np.ones(2)
    if theirs is not None and ours is not None:
        factor = np.array(theirs) / np.array(ours)
    differs = bool((np.abs(factor - 1) > SAME_PIXEL).any())
    if differs and not resample:
        raise ScanError(
            f"{start.label} has object pixels of {_size(theirs)} m, and the scan's are {_size(ours)} m. If both "
            "geometries are right, resample=True interpolates; else correct the scan's energy, distance or pixel."
        )
    if differs:
        return _resampled(start, scan, factor)
    if start.window == scan.pattern_shape:
        return start
    if theirs is None or ours is None:
        raise ScanError(
            f"{start.label} has a probe of {_sides(start.window)} pixels, and the patterns have "
            f"{_sides(scan.pattern_shape)}; "
            "whether their pixels are equal is not known: give the scan a geometry, or crop or bin it to that window."
        )
    moved = np.array(start.window) // 2 - np.array(scan.pattern_shape) // 2
    positions = None if start.positions is None else start.positions + moved
    return dataclasses.replace(start, probe=_in_window(start.probe, scan.pattern_shape), positions=positions)


def _in_window(probe: Array, window: tuple[int, int]) -> Array:
    """The probe cropped to, or dark around in, another window; centres stay on each other."""
    changed = np.zeros((len(probe), *window), probe.dtype)
    ours, theirs = [], []
    for side, old in zip(window, probe.shape[-2:], strict=True):
        first = side // 2 - old // 2
        low, high = max(0, first), min(side, first + old)
        ours.append(slice(low, high))
        theirs.append(slice(low - first, high - first))
    changed[:, ours[0], ours[1]] = probe[:, theirs[0], theirs[1]]
    return changed


def _resampled(start: Start, scan: Scan, factor: NDArray[np.float64]) -> Start:
    """The start on pixels that are `factor` times as many to a side, by cubic splines."""
    old, new = np.array(start.window), np.array(scan.pattern_shape)
    if scan.pixel_size is not None and start.object is not None:
        larger = np.ceil(np.array(start.object.shape[-2:]) * factor)
        if larger.max() > 2**16 or not (larger >= 4).all():
            raise ScanError(
                f"{start.label} would be resampled to {larger[0]:.0f} x {larger[1]:.0f} pixels; "
                "expected at least 4 and at most 65536 on a side. Check both pixel sizes."
            )
    inside = [(np.arange(n) - n // 2) / f + m // 2 for n, m, f in zip(new, old, factor, strict=True)]
    object = start.object
    if object is not None:
        sides = np.ceil(np.array(object.shape[-2:]) * factor).astype(int)
        object = _interpolated(object, [np.arange(n) / f for n, f in zip(sides, factor, strict=True)], "nearest")
    positions = start.positions
    if positions is not None:
        positions = (positions + old // 2) * factor - new // 2
    return dataclasses.replace(
        start,
        probe=_interpolated(start.probe, inside, "constant"),
        object=object,
        positions=positions,
        pixel_size=scan.pixel_size,
        origin=None if start.origin is None else tuple(np.rint(np.array(start.origin) * factor).astype(int).tolist()),
    )


def _interpolated(fields: Array, places: list[NDArray[np.float64]], mode: str) -> Array:
    """Complex fields (…, y, x) read at rows and columns that need not be whole."""
    grid = np.meshgrid(*places, indexing="ij")
    flat = fields.reshape(-1, *fields.shape[-2:])
    read = [map_coordinates(one, grid, order=3, mode=mode) for one in flat]
    return np.stack(read).reshape(*fields.shape[:-2], *grid[0].shape).astype(fields.dtype)


def _placed(start: Start, scan: Scan, object: bool, positions: bool) -> dict[str, Any]:
    """Positions, object and truth that belong together.

    Whose object it is decides which coordinates count; the other's positions are moved there as a whole, which no
    pattern can tell.
    """
    if not object and not positions:
        return {}
    if object:
        assert start.object is not None
        places = start.positions if positions else scan.positions + _towards(start, scan)
        assert places is not None
        return _with_room(places, start.object, scan)
    assert start.positions is not None
    places = start.positions + (scan.positions - start.positions).mean(0)
    if scan.object is None:
        return {"positions": places}
    return _with_room(places, scan.object, scan)


def _towards(start: Start, scan: Scan) -> NDArray[np.float64]:
    """What leads from the scan's coordinates to those of the start's object."""
    if start.origin is not None:
        return -np.array(start.origin, dtype=np.float64)
    assert start.positions is not None
    shift: NDArray[np.float64] = (start.positions - scan.positions).mean(0)
    return shift


def _with_room(places: NDArray[np.float64], object: Array, scan: Scan) -> dict[str, Any]:
    """Positions, and an object that holds all their windows, transparent where it grew; the truth moves with them."""
    corners = np.rint(places).astype(int)
    near = np.maximum(0, -corners.min(0))
    far = np.maximum(0, corners.max(0) + scan.pattern_shape - object.shape[-2:])
    if (near > np.array(scan.pattern_shape)).any() or (far > np.array(scan.pattern_shape)).any():
        raise ScanError(
            f"The positions reach from {corners.min(0).tolist()} to {(corners.max(0) + scan.pattern_shape).tolist()} "
            "pixels, "
            f"and the object has {_sides(object.shape[-2:])}; they don't belong together. positions=False keeps the "
            "scan's own."
        )
    widths = [(0, 0)] * (object.ndim - 2) + [(int(a), int(b)) for a, b in zip(near, far, strict=True)]
    object = np.pad(object, widths, constant_values=1)
    places = places + near
    return {
        "positions": places,
        "object": object,
        "ground_truth": _moved(scan.ground_truth, (places - scan.positions).mean(0)),
    }


def _moved(truth: Truth | None, shift: NDArray[np.float64]) -> Truth | None:
    """The truth in coordinates that are larger by `shift`, to a pixel."""
    if truth is None:
        return None
    by = np.rint(shift).astype(int)
    cut = np.maximum(0, -by)
    field = truth.object[..., cut[0] :, cut[1] :]
    widths = [(0, 0)] * (field.ndim - 2) + [(int(max(0, side)), 0) for side in by]
    return Truth(np.pad(field, widths, constant_values=1), truth.probe)


def _tell_shift(start: Start, scan: Scan, notes: list[str]) -> None:
    """A remark where the positions differ from the scan's by more than a step, beside a common shift."""
    assert start.positions is not None
    moved = start.positions - scan.positions
    rms = float(np.sqrt(((moved - moved.mean(0)) ** 2).sum(1).mean()))
    step = float(np.median(cKDTree(scan.positions).query(scan.positions, k=2)[0][:, 1])) if len(scan) > 1 else np.inf
    if rms > step:
        notes.append(
            f"Its positions differ from the scan's by {rms:.1f} pixels (root mean square, after a common shift), more "
            f"than a step of {step:.1f}; if that is not a refinement, the scan is another one or its axes are "
            "turned. positions=False keeps the scan's own."
        )


def _scaled(scan: Scan, start: Start, notes: list[str]) -> Scan:
    """The scan with its probe scaled to the measured counts, and remarks where the start fits no pattern."""
    found = fit(scan, start.thickness)
    if found is None or scan.probe is None:
        return scan
    if found.better is not None:
        turn, better = found.better
        notes.append(
            f"It fits the patterns with an R-factor of {found.r_factor:.3f}, and would with {better:.3f} if they were "
            f"{turn}: bring the scan into the package's orientation first (ptynb.preparation.flip and transpose)."
        )
    elif found.r_factor > found.of_mean:
        notes.append(
            f"It fits the patterns with an R-factor of {found.r_factor:.3f}, no better than their mean "
            f"({found.of_mean:.3f}): is it of this scan, and are positions and patterns in the package's orientation?"
        )
    return dataclasses.replace(scan, probe=(scan.probe * np.sqrt(found.scale)).astype(scan.probe.dtype))


def _size(pixel: tuple[float, float] | None) -> str:
    return "unknown" if pixel is None else f"{pixel[0]:.4g} x {pixel[1]:.4g}"


def _sides(shape: tuple[int, ...]) -> str:
    return " x ".join(str(side) for side in shape)
