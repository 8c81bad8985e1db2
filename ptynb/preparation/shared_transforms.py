"""Helpers of the transformations: consistent changes of probe, object and ground truth, reading of patterns in parts.

Patterns, probe and object have the axes of the detector; positions have those of the stage. A transformation of the
detector changes everything with its axes; one of the positions changes only these.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.data.geometry import Geometry, NearField
from ptynb.data.patterns import Frames, TransformedFrames
from ptynb.data.scan import Scan, Truth
from ptynb.data.tilted_geometry import TiltedGeometry
from ptynb.exceptions import InvalidValueError, ScanError

Array = NDArray[Any]
Window = tuple[int, int]
PIECE = 2**23
"""Largest number of pixels of a part of the patterns that is read at once."""
SMALLEST_WINDOW = 4


def transformed(
    scan: Scan,
    function: Callable[..., Array],
    *arguments: Any,
    window: Window | None = None,
    dtype: np.dtype[Any] | None = None,
) -> Frames:
    """Return patterns that `function(*arguments, patterns, first)` transforms when they are read.

    first: index of the first of these patterns (pattern, y, x) in the scan.
    """
    return TransformedFrames(
        scan.frames, partial(function, *arguments), window or scan.pattern_shape, dtype or scan.frames.dtype
    )


def real_type(scan: Scan) -> np.dtype[Any]:
    """Return a floating-point type for the scan's counts: float32 for counts of up to 16 bits."""
    return np.result_type(scan.frames.dtype, np.float32)


def known(mask: NDArray[np.bool_] | None, patterns: Array) -> Array:
    """Return the patterns with 0 at bad pixels."""
    return patterns if mask is None else np.where(mask, patterns, np.zeros((), patterns.dtype))


def as_centred(scan: Scan) -> Scan:
    """Return the scan with its zero frequency at index n // 2; near-field scans do not change."""
    if scan.centred or not scan.is_far_field:
        return scan
    mask = None if scan.mask is None else np.fft.fftshift(scan.mask)
    return dataclasses.replace(scan, frames=transformed(scan, _centred), mask=mask, centred=True)


def _centred(patterns: Array, first: int) -> Array:
    return np.fft.fftshift(patterns, axes=(-2, -1))


def facing_geometry(scan: Scan, operation: str) -> Geometry | NearField | None:
    """Return the geometry of a scan whose detector faces the sample.

    Raises ScanError for tilted geometries, for which rows, columns and their pixels have another meaning.
    """
    if isinstance(scan.geometry, TiltedGeometry):
        raise ScanError(
            f"The geometry of the scan is tilted, and {operation} requires a detector that faces the sample; "
            "do it before you set this geometry.",
            code="scan.tilted-geometry",
        )
    return scan.geometry


def far_field_geometry(scan: Scan, operation: str) -> Geometry | NearField | None:
    """Return the geometry of a far-field scan as `facing_geometry` does; raise ScanError for near-field ones, too."""
    if not scan.is_far_field:
        raise ScanError(
            f"The scan is a near-field one, and {operation} requires diffraction patterns.", code="scan.near-field"
        )
    return facing_geometry(scan, operation)


def pieces(scan: Scan) -> Iterator[tuple[slice, Array]]:
    """Yield all patterns in parts of limited size, checked as `Scan.counts` does: their slice and their counts.

    The next part is read by a thread meanwhile.
    """
    wanted = parts(scan)
    with ThreadPoolExecutor(1, "ptynb reading") as reader:
        coming = [(part, reader.submit(scan.counts, part.start, part.stop)) for part in itertools.islice(wanted, 1)]
        while coming:
            part, counts = coming.pop()
            coming = [
                (after, reader.submit(scan.counts, after.start, after.stop)) for after in itertools.islice(wanted, 1)
            ]
            yield part, counts.result()


def parts(scan: Scan) -> Iterator[slice]:
    """Yield slices of all patterns in parts of limited size."""
    step = max(1, PIECE // (scan.pattern_shape[0] * scan.pattern_shape[1]))
    for start in range(0, len(scan), step):
        yield slice(start, min(start + step, len(scan)))


def pixel_of(scan: Scan) -> NDArray[np.float64]:
    """Return the size of an object pixel (y, x) [m]; without geometry relative sizes, for square detector pixels."""
    return np.array(scan.pixel_size or [1 / side for side in scan.pattern_shape], dtype=np.float64)


def middle_of(scan: Scan, window: Window | None = None) -> NDArray[np.float64]:
    """Return the index (y, x) about which patterns are mirrored: the probe centre, or that of a near-field window."""
    sides = np.array(window or scan.pattern_shape)
    return (sides // 2).astype(np.float64) if scan.is_far_field else (sides - 1) / 2


def carried(
    scan: Scan, *, probe: Callable[[Array], Array] | None = None, object: Callable[[Array], Array] | None = None
) -> dict[str, Any]:
    """Return guesses and ground truth with these functions applied to probes (mode, y, x) and objects (…, y, x).

    Types are preserved. None leaves the probes or objects unchanged.
    """
    return {
        "probe": _applied(scan.probe, probe),
        "object": _applied(scan.object, object),
        "ground_truth": carried_truth(scan.ground_truth, probe=probe, object=object),
    }


def carried_truth(
    truth: Truth | None,
    *,
    probe: Callable[[Array], Array] | None = None,
    object: Callable[[Array], Array] | None = None,
) -> Truth | None:
    """Return the ground truth with these functions applied to its probe and object; None changes nothing."""
    return None if truth is None else Truth(_applied(truth.object, object), _applied(truth.probe, probe))


def _applied(field: Any, function: Callable[[Array], Array] | None) -> Any:
    if field is None or function is None:
        return field
    return np.ascontiguousarray(function(field).astype(field.dtype, copy=False))


def motion_in(scan: Scan, matrix: ArrayLike) -> NDArray[np.float64] | None:
    """Return the motion during the exposure in new object pixels; None without motion.

    matrix: (yx, yx), the linear part of the map of the positions; (yx): its diagonal.
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    return None if scan.motion is None else scan.motion @ (np.diag(matrix) if matrix.ndim == 1 else matrix.T)


def with_room(
    positions: NDArray[np.float64], window: Window, object: Array | None, truth: Truth | None
) -> dict[str, Any]:
    """Return positions, object guess and ground truth, shifted together so that every window is inside the guess.

    The guess is extended by transparent pixels (1). A scan without an object guess does not change.
    """
    if object is not None:
        corners = np.rint(positions).astype(int)
        near = np.maximum(0, -corners.min(0))
        far = np.maximum(0, corners.max(0) + window - object.shape[-2:])
        object = _extended(object, near, far)
        positions = positions + near
        truth = carried_truth(truth, object=lambda field: _extended(field, near, np.zeros(2, int)))
    return {"positions": positions, "object": object, "ground_truth": truth}


def _extended(field: Array, near: NDArray[np.int_], far: NDArray[np.int_]) -> Array:
    widths = [(0, 0)] * (field.ndim - 2) + [(int(a), int(b)) for a, b in zip(near, far, strict=True)]
    return np.pad(field, widths, constant_values=1)


def whole_pair(value: Any, name: str) -> tuple[int, int]:
    """Return `value` as two integers (y, x); a single number is used for both. Raise InvalidValueError otherwise."""
    try:
        pair = np.broadcast_to(np.asarray(value), (2,))
        if not np.issubdtype(pair.dtype, np.integer):
            raise TypeError
    except (TypeError, ValueError):
        raise InvalidValueError(
            f"{name} is {value!r}; expected an integer or two (y, x).", code="argument.invalid-value"
        ) from None
    return int(pair[0]), int(pair[1])


def window_like(value: Any, name: str) -> Window:
    """Return `value` as a window of at least 4 x 4 pixels. Raise InvalidValueError for smaller ones."""
    window = whole_pair(value, name)
    if min(window) < SMALLEST_WINDOW:
        raise InvalidValueError(
            f"{name} is {window[0]} x {window[1]} pixels; expected at least 4 x 4.", code="argument.invalid-value"
        )
    return window
