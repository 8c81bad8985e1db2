"""Orientation of the detector: mirrors or transposes patterns and everything else with the axes of the detector."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data.scan import Scan
from ptynb.preparation.recorded_steps import recorded
from ptynb.preparation.scan_positions import axes_of, flip_positions, transposed_places
from ptynb.preparation.shared_transforms import (
    Array,
    Window,
    as_centred,
    carried,
    facing_geometry,
    motion_in,
    pixel_of,
    transformed,
)


@recorded
def flip(scan: Scan, axes: str, *, positions: bool = False) -> Scan:
    """Mirror the detector: I(k_y, k_x) becomes I(-k_y, k_x), and so on.

    Since the wave in the sample plane is mirrored with its far field, patterns, mask, probe and object (guess and
    ground truth) are mirrored. The zero frequency stays at its index: for an even number of pixels the outermost row,
    which is both -n/2 and +n/2, stays, too. Near-field patterns are mirrored about the centre of their window.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    axes : {"y", "x", "yx"}
        Axes that are reversed.
    positions : bool, default False
        Whether the positions are mirrored, too: False corrects the readout of a detector, True only reverses axes.

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    InvalidValueError
        For other axes.
    ScanError
        For a tilted geometry (code "scan.tilted-geometry").
    """
    chosen = axes_of(axes)
    facing_geometry(scan, "mirroring the detector")
    scan = as_centred(scan)
    orders = mirrored_indices(scan.pattern_shape, chosen, scan.is_far_field)
    extent = None if scan.object is None else (scan.object.shape[-2], scan.object.shape[-1])

    def mirror_object(field: Array) -> Array:
        # The ground truth is mirrored about the centre of the guess, since positions refer to both arrays.
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


@recorded
def transpose(scan: Scan, *, positions: bool = False) -> Scan:
    """Exchange rows and columns of the detector, of mask, probe and object, and the pixel sizes.

    Positions are preserved in metres: with non-square object pixels their numbers change, and with non-square windows
    the corners.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    positions : bool, default False
        Whether y and x of the positions are exchanged, too, so that y and x only exchange their names.

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    ScanError
        If an object guess that is not square no longer contains all windows (code "scan.position-outside"), which
        positions=True avoids; and for a tilted geometry.
    """
    geometry = facing_geometry(scan, "exchanging its axes")
    if geometry is not None:
        geometry = dataclasses.replace(geometry, detector_pixel=geometry.detector_pixel[::-1])
    pixel = pixel_of(scan)
    return dataclasses.replace(
        scan,
        frames=transformed(scan, _swapped, window=scan.pattern_shape[::-1]),
        positions=scan.positions[:, ::-1].copy() if positions else transposed_places(scan, detector=True),
        motion=motion_in(scan, [[0, 1], [1, 0]] if positions else pixel / pixel[::-1]),
        mask=None if scan.mask is None else scan.mask.T,
        geometry=geometry,
        **carried(scan, probe=_swapped, object=_swapped),
    )


def mirrored_indices(
    window: Window, axes: tuple[int, ...], fourier: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the new order of rows and columns: n - 1 - i, or in the far field 2 (n // 2) - i modulo n."""

    def order(axis: int) -> NDArray[np.int64]:
        side = window[axis]
        index = np.arange(side)
        if axis not in axes:
            return index
        return (2 * (side // 2) - index) % side if fourier else index[::-1]

    return order(0), order(1)


def _mirrored(rows: NDArray[np.int64], columns: NDArray[np.int64], patterns: Array, first: int) -> Array:
    return patterns[:, rows][:, :, columns]


def _swapped(field: NDArray[Any], first: int = 0) -> NDArray[Any]:
    return np.swapaxes(field, -2, -1)


def _with_extent(field: Array, extent: tuple[int, int]) -> Array:
    """Crop the object (…, y, x) to `extent` (y, x), or extend it by transparent pixels, at its far ends."""
    field = field[..., : extent[0], : extent[1]]
    missing = [(0, 0)] * (field.ndim - 2) + [(0, b - a) for a, b in zip(field.shape[-2:], extent, strict=True)]
    return np.pad(field, missing, constant_values=1)
