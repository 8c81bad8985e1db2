"""ErrorMap: the standard error of an object at each pixel, from two reconstructions of halves of a scan."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data import images
from ptynb.data.images import pictures_html
from ptynb.data.record import at

PICTURE_PIXELS = 400
"""Longest side of the pictures in a notebook [pixels]."""


@dataclass(frozen=True, eq=False)
class ErrorMap:
    """Standard error of an object at each pixel, estimated from independent reconstructions of two halves of a scan.

    It contains what differs between the halves: noise of the counts, and what the order of updates leaves undetermined.
    Errors that both halves have in common do not show: a wrong geometry, positions and a probe that both begin with, a
    model without the background or the coherence of the data, details that are not resolved, and too few epochs.
    On simulated scans of a resolved object, with the Poisson loss and L-BFGS, its median was 0.82 to 1.0 of the true
    error, and correlated with it by 0.8 to 0.9; with the amplitude loss, which has a bias where a pixel has few counts
    (24 on average), 0.40 to 0.46; with sharp edges that the dose does not resolve 0.3.

    Parameters
    ----------
    object : ndarray
        complex64 (y, x): mean of the two objects after registration; of a thick object the product of its slices.
    standard_error : ndarray
        float32 (y, x): root-mean-square complex error of `object`, locally smoothed.
    amplitude_error : ndarray
        float32 (y, x): standard error of the amplitude.
    phase_error : ndarray
        float32 (y, x): standard error of the phase [rad], for small errors.
    origin : tuple of int
        (y, x) of the first pixel in the coordinates of the scan [object pixels].
    smoothing : float
        Standard deviation of the Gaussian weights over which squared differences are averaged [object pixels].
    pixel_size : tuple of float, optional
        (y, x) of an object pixel [m]; None if the geometry is unknown.
    """

    object: NDArray[np.complex64]
    standard_error: NDArray[np.float32]
    amplitude_error: NDArray[np.float32]
    phase_error: NDArray[np.float32]
    origin: tuple[int, int] = field(metadata=at("object@origin"))
    smoothing: float = field(metadata=at("smoothing", unit="pixel"))
    pixel_size: tuple[float, float] | None = field(default=None, metadata=at("object@pixel_size"))

    @property
    def median(self) -> float:
        """Median of the standard error, relative to the root-mean-square amplitude of the object."""
        return float(np.median(self.standard_error) / np.sqrt(np.mean(np.abs(self.object) ** 2)))

    def __repr__(self) -> str:
        sides = " x ".join(str(side) for side in self.object.shape)
        phase = float(np.median(self.phase_error))
        return f"<ErrorMap: {sides} pixels, median standard error {self.median:.3g} of the amplitude, {phase:.3g} rad>"

    def _repr_html_(self) -> str:
        """Return the phase of the object beside its standard error, as pictures."""
        phase: Any = images.flat_phase(self.object)
        shown = (("Phase [rad]", phase), ("Standard error of the phase [rad]", self.phase_error))
        pictures = [images.picture(values, title, size=PICTURE_PIXELS, unit="rad") for title, values in shown]
        notes = ("" if one.limits is None else "black {:.3g}, white {:.3g}".format(*one.limits) for one in pictures)
        return pictures_html(dataclasses.replace(one, note=note) for one, note in zip(pictures, notes, strict=True))
