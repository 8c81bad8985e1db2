"""Coarser or finer detector pixels. In the far field the object pixels stay, and the probe window changes its size."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data.geometry import Geometry, NearField
from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError, check_positive
from ptynb.preparation.field_resampling import cut, cut_spectrum, middle_start, ramped, resampled
from ptynb.preparation.recorded_steps import recorded
from ptynb.preparation.shared_transforms import (
    SMALLEST_WINDOW,
    Array,
    Window,
    as_centred,
    carried,
    facing_geometry,
    known,
    motion_in,
    real_type,
    transformed,
    whole_pair,
    with_room,
)


@recorded
def bin(scan: Scan, factor: int | tuple[int, int]) -> Scan:
    """Sum blocks of detector pixels; a block with a bad pixel is bad.

    Far field: object pixels stay, and the probe window shrinks about its centre (the outer part is cut off). Blocks
    begin at the first pixel, so that none is lost: the zero frequency is then off the centre of its block by a distance
    d, and the probes are multiplied by the ramp exp(-2πi d·r / n). Near field: object pixels grow. Probe and object
    (guess and ground truth) become means over blocks, the probe times the square root of the number of pixels in a
    block, since counts are sums.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    factor : int or (int, int)
        Size of the blocks (y, x) [detector pixels].

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    InvalidValueError
        Unless `factor` divides the window and leaves at least 4 x 4 pixels.
    ScanError
        For a tilted geometry (code "scan.tilted-geometry").
    """
    factors = whole_pair(factor, "factor")
    if min(factors) < 1 or any(
        side % f or side // f < SMALLEST_WINDOW for side, f in zip(scan.pattern_shape, factors, strict=True)
    ):
        raise InvalidValueError(
            f"Patterns of {scan.pattern_shape[0]} x {scan.pattern_shape[1]} pixels cannot be binned by {factors[0]} x "
            f"{factors[1]}; expected factors that divide them and leave at least 4 x 4 pixels. Crop or pad them first.",
            code="argument.invalid-value",
        )
    scan = as_centred(scan)
    window, motion = (scan.pattern_shape[0] // factors[0], scan.pattern_shape[1] // factors[1]), scan.motion
    if scan.is_far_field:
        start = middle_start(scan.pattern_shape, window)
        # From the old zero frequency to the centre of its block, the new one [old pixels].
        y, x = (f * (n // f // 2) + (f - 1) / 2 - n // 2 for n, f in zip(scan.pattern_shape, factors, strict=True))
        positions = scan.positions + start
        fields = carried(scan, probe=lambda field: cut(ramped(field, (y, x)), start, window))
    else:
        positions, motion = scan.positions / factors, motion_in(scan, 1 / np.array(factors))
        scale = math.sqrt(factors[0] * factors[1])
        fields = carried(
            scan,
            probe=lambda field: _blocks(field, factors).mean((-3, -1)) * scale,
            object=lambda field: _blocks(field, factors).mean((-3, -1)),
        )
    return dataclasses.replace(
        scan,
        frames=transformed(scan, _binned, factors, scan.mask, window=window, dtype=_sum_type(scan.frames.dtype)),
        mask=None if scan.mask is None else np.asarray(_blocks(scan.mask, factors).all((-3, -1))),
        geometry=_with_pixels(scan, window),
        probe=fields["probe"],
        motion=motion,
        **with_room(positions, window, fields["object"], fields["ground_truth"]),
    )


@recorded
def resample(scan: Scan, factor: float) -> Scan:
    """Interpolate the patterns to `factor` times as many pixels on each side, rounded; the sum of counts is preserved.

    Larger pixels are weighted by the shared area, smaller ones are interpolated linearly. The zero frequency stays at
    the centre of a pixel, and no count becomes negative. New pixels with a contribution of a bad one, or more than half
    outside the detector, are bad. Interpolated noise is correlated between pixels; prefer `bin` where possible. Far
    field: object pixels stay, and the probe window grows (dark) or shrinks (cut off) about its centre. Near field:
    object pixels change; probe, object and positions are converted.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    factor : float
        Ratio of the new number of pixels to the old one.

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    InvalidValueError
        Unless `factor` is positive and leaves at least 4 x 4 pixels.
    ScanError
        For a tilted geometry (code "scan.tilted-geometry").
    """
    check_positive(factor, "factor")
    window = (round(scan.pattern_shape[0] * factor), round(scan.pattern_shape[1] * factor))
    if min(window) < SMALLEST_WINDOW:
        raise InvalidValueError(
            f"Resampled by {factor}, patterns of {scan.pattern_shape[0]} x {scan.pattern_shape[1]} pixels have "
            f"{window[0]} x {window[1]}; expected at least 4 x 4.",
            code="argument.invalid-value",
        )
    scan = as_centred(scan)
    weights, covered = zip(
        *(_weights(old, new) for old, new in zip(scan.pattern_shape, window, strict=True)), strict=True
    )
    start, motion = middle_start(scan.pattern_shape, window), scan.motion
    if scan.is_far_field:
        positions = scan.positions + start
        fields = carried(scan, probe=lambda field: cut(field, start, window))
    else:
        ratios = (window[0] / scan.pattern_shape[0], window[1] / scan.pattern_shape[1])
        positions = (scan.positions + np.array(scan.pattern_shape) // 2) * ratios - np.array(window) // 2
        motion = motion_in(scan, ratios)
        fields = carried(
            scan,
            probe=lambda field: cut_spectrum(field, start, window),
            object=lambda field: resampled(field, ratios),
        )
    return dataclasses.replace(
        scan,
        frames=transformed(scan, _interpolated, *weights, scan.mask, window=window, dtype=real_type(scan)),
        mask=_resampled_mask(scan.mask, weights, covered),
        geometry=_with_pixels(scan, window),
        probe=fields["probe"],
        motion=motion,
        **with_room(positions, window, fields["object"], fields["ground_truth"]),
    )


def _with_pixels(scan: Scan, window: Window) -> Geometry | NearField | None:
    """Return the geometry with the detector divided into `window` pixels of the same total area."""
    geometry = facing_geometry(scan, "a change of detector pixels")
    if geometry is None:
        return None
    height, width = (
        size * old / new for size, old, new in zip(geometry.detector_pixel, scan.pattern_shape, window, strict=True)
    )
    return dataclasses.replace(geometry, detector_pixel=(height, width))


def _blocks(field: Array, factors: tuple[int, int]) -> Array:
    """Reshape (…, y, x) to (…, block y, y in block, block x, x in block); incomplete blocks repeat the last pixel."""
    missing = [(0, 0)] * (field.ndim - 2) + [(0, -side % f) for side, f in zip(field.shape[-2:], factors, strict=True)]
    field = np.pad(field, missing, mode="edge")
    height, width = field.shape[-2:]
    return field.reshape(*field.shape[:-2], height // factors[0], factors[0], width // factors[1], factors[1])


def _sum_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a data type for sums of counts of type `dtype`."""
    if np.issubdtype(dtype, np.floating):
        return np.result_type(dtype, np.float32)
    if np.issubdtype(dtype, np.unsignedinteger):
        return np.dtype(np.uint32 if dtype.itemsize <= 2 else np.uint64)
    return np.dtype(np.int64)


def _binned(factors: tuple[int, int], mask: NDArray[np.bool_] | None, patterns: Array, first: int) -> Array:
    """Sum blocks of patterns, with 0 at bad pixels."""
    return _blocks(known(mask, patterns), factors).sum((-3, -1), dtype=_sum_type(patterns.dtype))


def _weights(old: int, new: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the weights of the old pixels in the new ones (new, old), and which new ones are on the detector."""
    size = old / new
    centres = (np.arange(new) - new // 2) * size + old // 2
    pixels = np.arange(old)
    edge = 1e-9
    if size >= 1:
        high = np.minimum(centres[:, None] + size / 2, pixels + 0.5)
        low = np.maximum(centres[:, None] - size / 2, pixels - 0.5)
        shared = np.maximum(high - low, 0)
        part = shared.sum(1) / size
        return shared / np.maximum(part, edge)[:, None], part >= 0.5 - edge
    inside = np.clip(centres, 0, old - 1)
    hat = np.maximum(1 - np.abs(inside[:, None] - pixels), 0)
    return size * hat, (centres >= -0.5 - edge) & (centres <= old - 0.5 + edge)


def _interpolated(
    rows: NDArray[np.float64], columns: NDArray[np.float64], mask: NDArray[np.bool_] | None, patterns: Array, first: int
) -> Array:
    kind = np.result_type(patterns.dtype, np.float32)
    patterns = known(mask, patterns).astype(kind, copy=False)
    return rows.astype(kind) @ patterns @ columns.T.astype(kind)


def _resampled_mask(
    mask: NDArray[np.bool_] | None, weights: tuple[NDArray[np.float64], ...], covered: tuple[NDArray[np.bool_], ...]
) -> NDArray[np.bool_] | None:
    good = covered[0][:, None] & covered[1][None, :]
    if mask is not None:
        rows, columns = ((weight > 1e-9).astype(np.float64) for weight in weights)
        good &= rows @ ~mask @ columns.T < 0.5
    return None if mask is None and good.all() else good
