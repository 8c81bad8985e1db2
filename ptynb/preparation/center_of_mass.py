"""Sums over the scan and over each pattern: mean pattern, centre of mass, and moving the one to the other."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError, ScanError
from ptynb.preparation.carry_over import (
    Array,
    as_centred,
    carried,
    carried_truth,
    facing_geometry,
    known,
    pieces,
    transformed,
)
from ptynb.preparation.field_resampling import ramped


def mean_pattern(scan: Scan) -> NDArray[np.float64]:
    """Mean (y, x) of all patterns [counts] in their order, 0 at bad pixels. Reads all patterns once."""
    total = np.zeros(scan.pattern_shape)
    for _, counts in pieces(scan):
        total += counts.sum(0, dtype=np.float64)
    return total / len(scan)


def centre_of_mass(scan: Scan) -> NDArray[np.float64]:
    """Centre of mass (pattern, yx) of each pattern [detector pixels from index n // 2]. Reads all patterns once.

    Bad pixels count as 0; a pattern without counts has none (NaN).
    """
    scan = as_centred(scan)
    y, x = (np.arange(side) - float(side // 2) for side in scan.pattern_shape)
    found = np.full((len(scan), 2), np.nan)
    for part, counts in pieces(scan):
        rows, columns = counts.sum(2, dtype=np.float64), counts.sum(1, dtype=np.float64)
        total = rows.sum(1)
        lit = total > 0
        moments = np.stack([rows @ y, columns @ x], axis=1)
        found[part][lit] = moments[lit] / total[lit, None]
    return found


def centre(scan: Scan, *, move_probe: bool = True, mean: ArrayLike | None = None) -> Scan:
    """Moves the patterns by whole pixels so that the mean pattern's centre of mass comes to zero frequency, n // 2.

    mean: the mean pattern (y, x) in the order of the patterns, or that of some of them, where it is known; else all
    patterns are read once to find it. Pixels that come in from outside are masked as unmeasured. A shift of the far
    field is a phase ramp on the probe, which the guess gets too; move_probe=False leaves it as it is, for a guess that
    was made without the patterns and is centred already.

    Raises ScanError for near-field scans, tilted geometry, and if there are no counts; ValueError for a mean pattern of
    another shape.
    """
    if not scan.is_far_field:
        raise ScanError(
            "The scan is a near-field one, whose patterns have no zero frequency that could be centred.",
            code="scan.near-field",
        )
    facing_geometry(scan, "moving the detector")
    given = None if mean is None else _fitting(scan, mean)
    scan = as_centred(scan)
    pattern = mean_pattern(scan) if given is None else given
    if not pattern.any():
        raise ScanError(
            "All patterns are empty at the good pixels, so they have no centre of mass.", code="scan.no-counts"
        )
    height, width = scan.pattern_shape
    shift = (
        round(float(pattern.sum(1) @ np.arange(height) / pattern.sum())) - height // 2,
        round(float(pattern.sum(0) @ np.arange(width) / pattern.sum())) - width // 2,
    )
    if shift == (0, 0):
        return scan
    inside = np.ones(scan.pattern_shape, bool) if scan.mask is None else scan.mask
    fields = carried(scan, probe=(lambda field: ramped(field, shift)) if move_probe else None)
    fields["ground_truth"] = carried_truth(scan.ground_truth, probe=lambda field: ramped(field, shift))
    return dataclasses.replace(
        scan, frames=transformed(scan, _moved_patterns, shift), mask=_moved(inside, shift), **fields
    )


def _fitting(scan: Scan, mean: ArrayLike) -> NDArray[np.float64]:
    """A mean pattern given for the scan: centred, 0 at bad pixels."""
    given = np.asarray(mean, dtype=np.float64)
    if given.shape != scan.pattern_shape:
        raise InvalidValueError(
            f"The mean pattern has shape {given.shape}; expected that of a pattern, {scan.pattern_shape}.",
            code="array.shape-mismatch",
        )
    given = known(scan.mask, given)
    return given if scan.centred else np.fft.fftshift(given)


def _moved(field: Array, shift: tuple[int, int]) -> Array:
    """field (…, y, x) with pixel i + shift at pixel i, 0 where there was none."""
    out = np.zeros_like(field)
    target, source = [], []
    for side, distance in zip(field.shape[-2:], shift, strict=True):
        source.append(slice(max(0, distance), side + min(0, distance)))
        target.append(slice(max(0, -distance), side + min(0, -distance)))
    out[..., target[0], target[1]] = field[..., source[0], source[1]]
    return out


def _moved_patterns(shift: tuple[int, int], patterns: Array, first: int) -> Array:
    return _moved(patterns, shift)
