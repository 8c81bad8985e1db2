"""Application of an imported guess to a scan. The scan is not reoriented; mismatches raise errors or issue warnings."""

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
from ptynb.io.initial_guess.imported_guess import Array, ImportedGuess, InitialGuessWarning

SAME_PIXEL = 0.01
"""Relative difference of pixel sizes that are taken as equal: packages round them, and positions are in pixels."""
MOST_PIXELS = 2**16
"""Maximum number of pixels on a side of a resampled object."""


def apply_guess(
    guess: ImportedGuess, scan: Scan, *, probe: bool, object: bool, positions: bool, resample: bool
) -> Scan:
    """Return the scan with the guess as its initial guesses; see `ptynb.load_initial_guess`. Raise ScanError."""
    notes = list(guess.notes)
    if object and (guess.object is None or (guess.positions is None and guess.origin is None)):
        object = False
        notes.append("The object cannot be placed without positions, and was left out.")
    if positions and guess.positions is None:
        positions = False
        notes.append("It has no positions; those of the scan are used.")
    if not (probe or object or positions):
        raise ScanError(
            f"Nothing of {guess.label} is selected or available; select its probe, object or positions.",
            code="guess.nothing-selected",
        )
    uses_positions = positions or (object and guess.origin is None)
    if uses_positions and guess.positions is not None and len(guess.positions) != len(scan):
        remedy = "positions=False and object=False use its probe only" if guess.origin is None else "positions=False"
        raise ScanError(
            f"{guess.label} has {len(guess.positions)} positions, and the scan has {len(scan)} patterns; expected "
            f"equal numbers. Select the same patterns (ptynb.preparation.select), or {remedy}.",
            code="guess.count-mismatch",
        )
    guess = _sampled(_with_curvature(guess, scan, notes), scan, resample)
    if positions:
        notes += _position_notes(guess, scan)
    changed = _aligned(guess, scan, object, positions)
    if probe:
        changed["probe"] = guess.probe
    applied = _scaled(dataclasses.replace(scan, **changed), guess, notes)
    for note in notes:
        warnings.warn(f"{guess.label}: {note}", InitialGuessWarning, stacklevel=3)
    return applied


def _with_curvature(guess: ImportedGuess, scan: Scan, notes: list[str]) -> ImportedGuess:
    """Multiply the probe by the phase of the propagation to the detector, if the package stores it without."""
    if not guess.curved:
        return guess
    if not isinstance(scan.geometry, Geometry) or guess.pixel_size is None:
        notes.append(
            "The probe lacks the phase of the propagation to the detector, exp(iπ r² / λz), because the scan has no "
            "geometry; give the scan one."
        )
        return guess
    reach = scan.geometry.wavelength * scan.geometry.distance
    y, x = ((np.arange(n) - n // 2) * size for n, size in zip(guess.window, guess.pixel_size, strict=True))
    phase = np.exp(1j * np.pi * (y[:, None] ** 2 + x**2) / reach)
    return dataclasses.replace(guess, probe=(guess.probe * phase).astype(guess.probe.dtype), curved=False)


def _sampled(guess: ImportedGuess, scan: Scan, resample: bool) -> ImportedGuess:
    """Return the guess on the scan's pixels and in its window. Raise ScanError if that needs a decision of the user."""
    pixel, scan_pixel = guess.pixel_size, scan.pixel_size
    if pixel is not None and scan_pixel is not None:
        factor = np.array(pixel) / np.array(scan_pixel)
        if (np.abs(factor - 1) > SAME_PIXEL).any():
            if resample:
                return _resampled(guess, scan, factor)
            sizes = [f"{y:.4g} x {x:.4g} m" for y, x in (pixel, scan_pixel)]
            raise ScanError(
                f"{guess.label} has object pixels of {sizes[0]}, and the scan's are {sizes[1]}. If both geometries are "
                "right, resample=True interpolates; otherwise correct the scan's energy, distance or pixel.",
                code="guess.pixel-size-mismatch",
            )
    if guess.window == scan.pattern_shape:
        return guess
    if pixel is None or scan_pixel is None:
        raise ScanError(
            f"{guess.label} has a probe of {_sides(guess.window)} pixels, and the patterns have "
            f"{_sides(scan.pattern_shape)}; it is not known whether the pixels are equal: give the scan a geometry, or "
            "crop or bin it to that window.",
            code="guess.window-mismatch",
        )
    # Cropped or padded about the centres.
    probe, moved = guess.probe, np.array(guess.window) // 2 - np.array(scan.pattern_shape) // 2
    for axis, side, first in zip((1, 2), scan.pattern_shape, moved, strict=True):
        widths = [(0, 0)] * 3
        widths[axis] = max(0, -first), max(0, side + first - probe.shape[axis])
        probe = np.take(np.pad(probe, widths), range(max(0, first), max(0, first) + side), axis)
    positions = None if guess.positions is None else guess.positions + moved
    return dataclasses.replace(guess, probe=probe, positions=positions)


def _resampled(guess: ImportedGuess, scan: Scan, factor: NDArray[np.float64]) -> ImportedGuess:
    """Return the guess on `factor` times as many pixels per axis, by cubic splines."""
    old, new = np.array(guess.window), np.array(scan.pattern_shape)
    inside = [(np.arange(n) - n // 2) / f + m // 2 for n, m, f in zip(new, old, factor, strict=True)]
    object, positions = guess.object, guess.positions
    if object is not None:
        sides = np.ceil(np.array(object.shape[-2:]) * factor)
        if sides.max() > MOST_PIXELS or not (sides >= 4).all():
            raise ScanError(
                f"{guess.label} would be resampled to {sides[0]:.0f} x {sides[1]:.0f} pixels; expected 4 to "
                f"{MOST_PIXELS} on a side. Check both pixel sizes.",
                code="guess.pixel-size-mismatch",
            )
        object = _interpolated(
            object, [np.arange(n) / f for n, f in zip(sides.astype(int), factor, strict=True)], "nearest"
        )
    if positions is not None:
        positions = (positions + old // 2) * factor - new // 2
    return dataclasses.replace(
        guess,
        probe=_interpolated(guess.probe, inside, "constant"),
        object=object,
        positions=positions,
        pixel_size=scan.pixel_size,
        origin=None if guess.origin is None else tuple(np.rint(np.array(guess.origin) * factor).astype(int).tolist()),
    )


def _interpolated(fields: Array, coordinates: list[NDArray[np.float64]], mode: str) -> Array:
    """Interpolate complex fields (…, y, x) at fractional rows and columns."""
    grid = np.meshgrid(*coordinates, indexing="ij")
    flat = fields.reshape(-1, *fields.shape[-2:])
    values = [map_coordinates(one, grid, order=3, mode=mode) for one in flat]
    return np.stack(values).reshape(*fields.shape[:-2], *grid[0].shape).astype(fields.dtype)


def _aligned(guess: ImportedGuess, scan: Scan, object: bool, positions: bool) -> dict[str, Any]:
    """Return positions, object and ground truth in the coordinates of the object that is used.

    If the positions are those of the other source, all of them are shifted by one vector, which leaves patterns equal.
    """
    if object:
        assert guess.object is not None
        shift = np.zeros(2) if guess.origin is None else -np.array(guess.origin, dtype=np.float64)
        if guess.positions is not None and guess.origin is None:
            shift = (guess.positions - scan.positions).mean(0)
        own = guess.positions if positions else None
        return _padded(scan.positions + shift if own is None else own, guess.object, scan)
    if not positions:
        return {}
    assert guess.positions is not None
    places = guess.positions + (scan.positions - guess.positions).mean(0)
    return {"positions": places} if scan.object is None else _padded(places, scan.object, scan)


def _padded(places: NDArray[np.float64], object: Array, scan: Scan) -> dict[str, Any]:
    """Return positions, and an object padded with 1 to contain all windows; shift the ground truth accordingly."""
    corners = np.rint(places).astype(int)
    ends = corners.max(0) + scan.pattern_shape
    near, far = np.maximum(0, -corners.min(0)), np.maximum(0, ends - object.shape[-2:])
    if (np.maximum(near, far) > np.array(scan.pattern_shape)).any():
        raise ScanError(
            f"The positions range from {corners.min(0).tolist()} to {ends.tolist()} pixels, and the object has "
            f"{_sides(object.shape[-2:])}; they do not belong together. positions=False uses the scan's own.",
            code="guess.positions-outside-object",
            fields=("positions",),
        )
    widths = [(0, 0)] * (object.ndim - 2) + [(int(a), int(b)) for a, b in zip(near, far, strict=True)]
    places = places + near
    truth = scan.ground_truth
    if truth is not None:
        by = np.rint((places - scan.positions).mean(0)).astype(int)
        field = truth.object[..., max(0, -by[0]) :, max(0, -by[1]) :]
        margins = [(0, 0)] * (field.ndim - 2) + [(int(max(0, side)), 0) for side in by]
        truth = Truth(np.pad(field, margins, constant_values=1), truth.probe)
    return {"positions": places, "object": np.pad(object, widths, constant_values=1), "ground_truth": truth}


def _position_notes(guess: ImportedGuess, scan: Scan) -> list[str]:
    """Return a note if positions differ from those of the scan by more than a step, after removing a common shift."""
    assert guess.positions is not None
    moved = guess.positions - scan.positions
    rms = float(np.sqrt(((moved - moved.mean(0)) ** 2).sum(1).mean()))
    step = float(np.median(cKDTree(scan.positions).query(scan.positions, k=2)[0][:, 1])) if len(scan) > 1 else np.inf
    if rms <= step:
        return []
    return [
        f"Its positions differ from the scan's by {rms:.1f} pixels (root mean square, after a common shift), more than "
        f"a step of {step:.1f}. Unless they were refined that far, the scan is another one or its axes are exchanged. "
        "positions=False uses the scan's own."
    ]


def _scaled(scan: Scan, guess: ImportedGuess, notes: list[str]) -> Scan:
    """Return the scan with its probe scaled to the measured counts; note if the guess does not fit the patterns."""
    found = fit(scan, guess.thickness)
    if found is None or scan.probe is None:
        return scan
    if found.better is not None:
        orientation, better = found.better
        notes.append(
            f"It fits the patterns with an R-factor of {found.r_factor:.3f}, and would with {better:.3f} if they were "
            f"{orientation}: first bring the scan into the package's orientation (ptynb.preparation.flip, transpose)."
        )
    elif found.r_factor > found.of_mean:
        notes.append(
            f"It fits the patterns with an R-factor of {found.r_factor:.3f}, no better than their mean "
            f"({found.of_mean:.3f}): check that it is of this scan, and in the same orientation."
        )
    return dataclasses.replace(scan, probe=(scan.probe * np.sqrt(found.scale)).astype(scan.probe.dtype))


def _sides(shape: tuple[int, ...]) -> str:
    return " x ".join(str(side) for side in shape)
