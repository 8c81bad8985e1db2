"""Mean pattern, centres of mass, and centring of the patterns."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError, ScanError
from ptynb.preparation.field_resampling import cut, cut_patterns, ramped
from ptynb.preparation.recorded_steps import recorded
from ptynb.preparation.shared_transforms import (
    as_centred,
    carried,
    carried_truth,
    far_field_geometry,
    known,
    pieces,
    transformed,
)


def mean_pattern(scan: Scan) -> NDArray[np.float64]:
    """Return the mean of all patterns, 0 at bad pixels. Reads all patterns once.

    Parameters
    ----------
    scan : Scan
        Scan with the patterns.

    Returns
    -------
    ndarray of float64
        Mean pattern (y, x) [counts], in the order of the patterns.
    """
    total = np.zeros(scan.pattern_shape)
    for _, counts in pieces(scan):
        total += counts.sum(0, dtype=np.float64)
    return total / len(scan)


def centre_of_mass(scan: Scan) -> NDArray[np.float64]:
    """Return the centre of mass of each pattern. Reads all patterns once.

    Parameters
    ----------
    scan : Scan
        Scan with the patterns.

    Returns
    -------
    ndarray of float64
        Centres of mass (pattern, yx) [detector pixels from index n // 2], with bad pixels taken as 0; NaN for patterns
        without counts.
    """
    return pattern_moments(scan).moments


@dataclasses.dataclass(frozen=True, eq=False)
class PatternMoments:
    """Sum (pattern,), centre of mass (pattern, yx), NaN without counts, and mean (y, x) of the patterns of a scan.

    Bad pixels are taken as 0. The mean has the order of the patterns.
    """

    sums: NDArray[np.float64]
    moments: NDArray[np.float64]
    mean: NDArray[np.float64]


def pattern_moments(scan: Scan) -> PatternMoments:
    """Return sums, centres of mass as `centre_of_mass` does, and the mean. Reads all patterns once."""
    centred = as_centred(scan)
    y, x = (np.arange(side) - float(side // 2) for side in scan.pattern_shape)
    sums, centres, mean = np.zeros(len(scan)), np.full((len(scan), 2), np.nan), np.zeros(scan.pattern_shape)
    for part, counts in pieces(centred):
        mean += counts.sum(0, dtype=np.float64) / len(scan)
        rows, columns = counts.sum(2, dtype=np.float64), counts.sum(1, dtype=np.float64)
        sums[part] = total = rows.sum(1)
        nonempty = total > 0
        moments = np.stack([rows @ y, columns @ x], axis=1)
        centres[part][nonempty] = moments[nonempty] / total[nonempty, None]
    return PatternMoments(sums, centres, mean if centred is scan else np.fft.ifftshift(mean))


@recorded
def centre(scan: Scan, *, move_probe: bool = True, mean: ArrayLike | None = None, patterns: int | None = None) -> Scan:
    """Shift the patterns by whole pixels so that the centre of mass of the mean pattern is at zero frequency, n // 2.

    New pixels at the edges are masked. A shift in the far field is a phase ramp on the probe, which is applied to the
    guess, too.

    Parameters
    ----------
    scan : Scan
        Far-field scan.
    move_probe : bool, default True
        Whether to apply the ramp to the probe guess; False for a centred guess not derived from the patterns.
    mean : array_like, optional
        Mean pattern (y, x) of all or some patterns, in their pixel order; by default it is computed.
    patterns : int, optional
        Number of patterns, evenly spaced from the first to the last, whose mean is computed; by default all.

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    ScanError
        For near-field scans and tilted geometries, and if there are no counts.
    InvalidValueError
        If the mean pattern has another shape (code "array.shape-mismatch").
    """
    far_field_geometry(scan, "centring")
    known_mean = None if mean is None else checked_mean(scan, mean)
    scan = as_centred(scan)
    pattern = _mean_of(scan, patterns) if known_mean is None else known_mean
    if not pattern.any():
        raise ScanError("All patterns are 0 at the good pixels; they have no centre of mass.", code="scan.empty")
    window = scan.pattern_shape
    y, x = ndimage.center_of_mass(pattern)
    shift = round(float(y)) - window[0] // 2, round(float(x)) - window[1] // 2
    if shift == (0, 0):
        return scan
    inside = np.ones(scan.pattern_shape, bool) if scan.mask is None else scan.mask
    fields = carried(scan, probe=(lambda field: ramped(field, shift)) if move_probe else None)
    fields["ground_truth"] = carried_truth(scan.ground_truth, probe=lambda field: ramped(field, shift))
    return dataclasses.replace(
        scan, frames=transformed(scan, cut_patterns, shift, window), mask=cut(inside, shift, window), **fields
    )


def _mean_of(scan: Scan, patterns: int | None) -> NDArray[np.float64]:
    """Return the mean of so many patterns, evenly spaced; None: of all."""
    if patterns is None or patterns >= len(scan):
        return mean_pattern(scan)
    if patterns < 1:
        raise InvalidValueError(f"patterns is {patterns}; expected at least 1.", code="argument.invalid-value")
    indices = np.linspace(0, len(scan) - 1, patterns).astype(int).tolist()
    total = np.zeros(scan.pattern_shape)
    for index in indices:
        total += scan.counts(index, index + 1)[0]
    return total / len(indices)


def checked_mean(scan: Scan, mean: ArrayLike) -> NDArray[np.float64]:
    """Return a mean pattern from the user, centred and 0 at bad pixels."""
    pattern = np.asarray(mean, dtype=np.float64)
    if pattern.shape != scan.pattern_shape:
        raise InvalidValueError(
            f"The mean pattern has shape {pattern.shape}; expected that of a pattern, {scan.pattern_shape}.",
            code="array.shape-mismatch",
        )
    pattern = known(scan.mask, pattern)
    return pattern if scan.centred else np.fft.fftshift(pattern)
