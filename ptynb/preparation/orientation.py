"""Turning the detector round: patterns mirrored or transposed, with all that lies in the detector's frame."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data.scan import Scan
from ptynb.preparation.carry_over import Array, Window, as_centred, carried, facing_geometry, transformed
from ptynb.preparation.scan_positions import axes_of, flip_positions, transposed_places


def flip(scan: Scan, axes: str, *, positions: bool = False) -> Scan:
    """Mirrors the detector along `axes` ("y", "x" or "yx"): I(k_y, k_x) becomes I(-k_y, k_x), and so on.

    The wave in the sample's plane mirrors with its far field, so the patterns, the mask, the probe and the object
    (guess and truth) all do. The positions stay, which is what a detector read out the wrong way round needs;
    positions=True mirrors them too, so that only the name of a direction changes.

    The zero frequency stays at its index: along an even side the outermost row, which is both -n/2 and +n/2, stays too.
    Near-field patterns are mirrored about the middle of their window. Raises ValueError for other axes,
    and ScanError for a tilted geometry.
    """
    chosen = axes_of(axes)
    facing_geometry(scan, "mirroring the detector")
    scan = as_centred(scan)
    orders = mirrored_indices(scan.pattern_shape, chosen, scan.is_far_field)
    extent = None if scan.object is None else (scan.object.shape[-2], scan.object.shape[-1])

    def mirror_object(field: Array) -> Array:
        # The truth is mirrored about the middle of the guess: positions count in both.
        return np.flip(
            _with_extent(field, extent or (field.shape[-2], field.shape[-1])), tuple(axis - 2 for axis in chosen)
        )

    def mirror(field: Array) -> Array:
        return field[..., orders[0], :][..., orders[1]]

    flipped = dataclasses.replace(
        scan,
        frames=transformed(scan, _mirrored, *orders),
        mask=None if scan.mask is None else mirror(scan.mask),
        **carried(scan, probe=mirror, object=mirror_object),
    )
    return flip_positions(flipped, axes) if positions else flipped


def transpose(scan: Scan, *, positions: bool = False) -> Scan:
    """Exchanges the detector's rows and columns, and those of mask, probe and object; pixel sizes change places too.

    The positions stay where they are in metres (with oblong object pixels their numbers change, and with oblong
    windows the corners do); positions=True exchanges them too, so that only the axes change their names.

    Raises ScanError where an object guess that is not square no longer holds all windows; positions=True avoids it.
    Also for a tilted geometry.
    """
    geometry = facing_geometry(scan, "exchanging its axes")
    if geometry is not None:
        geometry = dataclasses.replace(geometry, detector_pixel=geometry.detector_pixel[::-1])
    return dataclasses.replace(
        scan,
        frames=transformed(scan, _exchanged, window=scan.pattern_shape[::-1]),
        positions=scan.positions[:, ::-1].copy() if positions else transposed_places(scan, detector=True),
        mask=None if scan.mask is None else scan.mask.T,
        geometry=geometry,
        **carried(scan, probe=_swapped, object=_swapped),
    )


def mirrored_indices(
    window: Window, axes: tuple[int, ...], fourier: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which row and column comes where: n - 1 - i; with a zero frequency that stays, 2 (n // 2) - i modulo n."""

    def order(axis: int) -> NDArray[np.int64]:
        side = window[axis]
        index = np.arange(side)
        if axis not in axes:
            return index
        return (2 * (side // 2) - index) % side if fourier else index[::-1]

    return order(0), order(1)


def _mirrored(rows: NDArray[np.int64], columns: NDArray[np.int64], patterns: Array, first: int) -> Array:
    return patterns[:, rows][:, :, columns]


def _exchanged(patterns: Array, first: int) -> Array:
    return _swapped(patterns)


def _swapped(field: NDArray[Any]) -> NDArray[Any]:
    return np.swapaxes(field, -2, -1)


def _with_extent(field: Array, extent: tuple[int, int]) -> Array:
    """The object (…, y, x) cut off or continued by transparent pixels at its far ends."""
    field = field[..., : extent[0], : extent[1]]
    missing = [(0, 0)] * (field.ndim - 2) + [(0, b - a) for a, b in zip(field.shape[-2:], extent, strict=True)]
    return np.pad(field, missing, constant_values=1)
