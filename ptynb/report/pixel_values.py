"""The values behind a page's pictures, where the page holds the arrays they were made of.

A picture knows its plane: which layers of which array, multiplied, are behind it, from which corner on, and the phase
(mean and ramp) that was taken off. The page (report_values.js) reads values under the cursor from there, and makes
pictures with every pixel and every digit: 32-bit TIFF, a page a plane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ptynb.data import images
from ptynb.data.snapshot import Array, Result
from ptynb.report.assets import Contents
from ptynb.report.result_viewers import MODES, area_of

Plane = Mapping[str, Any]
Row = tuple[str, str, str]


def offer_object(contents: Contents, result: Result) -> list[Row]:
    """Gives the object's pictures their planes in the array "object", and adds files of them; a row of each file."""
    area = area_of(result)
    number = len(result.slices)
    whole = _plane("object", result.object, range(number), area, np.nan_to_num(result.projection[area]))
    rows = _offered(contents, "object", "Object", {"whole": whole}, result)
    if number > 1:
        slices = {
            f"slice {one}": _plane("object", result.object, [one], area, np.nan_to_num(result.slices[one][area]))
            for one in range(number)
        }
        rows += _offered(contents, "slices", "Slices", slices, result)
    return rows


def offer_probe(contents: Contents, result: Result) -> list[Row]:
    """Gives the probe's pictures their planes in the array "probe", and adds files of them; a row of each file."""
    area = slice(0, result.probe.shape[-2]), slice(0, result.probe.shape[-1])
    planes = {f"probe {one + 1}": _plane("probe", result.probe, [one], area) for one in range(len(result.probe))}
    for name in list(planes)[:MODES]:
        _give(contents, name, planes[name], "complex")
    return _offered(contents, "probe", "Probe modes", planes, result)


def _plane(
    file: str, array: Array, layers: Sequence[int], area: tuple[slice, slice], field: Array | None = None
) -> dict[str, Any]:
    """field: whose mean phase and ramp are taken off; none: nothing is."""
    phase = [0.0, 0.0, 0.0]
    if field is not None:
        down, across = images.ramp(field)
        phase = [float(down[0]), *(float(angle[1] - angle[0]) if len(angle) > 1 else 0.0 for angle in (down, across))]
    return {
        "file": file,
        "extent": list(array.shape[-2:]),
        "layers": list(layers),
        "corner": [area[0].start, area[1].start],
        "shape": [part.stop - part.start for part in area],
        "phase": phase,
    }


def _offered(contents: Contents, key: str, what: str, planes: Mapping[str, Plane], result: Result) -> list[Row]:
    rows = []
    pages = f", a page each of {len(planes)}" if len(planes) > 1 else ""
    for name, plane in planes.items():
        for quantity in ("amplitude", "phase", "complex"):
            _give(contents, f"{name} {quantity}", plane, quantity)
    for quantity, unit in (("amplitude", ""), ("phase", " [rad]")):
        file = f"{key}-{quantity}"
        contents.make(file, [{**plane, "quantity": quantity} for plane in planes.values()], result.pixel_size)
        shape = " × ".join(str(side) for side in next(iter(planes.values()))["shape"])
        rows.append((file, f"{what}, {quantity}{unit}, every pixel{pages}", f"{shape} float32, TIFF"))
    return rows


def _give(contents: Contents, picture: str, plane: Plane, quantity: str) -> None:
    """Tells a picture, where the page has it, what is behind it."""
    if picture in contents.pictures:
        contents.pictures[picture] = {**contents.pictures[picture], "plane": {**plane, "quantity": quantity}}
