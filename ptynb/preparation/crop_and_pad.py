"""Cropping and padding the detector. In the far field this changes the size of the object's pixels, λ z / (n p)."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError
from ptynb.preparation.carry_over import (
    Array,
    Window,
    as_centred,
    carried,
    carried_truth,
    facing_geometry,
    transformed,
    whole_pair,
    window_like,
    with_room,
)
from ptynb.preparation.field_resampling import cut, cut_spectrum, middle_start, resampled


def crop(scan: Scan, window: int | Window, centre: tuple[int, int] | None = None, *, move_probe: bool = True) -> Scan:
    """Keeps `window` (y, x) pixels of the detector around pixel `centre` (y, x), the zero frequency unless given.

    Far field: object pixels grow by n / window, so positions count fewer of them, and probe and object (guess and
    truth) lose the frequencies that are cut off. A centre beside index n // 2 (in centred order) becomes the new zero
    frequency: the far field of the probe moves with the patterns. move_probe=False leaves the guess where it is, for
    one that was made without the patterns and is centred already.
    Near field: object pixels stay, the probe's window is cut out.

    Raises ValueError if the window does not lie inside the patterns, and ScanError if it lies beside the middle in
    a tilted geometry.
    """
    wanted = window_like(window, "The window to crop to")
    scan = as_centred(scan)
    middle = (scan.pattern_shape[0] // 2, scan.pattern_shape[1] // 2)
    at = middle if centre is None else whole_pair(centre, "The centre of the crop")
    start = (at[0] - wanted[0] // 2, at[1] - wanted[1] // 2)
    if any(
        not 0 <= begin <= begin + side <= whole
        for begin, side, whole in zip(start, wanted, scan.pattern_shape, strict=True)
    ):
        raise InvalidValueError(
            f"A window of {wanted[0]} x {wanted[1]} pixels around pixel {at} does not lie inside patterns of "
            f"{scan.pattern_shape[0]} x {scan.pattern_shape[1]}; make it smaller, or pad them first.",
            code="argument.invalid-value",
        )
    if at != middle:
        facing_geometry(scan, "a crop beside the middle")
    return _reframed(scan, start, wanted, None, move_probe)


def pad(scan: Scan, window: int | Window, *, measured: bool = False) -> Scan:
    """Surrounds the detector with pixels up to `window` (y, x), with zero frequency at the new centre.

    They hold 0 and are masked as unmeasured; measured=True says that nothing fell there.
    Far field: object pixels shrink by n / window; positions and object (guess and truth) are given in the new ones,
    and the far field of the probe is dark in the new pixels. Near field: object pixels stay, the probe gets a dark
    border.

    Raises ValueError if the window is smaller than the patterns.
    """
    wanted = window_like(window, "The window to pad to")
    scan = as_centred(scan)
    if any(new < old for new, old in zip(wanted, scan.pattern_shape, strict=True)):
        raise InvalidValueError(
            f"The window to pad to is {wanted[0]} x {wanted[1]} pixels, and the patterns have "
            f"{scan.pattern_shape[0]} x {scan.pattern_shape[1]}; expected no fewer. Crop them, or bin them.",
            code="argument.invalid-value",
        )
    return _reframed(scan, middle_start(scan.pattern_shape, wanted), wanted, measured, True)


def _reframed(scan: Scan, start: tuple[int, int], window: Window, measured: bool | None, move_probe: bool) -> Scan:
    """A centred scan whose patterns begin at `start` and have `window` pixels.

    measured: what holds outside the patterns; None where there is no outside.
    """
    guess_start = start if move_probe else middle_start(scan.pattern_shape, window)
    if scan.is_far_field:
        ratios = (window[0] / scan.pattern_shape[0], window[1] / scan.pattern_shape[1])
        old, new = np.array(scan.pattern_shape), np.array(window)
        positions: NDArray[np.float64] = (scan.positions + old // 2) * ratios - new // 2
        fields = carried(
            scan,
            probe=lambda field: cut_spectrum(field, guess_start, window),
            object=lambda field: resampled(field, ratios),
        )
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
        frames=transformed(scan, _cut_patterns, start, window, window=window),
        mask=_mask(scan, start, window, measured),
        probe=fields["probe"],
        **with_room(positions, window, fields["object"], fields["ground_truth"]),
    )


def _mask(scan: Scan, start: tuple[int, int], window: Window, measured: bool | None) -> Any:
    if scan.mask is None and measured is not False:
        return None
    mask = np.ones(scan.pattern_shape, bool) if scan.mask is None else scan.mask
    inside = cut(mask, start, window)
    return inside | ~cut(np.ones_like(mask), start, window) if measured else inside


def _cut_patterns(start: tuple[int, int], window: Window, patterns: Array, first: int) -> Array:
    return cut(patterns, start, window)
