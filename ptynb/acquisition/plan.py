"""Plan: what is known of a scan before it is measured, which `ptynb.listen` needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from ptynb.data.scan import AnyGeometry
from ptynb.exceptions import InvalidValueError, ScanError

ARRAYS = ("positions", "mask", "probe", "object")
"""Fields that are arrays."""
MOST_PLANNED = 10**8


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What is known of a scan before it is measured.

    Either `positions` are given, or `count` and `extent`: the object's array is made for them before the first pattern
    comes. Measured positions (`ptynb.listen(..., positions=...)`) replace planned ones; those outside are refused.

    Parameters
    ----------
    positions : array_like, optional
        Planned positions (pattern, yx) of the probe on the sample, in `units`.
    count : int, optional
        Number of patterns; by default that of the positions, or what the detector's header says.
    extent : ((float, float), (float, float)), optional
        Smallest and largest y, and smallest and largest x, of positions that are not known before, in `units`.
    units : {"metres", "pixels"}, default "metres"
        Unit of positions and extent, and of measured positions: metres, or object pixels.
    geometry : Geometry, NearField or TiltedGeometry, optional
        Geometry of the measurement; by default from the detector's header, if that has energy, distance and pixel size.
    window : (int, int), optional
        Size (y, x) to which patterns are cropped when they come; by default they stay whole.
    centre : (int, int), optional
        Pixel (y, x) of the detector that the window has in its middle, at n // 2: that of the direct beam; by default
        the detector's own, n // 2.
    mask : array_like, optional
        Mask (y, x), True or 1 at working pixels, of the whole detector or of the window; by default the detector's.
    probe : array_like, optional
        Initial guess (y, x) or (mode, y, x), complex; by default made from the first patterns.
    object : array_like, optional
        Initial guess (y, x) or (slice, y, x), complex, in whose pixels positions are given.
    clip_negative : bool, default False
        Whether negative counts are set to 0; otherwise they are an error.
    margin : float, default 4
        How far outside the planned positions measured ones may lie [object pixels]; not more than the object's margin
        (`Object.padding`) in the settings.
    line : int, optional
        Number of patterns of a line of the scan.
    start_after : int, optional
        Number of patterns after which a reconstruction begins; by default two lines, or a thirtieth of the scan, at
        least 32 and at most 300.
    silence : float, optional
        Time without a pattern after which the scan is taken as ended [s]; by default 5 s, or 20 times that between
        patterns if that is longer.
    name : str, default "live"
        Name of the scan.

    Raises
    ------
    InvalidValueError
        If values are out of range or exclude each other.
    ScanError
        If arrays have other shapes, or the geometry is missing.
    """

    positions: ArrayLike | None = None
    count: int | None = None
    extent: tuple[tuple[float, float], tuple[float, float]] | None = None
    units: Literal["metres", "pixels"] = "metres"
    geometry: AnyGeometry | None = None
    window: tuple[int, int] | None = None
    centre: tuple[int, int] | None = None
    mask: ArrayLike | None = None
    probe: ArrayLike | None = None
    object: ArrayLike | None = None
    clip_negative: bool = False
    margin: float = 4.0
    line: int | None = None
    start_after: int | None = None
    silence: float | None = None
    name: str = "live"

    def __post_init__(self) -> None:
        for name in ARRAYS:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, np.asarray(getattr(self, name)))
        if self.units not in ("metres", "pixels"):
            raise _invalid("units", self.units, "'metres' or 'pixels'")
        if (self.positions is None) == (self.extent is None):
            raise InvalidValueError(
                "A plan needs either positions=array (pattern, yx), or extent=((y0, y1), (x0, x1)) where they are not "
                f"known before; it has {'neither' if self.positions is None else 'both'}.",
                code="argument.missing" if self.positions is None else "argument.conflict",
                fields=("positions", "extent"),
            )
        if self.positions is not None:
            planned = np.asarray(self.positions)
            if planned.dtype.kind not in "fiu" or planned.ndim != 2 or planned.shape[1] != 2 or not len(planned):
                raise ScanError(
                    f"The planned positions have shape {planned.shape} and type {planned.dtype}; expected numbers "
                    "(pattern, yx).",
                    code="array.shape-mismatch",
                    fields=("positions",),
                )
            if not np.isfinite(planned).all():
                raise ScanError(
                    f"Planned position {int(np.argwhere(~np.isfinite(planned))[0, 0])} is not finite.",
                    code="array.not-finite",
                    fields=("positions",),
                )
            if self.count not in (None, len(planned)):
                raise _invalid("count", self.count, f"the number of planned positions, {len(planned)}")
        for name, most in (("count", MOST_PLANNED), ("line", MOST_PLANNED), ("start_after", MOST_PLANNED)):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and 1 <= value <= most):
                raise _invalid(name, value, f"a whole number from 1 to {most}")
        for name, least in (("window", 4), ("centre", 0)):
            sides = getattr(self, name)
            if sides is not None and (len(sides) != 2 or not all(isinstance(n, int) and n >= least for n in sides)):
                raise _invalid(name, sides, f"two whole numbers (y, x), at least {least}")
        if self.extent is not None and not _is_extent(self.extent):
            raise _invalid("extent", self.extent, "((y0, y1), (x0, x1)), finite, with y0 < y1 and x0 < x1")
        if not (math.isfinite(self.margin) and self.margin >= 0):
            raise _invalid("margin", self.margin, "a finite number of at least 0")
        if self.silence is not None and not 0.1 <= self.silence <= 1e6:
            raise _invalid("silence", self.silence, "from 0.1 to 1e6 s")


def _is_extent(extent: Any) -> bool:
    found = np.asarray(extent)
    return bool(
        found.shape == (2, 2)
        and found.dtype.kind in "fiu"
        and np.isfinite(found).all()
        and (found[:, 0] < found[:, 1]).all()
    )


def _invalid(name: str, value: Any, expected: str) -> InvalidValueError:
    return InvalidValueError(
        f"{name} is {value!r:.100}; expected {expected}.", code="argument.invalid-value", fields=(name,)
    )
