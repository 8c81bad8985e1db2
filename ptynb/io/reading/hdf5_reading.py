"""Datasets of HDF5 files: conversion to SI units, scalars, small arrays, and patterns."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.data.geometry import ELECTRON_VOLT
from ptynb.data.patterns import Frames, HDF5Frames, SelectedFrames, StackedFrames
from ptynb.data.patterns.frames import require_filters
from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import DEEPEST, Item, Linked, check_chunks, is_counted, names_of, read_all
from ptynb.io.reading.reading_errors import unreadable
from ptynb.settings.claimed_values import is_set
from ptynb.text import natural_order

UnitNames = dict[float, tuple[str, ...]]
LENGTHS: UnitNames = {
    1.0: ("m", "meter", "metre", "meters", "metres"),
    1e-2: ("cm", "centimeter", "centimetre"),
    1e-3: ("mm", "millimeter", "millimetre", "millimeters", "millimetres"),
    1e-6: ("um", "µm", "μm", "micron", "microns", "micrometer", "micrometre", "micrometers", "micrometres"),
    1e-9: ("nm", "nanometer", "nanometre", "nanometers", "nanometres"),
    1e-10: ("angstrom", "angstroms", "ångström", "å", "a", "ang"),
    1e-12: ("pm", "picometer", "picometre"),
}
ENERGIES: UnitNames = {
    1.0: ("ev", "electronvolt", "electronvolts", "electron volt", "electron volts"),
    1e3: ("kev",),
    1e6: ("mev",),
    1 / ELECTRON_VOLT: ("j", "joule", "joules"),
}
VOLTAGES: UnitNames = {1.0: ("v", "volt", "volts"), 1e3: ("kv", "kilovolt", "kilovolts")}
ANGLES: UnitNames = {
    1.0: ("rad", "radian", "radians"),
    1e-3: ("mrad",),
    math.pi / 180: ("deg", "degree", "degrees", "°"),
}
KINDS = {"length": LENGTHS, "energy": ENERGIES, "voltage": VOLTAGES, "angle": ANGLES}


def factor(units: str, kind: str) -> float | None:
    """Return the factor that converts to metres, electron volts, volts or radians; None for an unknown unit.

    kind: "length", "energy", "voltage" or "angle".
    """
    word = units.strip().casefold()
    for value, names in KINDS[kind].items():
        if word in names:
            return value
    return None


def units_of(item: h5py.Dataset | h5py.Group) -> str:
    """Return the attribute `units` (or `unit`) of a dataset; empty where it is missing."""
    for name in ("units", "unit"):
        value = attribute_of(item, name)
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""


def attribute_of(item: h5py.Dataset | h5py.Group, name: str) -> Any:
    """Return an attribute with one value, decoded; None if it is missing, unreadable, or has several values."""
    try:
        if name not in item.attrs or item.attrs.get_id(name).get_space().get_simple_extent_npoints() != 1:
            return None
        value = np.asarray(item.attrs[name]).reshape(-1)[0]
    except (OSError, KeyError, TypeError, ValueError, RuntimeError):
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


MOST_BYTES = 2**28
"""Maximum size of positions, masks and other arrays that are read at once [bytes]."""
SPREAD = 1e-3
"""Largest relative difference between the values of an array that is read as one number."""


@dataclass(frozen=True)
class Quantity:
    """A number in SI units (energies in eV), its path in the file, and a remark; value None: unknown unit.

    stated: whether the file states its unit.
    """

    value: float | None
    place: str
    note: str = ""
    stated: bool = True


class Notes:
    """Paths in the file of the values that a reader found, and remarks for the user."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}
        self.sentences: list[str] = []

    def at(self, name: str, place: str) -> None:
        """Record the path of a value."""
        self.places[name] = place

    def add(self, sentence: str) -> None:
        """Add a remark, unless it is empty or known."""
        if sentence and sentence not in self.sentences:
            self.sentences.append(sentence)

    def number(self, name: str, found: Quantity | None) -> float | None:
        """Return the value of a quantity, and record its path and its remark; None for one that is not set."""
        if found is None:
            return None
        self.add(found.note)
        if found.value is not None and not is_set(found.value):
            self.add(f"{found.place} is {found.value:g}, which is taken as missing.")
            return None
        if found.value is not None:
            self.at(name, found.place)
        return found.value


def where(item: h5py.Dataset | h5py.Group) -> str:
    """Return the name of an object in its file."""
    name: str = item.name
    return name.lstrip("/")


def array(dataset: h5py.Dataset, what: str) -> NDArray[Any]:
    """Return all values of a dataset. Raise FileError if it is too large or cannot be read.

    what: content in the plural, for messages ("positions").
    """
    path = Path(dataset.file.filename)
    if dataset.shape is None:
        raise FileError(
            f"{path} has {what} at {where(dataset)} with nothing in it; the file is incomplete.", code="file.incomplete"
        )
    size = math.prod(dataset.shape) * dataset.dtype.itemsize
    if size > MOST_BYTES:
        raise FileError(
            f"{path} announces {what} of shape {dataset.shape} at {where(dataset)}, {size / 2**30:.3g} GiB; expected "
            f"at most {MOST_BYTES / 2**30:.3g}. Is the file damaged?",
            code="file.too-large",
        )
    check_chunks(dataset, path)
    require_filters(dataset)
    try:
        return np.asarray(read_all(dataset))
    except Exception as error:
        raise unreadable(path, error) from error


def real(dataset: h5py.Dataset, what: str) -> NDArray[np.float64]:
    """Return all values of a dataset as float64. Raise FileError if they are no real numbers."""
    if not is_real(dataset.dtype):
        raise FileError(
            f"{dataset.file.filename} has {what} of type {dataset.dtype} at {where(dataset)}; expected real numbers.",
            code="file.unexpected-content",
        )
    return array(dataset, what).astype(np.float64)


def is_real(dtype: np.dtype[Any]) -> bool:
    """Return whether this is a type of real numbers (integers or floats)."""
    return bool(np.issubdtype(dtype, np.integer) or np.issubdtype(dtype, np.floating))


def quantity(item: h5py.Dataset | None, kind: str, default: str) -> Quantity | None:
    """Return a number in SI units, or the mean of an array. default: unit if the attribute `units` is missing.

    Return None if there is no number, and a quantity without a value if its unit is unknown.
    """
    if item is None or not is_real(item.dtype) or not item.size:
        return None
    values = real(item, "numbers").ravel()
    value = float(values[0])
    remark = ""
    if len(values) > 1:
        value = float(values.mean())
        if np.isfinite(values).all() and np.ptp(values) > SPREAD * abs(value):
            remark = f"{where(item)} varies from {values.min():.6g} to {values.max():.6g}; its mean is used."
    units = units_of(item)
    scale = factor(units or default, kind)
    if scale is None:
        return Quantity(None, where(item), f"{where(item)} is in {units!r}, which is an unknown unit.")
    return Quantity(value * scale, where(item), remark, bool(units))


def lengths(dataset: h5py.Dataset, what: str, default: str = "m") -> tuple[NDArray[np.float64], str]:
    """Return the lengths [m] in a dataset by its attribute `units`, and a remark if the unit is unknown."""
    values, units = real(dataset, what), units_of(dataset)
    scale = factor(units or default, "length")
    if scale is None:
        return values, f"{where(dataset)} is in {units!r}, which is an unknown unit; it is taken as metres."
    return values * scale, ""


def text(dataset: h5py.Dataset | h5py.Group | None) -> str:
    """Return the text in a dataset; empty if there is none."""
    if not isinstance(dataset, h5py.Dataset) or dataset.size != 1 or not h5py.check_string_dtype(dataset.dtype):
        return ""
    if h5py.check_string_dtype(dataset.dtype).length not in (None, *range(4097)):
        return ""
    check_chunks(dataset, Path(dataset.file.filename))
    value = np.asarray(dataset[()]).reshape(-1)[0]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def nx_class(item: h5py.Group | h5py.Dataset) -> str:
    """Return the NeXus class of a group; empty if it has none."""
    return str(attribute_of(item, "NX_class") or "")


MOST_PATTERNS = 2**24
MOST_PIXELS = 2**28
"""Maximum number of pixels of one pattern; a larger one, or a larger chunk, means a damaged header."""
MOST_CHUNK = 2**30
"""Maximum size of a chunk that is decompressed to read one pattern [bytes]."""
NUMBERED = re.compile(r"data_?\d{1,9}")
"""Names of consecutive datasets of one scan, as detectors write them."""


@dataclass(frozen=True, eq=False)
class PatternSource:
    """Patterns in a file.

    place: name in the file. raster: (rows, columns), if the file stores a grid.
    """

    frames: Frames
    place: str
    raster: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()


def patterns_at(linked: Linked, name: str) -> PatternSource:
    """Return patterns: a dataset (pattern, y, x) or (row, column, y, x), or a group of data_000001 and so on.

    Of more axes, those of length 1 before y are ignored; see `scan_axes`. Raise FileError if there are no readable
    patterns.
    """
    found = linked.get(name)
    if isinstance(found, h5py.Group):
        names = numbered(found)
        if names:
            return _stack(linked, name, names)
    if not isinstance(found, h5py.Dataset):
        what = "is a group" if isinstance(found, h5py.Group) else "does not exist"
        raise FileError(
            f"{linked.path} has no patterns at {name}, which {what}; name a dataset: patterns='entry/data/data'.",
            code="file.incomplete",
            fields=("patterns",),
        )
    return _of(linked, found, name.strip("/"), 0)


def looks_like_patterns(item: Item) -> bool:
    """Return whether a dataset has the shape and the type of patterns."""
    return (
        isinstance(item, h5py.Dataset)
        and item.ndim > 2
        and scan_axes(item.shape) is not None
        and is_real(item.dtype)
        and min(item.shape[-2:]) >= 4
        and math.prod(item.shape[:-2]) > 1
    )


def scan_axes(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the lengths (pattern,) or (row, column) of the axes before (y, x); None for other axes.

    Of more than two, axes of length 1 are ignored: detectors write (row, column, 1, y, x).
    """
    before = tuple(int(side) for side in shape[:-2])
    if len(before) > 2:
        before = tuple(side for side in before if side != 1) or (1,)
    return before if 1 <= len(before) <= 2 else None


def other_axes(shape: tuple[int, ...], path: Path, where: str = "") -> FileError:
    """Return the error for an array whose axes are not those of patterns."""
    at = f" in {where}" if where else ""
    remedy = ": sum or choose along the others, and give the rest to Scan.from_arrays" if len(shape) > 4 else ""
    return FileError(
        f"{path} has patterns of shape {tuple(shape)}{at}; expected (pattern, y, x), or (row, column, y, x){remedy}.",
        code="file.unexpected-content",
    )


def check_sides(shape: tuple[int, ...], path: Path, at: str) -> int:
    """Return the number of patterns. Raise FileError for more, or larger ones, than any scan has.

    at: " at PLACE", for the message.
    """
    count, pixels = (math.prod(int(side) for side in sides) for sides in (shape[:-2], shape[-2:]))
    if count > MOST_PATTERNS or pixels > MOST_PIXELS:
        raise FileError(
            f"{path} announces {count} patterns of {shape[-2]} x {shape[-1]} pixels{at}; expected at most "
            f"{MOST_PATTERNS} of at most {math.isqrt(MOST_PIXELS)} x {math.isqrt(MOST_PIXELS)}. Is the file damaged?",
            code="file.too-large",
        )
    return count


def numbered(group: h5py.Group) -> tuple[str, ...]:
    """Return names like data_000001 in a group, in the order of their numbers; no dataset is opened."""
    return tuple(sorted((name for name in names_of(group) if NUMBERED.fullmatch(name)), key=natural_order))


def _stack(linked: Linked, name: str, names: Sequence[str]) -> PatternSource:
    parts: list[Frames] = []
    remarks: list[str] = []
    for one in names:
        place = f"{name.strip('/')}/{one}"
        with linked.aside() as other:
            found = other.get(place)
            if not isinstance(found, h5py.Dataset):
                raise FileError(
                    f"{linked.path} has the link {place} to a missing dataset; the scan is incomplete.",
                    code="file.incomplete",
                )
            part = _of(other, found, place, 0)
        parts.append(part.frames)
        remarks += part.notes
    return PatternSource(
        _stacked(parts, linked.path), f"{name.strip('/')}/{names[0]} to {names[-1]}", None, tuple(remarks)
    )


def _stacked(parts: Sequence[Frames], path: Path) -> Frames:
    try:
        return StackedFrames.of(parts)
    except ValueError as error:
        raise FileError(f"{path}: {error}", code="file.unexpected-content") from None


def _of(linked: Linked, dataset: h5py.Dataset, place: str, depth: int) -> PatternSource:
    _check(dataset, linked.path, place)
    linked.check_raw_files(dataset)
    axes = scan_axes(dataset.shape)
    raster = (axes[0], axes[1]) if axes is not None and len(axes) == 2 else None
    if not dataset.is_virtual:
        return PatternSource(HDF5Frames.of(dataset), place, raster)
    frames, remarks = _virtual(linked, dataset, place, depth)
    return PatternSource(frames, place, raster, remarks)


def _check(dataset: h5py.Dataset, path: Path, place: str) -> None:
    shape = dataset.shape
    if shape is None or len(shape) < 3:
        raise FileError(
            f"{path} has patterns of shape {shape} at {place}; expected (pattern, y, x).",
            code="file.unexpected-content",
        )
    if scan_axes(shape) is None:
        raise other_axes(shape, path, place)
    check_sides(shape, path, f" at {place}")
    if dataset.chunks and math.prod(dataset.chunks) * dataset.dtype.itemsize > MOST_CHUNK:
        raise FileError(
            f"{path} stores {place} in chunks of {dataset.chunks} values, of which one takes "
            f"{math.prod(dataset.chunks) * dataset.dtype.itemsize / 2**30:.3g} GiB of memory; expected at most 1. "
            "Write it in chunks of a few patterns: h5repack -l CHUNK=...",
            code="file.too-large",
        )
    check_chunks(dataset, path)
    if dataset.size and not dataset.is_virtual and not dataset.external and not dataset.id.get_storage_size():
        raise FileError(
            f"{path} announces patterns of shape {shape} at {place}, and none of them is stored; was the scan stopped "
            "before the first one, or are they in another file?",
            code="file.incomplete",
        )


def _virtual(linked: Linked, dataset: h5py.Dataset, place: str, depth: int) -> tuple[Frames, tuple[str, ...]]:
    """Return frames of a virtual dataset: of its sources if each contains whole patterns, else read through HDF5."""
    if depth >= DEEPEST:
        raise FileError(
            f"{linked.path} has virtual datasets more than {DEEPEST} deep at {place}; expected fewer.",
            code="file.too-many-links",
        )
    parts: list[tuple[int, int, Frames]] = []
    sources: list[Path] = []
    mapped, whole, remarks = 0, True, []
    for source in dataset.virtual_sources():
        if is_counted(source.file_name) or is_counted(source.dset_name):
            whole = False
            remarks.append(
                f"{place} is made of files with numbered names ({source.file_name}); a missing one is read as 0."
            )
            mapped = dataset.size
            continue
        with linked.aside() as other:
            frames, run = _source(linked, other, dataset, source, place, depth)
        sources += [path for path in _paths(frames) if path != linked.path]
        mapped += min(int(source.vspace.get_select_npoints()), dataset.size)
        if run is None or frames.dtype != dataset.dtype:
            whole = False
        else:
            parts.append((run[0], run[1], _cut(frames, run[2], run[1] - run[0])))
    if mapped < dataset.size:
        remarks.append(
            f"{place} leaves {dataset.size - mapped} of its {dataset.size} values to no file; they are read as "
            f"{dataset.fillvalue}."
        )
    parts.sort(key=lambda part: part[:2])
    ends = [0, *(stop for _, stop, _ in parts)]
    if whole and parts and [start for start, _, _ in parts] == ends[:-1] and ends[-1] == math.prod(dataset.shape[:-2]):
        return _stacked([frames for _, _, frames in parts], linked.path), tuple(remarks)
    linked.check_sources(dataset)
    return HDF5Frames.of(dataset, tuple(dict.fromkeys(sources))), tuple(remarks)


def _source(
    linked: Linked, other: Linked, dataset: h5py.Dataset, source: object, place: str, depth: int
) -> tuple[Frames, tuple[int, int, int] | None]:
    """Return (frames of a source, (first, last + 1, first in the source)); None instead for parts of patterns."""
    name, inside = source.file_name, source.dset_name  # type: ignore[attr-defined]
    vspace, space = source.vspace, source.src_space  # type: ignore[attr-defined]
    what = f"{linked.path} stores parts of {place}"
    file = other.source_file(dataset, name, what)
    found = other.get(inside, file["/"])
    if not isinstance(found, h5py.Dataset):
        raise FileError(
            f"{what} in {file.filename} at {inside}, where there is no dataset; is that file whole?",
            code="file.incomplete",
        )
    if found.id == dataset.id:
        raise FileError(
            f"{linked.path} has a virtual dataset at {place} that contains itself; expected other data.",
            code="file.too-many-links",
        )
    low, high = _bounds(space)
    if low is not None and (len(low) != found.ndim or any(h >= s for h, s in zip(high, found.shape, strict=True))):
        raise FileError(
            f"{what} in {file.filename} at {inside}, of shape {found.shape}, and expects values up to {high} there; "
            "the file is cut short, or of another scan.",
            code="file.damaged",
        )
    expected = min(int(vspace.get_select_npoints()), dataset.size)
    if low is None and found.size != expected:
        raise FileError(
            f"{what} in {file.filename} at {inside}, of shape {found.shape}, and expects {expected} values there; "
            "the file is cut short, or of another scan.",
            code="file.damaged",
        )
    if found.ndim < 3 or scan_axes(found.shape) is None:
        return _flat(found), None
    frames = _of(other, found, f"{Path(file.filename).name}:{inside}", depth + 1).frames
    return frames, _run(dataset, found, vspace, space)


def _run(
    dataset: h5py.Dataset, found: h5py.Dataset, vspace: h5py.h5s.SpaceID, space: h5py.h5s.SpaceID
) -> tuple[int, int, int] | None:
    """Return (first pattern, last + 1, first pattern in the source) of a mapping; None for parts of patterns."""
    if dataset.ndim != 3 or found.ndim != 3 or found.shape[1:] != dataset.shape[1:]:
        return None
    (low, high), (first, last) = _bounds(vspace), _bounds(space)
    if low is None:
        low, high = (0, 0, 0), tuple(side - 1 for side in dataset.shape)
    if first is None:
        first, last = (0, 0, 0), tuple(side - 1 for side in found.shape)
    box, other = ([h - s + 1 for s, h in zip(*ends, strict=True)] for ends in ((low, high), (first, last)))
    full = vspace.get_select_npoints() == math.prod(box) == space.get_select_npoints() == math.prod(other)
    if not full or box != other or tuple(box[1:]) != dataset.shape[1:]:
        return None
    return int(low[0]), int(low[0]) + int(box[0]), int(first[0])


def _bounds(space: h5py.h5s.SpaceID) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """Return the smallest and the largest selected index along each axis; None for the smallest if all are."""
    if space.get_select_type() == h5py.h5s.SEL_ALL:
        return None, ()
    low, high = space.get_select_bounds()
    return tuple(map(int, low)), tuple(map(int, high))


def _flat(dataset: h5py.Dataset) -> Frames:
    """Return frames for a dataset that is no stack of patterns; only their path is used."""
    path = Path(dataset.file.filename).resolve()
    shape = (1, *(1, 1, *dataset.shape)[-2:])
    return HDF5Frames(path, dataset.name, shape, dataset.dtype.str)


def _paths(frames: Frames) -> tuple[Path, ...]:
    """Return the files that contain the frames."""
    if isinstance(frames, StackedFrames):
        return tuple(path for part in frames.parts for path in _paths(part))
    if isinstance(frames, SelectedFrames):
        return _paths(frames.source)
    return (frames.path, *frames.sources) if isinstance(frames, HDF5Frames) else ()


def _cut(frames: Frames, start: int, count: int) -> Frames:
    if start == 0 and count == frames.shape[0]:
        return frames
    return SelectedFrames.of(frames, np.arange(start, start + count))
