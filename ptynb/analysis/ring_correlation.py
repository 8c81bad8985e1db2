"""Fourier ring correlation of two images, the resolution it gives, and the spectral signal-to-noise ratio.

M. van Heel and M. Schatz, J. Struct. Biol. 151, 250 (2005): thresholds from the information in a ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ptynb.analysis.fourier_rings import PixelSize, Rings, crossing, independent_counts, soft_window
from ptynb.analysis.registration import register
from ptynb.exceptions import InvalidValueError

Array = NDArray[Any]
Floats = NDArray[np.float64]
Threshold = Literal["half-bit", "one-bit", "one-seventh"]
ONE_SEVENTH = 1 / 7
"""The fixed threshold of Rosenthal and Henderson, J. Mol. Biol. 333, 721 (2003), for two halves of a measurement."""

FEWEST = 5.0
"""Independent coefficients that a ring has to have to decide on the resolution; a signal has chance gaps in fewer."""


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
                f"The threshold is {threshold!r}; expected 'half-bit', 'one-bit' or 'one-seventh'. Choose one of these."
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
                "Cut them to the same area, or leave align=True."
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
            f"The area has {one.shape[0]} x {one.shape[1]} pixels; expected at least 8 x 8 for rings."
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
