"""Combination of several scans into one, which share a probe or an object."""

from __future__ import annotations

import functools
import math
import typing
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.data.geometry import NearField
from ptynb.data.patterns import AbsentFrames, Frames, StackedFrames, TransformedFrames
from ptynb.data.scan import CombinedScans, Scan, Share, check_scan, plain_geometry
from ptynb.data.tilted_geometry import TiltedGeometry
from ptynb.exceptions import InvalidTypeError, InvalidValueError, PtynbWarning, ScanError, SettingsError, check_choice
from ptynb.preparation.recorded_steps import check_measured
from ptynb.settings import Settings

SAME_LENGTH = 1e-5
"""Largest relative difference of lengths that count as equal: a hundredth of a pixel over 1000 pixels."""


def combine(scans: Sequence[Scan], *, share: Share, shifts: ArrayLike | None = None, gap: int | None = None) -> Scan:
    """Return one scan that is made of several, which share a probe or an object.

    With a shared probe the objects lie side by side in one array, so far apart that no window reaches two of them.
    With a shared object each scan has a probe (with all its modes) of its own, and positions are those of one
    coordinate system. Patterns are not copied; engines read each from the file of its scan. Pixels that are bad in one
    scan are not used in any. `Result.split` returns a result for each scan.

    The loss does not determine the relative intensity of scans that share a probe: their objects contain it.

    Parameters
    ----------
    scans : sequence of Scan
        Two scans or more, each of them prepared, with the same wavelength, pattern size and object pixel.
    share : {"probe", "object"}
        What the scans have in common.
    shifts : array_like, optional
        Vectors (scan, yx) that are added to the positions of each scan [object pixels], if they share an object. None:
        positions are already given in the same coordinate system.
    gap : int, optional
        Distance of the objects in their array [object pixels], if scans share a probe: at least twice
        `Settings.margin`. None: one probe window.

    Returns
    -------
    Scan
        The combined scan.

    Raises
    ------
    InvalidTypeError
        If the scans are no sequence of scans.
    InvalidValueError
        If there are fewer than two, or an argument is invalid or contradicts the others.
    ScanError
        If scans differ in what has to be equal (code "scan.different"), or scans with a common object do not overlap
        ("scan.disjoint").
    """
    scans = _checked(scans)
    for scan in scans:
        check_measured(scan, "combine")
    check_choice(share, "share", typing.get_args(Share))
    for scan in scans[1:]:
        if differences := [*_differences(scans[0], scan)]:
            raise ScanError(
                f"The scans '{scans[0].name}' and '{scan.name}' differ in {'; '.join(differences)}. Expected equal "
                f"values, for a common {share}: prepare both in the same way, or reconstruct each by itself.",
                code="scan.different",
            )
    moved = _moves(shifts, len(scans), share)
    space = max(scans[0].pattern_shape) if gap is None else gap
    if share == "probe" and not (isinstance(space, int) and space >= 0):
        raise InvalidValueError(
            f"gap is {gap!r}; expected a whole number of object pixels, at least 0.", code="argument.invalid-value"
        )
    frames = [_frame(scan) for scan in scans]
    offsets = _side_by_side(frames, space) if share == "probe" else moved
    placed = _placed(frames, offsets)
    object = None
    if any(scan.object is not None for scan in scans):
        # The array of an initial object is that of the reconstruction, and begins at position (0, 0).
        rim = space // 2 if share == "probe" else 0
        offsets = offsets + rim - placed[:, 0].min(0)
        placed = _placed(frames, offsets)
        object = _common_object(scans, offsets, placed[:, 1].max(0) + rim)
    combination = CombinedScans(
        share,
        tuple(scan.with_frames(AbsentFrames(scan.frames.shape, scan.frames.dtype.str)) for scan in scans),
        offsets,
        placed,
        space if share == "probe" else 0,
    )
    guesses = [scan.probe for scan in scans if scan.probe is not None] if share == "probe" else []
    try:
        return Scan(
            frames=_in_sequence(scans),
            positions=np.concatenate([scan.positions + offset for scan, offset in zip(scans, offsets, strict=True)]),
            centred=scans[0].centred,
            mask=_common_mask(scans),
            probe=guesses[0] if guesses else None,
            object=object,
            geometry=scans[0].geometry,
            clip_negative=scans[0].clip_negative,
            motion=None if scans[0].motion is None else np.concatenate([_motion(scan) for scan in scans]),
            name=" + ".join(scan.name for scan in scans),
            combination=combination,
        )
    except ScanError as error:
        if error.code != "scan.position-disconnected":
            raise
        areas = "; ".join(
            f"'{scan.name}' from ({low[0]}, {low[1]}) to ({high[0]}, {high[1]})"
            for scan, (low, high) in zip(scans, placed.tolist(), strict=True)
        )
        raise ScanError(
            f"The windows of scans that share an object do not overlap [object pixels (y, x)]: {areas}. Give "
            "shifts=[(y, x), ...], one for each scan, or share='probe' if they show different objects.",
            code="scan.disjoint",
        ) from None


def as_one_scan(
    scan: Scan | Sequence[Scan], share: Share | None, settings: Sequence[Settings], shifts: ArrayLike | None = None
) -> Scan:
    """Return the scan, or the combination of several. Raises SettingsError if `share` does not fit them.

    settings: of each stage of the run, for which objects that lie side by side have to be far enough apart.
    """
    several = isinstance(scan, list | tuple)
    if not several and share is not None:
        raise SettingsError(
            f"share is {share!r}, and one scan is given; give several, [a, b], or leave share out.",
            code="argument.conflict",
        )
    if isinstance(scan, Scan) or not several:
        check_scan(scan)
        assert isinstance(scan, Scan)
        return scan
    if share is None:
        raise SettingsError(
            f"{len(scan)} scans are given, and not what they have in common; add share='probe' or share='object'.",
            code="argument.missing",
        )
    scans = [one for one in scan if isinstance(one, Scan)]
    gap = None
    if share == "probe" and scans:
        window = scans[0].pattern_shape
        gap = max(*window, *(smallest_gap(one, window) for one in settings if isinstance(one, Settings)))
    return combine(scan, share=share, shifts=shifts, gap=gap)


def smallest_gap(settings: Settings, pattern_shape: tuple[int, int]) -> int:
    """Return the distance of objects side by side at which no window reaches two of them [object pixels]."""
    return 2 * settings.margin + (settings.detector.oversampling - 1) * max(pattern_shape)


def _checked(scans: Sequence[Scan]) -> list[Scan]:
    if isinstance(scans, Scan) or not isinstance(scans, Sequence):
        raise InvalidTypeError(
            f"The scans are a {type(scans).__name__}; expected a list of two scans or more.",
            code="argument.invalid-type",
        )
    for scan in scans:
        check_scan(scan)
        if scan.combination is not None:
            raise ScanError(
                f"'{scan.name}' is already made of {len(scan.combination.scans)} scans; combine all of them at once.",
                code="scan.combined",
            )
    if len(scans) < 2:
        raise InvalidValueError(
            f"{len(scans)} scans are given to be combined; expected at least two.", code="argument.invalid-value"
        )
    return [*scans]


def _moves(shifts: ArrayLike | None, count: int, share: Share) -> NDArray[np.float64]:
    if shifts is None:
        return np.zeros((count, 2))
    if share == "probe":
        raise InvalidValueError(
            "shifts are given and share is 'probe', where the objects are not in one coordinate system; leave shifts "
            "out.",
            code="argument.conflict",
        )
    moved = np.asarray(shifts, dtype=np.float64)
    if moved.shape != (count, 2) or not np.isfinite(moved).all():
        raise InvalidValueError(
            f"shifts has shape {moved.shape}; expected ({count}, 2): finite (y, x) [object pixels] for each scan.",
            code="array.shape-mismatch",
        )
    return moved


def _differences(first: Scan, other: Scan) -> Iterator[str]:
    """Yield what has to be equal in combined scans and is not, as text with both values."""
    if first.pattern_shape != other.pattern_shape:
        sizes = (f"{scan.pattern_shape[0]} x {scan.pattern_shape[1]}" for scan in (first, other))
        yield f"the size of the patterns ({' and '.join(sizes)} pixels)"
        return
    for name, word in (("centred", "the pixel order (centred)"), ("clip_negative", "clip_negative")):
        if getattr(first, name) != getattr(other, name):
            yield f"{word} ({getattr(first, name)} and {getattr(other, name)})"
    if (first.motion is None) != (other.motion is None):
        yield "the motion, which only one of them has"
    kinds = [type(scan.geometry).__name__ for scan in (first, other)]
    if kinds[0] != kinds[1]:
        yield f"the kind of geometry ({' and '.join('none' if kind == 'NoneType' else kind for kind in kinds)})"
        return
    lengths = [_lengths(scan) for scan in (first, other)]
    for name, value in lengths[0].items():
        if not np.allclose(value, lengths[1][name], rtol=SAME_LENGTH, atol=0):
            yield f"{name} ({_text(value)} and {_text(lengths[1][name])} m)"
    tilted = isinstance(first.geometry, TiltedGeometry) and plain_geometry(first.geometry) != plain_geometry(
        other.geometry
    )
    if tilted and lengths[0] == lengths[1]:
        yield "the tilted geometry"


def _lengths(scan: Scan) -> dict[str, tuple[float, ...]]:
    """Return the lengths that determine the propagation, by name [m]."""
    geometry = scan.geometry
    if geometry is None:
        return {}
    found: dict[str, tuple[float, ...]] = {
        "wavelength": (geometry.wavelength,),
        "object pixel": geometry.object_pixel(scan.pattern_shape),
    }
    if isinstance(geometry, NearField):
        found["effective distance"] = (geometry.effective_distance,)
    return found


def _text(lengths: tuple[float, ...]) -> str:
    return " x ".join(f"{length:.7g}" for length in lengths)


def _frame(scan: Scan) -> NDArray[np.int64]:
    """Return first and last pixel (2, yx) of a scan's object: that of its guess, or of all windows."""
    frame = scan.object_frame(0)
    low = np.array(frame.origin)
    return np.stack([low, low + frame.shape])


def _side_by_side(frames: list[NDArray[np.int64]], gap: int) -> NDArray[np.float64]:
    """Return the offset of each scan (scan, yx) that places its frame to the right of the previous one."""
    left, offsets = 0, []
    for low, high in frames:
        offsets.append((-low[0], left - low[1]))
        left += int(high[1] - low[1]) + gap
    return np.array(offsets, dtype=np.float64)


def _placed(frames: list[NDArray[np.int64]], offsets: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the frames (scan, 2, yx) in the coordinates of the combined scan."""
    return np.stack(frames) + np.rint(offsets).astype(np.int64)[:, None]


def _common_object(scans: list[Scan], offsets: NDArray[np.float64], shape: NDArray[np.int64]) -> NDArray[Any]:
    """Return an object (y, x) or (slice, y, x) with all guesses; where they overlap, that of the first scan."""
    guesses = [(scan, np.rint(offset).astype(int)) for scan, offset in zip(scans, offsets, strict=True)]
    depths = {scan.object.shape[:-2] for scan in scans if scan.object is not None}
    if len(depths) > 1:
        raise ScanError(
            f"The initial objects have {' and '.join(str(math.prod(depth)) for depth in sorted(depths))} slices; "
            "expected the same number.",
            code="scan.different",
        )
    dtype = np.result_type(np.complex64, *(scan.object.dtype for scan in scans if scan.object is not None))
    object = np.ones((*depths.pop(), *shape.tolist()), dtype)
    for scan, (top, left) in reversed(guesses):
        if scan.object is not None:
            height, width = scan.object.shape[-2:]
            object[..., top : top + height, left : left + width] = scan.object
    return object


def _common_mask(scans: list[Scan]) -> NDArray[np.bool_] | None:
    masks = [scan.mask for scan in scans]
    if all(mask is None for mask in masks):
        return None
    full = [np.ones(scans[0].pattern_shape, bool) if mask is None else mask for mask in masks]
    common: NDArray[np.bool_] = np.logical_and.reduce(full)
    lost = max(int((mask & ~common).sum()) for mask in full)
    if lost:
        warnings.warn(
            f"The masks of the scans differ: {lost} of {common.size} pixels that are good in one scan are bad in "
            "another one, and are not used in any",
            PtynbWarning,
            stacklevel=3,
        )
    return common


def _in_sequence(scans: list[Scan]) -> Frames:
    """Return the patterns of all scans in sequence, in a type that represents all counts."""
    dtype = np.result_type(*(scan.frames.dtype for scan in scans))
    return StackedFrames.of(
        [
            scan.frames
            if scan.frames.dtype == dtype
            else TransformedFrames(scan.frames, functools.partial(_cast, dtype), scan.pattern_shape, dtype)
            for scan in scans
        ]
    )


def _cast(dtype: np.dtype[Any], patterns: NDArray[Any], first: int) -> NDArray[Any]:
    return patterns.astype(dtype)


def _motion(scan: Scan) -> NDArray[np.float64]:
    assert scan.motion is not None, "all scans have motion, or none"
    return scan.motion
