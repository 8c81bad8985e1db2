"""A map of an object's standard error from the difference of two independent reconstructions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from ptynb.analysis.result_comparison import Together
from ptynb.data.engine_records import Result
from ptynb.data.standard_error import ErrorMap as ErrorMap
from ptynb.exceptions import InvalidValueError

SMOOTHING = 4.0
"""Averages over about 4π 4² = 200 pixels: the estimate then has a statistical error of some per cent."""


def error_map(
    first: Result, second: Result, *, smoothing: float = SMOOTHING, area: tuple[slice, slice] | None = None
) -> ErrorMap:
    """Estimate the standard error of an object at each pixel from two results of halves of its scan.

    The second object is registered to the first by a shift of fractions of a pixel, a complex factor and a phase ramp,
    which patterns do not determine. For independent errors the expectation of the squared difference of A and B is the
    sum of both variances, four times the variance of the mean (A + B) / 2. So the standard error of the mean is the
    root of the local average of a quarter of the squared difference. The part of the difference along the mean is the
    error of the amplitude, that across it the error of the phase.

    Errors that both halves have in common do not show: see `ErrorMap`. `ptynb.error_map` makes the two results.

    Parameters
    ----------
    first : Result
        Result of one half, see `split_scan`.
    second : Result
        Result of the other half.
    smoothing : float
        Standard deviation of the Gaussian weights of the local average [object pixels]; at least 1.
    area : (slice, slice), optional
        Part (y, x) that is mapped, in the coordinates of the scan [object pixels], as `ErrorMap.origin`; by default the
        common illuminated area. All of 8192 x 8192 pixels takes tens of gigabytes.

    Returns
    -------
    ErrorMap
        The mean of both objects and its standard error over the common illuminated area, or this part of it.

    Raises
    ------
    InvalidValueError
        If `smoothing` is too small ("argument.invalid-value"), the results do not show the same place
        ("comparison.not-comparable"), or cannot be registered ("comparison.registration-failed").
    """
    if not smoothing >= 1:
        raise InvalidValueError(
            f"smoothing is {smoothing!r} pixels; expected at least 1, since a single difference says nothing about its "
            "expectation.",
            code="argument.invalid-value",
        )
    together = Together({"first": first, "second": second}, within=area)
    registered = together.registered("second", "first")
    one, other = registered.reference, registered.aligned
    mean = (one + other) / 2
    # Half the difference, turned so that its real part lies along the mean.
    half = (one - other) / 2 * np.exp(-1j * np.angle(mean))

    def local(squares: NDArray[np.float64]) -> NDArray[np.float64]:
        return gaussian_filter(squares, smoothing, mode="reflect")

    along, across = local(half.real**2), local(half.imag**2)
    power = np.maximum(local(np.abs(mean) ** 2), np.finfo(np.float32).tiny)
    rows, columns = together.area
    return ErrorMap(
        object=mean.astype(np.complex64),
        standard_error=np.sqrt(along + across).astype(np.float32),
        amplitude_error=np.sqrt(along).astype(np.float32),
        phase_error=np.sqrt(across / power).astype(np.float32),
        origin=(rows.start, columns.start),
        smoothing=float(smoothing),
        pixel_size=together.pixel_size,
    )
