"""From what a detector reads to counts: dark image, flat field, negative values, brightness."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError, ScanError
from ptynb.preparation.carry_over import Array, carried, known, real_type, transformed
from ptynb.preparation.center_of_mass import mean_pattern


def subtract_dark(scan: Scan, dark: ArrayLike) -> Scan:
    """Takes the `dark` image (y, x), or one number, off each pattern [counts], in the order of the patterns.

    What becomes negative stays so in the patterns (their mean keeps to the truth, for `bin` and the like), and counts
    as 0 when a reconstruction reads it: `clip_negative` is set.

    Raises ValueError unless the dark image fits and is finite at good pixels.
    """
    image = _image(scan, dark, "dark image")
    return dataclasses.replace(scan, frames=transformed(scan, _less, image, dtype=real_type(scan)), clip_negative=True)


def divide_flat(scan: Scan, flat: ArrayLike) -> Scan:
    """Divides each pattern by the `flat` field (y, x), the pixels' response of any scale, in the order of the patterns.

    The mean response of good pixels is taken as 1, so counts keep their size. Pixels without response are masked.

    Raises ValueError unless the flat field fits, is finite at good pixels, and positive somewhere.
    """
    response = _image(scan, flat, "flat field")
    good = response > 0 if scan.mask is None else scan.mask & (response > 0)
    if not good.any():
        raise InvalidValueError(
            "The flat field is positive at no good pixel; expected the response of the detector.",
            code="argument.invalid-value",
        )
    gain = np.where(good, response[good].mean() / np.where(good, response, 1), 0)
    return dataclasses.replace(
        scan,
        frames=transformed(scan, _times, gain, scan.mask, dtype=real_type(scan)),
        mask=scan.mask if good.all() and scan.mask is None else good,
    )


def remove_negatives(scan: Scan, threshold: float = 0.0) -> Scan:
    """Counts below `threshold` [counts] become 0: negative ones, or with a threshold a detector's noise.

    Raises ValueError unless the threshold is finite and at least 0.
    """
    if not (math.isfinite(threshold) and threshold >= 0):
        raise InvalidValueError(
            f"The threshold for counts is {threshold!r}; expected a finite number of at least 0.",
            code="argument.invalid-value",
        )
    return dataclasses.replace(scan, frames=transformed(scan, _at_least, float(threshold)))


def normalise(scan: Scan, *, counts: float | None = None, monitor: ArrayLike | None = None) -> Scan:
    """Scales the patterns.

    counts: one factor for all makes this the mean sum of a pattern over good pixels; reads all patterns once to find
        it. Guess and truth of the probe are scaled with it.
    monitor: (pattern,) incident intensity behind each pattern, in any unit: each is divided by its own, in units of the
        mean, so that fluctuations of the beam are gone and the mean brightness stays.

    Scaled counts have no Poisson statistics any more. Raises ValueError for numbers that are not positive and finite,
    or for neither of the two.
    """
    if counts is None and monitor is None:
        raise InvalidValueError(
            "normalise was given nothing to scale by; expected counts=..., monitor=..., or both.",
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
        scan = dataclasses.replace(scan, frames=transformed(scan, _times_each, each, scan.mask, dtype=real_type(scan)))
    return scan if counts is None else _with_mean(scan, counts)


def _with_mean(scan: Scan, counts: float) -> Scan:
    if not (math.isfinite(counts) and counts > 0):
        raise InvalidValueError(
            f"The counts to normalise to are {counts!r}; expected a positive, finite number.",
            code="argument.invalid-value",
        )
    total = float(mean_pattern(scan).sum())
    if not total > 0:
        raise ScanError(
            "All patterns are empty at the good pixels, and no factor gives them counts.", code="scan.no-counts"
        )
    factor = counts / total
    frames = transformed(scan, _times, np.full(scan.pattern_shape, factor), scan.mask, dtype=real_type(scan))
    return dataclasses.replace(scan, frames=frames, **carried(scan, probe=lambda field: field * math.sqrt(factor)))


def _image(scan: Scan, values: ArrayLike, name: str) -> NDArray[np.float64]:
    """`values` as an image of the detector, finite at good pixels and 0 at bad ones."""
    try:
        image = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidValueError(f"The {name} does not consist of real numbers.", code="argument.invalid-type") from None
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


def _less(image: NDArray[np.float64], patterns: Array, first: int) -> Array:
    kind = np.result_type(patterns.dtype, np.float32)
    return patterns.astype(kind) - image.astype(kind)


def _times(gain: NDArray[np.float64], mask: NDArray[np.bool_] | None, patterns: Array, first: int) -> Array:
    kind = np.result_type(patterns.dtype, np.float32)
    return known(mask, patterns).astype(kind) * gain.astype(kind)


def _times_each(each: NDArray[np.float64], mask: NDArray[np.bool_] | None, patterns: Array, first: int) -> Array:
    kind = np.result_type(patterns.dtype, np.float32)
    factors = each[first : first + len(patterns), None, None].astype(kind)
    return known(mask, patterns).astype(kind) * factors


def _at_least(threshold: float, patterns: Array, first: int) -> Array:
    return np.where(patterns < threshold, np.zeros((), patterns.dtype), patterns)
