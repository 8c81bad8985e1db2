"""The phase-retrieval transfer function: the fraction of each spatial frequency that is retrieved reproducibly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.analysis.registration import Area, register
from ptynb.analysis.ring_correlation import PixelSize, Rings, crossing, soft_window, windowed_transform
from ptynb.exceptions import InvalidValueError

Array = NDArray[Any]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TransferFunction:
    """A transfer function in rings of spatial frequency; without the zero frequency.

    Parameters
    ----------
    frequencies : ndarray of float64
        Frequencies (ring,) [1/m, or 1/pixel without a pixel size].
    transfer : ndarray of float64
        Transfer (ring,): 1 for perfect retrieval, NaN where nothing was measured.
    counts : ndarray of int64
        Number of Fourier coefficients, or good detector pixels, in each ring of one pattern.
    """

    frequencies: Floats
    transfer: Floats
    counts: NDArray[np.int64]

    def crossing(self, threshold: float = 0.5) -> float | None:
        """Return the frequency at which the transfer first falls below a threshold.

        Parameters
        ----------
        threshold : float, default 0.5
            Threshold.

        Returns
        -------
        float or None
            Frequency [1/m, or 1/pixel]; None if the transfer stays above.
        """
        return crossing(self.frequencies, self.transfer, threshold)


def phase_retrieval_transfer_function(
    measured: Array,
    waves: Array,
    *,
    pixel_size: PixelSize | None = None,
    mask: Array | None = None,
    centred: bool = True,
) -> TransferFunction:
    """Return Σ |⟨Ψ⟩| / Σ sqrt(I) in rings over all patterns: the mean of the waves over the measured amplitude.

    A constant phase of each pattern, and one phase ramp on the detector for all patterns of a reconstruction (a shift
    of object and probe together), are removed relative to the first reconstruction. Several modes have no unique
    phases; use the waves of the strongest one if it has nearly all the power.

    D. Shapiro et al., PNAS 102, 15343 (2005); H. N. Chapman et al., J. Opt. Soc. Am. A 23, 1179 (2006).

    Parameters
    ----------
    measured : ndarray
        Diffraction patterns I (…, y, x) [counts].
    waves : ndarray of complex
        Amplitudes Ψ = F[P·O] on the detector (reconstruction, …, y, x) of reconstructions from different starts. A
        single one only shows how well the amplitudes fit.
    pixel_size : float or (float, float), optional
        Size of the object pixels [m]: an object frequency k is at λ z k on the detector.
    mask : ndarray of bool, optional
        Working pixels (y, x).
    centred : bool, default True
        Whether the zero frequency is at index n // 2 of all arrays.

    Returns
    -------
    TransferFunction
        The transfer function.

    Raises
    ------
    InvalidValueError
        If shapes do not fit (code "array.shape-mismatch"), or waves are real.
    """
    measured, waves = np.asarray(measured), np.asarray(waves)
    _check_patterns(measured, waves, mask)
    window = measured.shape[-2:]
    good = np.ones(window, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    if not centred:
        # Only in this order is a ramp continuous over the centre of the pattern.
        measured, waves, good = (np.fft.fftshift(values, axes=(-2, -1)) for values in (measured, waves, good))
    patterns = measured.reshape(-1, *window)
    stacks = waves.reshape(len(waves), -1, *window)
    mean = sum(_in_phase(stack, stacks[0], good) for stack in stacks) / len(stacks)
    amplitudes = np.abs(mean)
    rings = Rings.of(window, pixel_size)
    retrieved, expected = (
        rings.sums(np.fft.ifftshift(np.where(good, values, 0), axes=(-2, -1)))
        for values in (amplitudes, np.sqrt(np.maximum(patterns, 0)))
    )
    counts = rings.sums(np.fft.ifftshift(good)).astype(np.int64)
    return TransferFunction(rings.frequencies, _ratio(retrieved, expected), counts)


def object_transfer_function(
    objects: Sequence[Array], pixel_size: PixelSize | None = None, *, area: Area | None = None
) -> TransferFunction:
    """Return Σ |⟨F⟩| / Σ sqrt(⟨|F|²⟩) in rings over reconstructed objects of one sample.

    The objects are registered to the first one (`register`), and a Hann window is applied. Objects that are independent
    at some frequency give about 0.89 / sqrt(n) there for n objects.

    Parameters
    ----------
    objects : Sequence of ndarray
        Objects (y, x), complex, at least two.
    pixel_size : float or (float, float), optional
        Size of the pixels [m]; by default frequencies are in 1/pixel.
    area : (slice, slice), optional
        Area of the first object that is compared.

    Returns
    -------
    TransferFunction
        The transfer function.

    Raises
    ------
    InvalidValueError
        If there are fewer than two objects, or registration fails.
    """
    if len(objects) < 2:
        raise InvalidValueError(
            f"Got {len(objects)} object; expected at least 2 reconstructions from different starts.",
            code="argument.invalid-value",
        )
    registered = [register(item, objects[0], area) for item in objects[1:]]
    images = [registered[0].reference, *(one.aligned for one in registered)]
    window = soft_window(images[0].shape)
    spectra = np.stack([windowed_transform(image, window) for image in images])
    rings = Rings.of(window.shape, pixel_size)
    together = rings.sums(np.abs(spectra.mean(0)))
    expected = rings.sums(np.sqrt((np.abs(spectra) ** 2).mean(0)))
    return TransferFunction(rings.frequencies, _ratio(together, expected), rings.counts)


def _ratio(values: Floats, whole: Floats) -> Floats:
    return np.divide(values, whole, out=np.full_like(values, np.nan), where=whole > 0)


def _in_phase(waves: Array, reference: Array, good: Array) -> Array:
    """Remove, relative to the reference, the phase of each pattern and the common ramp of waves (pattern, y, x)."""
    ratio = np.where(good, reference * waves.conj(), 0)
    steps = np.vdot(ratio[:, :-1], ratio[:, 1:]), np.vdot(ratio[:, :, :-1], ratio[:, :, 1:])
    y, x = (np.exp(1j * np.angle(step) * np.arange(side)) for step, side in zip(steps, ratio.shape[1:], strict=True))
    straight = waves * y[:, None] * x[None, :]
    overlap = (np.where(good, reference, 0) * straight.conj()).sum((1, 2))
    return straight * np.exp(1j * np.angle(overlap))[:, None, None]


def _check_patterns(measured: Array, waves: Array, mask: Array | None) -> None:
    if not np.iscomplexobj(waves):
        raise InvalidValueError(
            f"waves has type {waves.dtype}; expected complex amplitudes on the detector, not intensities.",
            code="argument.invalid-type",
        )
    if waves.ndim < 3 or not len(waves) or waves.shape[1:] != measured.shape:
        raise InvalidValueError(
            f"waves has shape {waves.shape} and measured has shape {measured.shape}; expected (reconstruction, …) "
            "followed by the shape of the patterns.",
            code="array.shape-mismatch",
        )
    if mask is not None and np.shape(mask) != measured.shape[-2:]:
        raise InvalidValueError(
            f"The mask has shape {np.shape(mask)}; expected that of a pattern, {measured.shape[-2:]}.",
            code="array.shape-mismatch",
        )
