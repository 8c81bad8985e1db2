"""Correction of counts: dark image, flat field, negative values, normalisation."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError, ScanError, check_positive
from ptynb.preparation.center_of_mass import mean_pattern
from ptynb.preparation.recorded_steps import recorded
from ptynb.preparation.shared_transforms import Array, carried, known, real_type, transformed


@recorded
def subtract_dark(scan: Scan, dark: ArrayLike) -> Scan:
    """Subtract a dark image from each pattern.

    Negative values stay in the patterns (so that means are unbiased, as for `bin`) and count as 0 in a reconstruction:
    `clip_negative` is set.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    dark : array_like
        Dark image (y, x) in the order of the patterns, or one number [counts].

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    InvalidValueError
        If the dark image has another shape, or is not finite at good pixels.
    """
    image = _detector_image(scan, dark, "dark image")
    return dataclasses.replace(scan, frames=transformed(scan, _minus, image, dtype=real_type(scan)), clip_negative=True)


@recorded
def divide_flat(scan: Scan, flat: ArrayLike) -> Scan:
    """Divide each pattern by a flat field.

    The mean response of good pixels is normalised to 1. Pixels without response are masked.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    flat : array_like
        Response (y, x) of the pixels in the order of the patterns, in any unit.

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    InvalidValueError
        If the flat field has another shape, is not finite at good pixels, or nowhere positive.
    """
    response = _detector_image(scan, flat, "flat field")
    good = response > 0 if scan.mask is None else scan.mask & (response > 0)
    if not good.any():
        raise InvalidValueError(
            "The flat field is not positive at any good pixel; expected the response of the detector.",
            code="argument.invalid-value",
        )
    gain = np.where(good, response[good].mean() / np.where(good, response, 1), 0)
    return dataclasses.replace(
        scan,
        frames=transformed(scan, _scaled, gain, scan.mask, dtype=real_type(scan)),
        mask=scan.mask if good.all() and scan.mask is None else good,
    )


@recorded
def remove_negatives(scan: Scan, threshold: float = 0.0) -> Scan:
    """Set counts below a threshold to 0: negative ones, or the noise of a detector.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    threshold : float, default 0.0
        Threshold [counts].

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    InvalidValueError
        Unless the threshold is finite and at least 0.
    """
    if not (math.isfinite(threshold) and threshold >= 0):
        raise InvalidValueError(
            f"threshold is {threshold!r}; expected a finite number of at least 0.",
            code="argument.invalid-value",
        )
    return dataclasses.replace(scan, frames=transformed(scan, _thresholded, float(threshold)))


@recorded
def normalise(scan: Scan, *, counts: float | None = None, monitor: ArrayLike | None = None) -> Scan:
    """Scale the patterns by one factor, or each by its own. Scaled counts no longer have Poisson statistics.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    counts : float, optional
        Mean sum of a pattern over good pixels after scaling all patterns by one factor; reads all patterns once.
        Guess and ground truth of the probe are scaled, too.
    monitor : array_like, optional
        Incident intensity (pattern,) of each pattern in any unit. Each pattern is divided by it, relative to the mean,
        which removes fluctuations of the beam and preserves the mean intensity.

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    InvalidValueError
        If numbers are not positive and finite, or neither argument is given (code "argument.missing").
    ScanError
        If all patterns are empty (code "scan.empty").
    """
    if counts is None and monitor is None:
        raise InvalidValueError(
            "normalise requires counts=..., monitor=..., or both.",
            code="argument.missing",
        )
    if monitor is not None:
        incident = np.asarray(monitor, dtype=np.float64)
        if incident.shape != (len(scan),) or not (np.isfinite(incident).all() and (incident > 0).all()):
            raise InvalidValueError(
                f"The monitor has shape {incident.shape} and {int((~(incident > 0) | ~np.isfinite(incident)).sum())} "
                f"values that are not positive and finite; expected one value for each of the {len(scan)} patterns.",
                code="argument.invalid-value",
            )
        each = incident.mean() / incident
        scan = dataclasses.replace(scan, frames=transformed(scan, _scaled_by, each, scan.mask, dtype=real_type(scan)))
    return scan if counts is None else _with_mean(scan, counts)


def _with_mean(scan: Scan, counts: float) -> Scan:
    check_positive(counts, "mean sum of counts")
    total = float(mean_pattern(scan).sum())
    if not total > 0:
        raise ScanError("All patterns are 0 at the good pixels and cannot be normalised.", code="scan.empty")
    factor = counts / total
    frames = transformed(scan, _scaled, np.full(scan.pattern_shape, factor), scan.mask, dtype=real_type(scan))
    return dataclasses.replace(scan, frames=frames, **carried(scan, probe=lambda field: field * math.sqrt(factor)))


def _detector_image(scan: Scan, values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return `values` as a detector image (y, x), finite at good pixels and 0 at bad ones."""
    try:
        image = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidValueError(f"The {name} does not contain real numbers.", code="argument.invalid-type") from None
    if image.shape not in ((), scan.pattern_shape):
        raise InvalidValueError(
            f"The {name} has shape {image.shape}; expected that of a pattern, {scan.pattern_shape}, or one number.",
            code="array.shape-mismatch",
        )
    image = known(scan.mask, np.broadcast_to(image, scan.pattern_shape))
    if not np.isfinite(image).all():
        y, x = np.argwhere(~np.isfinite(image))[0]
        raise InvalidValueError(
            f"The {name} is {image[y, x]} at pixel ({y}, {x}); expected finite numbers at good pixels.",
            code="array.not-finite",
        )
    return image


def _minus(image: NDArray[np.float64], patterns: Array, first: int) -> Array:
    kind = np.result_type(patterns.dtype, np.float32)
    return patterns.astype(kind) - image.astype(kind)


def _scaled(gain: NDArray[np.float64], mask: NDArray[np.bool_] | None, patterns: Array, first: int) -> Array:
    kind = np.result_type(patterns.dtype, np.float32)
    return known(mask, patterns).astype(kind) * gain.astype(kind)


def _scaled_by(each: NDArray[np.float64], mask: NDArray[np.bool_] | None, patterns: Array, first: int) -> Array:
    kind = np.result_type(patterns.dtype, np.float32)
    factors = each[first : first + len(patterns), None, None].astype(kind)
    return known(mask, patterns).astype(kind) * factors


def _thresholded(threshold: float, patterns: Array, first: int) -> Array:
    return np.where(patterns < threshold, np.zeros((), patterns.dtype), patterns)
