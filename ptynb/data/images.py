"""Pictures, and conversion of arrays to them: reduction, phase without its ramp, contrast limits, look-up tables, JPEG.

Colour maps are not defined here: callers pass look-up tables (256, 3) uint8.
"""

from __future__ import annotations

import base64
import html
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Array = NDArray[Any]
SAMPLE = 20_000
"""Number of values from which percentiles are computed: within 0.1% of those of all, at a fraction of the time."""
BAND = 2**22
"""Number of pixels of a band of rows, by which large fields are read."""
GREY = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1)


@dataclass(frozen=True, eq=False)
class Picture:
    """One picture for display: grey levels of values, or colours.

    name: unique name among the pictures shown together ("amplitude"); title: the same for display.
    image: a PNG or JPEG file, of `shape` divided by `reduction` pixels.
    shape: (y, x) of the source array; reduction: array pixels per side of a picture pixel.
    limits: values of grey 0 and grey 255; None: the image is in colours (hue for phase, brightness for amplitude).
    largest: in colours, the amplitude of full brightness.
    unit: of the values. pixel_size: (y, x) of a pixel of the array [m]; None: unknown. colours: initial colour map.
    note: a caption. quantity: what the values are ("phase"): pictures of one quantity share a colour map and contrast.
    axes: names of the axes of the array. bands: pixels (y, x) of `shape` that are one element of it, by which a coarse
    axis is as long as it is in the sample.
    """

    name: str
    title: str
    image: bytes
    shape: tuple[int, int]
    reduction: int = 1
    limits: tuple[float, float] | None = None
    unit: str = ""
    pixel_size: tuple[float, float] | None = None
    colours: str = "gray"
    note: str = ""
    axes: tuple[str, str] = ("y", "x")
    bands: tuple[int, int] = (1, 1)
    quantity: str = ""
    largest: float = 0.0


def pictures_html(pictures: Iterable[Picture]) -> str:
    """Return PNG pictures side by side, with titles and notes, as HTML for notebooks."""
    shown = "".join(
        f'<figure style="margin:0"><figcaption><b>{html.escape(one.title)}</b></figcaption>'
        f'<img alt="{html.escape(one.title)}" src="data:image/png;base64,{base64.b64encode(one.image).decode()}"'
        ' style="height:180px;max-width:100%;image-rendering:pixelated;display:block">'
        f"<small>{html.escape(one.note)}</small></figure>"
        for one in pictures
    )
    return f'<div style="display:flex;flex-wrap:wrap;gap:14px">{shown}</div>'


_TURNS = np.arange(1536)[:, None] / 1536
HUES = np.clip(np.abs((_TURNS * 6 + np.array([0.0, 4.0, 2.0])) % 6 - 3) - 1, 0, 1).astype(np.float32)
"""Colours (1536, rgb) of phases, three triangle waves a third of the circle apart: as many as 8 bits distinguish."""


def reduction_for(shape: tuple[int, ...], size: int) -> int:
    """Return the reduction factor for which the longest side is at most `size` pixels."""
    return max(1, -(-max(shape[-2:]) // size))


def bands(shape: tuple[int, ...], rows: int = 1) -> Iterator[slice]:
    """Yield bands of rows (y, x) of at most about `BAND` pixels, each but the last of a multiple of `rows`."""
    step = max(1, BAND // (rows * shape[-1])) * rows
    return (slice(top, min(top + step, shape[-2])) for top in range(0, shape[-2], step))


def reduce_by(field: Array, reduction: int) -> Array:
    """Return means over blocks of reduction x reduction pixels (…, y, x), without incomplete blocks at the far edge."""
    if reduction == 1:
        return field
    height = field.shape[-2] // reduction * reduction
    if field.shape[-2] * field.shape[-1] <= BAND or not height:
        return _reduced(field, reduction)
    # Band by band, of which each value is read once: of what is in a file only a band is in memory.
    parts = [_reduced(field[..., rows, :], reduction) for rows in bands((height, field.shape[-1]), reduction)]
    return np.concatenate(parts, axis=-2)


def _reduced(field: Array, reduction: int) -> Array:
    steps = [min(reduction, side) for side in field.shape[-2:]]
    height, width = (side // step for side, step in zip(field.shape[-2:], steps, strict=True))
    cut = field[..., : height * steps[0], : width * steps[1]]
    # Rows first, then columns: a fifth of the time of a mean over small axes.
    means = np.array(cut[..., :: steps[0], :], cut.dtype if cut.dtype.kind in "fc" else np.float64)
    for row in range(1, steps[0]):
        means += cut[..., row :: steps[0], :]
    columns = means[..., :: steps[1]].copy()
    for column in range(1, steps[1]):
        columns += means[..., column :: steps[1]]
    columns /= steps[0] * steps[1]
    return columns


def flat_means(layers: Array, reduction: int, area: tuple[slice, slice] | None = None) -> Array:
    """Return means over blocks of the product (y, x) of layers (layer, y, x), without its mean phase and phase ramp.

    Values that are not finite are zero. Only a band of rows is in memory. area: part that is returned, by default all.
    """
    height, width = layers.shape[1:]
    inside, columns = area or (slice(0, height), slice(0, width))
    down, across = (np.exp(-1j * one).astype(layers.dtype) for one in product_ramp(layers))
    count = inside.stop - inside.start
    step = min(reduction, count)
    parts = []
    for rows in bands((count // step * step, width), step):
        here = slice(inside.start + rows.start, inside.start + rows.stop)
        turned = finite_product(layers, here) * down[here, None] * across
        parts.append(reduce_by(turned[:, columns], reduction))
    return np.concatenate(parts)


def finite_product(layers: Array, rows: slice) -> Array:
    """Return rows of the product (y, x) of layers (layer, y, x); values that are not finite are zero."""
    band = layers[:, rows]
    return np.nan_to_num(band[0] if len(band) == 1 else band.prod(0), nan=0.0, posinf=0.0, neginf=0.0)


def product_ramp(layers: Array) -> tuple[Array, Array]:
    """Return `ramp` of the product of layers (layer, y, x), of which only a band of rows is in memory."""

    def steps(_: Array) -> tuple[complex, complex]:
        down = across = 0j
        for rows in bands(layers.shape):
            band = finite_product(layers, slice(rows.start, rows.stop + 1))  # with the first row of the next one
            down += step_sums(band)[0]
            across += step_sums(band[: rows.stop - rows.start])[1]
        return down, across

    def turned_sum(_: Array, down: Array, across: Array) -> complex:
        return sum(_turned_sum(finite_product(layers, rows), down[rows], across) for rows in bands(layers.shape))

    return ramp(layers[0], steps, turned_sum)


def largest_amplitude(layers: Array) -> float:
    """Return the largest amplitude of the product of layers (layer, y, x), of which only a band is in memory."""
    return max(float(np.abs(finite_product(layers, rows)).max()) for rows in bands(layers.shape))


def flat_phase(field: Array) -> NDArray[np.floating[Any]]:
    """Return the phase (y, x) of a complex field without its mean and its linear ramp [rad], in [-π, π].

    Diffraction patterns do not determine either.
    """
    return without_ramp(np.angle(field), field)


def phase_growth(early: Array, late: Array) -> float:
    """Return which part of the phase's standard deviation in the middle of a field (y, x) was not in the earlier one.

    Fields of different shapes are cut at the far edges.
    """
    height, width = np.minimum(early.shape, late.shape)
    inner = slice(height // 6, height - height // 6), slice(width // 6, width - width // 6)
    before, now = (float(flat_phase(one[inner].copy()).std()) for one in (early, late))
    return 1 - before / max(now, 1e-9)


def without_ramp(phase: Array, field: Array) -> NDArray[np.floating[Any]]:
    """Return the phase (y, x) of a field [rad] without the field's mean phase and linear ramp; overwrites `phase`."""
    down, across = ramp(field)
    phase -= down.astype(phase.dtype)[:, None]
    phase -= across.astype(phase.dtype)[None, :]
    return wrapped(phase)


def wrapped(phase: Array) -> NDArray[np.floating[Any]]:
    """Return phases [rad] in [-π, π]; overwrites them."""
    # In units of turns: subtracting the nearest integer takes a third of the time of a complex product and its angle.
    turn = phase.dtype.type(2 * np.pi)
    phase /= turn
    phase -= np.rint(phase)
    phase *= turn
    return phase


def step_sums(field: Array) -> tuple[complex, complex]:
    """Return Σ O[k+1] O*[k] of a field (y, x) along y and x: their phases are its mean phase steps [rad/pixel]."""
    return complex(np.vdot(field[:-1], field[1:])), complex(np.vdot(field[:, :-1], field[:, 1:]))


def _turned_sum(field: Array, down: Array, across: Array) -> complex:
    return complex(down @ field @ across)


def flattening(field: Array) -> tuple[Array, Array]:
    """Return factors (y,) and (x,) that remove mean and ramp of the phase of a complex field (y, x)."""
    down, across = (np.exp(-1j * angle).astype(field.dtype) for angle in ramp(field))
    return down, across


def ramp(
    field: Array,
    steps: Callable[[Array], tuple[complex, complex]] = step_sums,
    turned_sum: Callable[[Array, Array, Array], complex] = _turned_sum,
) -> tuple[Array, Array]:
    """Return the linear ramp of the phase of a complex field (y, x) [rad], along y (y,), mean included, and x (x,).

    The ramp is the mean step between adjacent pixels, the phase of Σ O[k+1] O*[k], which is independent of wraps.
    steps, turned_sum: functions that compute these sums along y and x, and Σ d[y] O[y, x] a[x] of factors d and a.
    """
    slopes = [np.angle(step) for step in steps(field)]
    down, across = (slope * np.arange(side) for slope, side in zip(slopes, field.shape, strict=True))
    mean = np.angle(turned_sum(field, *(np.exp(-1j * angle).astype(field.dtype) for angle in (down, across))))
    return down + mean, across


def limits_of(values: Array, low: float = 1.0, high: float = 99.0) -> tuple[float, float]:
    """Return contrast limits at these percentiles of the finite values (of a sample, if there are many); never equal.

    If all values are equal, they are in the middle of the range: a flat object is grey, not black.
    """
    sample = values.ravel()[:: max(1, values.size // SAMPLE)]
    finite = sample[np.isfinite(sample)]
    if not finite.size:
        return 0.0, 1.0
    bottom, top = (float(value) for value in np.percentile(finite, [low, high]))
    least = 1e-6 * max(abs(bottom), 1.0)
    if top - bottom >= least:
        return bottom, top
    middle = (bottom + top) / 2
    return middle - least / 2, middle + least / 2


def coloured(values: Array, limits: tuple[float, float], colours: Array = GREY) -> NDArray[np.uint8]:
    """Return the colours (y, x, rgb) uint8 of values (y, x) by a look-up table (256, 3)."""
    return np.take(colours, levels(values, limits), axis=0)


def complex_colours(field: Array) -> NDArray[np.uint8]:
    """Return colours (y, x, rgb) of a complex field (y, x): phase as hue, relative amplitude as brightness."""
    return hues(np.angle(field), np.abs(field))


def hues(phase: Array, amplitude: Array, largest: float | None = None) -> NDArray[np.uint8]:
    """Return colours (y, x, rgb) of phases (y, x) [rad] and amplitudes (y, x), as `complex_colours`.

    largest: the amplitude of full brightness, by default the largest one.
    """
    if largest is None:
        largest = float(amplitude.max())
    brightness = (np.minimum(amplitude, largest) * (255.999 / max(largest, 1e-30))).astype(np.float32)
    turns = np.rint(phase * (len(HUES) / (2 * np.pi)))
    places = np.nan_to_num(turns).astype(np.int32) % len(HUES)
    # 8-bit colours allow a table of hues, which takes a tenth of the time of computing the hue of each pixel.
    return (np.take(HUES, places, axis=0) * np.nan_to_num(brightness)[..., None]).astype(np.uint8)


def jpeg(rgb: NDArray[np.uint8], quality: int = 85) -> bytes:
    """Return pixels (y, x) or (y, x, rgb) uint8 as a JPEG file."""
    return _encoded(rgb, "JPEG", quality=quality)


def png(rgb: NDArray[Any], compression: int = 1) -> bytes:
    """Return pixels (y, x) or (y, x, rgb) uint8, or (y, x) uint16, as a PNG file, without blurred pixel edges.

    compression: 1 (fast) to 9 (small).
    """
    return _encoded(rgb, "PNG", compress_level=compression)


def _encoded(pixels: NDArray[Any], kind: str, **options: int) -> bytes:
    # Pillow frees the interpreter's lock only while it writes to a system file: with a BytesIO it delayed training by
    # 6 ms for two pictures of 1024 x 1024.
    with _open_in_memory() as file:
        Image.fromarray(pixels).save(file, kind, **options)
        file.seek(0)
        return file.read()


def _open_in_memory() -> IO[bytes]:
    """Open an empty unnamed system file, in memory if the system supports it."""
    create = getattr(os, "memfd_create", None)  # Linux only
    return tempfile.TemporaryFile() if create is None else os.fdopen(create("ptynb picture"), "r+b")


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
    quantity: str = "",
) -> Picture:
    """Return a picture of an array (y, x): real values as grey levels between the limits, complex ones as colours.

    size: longest side of the image [its pixels]; the array is averaged down to it. limits: values of black and white;
    by default percentiles of the values. lossless: PNG rather than JPEG of this quality.
    """
    reduction = reduction_for(values.shape, size)
    reduced = reduce_by(values, reduction)
    encode = png if lossless else (lambda pixels: jpeg(pixels, quality))
    (height, width), largest = values.shape, 0.0
    if np.iscomplexobj(values):
        amplitude = np.abs(reduced)
        limits, largest = None, float(amplitude.max())
        image = encode(hues(np.angle(reduced), amplitude, largest))
    else:
        limits = limits_of(reduced, *percentiles) if limits is None else limits
        image = encode(levels(reduced, limits))
    return Picture(
        name,
        title or name,
        image,
        (height, width),
        reduction,
        limits,
        unit,
        pixel_size,
        colours,
        note,
        quantity=quantity,
        largest=largest,
    )


def part_of(whole: Picture, values: Array, region: tuple[slice, slice], size: int = 1024) -> Picture:
    """Return a picture of a region (y, x) of the array behind another one, in its contrast; size: its longest side."""
    part = values[region]
    reduction = reduction_for(part.shape, size)
    reduced = reduce_by(part, reduction)
    if whole.limits is None:
        image = png(hues(np.angle(reduced), np.abs(reduced), whole.largest))
    else:
        image = png(levels(reduced, whole.limits))
    return replace(whole, image=image, shape=(part.shape[0], part.shape[1]), reduction=reduction)


def levels(values: Array, limits: tuple[float, float]) -> NDArray[np.uint8]:
    """Return grey levels (y, x) uint8: 0 at or below the lower limit, 255 at or above the upper one; NaN becomes 0."""
    low, high = limits
    finite = values if np.isfinite(values).all() else np.nan_to_num(values, nan=low)
    return ((np.clip(finite, low, high) - low) * (255.999 / (high - low))).astype(np.uint8)


def side_by_side(pictures: list[NDArray[np.uint8]], gap: int = 2) -> NDArray[np.uint8]:
    """Return pictures (y, x, rgb) of equal height side by side, with a white gap between them."""
    height = pictures[0].shape[0]
    white = np.full((height, gap, 3), 255, np.uint8)
    row: list[NDArray[np.uint8]] = []
    for picture in pictures:
        row += [picture, white]
    return np.concatenate(row[:-1], axis=1)
