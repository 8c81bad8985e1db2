"""Rings of equal spatial frequency in a discrete Fourier transform, and the window that comes before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.exceptions import InvalidValueError

Array = NDArray[Any]
PixelSize = float | tuple[float, float]


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
            f"The pixel size is {pixel_size!r} m; it has to be positive and finite, for y and x or for both."
        )
    return sizes[0], sizes[1]
