"""Search in HDF5 files that follow no convention: by commonly used names, and by shape.

Results of such a search are uncertain, so each of them is noted for the user.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import Item, Linked, identity
from ptynb.io.reading.hdf5_reading import (
    Notes,
    Quantity,
    array,
    attribute_of,
    factor,
    is_real,
    looks_like_patterns,
    numbered,
    quantity,
    real,
    text,
    units_of,
    where,
)

WAVELENGTH = "wavelength", "incident_wavelength", "lambda", "lam", "wave_length", "beam_wavelength"
ENERGY = (
    "photon_energy",
    "incident_beam_energy",
    "incident_energy",
    "beam_energy",
    "energy",
    "xray_energy",
    "x_ray_energy",
    "nominal_energy",
    "nrj",
)
VOLTAGE = "accelerating_voltage", "acceleration_voltage", "beam_voltage", "voltage", "high_tension"
DISTANCE = (
    "distance",
    "detector_distance",
    "det_distance",
    "sample_detector_distance",
    "sample_to_detector",
    "sample_to_detector_distance",
    "det_sample_dist",
    "propagation_distance",
    "camera_length",
)
FOCUS = "focus_to_sample", "focus_to_sample_distance", "focus_sample_distance"
PIXEL = "pixel_size", "detector_pixel_size", "det_pixel_size", "detector_pixel", "pixelsize", "psize", "ccd_pixel"
PIXEL_Y, PIXEL_X = ("y_pixel_size", "pixel_size_y"), ("x_pixel_size", "pixel_size_x")
POSITIONS = (
    "positions",
    "probe_positions",
    "scan_positions",
    "probe_position",
    "position",
    "pos",
    "coords",
    "coordinates",
    "translation",
    "translations",
    "points",
    "scan",
)
PAIRS = (
    ("y", "x"),
    ("pos_y", "pos_x"),
    ("posy", "posx"),
    ("position_y", "position_x"),
    ("positions_y", "positions_x"),
    ("y_positions", "x_positions"),
    ("y_position", "x_position"),
    ("py", "px"),
    ("data_y", "data_x"),
    ("sample_y", "sample_x"),
    ("samy", "samx"),
    ("motor_y", "motor_x"),
    ("stage_y", "stage_x"),
    ("scan_y", "scan_x"),
    ("y_coords", "x_coords"),
)
MASK = "mask", "pixel_mask", "detector_mask", "bad_pixels", "badpixels", "good_pixels", "valid_pixels", "det_mask"
STEP = "scan_step", "step_size", "scan_step_size", "step"
UNIT = re.compile(r"_(m|mm|um|micron|nm|pm|a|angstrom|ev|kev|v|kv)$")


@dataclass(frozen=True)
class Named:
    """A small value with a name: a dataset, or an attribute of a group or a dataset."""

    name: str
    unit: str
    item: Item
    attribute: str | None = None


class Names:
    """All named small values of a group or file."""

    def __init__(self, linked: Linked, start: h5py.Group | None = None) -> None:
        self.linked = linked
        self._found: dict[str, list[Named]] = {}
        top: Item = linked.root if start is None else start
        for item in (top, *(item for _, item in linked.walk(start))):
            if isinstance(item, h5py.Dataset):
                self._note(item.name.rpartition("/")[2], item)
            for attribute in _attributes(item):
                self._note(attribute, item, attribute)

    def _note(self, name: str, item: Item, attribute: str | None = None) -> None:
        plain = re.sub(r"[^a-z0-9]+", "_", name.casefold()).strip("_")
        unit = UNIT.search(plain)
        if unit is not None:
            plain = plain[: unit.start()]
        self._found.setdefault(plain, []).append(Named(plain, unit[1] if unit else "", item, attribute))

    def all(self, names: Sequence[str]) -> Iterator[Named]:
        """Yield all values with one of these names, in the order of the names."""
        for name in names:
            yield from self._found.get(name, ())

    def text(self, names: Sequence[str]) -> str:
        """Return the texts with one of these names."""
        items = (one.item for one in self.all(names) if one.attribute is None and isinstance(one.item, h5py.Dataset))
        return " ".join(found for found in map(text, items) if found)

    def number(self, names: Sequence[str], kind: str, default: str) -> Quantity | None:
        """Return the first number with one of these names, in SI units; the remark lists others that differ."""
        found: list[Quantity] = []
        for named in self.all(names):
            one = _quantity(self.linked, named, kind, default)
            if one is not None and one.value is not None and (np.isfinite(one.value) and one.value != 0):
                found.append(one)
        if not found:
            return None
        others = [one.place for one in found[1:] if not np.isclose(one.value or 0, found[0].value or 0, rtol=1e-3)]
        remark = f"{found[0].place} is used; {', '.join(others[:3])} differs." if others else found[0].note
        return replace(found[0], note=remark)


def _attributes(item: Item) -> list[str]:
    try:
        return [name for name in item.attrs if len(name) < 64]
    except (OSError, RuntimeError):
        return []


def _quantity(linked: Linked, named: Named, kind: str, default: str) -> Quantity | None:
    if named.attribute is None:
        if not isinstance(named.item, h5py.Dataset) or named.item.size is None or named.item.size > 2**20:
            return None
        linked.check_sources(named.item)
        found = quantity(named.item, kind, named.unit or default)
        return found and replace(found, stated=found.stated or bool(named.unit))
    value = attribute_of(named.item, named.attribute)
    scale = factor(named.unit or default, kind)
    if not isinstance(value, np.number) or not is_real(value.dtype) or scale is None:
        return None
    return Quantity(float(value) * scale, f"{where(named.item)}@{named.attribute}", stated=bool(named.unit))


@dataclass(frozen=True, eq=False)
class FoundPositions:
    """Positions (pattern, yx) or (pattern, xyz), and their path; pixels: whether they are in object pixels."""

    values: NDArray[np.float64]
    place: str
    pixels: bool = False


def positions_in(
    names: Names, count: int, raster: tuple[int, int] | None, notes: Notes, aliases: Sequence[str] = POSITIONS
) -> FoundPositions | None:
    """Return positions of `count` patterns from one array, a pair of arrays, or a grid of the raster's axes."""
    for named in names.all(aliases):
        values = _array(names.linked, named, count * 3)
        if values is None:
            continue
        if values.ndim == 3:
            values = values.reshape(-1, values.shape[2])
        if values.ndim == 2 and values.shape[0] in (2, 3) and values.shape[1] == count and values.shape[0] != count:
            notes.add(f"{where(named.item)} has shape {values.shape}; it is read as one row per axis.")
            values = values.T
        if values.shape in ((count, 2), (count, 3)):
            return _in_metres(values, (named,), notes)
    for name_y, name_x in PAIRS:
        for along_y, along_x in zip(names.all((name_y,)), names.all((name_x,)), strict=False):
            y, x = _array(names.linked, along_y, count), _array(names.linked, along_x, count)
            if y is None or x is None:
                continue
            if raster is not None and (y.size, x.size) == raster and raster[0] * raster[1] == count:
                y, x = np.meshgrid(y.ravel(), x.ravel(), indexing="ij")
            if y.size == count == x.size:
                return _in_metres(np.column_stack([y.ravel(), x.ravel()]), (along_y, along_x), notes)
    return None


def _array(linked: Linked, named: Named, most: int) -> NDArray[np.float64] | None:
    item = named.item
    if named.attribute is not None or not isinstance(item, h5py.Dataset) or not is_real(item.dtype):
        return None
    if not item.size or not 1 < item.size <= most:
        return None
    linked.check_sources(item)
    return real(item, "positions")


def _in_metres(values: NDArray[np.float64], found: tuple[Named, ...], notes: Notes) -> FoundPositions:
    place = " and ".join(where(named.item) for named in found)
    units = units_of(found[0].item) or found[0].unit
    if units.casefold() in ("pixel", "pixels", "px", "pix"):
        return FoundPositions(values, place, pixels=True)
    scale = factor(units or "m", "length")
    if not units:
        notes.add(f"{place} has no units; it is taken as metres.")
    elif scale is None:
        notes.add(f"{place} is in {units!r}, which is an unknown unit; it is taken as metres.")
    return FoundPositions(values * (scale or 1.0), place)


def mask_in(names: Names, window: tuple[int, int], notes: Notes) -> NDArray[np.bool_] | None:
    """Return a mask of shape `window`, found by name; the more frequent of its two values is taken as good."""
    for named in names.all(MASK):
        item = named.item
        if named.attribute is not None or not isinstance(item, h5py.Dataset) or item.shape != window:
            continue
        if not (is_real(item.dtype) or item.dtype == bool):
            continue
        names.linked.check_sources(item)
        values: NDArray[Any] = array(item, "a mask")
        zero = values == 0
        good = zero if zero.mean() > 0.5 else ~zero
        notes.at("mask", where(item))
        meaning = "0" if zero.mean() > 0.5 else "not 0"
        notes.add(
            f"{where(item)} is taken as the mask; the majority of its pixels are {meaning}, which is taken as good."
        )
        return np.asarray(good)
    return None


MUCH_SMALLER = 8
"""Datasets that are smaller than the largest one by this factor are ignored (dark frames and the like)."""


def candidates(linked: Linked, start: h5py.Group | None = None) -> dict[str, Item]:
    """Return datasets that look like patterns, and groups of numbered datasets, by name."""
    first = linked.root if start is None else start
    found = {
        name: item
        for name, item in ((first.name, first), *linked.walk(start))
        if looks_like_patterns(item) or (isinstance(item, h5py.Group) and _stack(linked, item))
    }
    return without_doubles(found)


def without_doubles(found: dict[str, Item]) -> dict[str, Item]:
    """Return the candidates without duplicates: parts of a stack or of a virtual dataset, and copies as a stack."""
    virtual = {name: item for name, item in found.items() if isinstance(item, h5py.Dataset) and item.is_virtual}
    inside: set[str] = set()
    places = {name: _place(item.file.filename, item.name) for name, item in found.items()}
    for name, item in virtual.items():
        own = item.file.filename
        sources = {
            _place(own if source.file_name == "." else source.file_name, source.dset_name)
            for source in item.virtual_sources()[:1000]
        }
        doubles = [other for other, place in places.items() if place in sources and other != name]
        # A dataset with the axes of the raster is preferred to a virtual list of its patterns.
        inside.update([name] if any(found[other].ndim == 4 for other in doubles) else doubles)
    for name, item in found.items():
        if isinstance(item, h5py.Group):
            if any(other.rpartition("/")[0] == name for other in virtual if other not in inside):
                inside.add(name)
            else:
                inside.update(f"{name.rstrip('/')}/{one}" for one in numbered(item))
    unique: dict[tuple[int, int], str] = {}
    for name, item in found.items():
        if name not in inside:
            unique.setdefault(identity(item), name)
    return {name: found[name] for name in unique.values()}


def choose(found: dict[str, Item], path: Path, linked: Linked) -> tuple[str, tuple[str, ...]] | None:
    """Return (name of the patterns, remarks): the dataset that is by far the largest; None if there is none.

    Raise FileError, with their names, if several datasets fit.
    """
    sizes = {name: _size(item, linked) for name, item in found.items()}
    ordered = sorted(sizes, key=lambda name: (-sizes[name], name))
    if not ordered:
        return None
    near = [name for name in ordered if sizes[name] * MUCH_SMALLER > sizes[ordered[0]]]
    if len(near) > 1:
        listed = ", ".join(f"{name.strip('/')} {_shape(found[name])}" for name in near[:6])
        raise FileError(
            f"{path} has {len(near)} datasets that may be the patterns ({listed}); name one: "
            f"load(..., patterns='{near[0].strip('/')}').",
            code="file.several-choices",
            fields=("patterns",),
            proposals={"patterns": near[0].strip("/")},
        )
    name = ordered[0].strip("/")
    rest = ", ".join(other.strip("/") for other in ordered[1:4])
    others = f"; {rest} is smaller and is ignored" if rest else ""
    return name, (f"{name} is taken as the patterns, by its shape {_shape(found[ordered[0]])}{others}.",)


def _place(file: str, name: str) -> tuple[str, str]:
    return Path(file).name, name.strip("/")


def _stack(linked: Linked, group: h5py.Group) -> bool:
    names = numbered(group)
    if not names:
        return False
    try:
        first = linked.get(names[0], group)
    except FileError:
        return True  # the error is raised when it is read
    return first is not None and looks_like_patterns(first)


def _size(item: Item, linked: Linked) -> int:
    if isinstance(item, h5py.Dataset):
        return int(item.size)
    names = numbered(item)
    try:
        first = linked.get(names[0], item)
    except FileError:
        return 1
    return len(names) * int(first.size) if isinstance(first, h5py.Dataset) else 1


def _shape(item: Item) -> str:
    if isinstance(item, h5py.Dataset):
        return " x ".join(str(side) for side in item.shape) if math.prod(item.shape) else "empty"
    return f"of {len(numbered(item))} parts"
