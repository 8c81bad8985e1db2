"""How one result looks: object, probe and positions as viewers on the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ptynb.analysis.common_area import illuminated
from ptynb.analysis.probe_modes import mode_powers
from ptynb.data import images
from ptynb.data.snapshot import Array, Picture, Result, Thumbnail
from ptynb.report.assets import Contents, Shares, choice, coloured_still, points, still

MODES = 16
"""Probe modes shown at most."""
PERCENTILES = (0.5, 99.5)
"""Of the values, which get the ends of the grey levels."""
FEWEST = 8
"""Pixels a side that a kept epoch's picture has to share with the object's to be cut to the same area."""
MAGNIFIED = 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0
LEGEND = (
    "Hue is the phase, brightness the amplitude; each mode is as bright as it can be, and has the stated part of the "
    "power."
)
Area = tuple[slice, slice]


def area_of(result: Result) -> Area:
    """The part of the object that is worth looking at; all of it where the positions do not tell."""
    whole = slice(0, result.object.shape[-2]), slice(0, result.object.shape[-1])
    if not len(result.positions) or not np.isfinite(result.positions).all():
        return whole
    area = illuminated(result)
    return area if min(part.stop - part.start for part in area) >= FEWEST else whole


def show_object(contents: Contents, result: Result, shares: Shares) -> list[str]:
    """Adds the viewer "object": the whole, slices and kept epochs. Returns sentences about what is shown."""
    area, slices = area_of(result), result.slices
    seen = np.nan_to_num(result.projection[area])
    frames: dict[str, Mapping[str, Any]] = {"whole": _frame(contents, "whole", [seen], result, shares.whole)[0]}
    controls, remarks = [], [_reduced(contents, "whole amplitude", "It is")]
    if len(slices) > 1:
        fields = [np.nan_to_num(one[area]) for one in slices]
        shown = _frame(contents, "slice", fields, result, shares.slices)
        keys = {f"slice {number + 1} of {len(slices)}": f"slice {number}" for number in range(len(slices))}
        frames |= {f"slice {number}": frame for number, frame in enumerate(shown)}
        controls.append(choice("Slice", [("product of all", "whole"), *keys.items()], kind="range"))
        remarks.append(_reduced(contents, "slice 0 amplitude", "Each slice is"))
    moments = [moment for moment in result.history if min(moment.object.shape) > 1]
    if moments:
        frames |= _epochs(contents, moments, area, result, shares.epochs)
        last = result.epochs[-1].number if result.epochs else 0
        options = [(f"epoch {moment.epoch}", f"epoch {moment.epoch}") for moment in moments if moment.epoch != last]
        options.append((f"epoch {last}, the result", "whole"))
        controls.append(choice("Kept epoch", options, len(options) - 1, kind="range"))
    contents.viewer("object", "Object", frames, controls, exclusive=True)
    if result.object.ndim == 4:
        remarks.append(f"It has {len(result.object)} states, of which the first is shown.")
    return [remark for remark in remarks if remark]


def _frame(
    contents: Contents, key: str, fields: list[Array], result: Result, share: float, pixel: Any = None, least: int = 1
) -> list[dict[str, Any]]:
    """Adds amplitude, phase and colours of each field (y, x), all with the same limits; returns what viewers show."""
    keys = [key] if len(fields) == 1 else [f"{key} {number}" for number in range(len(fields))]
    pixel = result.pixel_size if pixel is None else pixel
    makers: dict[str, Callable[[int], Picture]] = {}
    for quantity, measure in (("amplitude", np.abs), ("phase", images.flat_phase)):
        values = [measure(field) for field in fields]
        limits = images.limits_of(np.stack(values), *PERCENTILES)
        look = {"unit": "rad", "colours": "viridis"} if quantity == "phase" else {"unit": "", "colours": "gray"}
        title = f"Object {quantity}"
        for one, of in zip(keys, values, strict=True):
            makers[f"{one} {quantity}"] = partial(_made, of, quantity, title, limits, pixel, look, least)
    contents.stills(makers, share)
    frames = []
    for one in keys:
        colours = contents.composed(f"{one} complex", "Object, complex", f"{one} amplitude", f"{one} phase")
        frames.append({"pictures": [f"{one} amplitude", f"{one} phase", colours]})
    return frames


def _made(
    values: Array,
    name: str,
    title: str,
    limits: tuple[float, float],
    pixel_size: Any,
    look: Mapping[str, str],
    least: int,
    reduction: int,
) -> Picture:
    return still(values, name, title, limits, pixel_size=pixel_size, reduction=max(reduction, least), **look)


def _epochs(
    contents: Contents, moments: list[Thumbnail], area: Area, result: Result, share: float
) -> dict[str, dict[str, Any]]:
    """Frames of the kept epochs, each cut to about the same area as the result."""
    frames = {}
    for moment in moments:
        key, reduction = f"epoch {moment.epoch}", moment.reduction
        cut = [
            slice(
                max(round((part.start - at) / reduction), 0),
                min(max(round((part.stop - at) / reduction), 0), side),
            )
            for part, at, side in zip(area, moment.corner, moment.object.shape, strict=True)
        ]
        field = moment.object[cut[0], cut[1]]
        field = np.nan_to_num(field if min(field.shape) >= FEWEST else moment.object)
        pixel = None if result.pixel_size is None else tuple(reduction * side for side in result.pixel_size)
        (frames[key],) = _frame(contents, key, [field], result, share / len(moments), pixel)
        frames[key]["note"] = f"After epoch {moment.epoch}, reduced {reduction} × {reduction} when it was kept."
    return frames


def _reduced(contents: Contents, name: str, what: str) -> str:
    reduction = int(contents.pictures[name]["reduction"])
    if reduction == 1:
        return ""
    return f"{what} reduced {reduction} × {reduction} here, so that the page stays small."


def show_probe(contents: Contents, result: Result, shares: Shares) -> list[str]:
    """Adds the viewer "probe": the modes in colours, with their powers. Returns sentences about what is shown."""
    probe = np.nan_to_num(result.probe)
    powers = mode_powers(probe) if probe.any() else np.zeros(len(probe))
    makers: dict[str, Callable[[int], Picture]] = {}
    for number, (mode, power) in enumerate(zip(probe[:MODES], powers, strict=False), start=1):
        title = f"Mode {number}: {power:.1%}"
        makers[f"probe {number}"] = partial(_mode, mode, f"mode {number}", title, result.pixel_size)
    stills = contents.stills(makers, shares.probe)
    contents.viewer("probe", "Probe modes", {"all": {"pictures": stills.names}}, tools=False, height=230)
    remarks = [LEGEND]
    if stills.reduction > 1:
        remarks.append(f"They are reduced {stills.reduction} × {stills.reduction} here.")
    if len(probe) > MODES:
        remarks.append(f"There are {len(probe)} modes, of which the first {MODES} are shown.")
    return remarks


def _mode(mode: Array, name: str, title: str, pixel_size: Any, reduction: int) -> Picture:
    return coloured_still(mode, name, title, reduction, pixel_size)


def show_positions(contents: Contents, result: Result) -> list[str]:
    """Adds the viewer "positions": probe centres over the object, and how they moved. Returns sentences about them."""
    positions = result.positions
    if not len(positions) or not np.isfinite(positions).all():
        return ["The positions are not finite numbers."]
    area = area_of(result)
    corner = np.array([area[0].start, area[1].start])
    centres = positions + np.array(result.probe.shape[-2:]) / 2 - corner
    frame: dict[str, Any] = {"pictures": ["whole amplitude"], "points": points(centres)}
    began = result.parameters.get("positions/start")
    remarks = [f"Centres of the probe's windows at {len(positions)} positions."]
    if began is None or began.shape != positions.shape:
        remarks.append("They were not moved by the reconstruction.")
    else:
        moves = positions - began
        factor = _magnification(moves, min(part.stop - part.start for part in area))
        frame["moves"] = points(centres - factor * moves)
        times = "" if factor == 1 else f", drawn {factor:g} times as long"
        remarks.append(f"They moved by {_lengths(moves, result.pixel_size)}; lines lead to where they began{times}.")
    contents.viewer("positions", "Positions", {"all": frame}, tools=False, height=420)
    return remarks


def _magnification(moves: Array, side: int) -> float:
    """How many times longer moves are drawn, so that most are seen: the longest is then about a tenth of the side."""
    longest = float(np.abs(moves).max())
    fitting = [factor for factor in MAGNIFIED if factor * longest <= side / 12]
    return fitting[-1] if fitting else 1.0


def _lengths(moves: Array, pixel_size: tuple[float, float] | None) -> str:
    """Mean and largest of the moves (pattern, yx) in words."""
    lengths = np.hypot(*moves.T)
    text = f"{lengths.mean():.3g} pixels on average, {lengths.max():.3g} at most"
    if pixel_size is None:
        return text
    metres = np.hypot(*(moves * pixel_size).T) * 1e9
    return f"{text} ({metres.mean():.3g} and {metres.max():.3g} nm)"
