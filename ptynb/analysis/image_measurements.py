"""Measurements in an image: the profile along a line, statistics of a region, the amplitude spectrum.

The tools of the viewers measure the same from the grey levels of a picture; these functions do so from the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import map_coordinates

from ptynb.analysis.ring_correlation import PixelSize, pixel_sizes, soft_window
from ptynb.exceptions import InvalidValueError, check_choice

Array = NDArray[Any]
Floats = NDArray[np.float64]
Shape = Literal["rectangle", "ellipse"]


@dataclass(frozen=True, eq=False)
class LineProfile:
    """Values along a straight line.

    Parameters
    ----------
    distances : ndarray of float64
        Distances (sample,) from the start of the line [m, or pixels without a pixel size].
    values : ndarray
        Values (sample,); NaN outside of the image.
    """

    distances: Floats
    values: Array

    @property
    def length(self) -> float:
        """Length of the line [m, or pixels]."""
        return float(self.distances[-1])


@dataclass(frozen=True)
class RegionStatistics:
    """Statistics of the pixels whose centres lie in a region.

    Parameters
    ----------
    mean : float
        Mean of the values.
    standard_deviation : float
        Root-mean-square deviation from the mean.
    minimum : float
        Smallest value.
    maximum : float
        Largest value.
    pixels : int
        Number of pixels.
    area : float
        Area of these pixels [m², or pixels²].
    """

    mean: float
    standard_deviation: float
    minimum: float
    maximum: float
    pixels: int
    area: float


@dataclass(frozen=True, eq=False)
class AmplitudeSpectrum:
    """Amplitude of the Fourier transform of an image.

    Parameters
    ----------
    amplitude : ndarray of float64
        Amplitude (y, x), with the zero frequency at index n // 2.
    y : ndarray of float64
        Frequencies (y,) [1/m, or 1/pixel without a pixel size].
    x : ndarray of float64
        Frequencies (x,).
    """

    amplitude: Floats
    y: Floats
    x: Floats


def line_profile(
    image: ArrayLike,
    start: tuple[float, float],
    stop: tuple[float, float],
    *,
    width: int = 1,
    pixel_size: PixelSize | None = None,
) -> LineProfile:
    """Return the values of an image along a line, by bilinear interpolation, one sample a pixel or a little closer.

    Parameters
    ----------
    image : array_like
        Image (y, x), real or complex.
    start, stop : tuple of float
        Ends of the line (y, x) [pixels], both included; the centre of the first pixel is (0, 0).
    width : int, default 1
        Number of parallel lines, one pixel apart, over which values are averaged.
    pixel_size : float or tuple of float, optional
        Size of a pixel [m], equal or (y, x); by default distances are in pixels.

    Returns
    -------
    LineProfile
        Distances and values.

    Raises
    ------
    InvalidValueError
        If the image has another number of axes (code "array.shape-mismatch"), or the line has no length, the width or
        the pixel size is not positive (code "argument.invalid-value").

    Examples
    --------
    >>> profile = pt.analysis.line_profile(np.angle(result.projection), (10, 20), (10, 90), pixel_size=10e-9)
    >>> profile.length
    7e-07
    """
    values = _image(image)
    ends = _ends(start, stop)
    if not np.ptp(ends, axis=0).any():
        raise InvalidValueError(
            f"start and stop are both {tuple(start)}; expected the two ends of a line.", code="argument.invalid-value"
        )
    if int(width) != width or width < 1:
        raise InvalidValueError(
            f"width is {width!r}; expected a whole number of pixels.", code="argument.invalid-value"
        )
    step = ends[1] - ends[0]
    pixels = float(np.hypot(*step))
    parts = np.linspace(0.0, 1.0, int(np.ceil(pixels)) + 1)
    across = np.array([-step[1], step[0]]) / pixels
    offsets = np.arange(width) - (width - 1) / 2
    points = ends[0] + parts[:, None, None] * step + offsets[:, None] * across
    sampled = map_coordinates(values, np.moveaxis(points, -1, 0), order=1, cval=np.nan)
    length = float(np.hypot(*(step * pixel_sizes(pixel_size))))
    return LineProfile(parts * length, sampled.mean(1))


def region_statistics(
    image: ArrayLike,
    start: tuple[float, float],
    stop: tuple[float, float],
    *,
    shape: Shape = "rectangle",
    pixel_size: PixelSize | None = None,
) -> RegionStatistics:
    """Return statistics of the pixels in a rectangle, or in the ellipse that fills it.

    Parameters
    ----------
    image : array_like
        Image (y, x) of real values.
    start, stop : tuple of float
        Opposite corners of the rectangle (y, x) [pixels], both included; the centre of the first pixel is (0, 0). A
        pixel belongs to the region if its centre does.
    shape : {"rectangle", "ellipse"}
        The rectangle, or the ellipse that touches its four sides.
    pixel_size : float or tuple of float, optional
        Size of a pixel [m], equal or (y, x); by default the area is in pixels².

    Returns
    -------
    RegionStatistics
        Mean, standard deviation, extremes and area.

    Raises
    ------
    InvalidValueError
        If the image is not real with two axes (code "array.shape-mismatch"), there is no such shape, or no pixel of the
        image has its centre in the region (code "argument.invalid-value").

    Examples
    --------
    >>> pt.analysis.region_statistics(np.angle(result.projection), (10, 20), (30, 40)).standard_deviation
    0.0123
    """
    values = _image(image)
    if np.iscomplexobj(values):
        raise InvalidValueError(
            "The image is complex; expected real values, such as np.abs(image) or np.angle(image).",
            code="array.shape-mismatch",
        )
    check_choice(shape, "shape", get_args(Shape))
    ends = np.sort(_ends(start, stop), axis=0)
    y, x = (np.arange(side) for side in values.shape)
    if shape == "rectangle":
        inside_y, inside_x = ((at >= low) & (at <= high) for at, low, high in zip((y, x), *ends, strict=True))
        inside = inside_y[:, None] & inside_x[None, :]
    else:
        middle, half = ends.mean(0), np.maximum(np.ptp(ends, axis=0) / 2, 1e-9)
        inside = ((y - middle[0]) / half[0])[:, None] ** 2 + ((x - middle[1]) / half[1])[None, :] ** 2 <= 1
    chosen = values[inside].astype(np.float64)
    if not chosen.size:
        raise InvalidValueError(
            f"No pixel of the image, {values.shape}, has its centre between {tuple(start)} and {tuple(stop)}; expected "
            "corners around at least one.",
            code="argument.invalid-value",
        )
    area = chosen.size * float(np.prod(pixel_sizes(pixel_size)))
    extremes = float(chosen.min()), float(chosen.max())
    return RegionStatistics(float(chosen.mean()), float(chosen.std()), *extremes, chosen.size, area)


def amplitude_spectrum(image: ArrayLike, pixel_size: PixelSize | None = None) -> AmplitudeSpectrum:
    """Return the amplitude of the Fourier transform of an image, less its mean, under a Hann window.

    The window keeps the borders of the image, which do not continue each other, from making a cross. A period that is
    resolved has its peak within the ring of this frequency, 1 / resolution.

    Parameters
    ----------
    image : array_like
        Image (y, x), real or complex.
    pixel_size : float or tuple of float, optional
        Size of a pixel [m], equal or (y, x); by default frequencies are in 1/pixel.

    Returns
    -------
    AmplitudeSpectrum
        Amplitude, unitary as all transforms of ptynb, and frequencies.

    Raises
    ------
    InvalidValueError
        If the image has another number of axes (code "array.shape-mismatch"), or the pixel size is not positive (code
        "argument.invalid-value").
    """
    values = _image(image)
    pixels = pixel_sizes(pixel_size)
    transform = np.fft.fft2((values - values.mean()) * soft_window(values.shape), norm="ortho")
    y, x = (np.fft.fftshift(np.fft.fftfreq(side, size)) for side, size in zip(values.shape, pixels, strict=True))
    return AmplitudeSpectrum(np.abs(np.fft.fftshift(transform)), y, x)


def _image(image: ArrayLike) -> Array:
    values = np.asarray(image)
    if values.ndim != 2 or not values.size:
        raise InvalidValueError(
            f"The image has shape {values.shape}; expected (y, x), for example result.projection.",
            code="array.shape-mismatch",
        )
    return values if values.dtype.kind in "fc" else values.astype(np.float64)


def _ends(start: tuple[float, float], stop: tuple[float, float]) -> Floats:
    ends = [np.asarray(end, dtype=np.float64) for end in (start, stop)]
    if any(end.shape != (2,) or not np.isfinite(end).all() for end in ends):
        raise InvalidValueError(
            f"start is {start!r} and stop {stop!r}; expected two finite numbers each, (y, x) in pixels.",
            code="argument.invalid-value",
        )
    return np.stack(ends)
