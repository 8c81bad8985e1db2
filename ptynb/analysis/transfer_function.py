"""The phase-retrieval transfer function: what share of each spatial frequency was retrieved, and reproducibly."""

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
    """A transfer function by rings of spatial frequency; the zero frequency is left out.

    frequencies: (ring,) [1/m, or 1/pixel where no pixel size was given].
    transfer: (ring,), 1 where amplitudes and phases are retrieved perfectly; not a number where nothing was measured.
    counts: (ring,), Fourier coefficients or good detector pixels in a ring, of one pattern.
    """

    frequencies: Floats
    transfer: Floats
    counts: NDArray[np.int64]

    def crossing(self, threshold: float = 0.5) -> float | None:
        """The frequency at which the transfer first falls below the threshold; None where it never does."""
        return crossing(self.frequencies, self.transfer, threshold)


def phase_retrieval_transfer_function(
    measured: Array,
    waves: Array,
    *,
    pixel_size: PixelSize | None = None,
    mask: Array | None = None,
    centred: bool = True,
) -> TransferFunction:
    """Σ |⟨Ψ⟩| / Σ sqrt(I) over the rings of all patterns: the mean of many reconstructions' waves over the amplitude.

    measured: diffraction patterns I (…, y, x), counts.
    waves: complex amplitudes Ψ = F[P·O] on the detector (reconstruction, …, y, x), of reconstructions from different
        starts. One reconstruction alone tells how well the amplitudes fit, and nothing of the phases.
    pixel_size: of the object [m], equal or (y, x): an object's frequency k lies at λ z k on the detector.
    mask: (y, x), True where the detector works. centred: whether the zero frequency is at index n // 2 of all arrays.

    What can't be known is taken off against the first reconstruction: a constant phase of each pattern, and one phase
    ramp on the detector for all patterns of a reconstruction (a shift of object and probe together).
    Several modes have no phases of their own; take the strongest one's waves if it holds nearly all the power.

    D. Shapiro et al., PNAS 102, 15343 (2005); H. N. Chapman et al., J. Opt. Soc. Am. A 23, 1179 (2006).
    """
    measured, waves = np.asarray(measured), np.asarray(waves)
    _check_patterns(measured, waves, mask)
    window = measured.shape[-2:]
    good = np.ones(window, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    if not centred:
        # A ramp that is continuous over the middle of the pattern is one without wraps only in this order.
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
    """Σ |⟨F⟩| / Σ sqrt(⟨|F|²⟩) over the rings of many reconstructed objects (y, x) of one sample, complex.

    The later objects are registered to the first inside `area` of it (`register`), and a Hann window is put on. n
    objects that have nothing in common at some frequency give about 1 / sqrt(n) there, times 0.89 for many.

    Raises ValueError where there are fewer than two objects.
    """
    if len(objects) < 2:
        raise InvalidValueError(
            f"There is {len(objects)} object; expected at least 2 reconstructions from different starts.",
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
    """Waves (pattern, y, x) without the constant phase of each pattern and the common ramp against the reference."""
    ratio = np.where(good, reference * waves.conj(), 0)
    steps = np.vdot(ratio[:, :-1], ratio[:, 1:]), np.vdot(ratio[:, :, :-1], ratio[:, :, 1:])
    y, x = (np.exp(1j * np.angle(step) * np.arange(side)) for step, side in zip(steps, ratio.shape[1:], strict=True))
    straight = waves * y[:, None] * x[None, :]
    overlap = (np.where(good, reference, 0) * straight.conj()).sum((1, 2))
    return straight * np.exp(1j * np.angle(overlap))[:, None, None]


def _check_patterns(measured: Array, waves: Array, mask: Array | None) -> None:
    if not np.iscomplexobj(waves):
        raise InvalidValueError(
            f"The waves are of type {waves.dtype}; expected complex amplitudes on the detector, not intensities.",
            code="argument.invalid-type",
        )
    if waves.ndim < 3 or not len(waves) or waves.shape[1:] != measured.shape:
        raise InvalidValueError(
            f"The waves have shape {waves.shape} and the measured patterns {measured.shape}; expected "
            "(reconstruction, …) and then the shape of the patterns. Put the reconstructions on an axis of their own.",
            code="array.shape-mismatch",
        )
    if mask is not None and np.shape(mask) != measured.shape[-2:]:
        raise InvalidValueError(
            f"The mask has shape {np.shape(mask)}; expected that of a pattern, {measured.shape[-2:]}.",
            code="array.shape-mismatch",
        )
