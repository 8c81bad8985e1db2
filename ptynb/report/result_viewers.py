"""Viewers of a result on the page: object, probe and positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ptynb.analysis.array_lines import field_line, quantity_lines
from ptynb.analysis.probe_modes import mode_powers
from ptynb.analysis.result_comparison import illuminated
from ptynb.data import images
from ptynb.data.engine_records import Array, Picture, Result, Thumbnail
from ptynb.data.standard_error import ErrorMap
from ptynb.report.page_data import ByteBudget, PageData, choice, coloured_picture, picture_of, points

MODES = 16
"""Maximum number of probe modes shown."""
PERCENTILES = (0.5, 99.5)
"""Percentiles of the values that get the lowest and the highest grey level."""
FEWEST = 8
"""Minimum side of an area to which pictures are cropped [pixels]."""
MAGNIFIED = 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0
LEGEND = (
    "Hue is the phase, brightness the amplitude; each mode is scaled to full brightness and has the stated part of "
    "the power."
)
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
    seen = np.nan_to_num(result.projection[area])
    frames: dict[str, Mapping[str, Any]] = {
        "whole": {**_frame(data, "whole", [seen], result, budget.whole)[0], **_arrays(result, area)}
    }
    controls, notes = [], [_reduced(data, "whole amplitude", "It is")]
    if len(slices) > 1:
        fields = [np.nan_to_num(one[area]) for one in slices]
        shown = _frame(data, "slice", fields, result, budget.slices)
        keys = {f"slice {number + 1} of {len(slices)}": f"slice {number}" for number in range(len(slices))}
        frames |= {f"slice {number}": {**frame, **_arrays(result, area, number)} for number, frame in enumerate(shown)}
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


def _arrays(result: Result, area: Area, slice: int | None = None) -> dict[str, Any]:
    """Return the Python of the arrays behind the pictures of the area, for the lines that measure in them."""
    y, x = area
    corner, shape = (y.start, x.start), (y.stop - y.start, x.stop - x.start)
    modes = len(result.object) if result.object.ndim == 4 else 1
    return {"expressions": quantity_lines(field_line("result", slice, modes=modes), corner, shape)}


def _frame(
    data: PageData, key: str, fields: list[Array], result: Result, share: float, pixel: Any = None, least: int = 1
) -> list[dict[str, Any]]:
    """Add amplitude, phase and colours of each field (y, x) with common limits; return the frames of a viewer."""
    keys = [key] if len(fields) == 1 else [f"{key} {number}" for number in range(len(fields))]
    pixel = result.pixel_size if pixel is None else pixel
    makers: dict[str, Callable[[int], Picture]] = {}
    for quantity, measure in (("amplitude", np.abs), ("phase", images.flat_phase)):
        values = [measure(field) for field in fields]
        limits = images.limits_of(np.stack(values), *PERCENTILES)
        look = {"unit": "rad", "colours": "viridis"} if quantity == "phase" else {"unit": "", "colours": "gray"}
        title = f"Object {quantity}"
        for one, of in zip(keys, values, strict=True):
            makers[f"{one} {quantity}"] = partial(_field_picture, of, quantity, title, limits, pixel, look, least)
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
    least: int,
    reduction: int,
) -> Picture:
    return picture_of(values, name, title, limits, pixel_size=pixel_size, reduction=max(reduction, least), **look)


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
    centres = positions + np.array(result.probe.shape[-2:]) / 2 - corner
    frame: dict[str, Any] = {"pictures": ["whole amplitude"], "points": points(centres)}
    began = result.parameters.get("positions/start")
    notes = [f"Centres of the probe windows at {len(positions)} positions."]
    if began is None or began.shape != positions.shape:
        notes.append("They were not refined.")
    else:
        moves = positions - began
        factor = _magnification(moves, min(part.stop - part.start for part in area))
        frame["moves"] = points(centres - factor * moves)
        times = "" if factor == 1 else f", drawn {factor:g} times as long"
        lengths = _lengths(moves, result.pixel_size)
        notes.append(f"They were refined by {lengths}; lines lead to the initial positions{times}.")
    data.add_viewer("positions", "Positions", {"all": frame}, tools=False, height=420)
    return notes


def _magnification(moves: Array, side: int) -> float:
    """Return the factor by which refinements are drawn longer: to about a tenth of the side at most."""
    longest = float(np.abs(moves).max())
    fitting = [factor for factor in MAGNIFIED if factor * longest <= side / 12]
    return fitting[-1] if fitting else 1.0


def _lengths(moves: Array, pixel_size: tuple[float, float] | None) -> str:
    """Return mean and largest of the shifts (pattern, yx) as text."""
    lengths = np.hypot(*moves.T)
    text = f"{lengths.mean():.3g} pixels on average, {lengths.max():.3g} at most"
    if pixel_size is None:
        return text
    metres = np.hypot(*(moves * pixel_size).T) * 1e9
    return f"{text} ({metres.mean():.3g} and {metres.max():.3g} nm)"
