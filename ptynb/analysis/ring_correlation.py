"""Fourier ring correlation of two images, the resolution it gives, and the spectral signal-to-noise ratio.

M. van Heel and M. Schatz, J. Struct. Biol. 151, 250 (2005): thresholds from the information in a ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ptynb.analysis.registration import register
from ptynb.exceptions import InvalidValueError

Array = NDArray[Any]
Floats = NDArray[np.float64]
PixelSize = float | tuple[float, float]
Threshold = Literal["half-bit", "one-bit", "one-seventh"]
ONE_SEVENTH = 1 / 7
"""The fixed threshold of Rosenthal and Henderson, J. Mol. Biol. 333, 721 (2003), for two halves of a measurement."""

FEWEST = 5.0
"""Independent coefficients that a ring has to have to decide on the resolution; a signal has chance gaps in fewer."""


@dataclass(frozen=True, eq=False)
class Rings:
    """The rings of a Fourier transform (y, x) in FFT order, without the zero frequency.

    frequencies: (ring,), the middle of each [1/m, or 1/pixel where no pixel size is known].
    counts: (ring,), how many coefficients it has.
    index: (y, x), the ring of each coefficient; len(counts) where it is in none.
    """

    frequencies: NDArray[np.float64]
    counts: NDArray[np.int64]
    index: NDArray[np.int64]

    @classmethod
    def of(cls, shape: tuple[int, ...], pixel_size: PixelSize | None = None) -> Rings:
        """Rings as wide as the coarser of the two frequency steps, up to the smaller of the two Nyquist frequencies.

        shape: (y, x). pixel_size: of the images, equal or (y, x) [m]. So sides and pixels may differ: a ring is round
        in 1/m, and none is empty.
        """
        pixels = _pixels(pixel_size)
        sides = [np.fft.fftfreq(side, size) for side, size in zip(shape, pixels, strict=True)]
        width = max(1 / (side * size) for side, size in zip(shape, pixels, strict=True))
        count = int(min(0.5 / size for size in pixels) / width + 1e-9)
        nearest = np.rint(np.hypot(sides[0][:, None], sides[1][None, :]) / width).astype(np.int64)
        index = np.where((nearest >= 1) & (nearest <= count), nearest - 1, count)
        counts = np.bincount(index.ravel(), minlength=count + 1)[:count]
        return cls(float(width) * np.arange(1, count + 1, dtype=np.float64), counts, index)

    def sums(self, values: Array) -> NDArray[np.float64]:
        """Sums of real `values` (…, y, x) over each ring and all leading axes, (ring,)."""
        flat = values.reshape(-1, *self.index.shape).sum(0)
        summed = np.bincount(self.index.ravel(), flat.ravel(), len(self.counts) + 1)
        return summed[: len(self.counts)].astype(np.float64)


def soft_window(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Hann's window (y, x): 1 in the middle, 0 half a pixel outside of the border, sin² in between."""
    y, x = (np.sin(np.pi * (np.arange(side) + 0.5) / side) ** 2 for side in shape)
    return y[:, None] * x[None, :]


def independent_counts(rings: Rings) -> NDArray[np.float64]:
    """How many independent Fourier coefficients each ring (ring,) has after `soft_window`: about half of all.

    A window w correlates coefficients at a distance d as ρ(d), the transform of w² over its value at 0. The mean of n
    coefficients' products then varies as that of n² / Σ |ρ(a - b)|² independent ones, over all pairs a, b in the ring.
    For Hann's window ρ is 1, 2/3, 1/6 and 0 at the distances 0, 1, 2 and more, along each axis.
    """
    weights = {0: 1.0, 1: 4 / 9, -1: 4 / 9, 2: 1 / 36, -2: 1 / 36}
    pairs = np.zeros(len(rings.counts))
    for down, weight_y in weights.items():
        for across, weight_x in weights.items():
            together = rings.index == np.roll(rings.index, (down, across), (0, 1))
            pairs += weight_y * weight_x * rings.sums(together)
    return rings.counts**2 / pairs


def crossing(frequencies: Array, values: Array, threshold: Array | float) -> float | None:
    """The frequency at which `values` (ring,) first fall below `threshold`, interpolated; None where they never do.

    Where the first ring is below it already, its frequency is returned.
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


def _pixels(pixel_size: PixelSize | None) -> tuple[float, float]:
    if pixel_size is None:
        return 1.0, 1.0
    sizes = tuple(float(size) for size in np.broadcast_to(np.asarray(pixel_size, float), 2))
    if not all(np.isfinite(size) and size > 0 for size in sizes):
        raise InvalidValueError(
            f"The pixel size is {pixel_size!r} m; it has to be positive and finite, for y and x or for both.",
            code="argument.invalid-value",
        )
    return sizes[0], sizes[1]


@dataclass(frozen=True, eq=False)
class RingCorrelation:
    """How well two images agree at each spatial frequency, ring by ring; the zero frequency is left out.

    frequencies: (ring,) [1/m, or 1/pixel where no pixel size was given].
    correlation: (ring,), 1 where the two are equal but for a factor, around 0 where they are independent.
    counts: (ring,), Fourier coefficients in a ring.
    independent: (ring,), how many of them are: fewer because of the window, and half as many for real images. The
        correlation of independent noise has the standard deviation 1 / sqrt(2 independent).
    """

    frequencies: Floats
    correlation: Floats
    counts: NDArray[np.int64]
    independent: Floats

    @property
    def half_bit(self) -> Floats:
        """The correlation at which a ring of both images together holds half a bit a coefficient (ring,)."""
        return information_threshold(0.5, self.independent)

    @property
    def one_bit(self) -> Floats:
        """The correlation at which a ring of both images together holds one bit a coefficient (ring,)."""
        return information_threshold(1.0, self.independent)

    def crossing(self, threshold: Threshold = "half-bit") -> float | None:
        """The frequency at which the correlation first falls below the threshold; None where it never does.

        The innermost rings, with fewer than 5 independent coefficients, tell too little and are passed over.
        """
        thresholds: dict[str, Floats | float] = {
            "half-bit": self.half_bit,
            "one-bit": self.one_bit,
            "one-seventh": ONE_SEVENTH,
        }
        if threshold not in thresholds:
            raise InvalidValueError(
                f"The threshold is {threshold!r}; expected 'half-bit', 'one-bit' or 'one-seventh'.",
                code="argument.invalid-value",
            )
        told = self.independent >= min(FEWEST, float(self.independent.max()))
        level = np.broadcast_to(thresholds[threshold], self.correlation.shape)
        return crossing(self.frequencies[told], self.correlation[told], level[told])

    @property
    def resolution(self) -> float:
        """The period at which the correlation falls below the half-bit threshold [m, or pixels].

        Where it never does it is the period of the last ring, two pixels: the images resolve no more, the wave might.
        X-ray microscopists often quote half of this, the half-period.
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
    """Re Σ F₁ F₂* / sqrt(Σ |F₁|² Σ |F₂|²) over rings, of two images (y, x), complex or real.

    Use two results of the halves of a scan, or of two scans of a sample; or a result and the truth.

    pixel_size: [m], equal or (y, x); None: frequencies in 1/pixel. Sides and pixels may differ in y and x.
    area, offset: in `other`, and where in it `one` begins, as in `register`.
    align: first moves `one` onto `other`, with its factor and its phase ramp taken off (`register`); False: the two lie
        on each other already.

    The mean over a Hann window is taken off and the window put on, so that neither the mean nor the borders leak into
    other rings. The real part is taken, for the phases agree after alignment: it does not favour noise.

    Raises ValueError where the shapes or the area do not fit, and where the area has fewer than 8 pixels a side.
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
    """`fourier_ring_correlation` of images (y, x) that lie on each other already."""
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
    """The Fourier transform of an image (y, x) less its weighted mean, under a window; FFT order."""
    return np.fft.fft2(window * (image - (window * image).sum() / window.sum()))


def information_threshold(bits: float, independent: Array) -> Floats:
    """The ring correlation expected where both images together hold `bits` a coefficient (ring,).

    independent: coefficients of each ring. With s = (2^bits - 1) / 2, the signal-to-noise ratio of one image, it is
    (s + (2 sqrt(s) + 1) / sqrt(n)) / (s + 1 + 2 sqrt(s) / sqrt(n)), at most 1. van Heel and Schatz (2005).
    """
    ratio = (2**bits - 1) / 2
    spread = 1 / np.sqrt(np.asarray(independent, dtype=np.float64))
    cross = 2 * np.sqrt(ratio) * spread
    return np.minimum((ratio + cross + spread) / (ratio + 1 + cross), 1.0)


def spectral_snr(correlation: RingCorrelation | Array) -> Floats:
    """The spectral signal-to-noise ratio of both halves together, 2 FRC / (1 - FRC), by ring.

    correlation: of two images with independent noise of equal strength, halves of one measurement. Where it is negative
    the ratio is 0; where it is 1, infinite. One half alone has half the ratio. M. Unser, B. L. Trus and A. C. Steven,
    Ultramicroscopy 23, 39 (1987).
    """
    values = correlation.correlation if isinstance(correlation, RingCorrelation) else correlation
    positive = np.clip(np.asarray(values, dtype=np.float64), 0.0, 1.0)
    noise = 1 - positive
    return np.divide(2 * positive, noise, out=np.full_like(positive, np.inf), where=noise > 0)
