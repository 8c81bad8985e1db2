"""From arrays to pictures: reduction, phase without its ramp, contrast limits, colours by look-up table, JPEG.

No colour map lives here: look-up tables (256, 3) uint8 come from whoever wants to look.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ptynb.snapshot import Picture

Array = NDArray[Any]
SAMPLE = 20_000
"""Values that percentiles are taken from: within 0.1% of those of all, at a fraction of the time."""
GREY = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1)


def reduction_for(shape: tuple[int, ...], size: int) -> int:
    """The whole number of pixels to average so that the longest side is at most `size`."""
    return max(1, -(-max(shape[-2:]) // size))


def reduce_by(field: Array, reduction: int) -> Array:
    """Means over blocks of reduction x reduction pixels (…, y, x); a rest at the far edges is left out."""
    if reduction == 1:
        return field
    steps = [min(reduction, side) for side in field.shape[-2:]]
    height, width = (side // step for side, step in zip(field.shape[-2:], steps, strict=True))
    cut = field[..., : height * steps[0], : width * steps[1]]
    return cut.reshape(*field.shape[:-2], height, steps[0], width, steps[1]).mean((-3, -1))


def flat_phase(field: Array) -> NDArray[np.floating[Any]]:
    """The phase (y, x) of a complex field without its mean and its linear ramp [rad], in [-π, π].

    Neither can be known from diffraction patterns. The ramp is the mean step from a pixel to the next, by the phase of
    Σ O[k+1] O*[k], which does not mind wrapped phases.
    """
    height, width = field.shape
    step_y = np.angle(np.vdot(field[:-1], field[1:]))
    step_x = np.angle(np.vdot(field[:, :-1], field[:, 1:]))
    down, across = np.exp(-1j * step_y * np.arange(height)), np.exp(-1j * step_x * np.arange(width))
    mean = np.exp(-1j * np.angle(down @ field @ across))
    # The ramp stays two vectors, and the field's own precision: half the time for a picture of single precision.
    corrected = field * (mean * down).astype(field.dtype)[:, None]
    corrected *= across.astype(field.dtype)[None, :]
    return np.angle(corrected)


def limits_of(values: Array, low: float = 1.0, high: float = 99.0) -> tuple[float, float]:
    """Contrast limits at these percentiles of the finite values (of some of them, if many); always a little apart."""
    sample = values.ravel()[:: max(1, values.size // SAMPLE)]
    finite = sample[np.isfinite(sample)]
    if not finite.size:
        return 0.0, 1.0
    bottom, top = (float(value) for value in np.percentile(finite, [low, high]))
    return bottom, max(top, bottom + 1e-6 * max(abs(bottom), 1.0))


def coloured(values: Array, limits: tuple[float, float], colours: Array = GREY) -> NDArray[np.uint8]:
    """(y, x) -> (y, x, rgb) uint8 by a look-up table (256, 3)."""
    rgb: NDArray[np.uint8] = np.take(colours, levels(values, limits), axis=0)
    return rgb


def complex_colours(field: Array) -> NDArray[np.uint8]:
    """(y, x) complex -> (y, x, rgb): phase as hue, amplitude as brightness, full at the largest amplitude."""
    amplitude = np.abs(field)
    brightness = amplitude / max(float(amplitude.max()), 1e-30)
    hue = (np.angle(field) / (2 * np.pi)) % 1.0
    # The hue circle as three triangle waves a third apart.
    waves = np.abs((hue[..., None] * 6 + np.array([0.0, 4.0, 2.0], amplitude.dtype)) % 6 - 3) - 1
    return (np.clip(waves, 0, 1) * brightness[..., None] * 255.999).clip(0, 255).astype(np.uint8)


def jpeg(rgb: NDArray[np.uint8], quality: int = 85) -> bytes:
    """(y, x) or (y, x, rgb) uint8 as a JPEG file."""
    buffer = io.BytesIO()
    Image.fromarray(rgb).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def png(rgb: NDArray[np.uint8]) -> bytes:
    """(y, x) or (y, x, rgb) uint8 as a PNG file, for pictures of hard pixels."""
    buffer = io.BytesIO()
    Image.fromarray(rgb).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def picture(
    values: Array,
    name: str,
    title: str = "",
    *,
    size: int = 1024,
    limits: tuple[float, float] | None = None,
    percentiles: tuple[float, float] = (1.0, 99.0),
    lossless: bool = True,
    quality: int = 85,
    unit: str = "",
    pixel_size: tuple[float, float] | None = None,
    colours: str = "gray",
    note: str = "",
) -> Picture:
    """A picture of an array (y, x): real values as grey levels between the limits, complex ones as colours.

    size: longest side of the image [its pixels]; the array is averaged down to it. limits: values of black and white;
    the percentiles of the values unless given. lossless: PNG rather than JPEG of this quality.
    """
    reduction = reduction_for(values.shape, size)
    reduced = reduce_by(values, reduction)
    encode = png if lossless else (lambda pixels: jpeg(pixels, quality))
    height, width = values.shape
    if np.iscomplexobj(values):
        image, limits = encode(complex_colours(reduced)), None
    else:
        limits = limits_of(reduced, *percentiles) if limits is None else limits
        image = encode(levels(reduced, limits))
    return Picture(name, title or name, image, (height, width), reduction, limits, unit, pixel_size, colours, note)


def levels(values: Array, limits: tuple[float, float]) -> NDArray[np.uint8]:
    """(y, x) -> (y, x) uint8: 0 at the lower limit and below, 255 at the upper one and above; no number is 0."""
    low, high = limits
    finite = values if np.isfinite(values).all() else np.nan_to_num(values, nan=low)
    grey: NDArray[np.uint8] = ((np.clip(finite, low, high) - low) * (255.999 / (high - low))).astype(np.uint8)
    return grey


def side_by_side(pictures: list[NDArray[np.uint8]], gap: int = 2) -> NDArray[np.uint8]:
    """Pictures (y, x, rgb) of one height in a row, a white gap between them."""
    height = pictures[0].shape[0]
    white = np.full((height, gap, 3), 255, np.uint8)
    row: list[NDArray[np.uint8]] = []
    for picture in pictures:
        row += [picture, white]
    return np.concatenate(row[:-1], axis=1)
