"""Fourier ring correlation of two images, the resolution, the spectral signal-to-noise ratio, and rings of frequencies.

M. van Heel and M. Schatz, J. Struct. Biol. 151, 250 (2005): thresholds from the information in a ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ptynb.analysis.registration import register
from ptynb.exceptions import InvalidValueError, check_choice, check_positive

Array = NDArray[Any]
Floats = NDArray[np.float64]
PixelSize = float | tuple[float, float]
Threshold = Literal["half-bit", "one-bit", "one-seventh"]
ONE_SEVENTH = 1 / 7
"""Fixed threshold of Rosenthal and Henderson, J. Mol. Biol. 333, 721 (2003), for two halves of a measurement."""

FEWEST = 5.0
"""Smallest number of independent coefficients of a ring that is used to determine the resolution."""


@dataclass(frozen=True, eq=False)
class Rings:
    """The rings of a Fourier transform (y, x) in FFT order, without the zero frequency.

    frequencies: (ring,), centre of each ring [1/m, or 1/pixel without a pixel size].
    counts: (ring,), number of coefficients.
    index: (y, x), ring of each coefficient; len(counts) if it belongs to none.
    """

    frequencies: NDArray[np.float64]
    counts: NDArray[np.int64]
    index: NDArray[np.int64]

    @classmethod
    def of(cls, shape: tuple[int, ...], pixel_size: PixelSize | None = None) -> Rings:
        """Return rings as wide as the larger frequency step, up to the smaller Nyquist frequency.

        shape: (y, x). pixel_size: of the images [m], equal or (y, x). Sides and pixels may differ: a ring is a circle
        in 1/m, and none is empty.
        """
        pixels = pixel_sizes(pixel_size)
        sides = [np.fft.fftfreq(side, size) for side, size in zip(shape, pixels, strict=True)]
        width = max(1 / (side * size) for side, size in zip(shape, pixels, strict=True))
        count = int(min(0.5 / size for size in pixels) / width + 1e-9)
        nearest = np.rint(np.hypot(sides[0][:, None], sides[1][None, :]) / width).astype(np.int64)
        index = np.where((nearest >= 1) & (nearest <= count), nearest - 1, count)
        counts = np.bincount(index.ravel(), minlength=count + 1)[:count]
        return cls(float(width) * np.arange(1, count + 1, dtype=np.float64), counts, index)

    def sums(self, values: Array) -> NDArray[np.float64]:
        """Return the sums of real `values` (…, y, x) over each ring and all leading axes, (ring,)."""
        flat = values.reshape(-1, *self.index.shape).sum(0)
        summed = np.bincount(self.index.ravel(), flat.ravel(), len(self.counts) + 1)
        return summed[: len(self.counts)].astype(np.float64)


def soft_window(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return a Hann window (y, x): 1 in the centre, 0 half a pixel outside the border."""
    y, x = (np.sin(np.pi * (np.arange(side) + 0.5) / side) ** 2 for side in shape)
    return y[:, None] * x[None, :]


def independent_counts(rings: Rings) -> NDArray[np.float64]:
    """Return the number of independent coefficients in each ring (ring,) under `soft_window`: about half of all.

    A window w correlates coefficients at a distance d by ρ(d), the normalised transform of w². The mean of products of
    n coefficients then has the variance of n² / Σ |ρ(a - b)|² independent ones, over all pairs a, b in the ring. For a
    Hann window ρ is 1, 2/3, 1/6 and 0 at the distances 0, 1, 2 and more, along each axis.
    """
    weights = {0: 1.0, 1: 4 / 9, -1: 4 / 9, 2: 1 / 36, -2: 1 / 36}
    pairs = np.zeros(len(rings.counts))
    for down, weight_y in weights.items():
        for across, weight_x in weights.items():
            together = rings.index == np.roll(rings.index, (down, across), (0, 1))
            pairs += weight_y * weight_x * rings.sums(together)
    return rings.counts**2 / pairs


def crossing(frequencies: Array, values: Array, threshold: Array | float) -> float | None:
    """Return the interpolated frequency at which `values` (ring,) first fall below `threshold`; None if they never do.

    If the first ring is below already, return its frequency.
    """
    excess = np.asarray(values) - threshold
    below = np.flatnonzero(excess < 0)
    if not below.size:
        return None
    after = int(below[0])
    if after == 0:
        return float(frequencies[0])
    share = excess[after - 1] / (excess[after - 1] - excess[after])
    return float(frequencies[after - 1] + share * (frequencies[after] - frequencies[after - 1]))


def pixel_sizes(pixel_size: PixelSize | None) -> tuple[float, float]:
    """Return the size (y, x) of pixels [m], which may be given as one number; 1 without a size."""
    if pixel_size is None:
        return 1.0, 1.0
    height, width = np.broadcast_to(np.asarray(pixel_size, np.float64), 2).tolist()
    for size in (height, width):
        check_positive(size, "pixel_size", "m")
    return height, width


@dataclass(frozen=True, eq=False)
class RingCorrelation:
    """Correlation of two images by spatial frequency, in rings; without the zero frequency.

    Parameters
    ----------
    frequencies : ndarray of float64
        Frequencies (ring,) [1/m, or 1/pixel without a pixel size].
    correlation : ndarray of float64
        Correlation (ring,): 1 for images that are equal except for a factor, around 0 for independent ones.
    counts : ndarray of int64
        Number of Fourier coefficients (ring,).
    independent : ndarray of float64
        Number of independent ones (ring,): fewer because of the window, and half as many for real images. The
        correlation of independent noise has the standard deviation 1 / sqrt(2 independent).
    """

    frequencies: Floats
    correlation: Floats
    counts: NDArray[np.int64]
    independent: Floats

    @property
    def half_bit(self) -> Floats:
        """Correlation (ring,) at which both images together contain half a bit per coefficient."""
        return information_threshold(0.5, self.independent)

    @property
    def one_bit(self) -> Floats:
        """Correlation (ring,) at which both images together contain one bit per coefficient."""
        return information_threshold(1.0, self.independent)

    def crossing(self, threshold: Threshold = "half-bit") -> float | None:
        """Return the frequency at which the correlation first falls below a threshold.

        The innermost rings, with fewer than 5 independent coefficients, are skipped.

        Parameters
        ----------
        threshold : {"half-bit", "one-bit", "one-seventh"}
            Threshold.

        Returns
        -------
        float or None
            Frequency [1/m, or 1/pixel]; None if the correlation stays above.

        Raises
        ------
        InvalidValueError
            For another threshold.
        """
        thresholds: dict[str, Floats | float] = {
            "half-bit": self.half_bit,
            "one-bit": self.one_bit,
            "one-seventh": ONE_SEVENTH,
        }
        check_choice(threshold, "threshold", [*thresholds])
        decisive = self.independent >= min(FEWEST, float(self.independent.max()))
        level = np.broadcast_to(thresholds[threshold], self.correlation.shape)
        return crossing(self.frequencies[decisive], self.correlation[decisive], level[decisive])

    @property
    def resolution(self) -> float:
        """Full period at which the correlation falls below the half-bit threshold [m, or pixels].

        If it never does, the period of the last ring, two pixels: the pixel size limits the resolution. In X-ray
        microscopy often half of this value, the half-period, is given.
        """
        frequency = self.crossing()
        return 1 / (float(self.frequencies[-1]) if frequency is None else frequency)


def fourier_ring_correlation(
    one: Array,
    other: Array,
    pixel_size: PixelSize | None = None,
    *,
    area: tuple[slice, slice] | None = None,
    offset: tuple[int, int] = (0, 0),
    align: bool = True,
) -> RingCorrelation:
    """Return the Fourier ring correlation Re Σ F₁ F₂* / sqrt(Σ |F₁|² Σ |F₂|²) of two images.

    Use results of the halves of a scan, or of two scans of a sample, or a result and the ground truth. The mean over a
    Hann window is subtracted and the window applied, so that mean and borders do not affect other rings. The real part
    is used, since the phases agree after alignment; it does not favour noise.

    Parameters
    ----------
    one : ndarray
        First image (y, x), complex or real.
    other : ndarray
        Second image (y, x).
    pixel_size : float or (float, float), optional
        Size of the pixels [m]; by default frequencies are in 1/pixel.
    area : (slice, slice), optional
        Area in `other`, as in `register`.
    offset : (int, int), default (0, 0)
        Pixel (y, x) of `other` at the first pixel of `one`, as in `register`.
    align : bool, default True
        Whether `one` is registered to `other` first, with its factor and its phase ramp.

    Returns
    -------
    RingCorrelation
        The correlation.

    Raises
    ------
    InvalidValueError
        If shapes or the area do not fit, or the area has fewer than 8 x 8 pixels (code "comparison.area-too-small").
    """
    if align:
        registered = register(one, other, area, offset)
        images = [registered.aligned, registered.reference]
    else:
        images = [np.asarray(one), np.asarray(other)]
        if images[0].shape != images[1].shape or images[0].ndim != 2:
            raise InvalidValueError(
                f"The images have shapes {images[0].shape} and {images[1].shape}; expected two equal ones (y, x). "
                "Cut them to the same area, or leave align=True.",
                code="array.shape-mismatch",
            )
        images = images if area is None else [image[area] for image in images]
    both_real = not (np.iscomplexobj(one) or np.iscomplexobj(other))
    if both_real:
        images = [image.real for image in images]
    return ring_correlation(images[0], images[1], pixel_size)


def ring_correlation(one: Array, other: Array, pixel_size: PixelSize | None = None) -> RingCorrelation:
    """Return `fourier_ring_correlation` of images (y, x) that are aligned already."""
    if min(one.shape) < 8:
        raise InvalidValueError(
            f"The area has {one.shape[0]} x {one.shape[1]} pixels; expected at least 8 x 8 for rings.",
            code="comparison.area-too-small",
        )
    window = soft_window(one.shape)
    first, second = (windowed_transform(image, window) for image in (one, other))
    rings = Rings.of(one.shape, pixel_size)
    together = rings.sums((first * second.conj()).real)
    powers = rings.sums(np.abs(first) ** 2) * rings.sums(np.abs(second) ** 2)
    correlation = np.divide(together, np.sqrt(powers), out=np.zeros_like(together), where=powers > 0)
    friedel = 1.0 if np.iscomplexobj(one) or np.iscomplexobj(other) else 0.5
    independent = friedel * independent_counts(rings)
    return RingCorrelation(rings.frequencies, correlation, rings.counts, independent)


def windowed_transform(image: Array, window: Array) -> Array:
    """Return the Fourier transform, in FFT order, of an image (y, x) minus its weighted mean, times a window."""
    return np.fft.fft2(window * (image - (window * image).sum() / window.sum()))


def information_threshold(bits: float, independent: Array) -> Floats:
    """Return the expected ring correlation (ring,) if both images together contain `bits` per coefficient.

    independent: (ring,), coefficients. With s = (2^bits - 1) / 2, the signal-to-noise ratio of one image, it is
    (s + (2 sqrt(s) + 1) / sqrt(n)) / (s + 1 + 2 sqrt(s) / sqrt(n)), at most 1. van Heel and Schatz (2005).
    """
    ratio = (2**bits - 1) / 2
    spread = 1 / np.sqrt(np.asarray(independent, dtype=np.float64))
    cross = 2 * np.sqrt(ratio) * spread
    return np.minimum((ratio + cross + spread) / (ratio + 1 + cross), 1.0)


def spectral_snr(correlation: RingCorrelation | Array) -> Floats:
    """Return the spectral signal-to-noise ratio of both halves together, 2 FRC / (1 - FRC).

    One half alone has half the ratio. M. Unser, B. L. Trus and A. C. Steven, Ultramicroscopy 23, 39 (1987).

    Parameters
    ----------
    correlation : RingCorrelation or ndarray
        Correlation (ring,) of two images with independent noise of equal strength.

    Returns
    -------
    ndarray of float64
        Ratio (ring,): 0 for negative correlations, infinite for 1.
    """
    values = correlation.correlation if isinstance(correlation, RingCorrelation) else correlation
    positive = np.clip(np.asarray(values, dtype=np.float64), 0.0, 1.0)
    noise = 1 - positive
    return np.divide(2 * positive, noise, out=np.full_like(positive, np.inf), where=noise > 0)
