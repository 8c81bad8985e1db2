"""Patterns of a stage: cropped to a window about the zero frequency, from which a coarse object is reconstructed."""

from __future__ import annotations

from ptynb.data.geometry import Geometry
from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError, ScanError
from ptynb.preparation.crop_and_pad import crop
from ptynb.preparation.recorded_steps import check_measured, with_preparation


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
