"""A plan with what the header of a series adds to it: all numbers that a receiver needs."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptynb.acquisition.compression import Packed
from ptynb.acquisition.messages import SeriesStarted
from ptynb.acquisition.plan import ARRAYS, Plan
from ptynb.data.arrivals import patterns_to_begin
from ptynb.data.geometry import Geometry, metres_to_pixels
from ptynb.data.scan import AnyGeometry, plain_geometry
from ptynb.exceptions import AcquisitionError, InvalidValueError, ScanError
from ptynb.io.scan_identity import geometry_from
from ptynb.settings.claimed_values import beam_of


@dataclass(frozen=True, kw_only=True, eq=False)
class CompletePlan:
    """A plan with all numbers known, for one series.

    positions: (pattern, yx) [object pixels], planned ones, or a raster over the extent. planned: whether they are used
    as they are, without measured ones.
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


def completed(plan: Plan, started: SeriesStarted, shape: tuple[int, int], *, measured: bool = False) -> CompletePlan:
    """Return the plan with what the header of the series says, for patterns of `shape` (y, x) on the detector.

    measured: whether positions come from a source of their own.
    Raise AcquisitionError if the number of patterns is not known, ScanError without a geometry for metres.
    """
    count = plan.count
    if count is None:
        count = started.count if plan.positions is None else len(np.asarray(plan.positions))
    if count is None or count < 1:
        raise AcquisitionError(
            f"The header of series {started.series} does not say how many patterns will come; give it: "
            "Plan(..., count=1024).",
            code="acquisition.no-count",
            fields=("count",),
        )
    window, crop = _crop(plan, shape)
    geometry = plan.geometry
    beam = beam_of(started.wavelength, started.energy, detector=started.detector)
    if geometry is None and beam.wavelength and started.distance and started.detector_pixel:
        geometry = Geometry(
            wavelength=beam.wavelength,
            distance=started.distance,
            detector_pixel=started.detector_pixel,
        )
    if geometry is None and plan.units == "metres":
        raise ScanError(
            "Positions are in metres, and the detector's header lacks energy, distance or pixel size"
            f"{f' ({beam.question})' if beam.question else ''}; give "
            "Plan(..., geometry=Geometry(wavelength=..., distance=..., detector_pixel=...)), or units='pixels'.",
            code="scan.no-geometry",
            fields=("geometry",),
        )
    pixel = (1.0, 1.0)
    if plan.units == "metres" and geometry is not None:
        pixel = geometry.object_pixel(window)
    if plan.positions is None:
        assert plan.extent is not None
        limits = np.asarray(plan.extent, dtype=np.float64) / np.asarray(pixel)[:, None]
        positions = _raster_over(limits, count)
    else:
        positions = metres_to_pixels(np.asarray(plan.positions, dtype=np.float64), pixel)
        limits = np.column_stack([positions.min(0) - plan.margin, positions.max(0) + plan.margin])
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
        mask=_mask(plan, started, shape, crop),
        start_after=patterns_to_begin(count, plan.line) if plan.start_after is None else min(plan.start_after, count),
    )


def _crop(plan: Plan, shape: tuple[int, int]) -> tuple[tuple[int, int], tuple[slice, slice]]:
    """Return the size of the window, and the part of the detector that it is."""
    window = shape if plan.window is None else plan.window
    centre = (shape[0] // 2, shape[1] // 2) if plan.centre is None else plan.centre
    first = [middle - side // 2 for middle, side in zip(centre, window, strict=True)]
    last = [start + side for start, side in zip(first, window, strict=True)]
    if min(first) < 0 or last[0] > shape[0] or last[1] > shape[1]:
        raise InvalidValueError(
            f"A window of {window[0]} x {window[1]} pixels around pixel {centre} is not inside the detector's "
            f"patterns of {shape[0]} x {shape[1]}; choose a smaller window=, or another centre=.",
            code="argument.invalid-value",
            fields=("window", "centre"),
        )
    return window, (slice(first[0], last[0]), slice(first[1], last[1]))


def _mask(
    plan: Plan, started: SeriesStarted, shape: tuple[int, int], crop: tuple[slice, slice]
) -> NDArray[np.bool_] | None:
    if plan.mask is None:
        return None if started.bad_pixels is None else _working(started.series, started.bad_pixels, shape)[crop]
    mask = np.asarray(plan.mask).astype(bool)
    cropped = mask[crop] if mask.shape == shape else mask
    window = tuple(part.stop - part.start for part in crop)
    if cropped.shape != window:
        raise ScanError(
            f"The mask has shape {mask.shape}; expected that of the detector, {shape}, or of the window, {window}.",
            code="array.shape-mismatch",
            fields=("mask",),
        )
    return cropped


def _working(series: str, bad_pixels: Packed, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the mask (y, x) of a header, which is unpacked only if it has the shape of the patterns."""
    if bad_pixels.shape != shape:
        raise ScanError(
            f"The header of series {series} has a mask of shape {bad_pixels.shape}; expected that of the patterns, "
            f"{shape}. Give another: Plan(..., mask=...).",
            code="array.shape-mismatch",
            fields=("mask",),
        )
    try:
        return bad_pixels.counts() == 0
    except AcquisitionError as error:
        raise AcquisitionError(
            f"The mask in the header of series {series} cannot be read: {error} Give another: Plan(..., mask=...).",
            code=error.code,
            fields=("mask",),
        ) from None


def plan_to_json(plan: Plan) -> str:
    """Return the plan as JSON; arrays as numpy's file format in base 64."""
    values = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    for name in ARRAYS:
        if values[name] is not None:
            stream = io.BytesIO()
            np.save(stream, values[name], allow_pickle=False)
            values[name] = base64.b64encode(stream.getvalue()).decode()
    return json.dumps({**values, "geometry": plain_geometry(plan.geometry)})


def plan_from_json(text: str) -> Plan:
    """Return a plan from `plan_to_json`."""
    values = json.loads(text)
    for name in ARRAYS:
        if values[name] is not None:
            values[name] = np.load(io.BytesIO(base64.b64decode(values[name])), allow_pickle=False)
    for name in ("window", "centre"):
        values[name] = None if values[name] is None else tuple(values[name])
    return Plan(**{**values, "geometry": geometry_from(values["geometry"])})


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
