"""How good a reconstruction is: against a known truth, after removing what ptychography can't know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Comparison:
    """A reconstructed object beside the true one, over the area compared.

    error: root of the mean squared complex difference over that of the mean squared truth.
    aligned, truth: complex (y, x), the reconstruction moved, scaled and freed of its ramp to fit the truth.
    """

    error: float
    aligned: Array
    truth: Array


def compare(object: Array, truth: Array, area: tuple[slice, slice], offset: tuple[int, int] = (0, 0)) -> Comparison:
    """Compares a reconstructed object (y, x) with the true one inside `area` of the truth.

    offset: pixel of the truth that the object's first pixel stands for, as far as is known.
    Ptychography leaves open a shift, a complex factor and a linear phase ramp (probe and positions take up the
    opposite); they are found by minimising the error, to fractions of a pixel. The area has to lie at least a few
    pixels inside the object.
    """
    rows, columns = (slice(part.start - shift, part.stop - shift) for part, shift in zip(area, offset, strict=True))
    for part, side in zip((*area, rows, columns), (*truth.shape, *object.shape), strict=True):
        if not 0 <= part.start < part.stop <= side:
            raise ValueError(
                f"The area {area} of the truth is empty or does not lie inside both the truth of shape {truth.shape} "
                f"and the object of shape {object.shape} that begins at {offset}."
            )
    reference, candidate = truth[area], object[rows, columns]
    spectrum = np.fft.fft2(object)
    frequencies = [np.fft.fftfreq(side) for side in object.shape]
    y, x = (np.arange(side) / side - 0.5 for side in reference.shape)

    def fitted(parameters: Array) -> Array:
        shift_y, shift_x, ramp_y, ramp_x = parameters
        move = np.exp(-2j * np.pi * (frequencies[0][:, None] * shift_y + frequencies[1][None, :] * shift_x))
        moved = np.fft.ifft2(spectrum * move)[rows, columns]
        ramped: Array = moved * np.exp(1j * (ramp_y * y[:, None] + ramp_x * x[None, :]))
        return ramped * (np.vdot(ramped, reference) / np.vdot(ramped, ramped))

    def error(parameters: Array) -> float:
        return float(np.sqrt((np.abs(fitted(parameters) - reference) ** 2).mean() / (np.abs(reference) ** 2).mean()))

    start = np.array([0.0, 0.0, *_ramp_between(candidate, reference)])
    steps = np.vstack([start, start + np.diag([0.2, 0.2, 0.2, 0.2])])
    options = {"initial_simplex": steps, "xatol": 1e-4, "fatol": 1e-6, "maxfev": 1000}
    best = minimize(error, start, method="Nelder-Mead", options=options)
    return Comparison(float(best.fun), fitted(best.x), reference)


def _ramp_between(candidate: Array, reference: Array) -> tuple[float, float]:
    """Phase [rad] that a linear ramp gains over the area, by the mean phase step of the ratio of the two."""
    ratio = reference * candidate.conj()
    steps = (np.vdot(ratio[:-1], ratio[1:]), np.vdot(ratio[:, :-1], ratio[:, 1:]))
    return float(np.angle(steps[0]) * ratio.shape[0]), float(np.angle(steps[1]) * ratio.shape[1])
