"""The weak-phase model of a scan: aberrations from the images of bright-field pixels, and pictures corrected for them.

Of an object 1 + iφ under a probe with the pupil A exp(-iχ), the image of the detector pixel k over the positions r,
relative to its mean, has the Fourier transform over r (spatial frequency q)

    G(k, q) = Φ(q) Γ(k, q),    Γ(k, q) = i [p*(k) p(k - q) - p(k) p*(k + q)],    p = A exp(-iχ)

(Rodenburg, McCallum and Nellist, Ultramicroscopy 48, 304 (1993)). For a quadratic χ, with s(k) = ∇χ(k) / 2π,

    Γ(k, q) = i exp(2πi q·s(k)) [A(k - q) exp(-iχ(q)) - A(k + q) exp(iχ(q))]

so that where all three discs overlap the images are one, of contrast 2 Φ sin χ(q), shifted by the gradient of the
aberration function: f(r + s(k)) (parallax). Where one disc overlaps, the image has the same shift and another phase.
C10, C12 and the rotation of the scan are those with the largest

    F = Σ_q Σ_regions |Σ_k G exp(-2πi q·s)|² / (number of pixels)

with a sum for each of the three regions of overlap: the shifts of least squares. The phases between regions are free,
as a thick or strong object changes them. The single-side-band picture is Φ = Σ_k Γ* G / Σ_k |Γ|².

A rotation by another half turn with the opposite aberrations and the opposite phase fits equally well.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.optimize import minimize

Array = NDArray[np.float64]
SEARCHED, REFINED = 150, 1500
"""Number of spatial frequencies of the search, and of its refinement: those with the largest power."""
COARSE = 60
"""Approximate number of detector pixels of the search."""
TURNS = 10
"""Number of rotations that are tried in half a turn if none is known."""
BEST = 3
"""Number of local maxima of the search that are refined."""
LARGEST = 0.25
"""Largest shift of an image in the search, in units of the shorter side of the scan."""
CERTAIN = 6.0
"""Smallest excess of F over that of noise that is taken for a fit, times the root of the number of frequencies.

Noise alone gave up to 3.7 in 72 scans of 10 x 10 to 32 x 32 positions.
"""
AS_GOOD = 0.9
"""Smallest F of a fit with less astigmatism than defocus, relative to a mirrored one with more, that is preferred."""
TAPER = 0.1
"""Part of each side over which images fall to their mean before they are transformed."""
LEAST_POWER = 0.05
"""Smallest power of a spatial frequency that is used above the median, relative to the largest.

Others have the tails of strong ones beside them, of a crystal, with the shifts of these: of 36 x 36 positions on MoS2
they made a defocus 2% smaller.
"""
WIENER = 0.02
"""Regularisation of the single-side-band picture, in units of the largest Σ_k |Γ|²."""
TOGETHER = 2**23
"""Largest number of complex numbers in memory at once."""


@dataclass(frozen=True)
class WeakPhaseFit:
    """Quadratic aberrations [m² of s = M k, that is wavelength times C_nm] and the rotation of the scan.

    c10, c12a, c12b : round part, and the parts of x² - y² and 2xy.
    angle, transposed: the correction of the positions, as `ScanRotation`.
    gain : F relative to that of noise.
    """

    c10: float
    c12a: float
    c12b: float
    angle: float
    transposed: bool
    gain: float

    @property
    def matrix(self) -> Array:
        """Matrix (yx, yx) of the shift s (y, x) for a spatial frequency k (y, x) of the detector."""
        return np.array([[self.c10 - self.c12a, self.c12b], [self.c12b, self.c10 + self.c12a]])

    @property
    def opposite(self) -> WeakPhaseFit:
        """The fit turned by half a turn, with aberrations of the other sign, which explains as much."""
        angle = self.angle - math.copysign(math.pi, self.angle)
        return replace(self, c10=-self.c10, c12a=-self.c12a, c12b=-self.c12b, angle=angle)

    @property
    def rounder(self) -> WeakPhaseFit:
        """The fit, or the one with the same shifts, y and x exchanged or not, and less astigmatism than defocus.

        Shifts alone do not tell a mirrored scan with an astigmatism from another one with a defocus.
        """
        if math.hypot(self.c12a, self.c12b) <= abs(self.c10):
            return self
        shifts = np.linalg.inv(self.turn) @ self.matrix
        (a, b), (c, d) = shifts if self.transposed else shifts[::-1]
        angle = math.atan((c - b) / (a + d)) if a + d else math.pi / 2
        matrix = turn_matrix(angle, False) @ np.array([[a, b], [c, d]])
        c10, c12a = (matrix[1, 1] + matrix[0, 0]) / 2, (matrix[1, 1] - matrix[0, 0]) / 2
        return WeakPhaseFit(float(c10), float(c12a), float(matrix[0, 1]), angle, not self.transposed, self.gain)

    @property
    def turn(self) -> Array:
        """Matrix (yx, yx) of the correction of positions, which also takes spatial frequencies to the detector's."""
        return turn_matrix(self.angle, self.transposed)


def turn_matrix(angle: float, transposed: bool) -> Array:
    """Return the matrix (yx, yx) that corrects positions; see `ScanRotation`."""
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    return turn[:, ::-1] if transposed else turn


class BrightFieldImages:
    """Images of bright-field pixels over the positions, relative to their means: their Fourier transforms.

    images: (y, x, pixel), 0 outside the scan. step: pixel size (y, x) of the images [m]. pixels: spatial frequencies
    (pixel, yx) of the detector pixels from the centre of the disc [1/m]. radius: of the disc [1/m].
    """

    def __init__(self, images: NDArray[np.float32], step: tuple[float, float], pixels: Array, radius: float) -> None:
        self.images, self.step, self.pixels, self.radius = images, step, pixels, radius
        self.shape = images.shape[:2]
        y, x = fft.fftfreq(self.shape[0], step[0]), fft.rfftfreq(self.shape[1], step[1])
        self.frequencies = np.stack(np.meshgrid(y, x, indexing="ij"), -1).reshape(-1, 2)

    def spectra(self, *, tapered: bool = False) -> Iterator[tuple[slice, NDArray[np.complex64]]]:
        """Yield Fourier transforms (frequency, pixel) of some of the images after another."""
        edges = [_taper(side) for side in self.shape]
        window = (edges[0][:, None] * edges[1])[:, :, None].astype(np.float32)
        some = max(1, TOGETHER // max(1, len(self.frequencies)))
        for first in range(0, len(self.pixels), some):
            part = slice(first, first + some)
            images = self.images[:, :, part] * window if tapered else self.images[:, :, part]
            spectrum = fft.rfft2(images, axes=(0, 1), norm="ortho", workers=2)
            yield part, spectrum.reshape(len(self.frequencies), -1).astype(np.complex64, copy=False)

    def fit(self, orientation: tuple[float, bool] | None) -> WeakPhaseFit | None:
        """Find aberrations and rotation; None if the model explains no more than noise does.

        orientation: angle and transposition of the positions to start from; by default all are tried.
        """
        size = np.hypot(*self.frequencies.T)
        low = 1.5 / min(side * one for side, one in zip(self.shape, self.step, strict=True))
        # Of half a plane each frequency once; those that no pair of discs shares have no signal.
        usable = (size > low) & (size < 2 * self.radius)
        usable &= (self.frequencies[:, 1] > 0) | (self.frequencies[:, 0] > 0)
        chosen = np.flatnonzero(usable)
        if not len(chosen):
            return None
        values = np.concatenate([spectrum[chosen] for _, spectrum in self.spectra(tapered=True)], axis=1)
        signals = _Signals(values, self.frequencies[chosen], self.pixels, self.radius)
        above = signals.power - np.median(signals.power)  # of noise, if there is no more
        order = np.argsort(above)[::-1]
        order = order[: np.count_nonzero(above > LEAST_POWER * above[order[0]])]
        coarse = signals.part(order[:SEARCHED], max(1, len(self.pixels) // COARSE))
        starts = _local_maxima(coarse, self._defoci(coarse), orientation)
        best = max((_climbed(coarse, start) for start in starts), key=lambda fit: fit.gain)
        fine = signals.part(np.sort(order[:REFINED]), 1)
        found = _refined(fine, best)
        if orientation is None and (other := _refined(fine, found.rounder)).gain > AS_GOOD * found.gain:
            found = other
        return found if found.gain > 1 + CERTAIN / math.sqrt(len(fine.frequencies)) else None

    def _defoci(self, signals: _Signals) -> Array:
        """Return values of λ C10 [m²] up to the largest shift, by steps of which no maximum is missed.

        A step shifts the image of the edge by less than half a period of most frequencies.
        """
        period = 1 / float(np.quantile(np.hypot(*signals.frequencies.T), 0.8))
        most = LARGEST * min(side * one for side, one in zip(self.shape, self.step, strict=True))
        count = max(2, math.ceil(most / (0.4 * period)))
        return most / self.radius * np.arange(-count, count + 1) / count

    def pictures(self, fit: WeakPhaseFit) -> tuple[Array, Array]:
        """Return the mean (y, x) of the aligned images, relative, and the single-side-band phase [rad]."""
        aligned = np.zeros(len(self.frequencies), complex)
        numerator, weight = np.zeros(len(self.frequencies), complex), np.zeros(len(self.frequencies))
        for part, spectra in self.spectra():
            some = max(1, TOGETHER // max(1, spectra.shape[1]))
            for first in range(0, len(self.frequencies), some):
                rows = slice(first, first + some)
                signals = _Signals(spectra[rows], self.frequencies[rows], self.pixels[part], self.radius)
                shifted, both, weights = signals.sums(fit)
                aligned[rows] += shifted
                numerator[rows] += both
                weight[rows] += weights
        phase = numerator / (weight + WIENER * max(float(weight.max()), 1e-300))
        # The mean of the phase has no signal, and both edges of the last column of an even side are the same frequency.
        phase[0] = 0
        return self._back(aligned / len(self.pixels)), self._back(phase)

    def _back(self, spectrum: NDArray[Any]) -> Array:
        shape = self.shape[0], self.shape[1] // 2 + 1
        return fft.irfft2(spectrum.reshape(shape), s=self.shape, norm="ortho", workers=2)


@dataclass(frozen=True, eq=False)
class _Signals:
    """G (frequency, pixel) at frequencies (frequency, yx) of the scan and pixels (pixel, yx) of the detector."""

    values: NDArray[np.complex64]
    frequencies: Array
    pixels: Array
    radius: float

    def part(self, frequencies: NDArray[np.intp], every: int) -> _Signals:
        """Return the signals at some frequencies, of one in so many pixels."""
        return _Signals(
            self.values[frequencies, ::every], self.frequencies[frequencies], self.pixels[::every], self.radius
        )

    def _straightened(
        self, fit: WeakPhaseFit
    ) -> tuple[NDArray[np.complex64], NDArray[np.bool_], NDArray[np.bool_], Array]:
        """Return G exp(-2πi q·s), A(k - q) and A(k + q) (frequency, pixel), and χ(q) (frequency,)."""
        turned = self.frequencies @ fit.turn.T
        bent = turned @ fit.matrix
        # In single precision, whose sines take a tenth of the time of a complex exponential.
        phase = (bent @ self.pixels.T).astype(np.float32)
        phase -= np.rint(phase)
        phase *= np.float32(-2 * np.pi)
        straight = np.empty(phase.shape, np.complex64)
        straight.real, straight.imag = np.cos(phase), np.sin(phase)
        straight *= self.values
        product = (2 * turned @ self.pixels.T).astype(np.float32)
        room = (self.radius**2 - (turned**2).sum(1)[:, None] - (self.pixels**2).sum(1)).astype(np.float32)
        return straight, room > -product, room > product, np.pi * (bent * turned).sum(1)

    def sums(self, fit: WeakPhaseFit) -> tuple[NDArray[Any], NDArray[Any], Array]:
        """Return Σ_k G exp(-2πi q·s), Σ_k Γ* G and Σ_k |Γ|² (frequency,)."""
        straight, minus, plus, chi = self._straightened(fit)
        first, last = (straight * minus).sum(1), (straight * plus).sum(1)
        # |a e^{-iχ} - b e^{iχ}|² = a + b - 2 a b cos 2χ for a, b = 0, 1
        weight = minus.sum(1) + plus.sum(1) - 2 * (minus & plus).sum(1) * np.cos(2 * chi)
        return straight.sum(1), -1j * (first * np.exp(1j * chi) - last * np.exp(-1j * chi)), weight

    def gain(self, fit: WeakPhaseFit) -> float:
        """Return F relative to that of noise."""
        straight, minus, plus, _ = self._straightened(fit)
        both = minus & plus
        explained = expected = 0.0
        power = self.power
        for region in (minus & ~both, plus & ~both, both):
            pixels = region.sum(1)
            summed = (straight * region).sum(1)
            explained += float(((summed.real**2 + summed.imag**2) / np.maximum(pixels, 1)).sum())
            expected += float(power[pixels > 0].sum())
        return explained / max(expected, 1e-300)

    @functools.cached_property
    def power(self) -> Array:
        """Mean of |G|² over the pixels (frequency,)."""
        return (np.abs(self.values) ** 2).mean(1)


def _local_maxima(signals: _Signals, defoci: Array, orientation: tuple[float, bool] | None) -> list[WeakPhaseFit]:
    """Return the best local maxima over the defocus, of all orientations if none is known."""
    turns = [math.pi * (number / TURNS - 0.5) for number in range(TURNS)]
    tried = [orientation] if orientation is not None else list(itertools.product(turns, (False, True)))
    found = []
    for angle, transposed in tried:
        fits = [WeakPhaseFit(float(c10), 0.0, 0.0, angle, transposed, 0.0) for c10 in defoci]
        gains = np.array([signals.gain(fit) for fit in fits])
        around = np.pad(gains, 1, constant_values=-np.inf)
        tops = np.flatnonzero((gains >= around[:-2]) & (gains >= around[2:]))
        found += [(gains[top], fits[top]) for top in tops]
    return [fit for _, fit in sorted(found, key=lambda pair: -pair[0])[:BEST]]


def _scales(signals: _Signals) -> Array:
    """Return changes of C10, C12a, C12b [m²] and of the rotation [rad] that matter about as much as each other."""
    scale = 0.5 / (float(np.median(np.hypot(*signals.frequencies.T))) * signals.radius) / (2 * math.pi)
    return np.array([scale, scale, scale, math.radians(2)])


def _moved(fit: WeakPhaseFit, change: Array) -> WeakPhaseFit:
    c10, c12a, c12b, angle = (np.array([fit.c10, fit.c12a, fit.c12b, fit.angle]) + change).tolist()
    return WeakPhaseFit(c10, c12a, c12b, angle, fit.transposed, 0.0)


def _climbed(signals: _Signals, start: WeakPhaseFit) -> WeakPhaseFit:
    """Return a fit with a larger gain near `start`, from few evaluations."""
    scales = _scales(signals)
    simplex = np.concatenate([np.zeros((1, 4)), np.eye(4)])
    options = {"initial_simplex": simplex, "xatol": 0.05, "fatol": 1e-3, "maxfev": 100}
    best = minimize(
        lambda values: -signals.gain(_moved(start, values * scales)), simplex[0], method="Nelder-Mead", options=options
    )
    return replace(_moved(start, best.x * scales), gain=-float(best.fun))


def _refined(signals: _Signals, start: WeakPhaseFit) -> WeakPhaseFit:
    """Return the fit with the largest gain near `start`, by Newton's method with a paraboloid through 15 points."""
    scales, step = _scales(signals), 0.5
    fit = replace(start, gain=signals.gain(start))
    for _ in range(4):
        sides = np.array(
            [[signals.gain(_moved(fit, sign * step * scales * one)) for one in np.eye(4)] for sign in (1, -1)]
        )
        slope = (sides[0] - sides[1]) / (2 * step)
        bend = np.diag((sides[0] + sides[1] - 2 * fit.gain) / step**2)
        for i, j in itertools.combinations(range(4), 2):
            both = signals.gain(_moved(fit, step * scales * (np.eye(4)[i] + np.eye(4)[j])))
            bend[i, j] = bend[j, i] = (both - sides[0][i] - sides[0][j] + fit.gain) / step**2
        values, vectors = np.linalg.eigh(bend)
        move = vectors @ ((vectors.T @ slope) / np.maximum(np.abs(values), 1e-9))
        move *= min(1.0, 2 / max(float(np.abs(move).max()), 1e-300))
        moved = _moved(fit, move * scales)
        gain = signals.gain(moved)
        if gain <= fit.gain:
            break
        fit = replace(moved, gain=gain)
        if np.abs(move).max() < 0.05:
            break
    return fit


def _taper(side: int) -> Array:
    """Return a window (side,) of 1 that falls to 0 at both ends as a cosine."""
    distance = np.arange(side) + 0.5
    return np.sin(np.pi / 2 * np.clip(np.minimum(distance, side - distance) / (TAPER * side), 0, 1)) ** 2


def integrated(gradient: Array, step: tuple[float, float]) -> Array:
    """Return the field (y, x) of mean 0 whose gradient (y, x, yx) is closest to this one, of a mirrored continuation.

    step: pixel size (y, x), in the unit of which the gradient is given.
    """
    height, width = gradient.shape[:2]
    parts = []
    for axis in (0, 1):
        one = gradient[..., axis]
        for along in (0, 1):
            one = np.concatenate([one, (-1 if along == axis else 1) * np.flip(one, along)], along)
        parts.append(fft.rfft2(one, workers=2))
    y = fft.fftfreq(2 * height, step[0])[:, None]
    x = fft.rfftfreq(2 * width, step[1])[None, :]
    # A derivative has no value at the Nyquist frequency of an even side.
    y[height] = 0
    x[:, width] = 0
    squared = y**2 + x**2
    squared[squared == 0] = 1  # where both derivatives are 0, too
    field: Array = fft.irfft2(
        (y * parts[0] + x * parts[1]) / (2j * np.pi * squared), s=(2 * height, 2 * width), workers=2
    )
    field = field[:height, :width]
    return field - field.mean()
