"""Files that can be saved from a report's page: arrays, pictures with every pixel, figures for papers.

Where the page contains an array in full, its script (`values.js`) reads values under the cursor from it and creates
32-bit TIFFs of it. Each picture has a "plane", which states the layers of the array that are multiplied, the
corner and shape of the area, and the phase (mean and ramp) that was subtracted.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ptynb.analysis.result_comparison import Together
from ptynb.data import images
from ptynb.data.engine_records import Array, Result
from ptynb.figures.figure import Kind, Page, figure
from ptynb.report.page_data import ByteBudget, PageData, npy
from ptynb.report.result_viewers import MODES, area_of

OBJECT, PROBE = "Object, complex", "Probe modes, complex"
OBJECT_SHARE = 0.8
"""Fraction of the remaining bytes for the object: the probe and the pictures need some, too."""
FIGURES_SHARE = 0.3
"""Fraction of the remaining bytes for all figures: the arrays are added after them."""
FIGURES: tuple[tuple[Kind, str], ...] = (
    ("object", "Figure of the object's amplitude and phase"),
    ("slices", "Figure of the slices' phases"),
    ("probe", "Figure of the probe's modes"),
    ("loss", "Figure of the loss"),
)
Plane = Mapping[str, Any]


@dataclass(frozen=True)
class SavedFiles:
    """Files of a page: (key, description, size) of each, and descriptions of those that exceeded the budget."""

    rows: list[tuple[str, str, str]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def save_result_files(data: PageData, result: Result, budget: ByteBudget) -> SavedFiles:
    """Add figures for papers, arrays, and pictures with every pixel, as far as the budget allows.

    Where an array is contained in full, the page creates 32-bit TIFFs of it and reads values under the cursor from it.
    Where it is not, pictures with 65536 grey levels come first, and then the array, averaged as far as necessary.
    """
    saved = SavedFiles()
    if np.isfinite(result.positions).all():  # otherwise the illuminated area is unknown
        kinds = [
            (f"figure-{kind}", what, _pixels(result, kind), partial(figure, result, kind))
            for kind, what in FIGURES
            if not (kind == "slices" and len(result.slices) == 1) and not (kind == "loss" and not result.epochs)
        ]
        _save_figures(data, kinds, budget, saved)
    corners = "Positions: top-left corners of the probe windows [pixels]"
    saved.rows.append(_add_array(data, "positions", result.positions, corners, 1))
    whole = result.object.size * 8 <= OBJECT_SHARE * (budget.total - data.size)
    if not whole:
        _save_16_bit_pictures(data, result, budget, saved)
    _save_field(data, "object", result.object, OBJECT, OBJECT_SHARE * (budget.total - data.size), saved)
    if whole:
        _offer_object_values(data, result, saved)
    if _save_field(data, "probe", result.probe, PROBE, budget.total - data.size, saved):
        _offer_probe_values(data, result, saved)
    if whole:
        _save_16_bit_pictures(data, result, budget, saved)
    return saved


def save_compared_files(
    data: PageData, together: Together, pairs: Sequence[tuple[str, str]], budget: ByteBudget
) -> SavedFiles:
    """Add figures of each object and of each pair's correlation, and the registered objects in their common area."""
    saved, results = SavedFiles(), together.results
    numbers = {name: number for number, name in enumerate(results, start=1)}
    kinds: list[tuple[str, str, int, Callable[[], Page]]] = [
        (f"figure-object-{numbers[name]}", f"Figure of the object of {name}", _pixels(result, "object"),
         partial(figure, result, "object"))
        for name, result in results.items()
        if np.isfinite(result.positions).all()
    ]  # fmt: skip
    for one, other in pairs:
        what = f"Figure of the Fourier ring correlation of {one} and {other}"
        key = f"figure-frc-{numbers[one]}-{numbers[other]}"
        kinds.append((key, what, 0, partial(figure, results[other], "frc", results[one])))
    _save_figures(data, kinds, budget, saved)
    for number, name in enumerate(together.placed, start=1):
        try:
            registered = together.covered(name)
            if name != together.first:
                registered = together.registered(name, together.first).aligned
        except ValueError:  # the section of differences states the reason
            continue
        share = (budget.total - data.size) / (len(together.placed) + 1 - number)
        what = f"Object of {name} as it is compared, complex"
        _save_field(data, f"object-{number}", np.nan_to_num(registered), what, share, saved)
    return saved


# Figures


def _save_figures(
    data: PageData,
    kinds: Sequence[tuple[str, str, int, Callable[[], Page]]],
    budget: ByteBudget,
    saved: SavedFiles,
) -> None:
    """Add figures as PDF; kinds: (key, description, pixels of their pictures, function that makes the figure)."""
    left = FIGURES_SHARE * max(budget.total - data.size, 0)
    for key, what, pixels, make in kinds:
        drawn = b""
        if pixels < left:  # each pixel takes at least a byte
            buffer = io.BytesIO()
            make().savefig(buffer, format="pdf")
            drawn = buffer.getvalue()
        if not drawn or len(drawn) > left:
            saved.left_out.append(what)
            continue
        left -= len(drawn)
        data.add_file(key, "pdf", "application/pdf", drawn)
        saved.rows.append((key, f"{what}, for a paper", f"PDF, {size_text(len(drawn))}"))


def _pixels(result: Result, kind: Kind) -> int:
    """Return the number of pixels of all pictures in a figure."""
    plane = math.prod(result.object.shape[-2:])
    return {"object": 2 * plane, "slices": len(result.slices) * plane, "probe": result.probe.size}.get(kind, 0)


# Arrays and pictures with every pixel


def _save_field(data: PageData, key: str, array: Array, what: str, share: float, saved: SavedFiles) -> bool:
    """Add a complex array, averaged to at most `share` bytes. Return whether it is contained in full."""
    reduction, size = 1, array.size * 8
    while size / reduction**2 > share and min(array.shape[-2:]) > 16 * reduction:
        reduction += 1
    if size / reduction**2 > share:
        saved.left_out.append(what)
        return False
    saved.rows.append(_add_array(data, key, array.astype(np.complex64, copy=False), what, reduction))
    return reduction == 1


def _add_array(data: PageData, key: str, array: Array, what: str, reduction: int) -> tuple[str, str, str]:
    reduced = images.reduce_by(array, reduction).astype(array.dtype)
    data.add_file(key, "npy", "application/octet-stream", npy(reduced))
    smaller = f", means of {reduction} × {reduction} pixels (full=True keeps all)" if reduction > 1 else ""
    shape = " × ".join(str(side) for side in reduced.shape)
    return key, f"{what}{smaller}", f"{shape} {reduced.dtype}, {size_text(reduced.nbytes)}"


def _save_16_bit_pictures(data: PageData, result: Result, budget: ByteBudget, saved: SavedFiles) -> None:
    """Add amplitude and phase of the whole object with 65536 grey levels."""
    made, what = [], "16-bit pictures of the object"
    pixels = 2 * math.prod(part.stop - part.start for part in area_of(result))
    if pixels / 2 > budget.total - data.size:  # a pixel takes one to two bytes, and half a byte of a smooth object
        saved.left_out.append(what)
        return
    seen = np.nan_to_num(result.projection[area_of(result)])
    for key, values, unit in (("amplitude", np.abs(seen), ""), ("phase", images.flat_phase(seen), " rad")):
        low, high = float(values.min()), float(values.max())
        grey = np.rint((values - low) * (65535 / max(high - low, 1e-30))).astype(np.uint16)
        limits = f"0 is {low:.6g}{unit}, 65535 is {high:.6g}{unit}"
        made.append((f"{key}-16bit", f"Object {key}, 16-bit picture: {limits}", grey, images.png(grey, 6)))
    if sum(len(image) for *_, image in made) > budget.total - data.size:
        saved.left_out.append(what)
        return
    for key, what, grey, image in made:
        data.add_file(key, "png", "image/png", image)
        saved.rows.append((key, what, f"{' × '.join(str(side) for side in grey.shape)}, {size_text(len(image))}"))


# Values behind pictures


def _offer_object_values(data: PageData, result: Result, saved: SavedFiles) -> None:
    """Set the planes of the object's pictures in the array "object", and add TIFFs of them."""
    area = area_of(result)
    number = len(result.slices)
    whole = _plane("object", result.object, range(number), area, np.nan_to_num(result.projection[area]))
    _offer(data, "object", "Object", {"whole": whole}, result, saved)
    if number > 1:
        slices = {
            f"slice {one}": _plane("object", result.object, [one], area, np.nan_to_num(result.slices[one][area]))
            for one in range(number)
        }
        _offer(data, "slices", "Slices", slices, result, saved)


def _offer_probe_values(data: PageData, result: Result, saved: SavedFiles) -> None:
    """Set the planes of the probe's pictures in the array "probe", and add TIFFs of them."""
    area = slice(0, result.probe.shape[-2]), slice(0, result.probe.shape[-1])
    planes = {f"probe {one + 1}": _plane("probe", result.probe, [one], area) for one in range(len(result.probe))}
    for name in list(planes)[:MODES]:
        _set_plane(data, name, planes[name], "complex")
    _offer(data, "probe", "Probe modes", planes, result, saved)


def _plane(
    file: str, array: Array, layers: Sequence[int], area: tuple[slice, slice], flattened: Array | None = None
) -> dict[str, Any]:
    """flattened: field whose mean phase and phase ramp are subtracted; None: nothing is."""
    phase = [0.0, 0.0, 0.0]
    if flattened is not None:
        down, across = images.ramp(flattened)
        phase = [float(down[0]), *(float(angle[1] - angle[0]) if len(angle) > 1 else 0.0 for angle in (down, across))]
    return {
        "file": file,
        "extent": list(array.shape[-2:]),
        "layers": list(layers),
        "corner": [area[0].start, area[1].start],
        "shape": [part.stop - part.start for part in area],
        "phase": phase,
    }


def _offer(data: PageData, key: str, what: str, planes: Mapping[str, Plane], result: Result, saved: SavedFiles) -> None:
    pages = f", one page for each of {len(planes)}" if len(planes) > 1 else ""
    for name, plane in planes.items():
        for quantity in ("amplitude", "phase", "complex"):
            _set_plane(data, f"{name} {quantity}", plane, quantity)
    for quantity, unit in (("amplitude", ""), ("phase", " [rad]")):
        file = f"{key}-{quantity}"
        data.add_tiff(file, [{**plane, "quantity": quantity} for plane in planes.values()], result.pixel_size)
        shape = " × ".join(str(side) for side in next(iter(planes.values()))["shape"])
        saved.rows.append((file, f"{what}, {quantity}{unit}, every pixel{pages}", f"{shape} float32, TIFF"))


def _set_plane(data: PageData, picture: str, plane: Plane, quantity: str) -> None:
    """Set the plane of a picture, if the page has it."""
    if picture in data.pictures:
        data.pictures[picture] = {**data.pictures[picture], "plane": {**plane, "quantity": quantity}}


def size_text(size: float) -> str:
    """Return a number of bytes with its unit."""
    return f"{size / 1e6:.3g} MB" if size >= 1e5 else f"{max(size / 1e3, 0.1):.2g} kB"
