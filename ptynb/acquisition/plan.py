"""Plan: what is known of a scan before it is measured, which `ptynb.listen` needs."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import math
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.acquisition.messages import Started
from ptynb.data.geometry import Geometry, metres_to_pixels, wavelength_from_energy
from ptynb.data.scan import AnyGeometry, plain_geometry
from ptynb.exceptions import AcquisitionError, InvalidValueError, ScanError
from ptynb.io.scan_identity import geometry_from

ARRAYS = ("positions", "mask", "probe", "object")
"""Fields that are arrays."""
START_AFTER = 32, 300
"""Fewest and most patterns after which a reconstruction begins by default, and in between a thirtieth of the scan."""
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
            )
        if self.positions is not None:
            planned = np.asarray(self.positions)
            if planned.dtype.kind not in "fiu" or planned.ndim != 2 or planned.shape[1] != 2 or not len(planned):
                raise ScanError(
                    f"The planned positions have shape {planned.shape} and type {planned.dtype}; expected numbers "
                    "(pattern, yx).",
                    code="array.shape-mismatch",
                )
            if not np.isfinite(planned).all():
                raise ScanError(
                    f"Planned position {int(np.argwhere(~np.isfinite(planned))[0, 0])} is not finite.",
                    code="array.not-finite",
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

    def complete(self, started: Started, shape: tuple[int, int], *, measured: bool = False) -> CompletePlan:
        """Return the plan with what the header of the series says, for patterns of `shape` (y, x) on the detector.

        measured: whether positions come from a source of their own.
        Raise AcquisitionError if the number of patterns is not known, ScanError without a geometry for metres.
        """
        count = self.count
        if count is None:
            count = started.count if self.positions is None else len(np.asarray(self.positions))
        if count is None or count < 1:
            raise AcquisitionError(
                f"The header of series {started.series} does not say how many patterns will come; give it: "
                "Plan(..., count=1024).",
                code="acquisition.no-count",
            )
        window, crop = self._crop(shape)
        geometry = self.geometry
        if geometry is None and started.energy and started.distance and started.detector_pixel:
            geometry = Geometry(
                wavelength=wavelength_from_energy(started.energy),
                distance=started.distance,
                detector_pixel=started.detector_pixel,
            )
        if geometry is None and self.units == "metres":
            raise ScanError(
                "Positions are in metres, and the detector's header lacks energy, distance or pixel size; give "
                "Plan(..., geometry=Geometry(wavelength=..., distance=..., detector_pixel=...)), or units='pixels'.",
                code="scan.no-geometry",
            )
        pixel = (1.0, 1.0)
        if self.units == "metres" and geometry is not None:
            pixel = geometry.object_pixel(window)
        if self.positions is None:
            assert self.extent is not None
            limits = np.asarray(self.extent, dtype=np.float64) / np.asarray(pixel)[:, None]
            positions = _raster_over(limits, count)
        else:
            positions = metres_to_pixels(np.asarray(self.positions, dtype=np.float64), pixel)
            limits = np.column_stack([positions.min(0) - self.margin, positions.max(0) + self.margin])
        return CompletePlan(
            count=count,
            series=started.series,
            positions=positions,
            planned=not measured,
            limits=limits,
            pixel=pixel,
            geometry=geometry,
            shape=shape,
            crop=crop,
            mask=self._mask(started, shape, crop),
            start_after=self._start_after(count),
        )

    def _crop(self, shape: tuple[int, int]) -> tuple[tuple[int, int], tuple[slice, slice]]:
        """Return the size of the window, and the part of the detector that it is."""
        window = shape if self.window is None else self.window
        centre = (shape[0] // 2, shape[1] // 2) if self.centre is None else self.centre
        first = [middle - side // 2 for middle, side in zip(centre, window, strict=True)]
        last = [start + side for start, side in zip(first, window, strict=True)]
        if min(first) < 0 or last[0] > shape[0] or last[1] > shape[1]:
            raise InvalidValueError(
                f"A window of {window[0]} x {window[1]} pixels around pixel {centre} is not inside the detector's "
                f"patterns of {shape[0]} x {shape[1]}; choose a smaller window=, or another centre=.",
                code="argument.invalid-value",
            )
        return window, (slice(first[0], last[0]), slice(first[1], last[1]))

    def _mask(self, started: Started, shape: tuple[int, int], crop: tuple[slice, slice]) -> NDArray[np.bool_] | None:
        mask = started.mask if self.mask is None else np.asarray(self.mask).astype(bool)
        if mask is None:
            return None
        cropped = mask[crop] if mask.shape == shape else mask
        window = tuple(part.stop - part.start for part in crop)
        if cropped.shape != window:
            raise ScanError(
                f"The mask has shape {mask.shape}; expected that of the detector, {shape}, or of the window, {window}.",
                code="array.shape-mismatch",
            )
        return cropped

    def _start_after(self, count: int) -> int:
        if self.start_after is not None:
            return min(self.start_after, count)
        return min(count, max(2 * (self.line or 0), min(max(count // 30, START_AFTER[0]), START_AFTER[1])))

    def to_json(self) -> str:
        """Return the plan as JSON; arrays as numpy's file format in base 64."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in ARRAYS:
            if values[name] is not None:
                stream = io.BytesIO()
                np.save(stream, values[name], allow_pickle=False)
                values[name] = base64.b64encode(stream.getvalue()).decode()
        return json.dumps({**values, "geometry": plain_geometry(self.geometry)})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return a plan from `to_json`."""
        values = json.loads(text)
        for name in ARRAYS:
            if values[name] is not None:
                values[name] = np.load(io.BytesIO(base64.b64decode(values[name])), allow_pickle=False)
        for name in ("window", "centre"):
            values[name] = None if values[name] is None else tuple(values[name])
        return cls(**{**values, "geometry": geometry_from(values["geometry"])})


@dataclass(frozen=True, kw_only=True, eq=False)
class CompletePlan:
    """A plan with all numbers known, for one series.

    positions: (pattern, yx) [object pixels], planned ones, or a raster over the extent. planned: whether they are used as
    they are, without measured ones.
    limits: (yx, 2): where measured positions may lie [object pixels]. pixel: (y, x), the unit of measured positions in
    object pixels is 1 / pixel. shape: (y, x) of the detector's patterns, of which `crop` is kept. mask: of the window.
    """

    count: int
    series: str
    positions: NDArray[np.float64]
    planned: bool
    limits: NDArray[np.float64]
    pixel: tuple[float, float]
    geometry: AnyGeometry | None
    shape: tuple[int, int]
    crop: tuple[slice, slice]
    mask: NDArray[np.bool_] | None
    start_after: int

    @property
    def window(self) -> tuple[int, int]:
        """Size (y, x) of the patterns that are kept."""
        return self.crop[0].stop - self.crop[0].start, self.crop[1].stop - self.crop[1].start


def _raster_over(limits: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return positions (pattern, yx) all over an area, in two corners of which the first and the last lie."""
    sides = limits[:, 1] - limits[:, 0]
    rows = max(1, min(count, round(math.sqrt(count * sides[0] / sides[1]))))
    columns = -(-count // rows)
    y, x = np.divmod(np.arange(count), columns)
    places = np.column_stack([y / max(rows - 1, 1), x / max(columns - 1, 1)]).clip(0, 1)
    positions: NDArray[np.float64] = limits[:, 0] + places * sides
    positions[-1] = limits[:, 1]
    return positions


def _is_extent(extent: Any) -> bool:
    found = np.asarray(extent)
    return bool(
        found.shape == (2, 2)
        and found.dtype.kind in "fiu"
        and np.isfinite(found).all()
        and (found[:, 0] < found[:, 1]).all()
    )


def _invalid(name: str, value: Any, expected: str) -> InvalidValueError:
    return InvalidValueError(f"{name} is {value!r:.100}; expected {expected}.", code="argument.invalid-value")
