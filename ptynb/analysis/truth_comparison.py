"""Comparison of a reconstruction with the ground truth, after removing what ptychography cannot determine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ptynb.analysis.registration import registered_near

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Comparison:
    """A reconstructed object and the true one over the compared area.

    Parameters
    ----------
    error : float
        Root mean squared complex difference, divided by the root mean square of the ground truth.
    aligned : ndarray of complex
        The reconstruction (y, x), shifted, scaled and without its ramp.
    ground_truth : ndarray of complex
        The ground truth (y, x).
    """

    error: float
    aligned: Array
    ground_truth: Array


def compare(
    object: Array, ground_truth: Array, area: tuple[slice, slice], offset: tuple[int, int] = (0, 0)
) -> Comparison:
    """Compare a reconstructed object with the true one.

    Ptychography does not determine a shift, a complex factor and a linear phase ramp (probe and positions compensate
    them); they are fitted, to fractions of a pixel.

    Parameters
    ----------
    object : ndarray of complex
        Reconstructed object (y, x).
    ground_truth : ndarray of complex
        True object (y, x).
    area : (slice, slice)
        Area of the ground truth, at least a few pixels inside the object.
    offset : (int, int), default (0, 0)
        Approximate pixel (y, x) of the ground truth at the first pixel of the object.

    Returns
    -------
    Comparison
        Error and aligned objects.

    Raises
    ------
    InvalidValueError
        If the area is not inside both (code "comparison.area-outside").
    """
    fit = registered_near(object, ground_truth, area, offset)
    return Comparison(fit.error, fit.aligned, fit.reference)
