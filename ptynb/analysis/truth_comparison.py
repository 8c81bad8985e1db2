"""A reconstruction against a known truth, after removing what ptychography can't know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ptynb.analysis.registration import registered_near

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Comparison:
    """A reconstructed object beside the true one, over the area compared.

    error: root of the mean squared complex difference over that of the mean squared truth.
    aligned, truth: complex (y, x), the reconstruction moved, scaled and freed of its ramp to fit the truth.
    """

    error: float
    aligned: Array
    ground_truth: Array


def compare(
    object: Array, ground_truth: Array, area: tuple[slice, slice], offset: tuple[int, int] = (0, 0)
) -> Comparison:
    """Compares a reconstructed object (y, x) with the true one inside `area` of the truth.

    offset: pixel of the truth that the object's first pixel stands for, as far as is known.
    Ptychography leaves open a shift, a complex factor and a linear phase ramp (probe and positions take up the
    opposite); they are found by minimising the error, to fractions of a pixel. The area has to lie at least a few
    pixels inside the object.
    """
    fit = registered_near(object, ground_truth, area, offset)
    return Comparison(fit.error, fit.aligned, fit.reference)
