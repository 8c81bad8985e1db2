"""Cropping and padding of the detector. In the far field this changes the size of the object pixels, λ z / (n p)."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data.geometry import Geometry
from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError, ScanError
from ptynb.preparation.field_resampling import cut, cut_patterns, cut_spectrum, middle_start, resampled
from ptynb.preparation.recorded_steps import check_measured, recorded, with_preparation
from ptynb.preparation.shared_transforms import (
    Window,
    as_centred,
    carried,
    carried_truth,
    facing_geometry,
    motion_in,
    transformed,
    whole_pair,
    window_like,
    with_room,
)


@recorded
def crop(scan: Scan, window: int | Window, centre: tuple[int, int] | None = None, *, move_probe: bool = True) -> Scan:
    """Crop the patterns to a window.

    Far field: object pixels grow by n / window, positions are converted, and probe and object (guess and ground truth)
    lose the frequencies that are cut off. A centre other than index n // 2 (in centred order) becomes the new zero
    frequency, and the far field of the probe is shifted with the patterns.
    Near field: object pixels stay, and the probe window is cut out.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    window : int or (int, int)
        Size (y, x) of the window [detector pixels].
    centre : (int, int), optional
        Pixel (y, x) at the centre of the window; by default the zero frequency.
    move_probe : bool, default True
        Whether the probe guess is shifted, too; False for a centred guess not derived from the patterns.

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    InvalidValueError
        If the window does not lie inside the patterns.
    ScanError
        If it is not centred in a tilted geometry.
    """
    size = window_like(window, "window")
    scan = as_centred(scan)
    middle = (scan.pattern_shape[0] // 2, scan.pattern_shape[1] // 2)
    at = middle if centre is None else whole_pair(centre, "centre")
    start = (at[0] - size[0] // 2, at[1] - size[1] // 2)
    if any(
        not 0 <= begin <= begin + side <= whole
        for begin, side, whole in zip(start, size, scan.pattern_shape, strict=True)
    ):
        raise InvalidValueError(
            f"A window of {size[0]} x {size[1]} pixels around pixel {at} does not fit into patterns of "
            f"{scan.pattern_shape[0]} x {scan.pattern_shape[1]}; make it smaller, or pad them first.",
            code="argument.invalid-value",
        )
    if at != middle:
        facing_geometry(scan, "a crop with another centre")
    return _reframed(scan, start, size, None, move_probe)


@recorded
def pad(scan: Scan, window: int | Window, *, measured: bool = False) -> Scan:
    """Extend the patterns to a larger window, with zero frequency at the new centre.

    Far field: object pixels shrink by n / window, positions and object (guess and ground truth) are converted, and the
    far field of the probe is 0 in the new pixels. Near field: object pixels stay, and the probe is padded with 0.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    window : int or (int, int)
        New size (y, x) [detector pixels].
    measured : bool, default False
        Whether the new pixels count as measured 0; by default they are masked.

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    InvalidValueError
        If the window is smaller than the patterns.
    """
    size = window_like(window, "window")
    scan = as_centred(scan)
    if any(new < old for new, old in zip(size, scan.pattern_shape, strict=True)):
        raise InvalidValueError(
            f"window is {size[0]} x {size[1]} pixels and the patterns have "
            f"{scan.pattern_shape[0]} x {scan.pattern_shape[1]}; expected at least as many. Crop or bin them instead.",
            code="argument.invalid-value",
        )
    return _reframed(scan, middle_start(scan.pattern_shape, size), size, measured, True)


def _reframed(scan: Scan, start: tuple[int, int], window: Window, measured: bool | None, move_probe: bool) -> Scan:
    """Return a centred scan whose patterns begin at `start` and have `window` pixels.

    measured: whether new pixels count as measured; None if there are none.
    """
    guess_start = start if move_probe else middle_start(scan.pattern_shape, window)
    motion = scan.motion
    if scan.is_far_field:
        ratios = (window[0] / scan.pattern_shape[0], window[1] / scan.pattern_shape[1])
        old, new = np.array(scan.pattern_shape), np.array(window)
        positions: NDArray[np.float64] = (scan.positions + old // 2) * ratios - new // 2
        fields = carried(
            scan,
            probe=lambda field: cut_spectrum(field, guess_start, window),
            object=lambda field: resampled(field, ratios),
        )
        motion = motion_in(scan, ratios)
        fields["ground_truth"] = carried_truth(
            scan.ground_truth,
            probe=lambda field: cut_spectrum(field, start, window),
            object=lambda field: resampled(field, ratios),
        )
    else:
        positions = scan.positions + start
        fields = carried(scan, probe=lambda field: cut(field, start, window))
    return dataclasses.replace(
        scan,
        frames=transformed(scan, cut_patterns, start, window, window=window),
        mask=_mask(scan, start, window, measured),
        probe=fields["probe"],
        motion=motion,
        **with_room(positions, window, fields["object"], fields["ground_truth"]),
    )


def _mask(scan: Scan, start: tuple[int, int], window: Window, measured: bool | None) -> Any:
    if scan.mask is None and measured is not False:
        return None
    mask = np.ones(scan.pattern_shape, bool) if scan.mask is None else scan.mask
    inside = cut(mask, start, window)
    return inside | ~cut(np.ones_like(mask), start, window) if measured else inside


def in_window(scan: Scan, size: tuple[int, int] | None) -> Scan:
    """Return the scan with its patterns cropped to this size (y, x); None or the whole size: the scan itself.

    Raises ScanError for near-field scans, tilted geometries and scans that are being measured, InvalidValueError if the
    patterns are smaller.
    """
    if size is None or size == scan.pattern_shape:
        return scan
    check_measured(scan, f"A stage with pattern_size {size[0]} x {size[1]}")
    if not isinstance(scan.geometry, Geometry | None):
        near = not scan.is_far_field
        raise ScanError(
            f"A stage has pattern_size {size[0]} x {size[1]} and the scan has a {'near-field' if near else 'tilted'} "
            "geometry; smaller patterns give a coarser object only in the far field of a detector that faces the "
            "sample: leave pattern_size out.",
            code="scan.near-field" if near else "scan.tilted-geometry",
        )
    if any(side > whole for side, whole in zip(size, scan.pattern_shape, strict=True)):
        raise InvalidValueError(
            f"A stage has pattern_size {size[0]} x {size[1]} and the patterns have {scan.pattern_shape[0]} x "
            f"{scan.pattern_shape[1]} pixels; expected at most as many.",
            code="argument.invalid-value",
        )
    return with_preparation(crop(scan, size), scan.preparation)
