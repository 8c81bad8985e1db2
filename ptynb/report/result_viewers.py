"""Viewers of a result on the page: object, cuts through its slices, probe and positions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ptynb.analysis.array_lines import field_line, quantity_lines
from ptynb.analysis.orthogonal_cuts import orthogonal_cuts, slice_distance
from ptynb.analysis.position_refinement import PositionRefinement, moved_positions
from ptynb.analysis.probe_modes import mode_powers
from ptynb.analysis.result_comparison import illuminated
from ptynb.data import images
from ptynb.data.engine_records import Array, Picture, Result, Thumbnail
from ptynb.data.standard_error import ErrorMap
from ptynb.report.page_data import (
    LARGEST_SIDE,
    ByteBudget,
    PageData,
    choice,
    coloured_picture,
    picture_of,
    plain_picture,
    points,
)

MODES = 16
"""Maximum number of probe modes shown."""
PERCENTILES = (0.5, 99.5)
"""Percentiles of the values that get the lowest and the highest grey level."""
FEWEST = 8
"""Minimum side of an area to which pictures are cropped [pixels]."""
LEGEND = (
    "Hue is the phase, brightness the amplitude; each mode is scaled to full brightness and has the stated part of "
    "the power."
)
CUT_SIDE = 1024
"""Longest side of slices of a large object that are cut [values], which is that of the pictures."""
PLACES = 9
"""Number of places at which a thick object is cut."""
Area = tuple[slice, slice]


def area_of(result: Result) -> Area:
    """Return the illuminated part of the object; all of it if the positions are not finite."""
    whole = slice(0, result.object.shape[-2]), slice(0, result.object.shape[-1])
    if not len(result.positions) or not np.isfinite(result.positions).all():
        return whole
    area = illuminated(result)
    return area if min(part.stop - part.start for part in area) >= FEWEST else whole


def show_object(data: PageData, result: Result, budget: ByteBudget) -> list[str]:
    """Add the viewer "object": projection, slices and thumbnails of earlier epochs. Return notes about it."""
    area, slices = area_of(result), result.slices
    scale, shown = _shown(slices, area)
    frames: dict[str, Mapping[str, Any]] = {
        "whole": {**_frame(data, "whole", [shown], result, budget.whole, scale=scale)[0], **_arrays(result, area)}
    }
    controls, notes = [], [_reduced(data, "whole amplitude", "It is")]
    if len(slices) > 1:
        fields = [_shown(one[None], area)[1] for one in slices]
        layers = _frame(data, "slice", fields, result, budget.slices, scale=scale)
        keys = {f"slice {number + 1} of {len(slices)}": f"slice {number}" for number in range(len(slices))}
        frames |= {f"slice {number}": {**frame, **_arrays(result, area, number)} for number, frame in enumerate(layers)}
        controls.append(choice("Slice", [("product of all", "whole"), *keys.items()], kind="range"))
        notes.append(_reduced(data, "slice 0 amplitude", "Each slice is"))
    thumbnails = [one for one in result.history if min(one.object.shape) > 1]
    if thumbnails:
        frames |= _epochs(data, thumbnails, area, result, budget.epochs)
        last = result.epochs[-1].number if result.epochs else 0
        options = [(f"epoch {one.epoch}", f"epoch {one.epoch}") for one in thumbnails if one.epoch != last]
        options.append((f"epoch {last}, the result", "whole"))
        controls.append(choice("Epoch", options, len(options) - 1, kind="range"))
    data.add_viewer("object", "Object", frames, controls, exclusive=True)
    if result.object.ndim == 4:
        notes.append(f"It has {len(result.object)} modes, of which the first is shown.")
    return [text for text in notes if text]


def _shown(layers: Array, area: Area) -> tuple[int, Array]:
    """Return the product (y, x) of layers (layer, y, x) in an area, and how many pixels a side one of its values is.

    It has every pixel, but of a large area only means, twice as many a side as the largest picture of a page.
    """
    seen = layers[(slice(None), *area)]
    scale = images.reduction_for(seen.shape, 2 * LARGEST_SIDE)
    return scale, np.nan_to_num(seen.prod(0)) if scale == 1 else images.flat_means(seen, scale)


def _arrays(result: Result, area: Area, slice: int | None = None) -> dict[str, Any]:
    """Return the Python of the arrays behind the pictures of the area, for the lines that measure in them."""
    y, x = area
    corner, shape = (y.start, x.start), (y.stop - y.start, x.stop - x.start)
    modes = len(result.object) if result.object.ndim == 4 else 1
    return {"expressions": quantity_lines(field_line("result", slice, modes=modes), corner, shape)}


def _frame(
    data: PageData, key: str, fields: list[Array], result: Result, share: float, pixel: Any = None, scale: int = 1
) -> list[dict[str, Any]]:
    """Add amplitude, phase and colours of each field (y, x) with common limits; return the frames of a viewer.

    scale: see `picture_of`.
    """
    keys = [key] if len(fields) == 1 else [f"{key} {number}" for number in range(len(fields))]
    pixel = result.pixel_size if pixel is None else pixel
    makers: dict[str, Callable[[int], Picture]] = {}
    for quantity, measure in (("amplitude", np.abs), ("phase", images.flat_phase)):
        values = [measure(field) for field in fields]
        limits = images.limits_of(np.stack(values), *PERCENTILES)
        look = {"unit": "rad", "colours": "viridis"} if quantity == "phase" else {"unit": "", "colours": "gray"}
        title = f"Object {quantity}"
        for one, of in zip(keys, values, strict=True):
            makers[f"{one} {quantity}"] = partial(_field_picture, of, quantity, title, limits, pixel, look, scale)
    data.add_pictures(makers, share)
    frames = []
    for one in keys:
        colours = data.add_composed(f"{one} complex", "Object, complex", f"{one} amplitude", f"{one} phase")
        frames.append({"pictures": [f"{one} amplitude", f"{one} phase", colours]})
    return frames


def _field_picture(
    values: Array,
    name: str,
    title: str,
    limits: tuple[float, float],
    pixel_size: Any,
    look: Mapping[str, str],
    scale: int,
    reduction: int,
) -> Picture:
    return picture_of(values, name, title, limits, pixel_size=pixel_size, reduction=reduction, scale=scale, **look)


def _epochs(
    data: PageData, thumbnails: list[Thumbnail], area: Area, result: Result, share: float
) -> dict[str, dict[str, Any]]:
    """Return frames of the thumbnails, each cropped to about the same area as the result."""
    frames = {}
    for thumbnail in thumbnails:
        key, reduction = f"epoch {thumbnail.epoch}", thumbnail.reduction
        cut = [
            slice(
                max(round((part.start - at) / reduction), 0),
                min(max(round((part.stop - at) / reduction), 0), side),
            )
            for part, at, side in zip(area, thumbnail.corner, thumbnail.object.shape, strict=True)
        ]
        field = thumbnail.object[cut[0], cut[1]]
        field = np.nan_to_num(field if min(field.shape) >= FEWEST else thumbnail.object)
        pixel = None if result.pixel_size is None else tuple(reduction * side for side in result.pixel_size)
        (frames[key],) = _frame(data, key, [field], result, share / len(thumbnails), pixel)
        frames[key]["note"] = f"After epoch {thumbnail.epoch}, stored with a reduction of {reduction} × {reduction}."
    return frames


def _reduced(data: PageData, name: str, what: str) -> str:
    reduction = int(data.pictures[name]["reduction"])
    if reduction == 1:
        return ""
    return f"{what} reduced {reduction} × {reduction} to keep the page small."


def show_cuts(data: PageData, result: Result) -> list[str]:
    """Add the viewer "cuts": cuts along the beam at some places of a thick object. Return notes; []: it cannot be cut.

    The places lie on a diagonal of the illuminated area.
    """
    known = result.pixel_size is not None and slice_distance(result) is not None
    if len(result.slices) < 2 or not known or not np.isfinite(result.positions).all():
        return []
    seen, scale, corner = _for_cuts(result)
    y, x = illuminated(seen)
    frames, places = dict[str, Mapping[str, Any]](), list[tuple[str, str]]()
    for number in range(PLACES):
        at = [part.start + (2 * number + 1) * (part.stop - part.start) // (2 * PLACES) for part in (y, x)]
        row, column = (first + scale * one for first, one in zip(corner, at, strict=True))
        key = f"cut {number}"
        made: list[Picture] = []
        for quantity in ("amplitude", "phase"):
            cuts = orthogonal_cuts(seen, y=at[0], x=at[1], quantity=quantity)
            made += dataclasses.replace(cuts, row=row, column=column).pictures()
        data.pictures |= {f"{key} {one.name}": plain_picture(one) for one in made}
        frames[key] = {"pictures": [f"{key} {one.name}" for one in made]}
        places.append((f"y {row}, x {column}", key))
    data.add_viewer(
        "cuts", "Cuts", frames, [choice("Place", places, PLACES // 2, kind="range")], tools=False, height=260
    )
    line = "pt.analysis.orthogonal_cuts(result, y=..., x=...)"
    return [f"Cuts along the beam through all slices, at {PLACES} places; {line} cuts at any pixel."]


def _for_cuts(result: Result) -> tuple[Result, int, tuple[int, int]]:
    """Return a result with the slices to be cut, pixels a side of one of its values, and the first of these pixels.

    Of a large object these are means over the illuminated area, as fine as the pictures of cuts.
    """
    y, x = area = illuminated(result)
    shape = y.stop - y.start, x.stop - x.start
    if max(shape) <= 2 * LARGEST_SIDE or result.pixel_size is None:
        return dataclasses.replace(result, object=np.nan_to_num(result.object)), 1, (0, 0)
    scale = images.reduction_for(shape, CUT_SIDE)
    layers = np.stack([images.flat_means(one[None, *area], scale) for one in result.slices])
    window = np.array(result.probe.shape[-2:])
    # Corners of windows between whose central halves all of it is.
    corners = np.stack([-window / 4, np.array(layers.shape[1:]) - 3 * window / 4])
    pixel = result.pixel_size[0] * scale, result.pixel_size[1] * scale
    small = dataclasses.replace(result, object=layers, positions=corners, pixel_size=pixel)
    return small, scale, (y.start, x.start)


def show_errors(data: PageData, found: ErrorMap, share: float) -> list[str]:
    """Add the viewer "errors": the phase of the object beside its standard error. Return notes about it."""
    phase: Array = images.flat_phase(found.object)
    shown = (
        ("phase", phase, "Object phase", "viridis", "rad"),
        ("phase error", found.phase_error, "Standard error of the phase", "magma", "rad"),
        ("amplitude error", found.amplitude_error, "Standard error of the amplitude", "magma", ""),
    )
    makers: dict[str, Callable[[int], Picture]] = {}
    for name, values, title, colours, unit in shown:
        limits = images.limits_of(values, *PERCENTILES)
        look = {"unit": unit, "colours": colours}
        makers[f"halves {name}"] = partial(_field_picture, values, name, title, limits, found.pixel_size, look, 1)
    added = data.add_pictures(makers, share)
    data.add_viewer("errors", "Standard error", {"all": {"pictures": added.names}})
    return [
        f"From two independent reconstructions of halves of the scan. The median standard error is {found.median:.3g} "
        f"of the object's amplitude, that of the phase {float(np.median(found.phase_error)):.3g} rad. Squared "
        f"differences are averaged over {found.smoothing:g} pixels (standard deviation of the weights).",
        "Errors that both halves have in common do not show: of the geometry, of positions and probe that both begin "
        "with, of the model.",
    ]


def show_probe(data: PageData, result: Result, budget: ByteBudget) -> list[str]:
    """Add the viewer "probe": the modes in colours, with their powers. Return notes about it."""
    probe = np.nan_to_num(result.probe)
    powers = mode_powers(probe) if probe.any() else np.zeros(len(probe))
    makers: dict[str, Callable[[int], Picture]] = {}
    for number, (mode, power) in enumerate(zip(probe[:MODES], powers, strict=False), start=1):
        title = f"Mode {number}: {power:.1%}"
        makers[f"probe {number}"] = partial(
            coloured_picture, mode, f"mode {number}", title, pixel_size=result.pixel_size
        )
    added = data.add_pictures(makers, budget.probe)
    data.add_viewer("probe", "Probe modes", {"all": {"pictures": added.names}}, tools=False, height=230)
    notes = [LEGEND]
    if added.reduction > 1:
        notes.append(f"The pictures are reduced {added.reduction} × {added.reduction}.")
    if len(probe) > MODES:
        notes.append(f"There are {len(probe)} modes, of which the first {MODES} are shown.")
    return notes


def show_positions(data: PageData, result: Result) -> list[str]:
    """Add the viewer "positions": probe centres over the object, and their refinement. Return notes about it."""
    positions = result.positions
    if not len(positions) or not np.isfinite(positions).all():
        return ["The positions are not finite."]
    area = area_of(result)
    corner = np.array([area[0].start, area[1].start])
    began = result.parameters.get("positions/start")
    known = began is not None and began.shape == positions.shape
    found = moved_positions(began if known else positions, positions, result.pixel_size)  # type: ignore[arg-type]
    middle = np.array(result.probe.shape[-2:]) / 2 - corner
    frame: dict[str, Any] = {"pictures": ["whole amplitude"], "points": points(found.measured + middle)}
    notes = [f"Centres of the probe windows at {len(positions)} positions."]
    if not known:
        notes.append("They were not refined.")
    else:
        factor = found.exaggeration()
        frame["moves"] = points(found.arrows(factor) + middle)
        times = "" if factor == 1 else f", drawn {factor:g} times as long"
        notes.append(f"They were refined by {_lengths(found)}; arrows lead to the refined positions{times}.")
    data.add_viewer("positions", "Positions", {"all": frame}, tools=False, height=420)
    return notes


def _lengths(found: PositionRefinement) -> str:
    """Return the lengths of the moves as text."""
    rms, largest, rest = map(found.length_text, (found.rms, found.largest, found.residual_rms))
    return f"{rms} rms, {largest} at most, without a common shift ({rest} rms without scale, rotation and shear)"
