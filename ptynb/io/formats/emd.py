"""EMD as py4DSTEM and emdfile write it (version 1.0), and Berkeley's older version: HDF5 with typed groups.

    .../datacube                    emd_group_type "array" (older: 1)
        data (or datacube)          (Rx, Ry, Qx, Qy): rows and columns of the scan, rows and columns of the patterns
        dim0 to dim3 (older: dim1 to dim4)     first two or all values of an axis, with the attribute units
    .../metadatabundle/calibration  R_pixel_size, R_pixel_units, Q_pixel_size, Q_pixel_units, QR_rotation [rad], QR_flip

The calibration has precedence over axes. Pixel sizes in 1/Å need the voltage, which py4DSTEM does not store:
`load(path, voltage=300e3)`. Its probes are patterns, not waves, so they are not used as initial guess.

Orientation: py4DSTEM's x are rows, its y columns. A vector q of the detector is R(θ) q in the scan, θ = QR_rotation and
R = [[cos, -sin], [sin, cos]] on (row, column), its components exchanged first if QR_flip. Here positions are rotated
to the detector's axes, and patterns are transposed if QR_flip, so the object is not mirrored.

Source: py4DSTEM 0.14, braggvectors and process/phase; https://emdatasets.com/format.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ptynb.data.electrons import electron_wavelength
from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import Linked, check_chunks, own
from ptynb.io.reading import microscope_scales
from ptynb.io.reading.hdf5_reading import attribute_of, factor, patterns_at, text, units_of
from ptynb.io.reading.reader_interface import FileRecord, Format, Head
from ptynb.io.reading.stack_axes import check_counts, stacked, transposed
from ptynb.settings.claimed_values import is_set
from ptynb.settings.load_options import LoadOptions

VOLTAGES = ("high tension", "high_tension", "accelerating_voltage", "acceleration_voltage", "beam_energy", "voltage")
NAMES = "data", "datacube"
"""Names of the patterns in a group; the second one is of Prismatic."""
MOST = 4096
"""Limit of groups and datasets that are visited in a file."""


def recognises(head: Head) -> bool:
    """Return whether a group has the attributes of EMD."""
    return head.file is not None and any(True for _ in _cubes(head.file))


def read(path: Path, options: LoadOptions) -> FileRecord:
    """Return the content of the datacube and its calibration."""
    with Linked(path, options.links) as linked:
        cube = _cube(linked.root.file, options, path)
        data = _data(cube)
        stacked(data.shape, path, data.name)
        check_counts(data.dtype, path, data.name)
        stored = patterns_at(linked, data.name)
        places = {"patterns": data.name, "raster": data.name}
        calibration = _calibration(cube, places)
        voltage = None if options.beam is not None else _voltage(cube, path, places)
        wavelength = None if voltage is None else electron_wavelength(voltage)
        step = _step(cube, calibration, path, places)
        angle = _angle(cube, calibration, path, options.beam or wavelength, places)
    rotation = None if options.rotation is not None else calibration.get("QR_rotation")
    if rotation is not None and not (isinstance(rotation, float) and math.isfinite(rotation)):
        raise FileError(
            f"{path} has the QR_rotation {str(rotation)[:40]}; expected a finite angle: give rotation=... [rad].",
            code="file.unexpected-content",
            fields=("rotation",),
        )
    frames = stored.frames
    if calibration.get("QR_flip"):
        frames = transposed(frames)
        angle = None if angle is None else angle[::-1]
    return FileRecord(
        format=FORMAT.name,
        frames=frames,
        raster=stored.raster,
        step=step,
        rotation=rotation,
        wavelength=wavelength,
        angular_pixel=angle,
        places=places,
        notes=stored.notes,
    )


FORMAT = Format("EMD (py4DSTEM)", recognises, read, (".emd", ".h5"))


def _cubes(file: h5py.File) -> Iterator[h5py.Group]:
    """Yield groups with an array of four or three axes, those of four first; external links are not followed."""
    found: list[h5py.Group] = []
    seen = 0

    def visit(name: str, item: Any) -> bool | None:
        nonlocal seen
        seen += 1
        if isinstance(item, h5py.Group) and str(attribute_of(item, "emd_group_type")) in ("array", "1"):
            data = _data(item)
            if isinstance(data, h5py.Dataset) and data.ndim in (3, 4):
                found.append(item)
        return True if seen >= MOST else None

    file.visititems(visit)
    yield from sorted(found, key=lambda group: -_data(group).ndim)


def _data(group: h5py.Group) -> Any:
    """Return what has the name of patterns in a group of the file itself; None if nothing has."""
    names = (name for name in NAMES if isinstance(group.get(name, getlink=True), h5py.HardLink))
    return next((group[name] for name in names), None)


def _cube(file: h5py.File, options: LoadOptions, path: Path) -> h5py.Group:
    cubes = list(_cubes(file))
    if options.patterns is not None:
        name = options.patterns.strip("/")
        chosen = [cube for cube in cubes if name in (cube.name.strip("/"), _data(cube).name.strip("/"))]
    else:
        chosen = [cube for cube in cubes if _data(cube).ndim == _data(cubes[0]).ndim]
    if len(chosen) != 1:
        listed = chosen or cubes
        names = ", ".join(f"{_data(cube).name} {_data(cube).shape}" for cube in listed[:8])
        more = f" and {len(listed) - 8} more" if len(listed) > 8 else ""
        raise FileError(
            f"{path} has {names}{more}; select the patterns: patterns={_data(listed[0]).name.lstrip('/')!r}.",
            code="file.several-choices",
            fields=("patterns",),
        )
    return chosen[0]


def _bundles(cube: h5py.Group) -> Iterator[h5py.Group]:
    """Yield metadata groups of the cube and of its parent groups, nearest first."""
    group = cube
    while True:
        inside = dict(own(group))
        bundle = inside.get("metadatabundle")
        if isinstance(bundle, h5py.Group):
            yield from (item for _, item in own(bundle) if isinstance(item, h5py.Group))
        if group.name == "/":
            return
        group = group.parent


def _calibration(cube: h5py.Group, places: dict[str, str]) -> dict[str, Any]:
    for bundle in _bundles(cube):
        if bundle.name.rsplit("/", 1)[-1] == "calibration":
            places["calibration"] = bundle.name
            return {name: _scalar(item) for name, item in own(bundle) if isinstance(item, h5py.Dataset)}
    return {}


def _voltage(cube: h5py.Group, path: Path, places: dict[str, str]) -> float | None:
    for bundle in _bundles(cube):
        for name, item in own(bundle):
            value = _scalar(item) if isinstance(item, h5py.Dataset) else None
            if name.lower() in VOLTAGES and isinstance(value, float):
                places["voltage"] = item.name
                return microscope_scales.volts(value, f"{path}: {item.name}")
    return None


def _step(
    cube: h5py.Group, calibration: dict[str, Any], path: Path, places: dict[str, str]
) -> tuple[float, float] | None:
    scale = factor(str(calibration.get("R_pixel_units", "")), "length")
    if scale is not None:
        places["step"] = f"{places['calibration']}/R_pixel_size"
        size = _positive(calibration.get("R_pixel_size"), places["step"], path)
        return None if size is None else (size * scale, size * scale)
    if _data(cube).ndim != 4:
        return None
    axes = [_axis(cube, number) for number in (0, 1)]
    factors = [factor(unit, "length") for _, unit in axes]
    if factors[0] is None or factors[1] is None:
        return None
    places["step"] = f"{cube.name}: axes 0 and 1"
    rows, columns = (_positive(size, places["step"], path) for size, _ in axes)
    return None if rows is None or columns is None else (rows * factors[0], columns * factors[1])


def _angle(
    cube: h5py.Group, calibration: dict[str, Any], path: Path, beam: float | None, places: dict[str, str]
) -> tuple[float, float] | None:
    unit = str(calibration.get("Q_pixel_units", ""))
    if microscope_scales.angular_pixel(1.0, unit, 1.0) is not None:
        where = f"{places['calibration']}/Q_pixel_size"
        sizes: list[tuple[float | None, str]] = [(_positive(calibration.get("Q_pixel_size"), where, path), unit)] * 2
    else:
        last = _data(cube).ndim
        where = f"{cube.name}: axes {last - 2} and {last - 1}"
        axes = [_axis(cube, number) for number in (last - 2, last - 1)]
        if any(microscope_scales.angular_pixel(1.0, unit, 1.0) is None for _, unit in axes):
            return None
        sizes = [(_positive(size, where, path), unit) for size, unit in axes]
    rows, columns = (
        None if size is None else microscope_scales.angular_pixel(size, unit, beam) for size, unit in sizes
    )
    if rows is None or columns is None:
        return None
    places["angular_pixel"] = where
    return rows, columns


def _axis(cube: h5py.Group, number: int) -> tuple[float, str]:
    """Return (step, unit) of an axis of the data; version 1.0 counts axes from 0, the older version from 1."""
    inside = dict(own(cube))
    axis = inside.get(f"dim{number + (0 if 'dim0' in inside else 1)}")
    if not isinstance(axis, h5py.Dataset) or axis.size is None or axis.size < 2 or axis.dtype.kind not in "iuf":
        return math.nan, ""
    check_chunks(axis, Path(axis.file.filename))
    values = np.asarray(axis[:2], dtype=np.float64)
    return float(values[1] - values[0]), units_of(axis).strip("[]").replace("_", "")


def _positive(value: Any, where: str, path: Path) -> float | None:
    """Return a size; None if it is not set."""
    if isinstance(value, float) and not is_set(value):
        return None
    if not (isinstance(value, float) and math.isfinite(value) and value > 0):
        raise FileError(
            f"{path} has the size {str(value)[:40]} at {where}; expected a positive, finite number: set it with "
            "py4DSTEM's calibration.",
            code="file.unexpected-content",
        )
    return value


def _scalar(item: h5py.Dataset) -> Any:
    """Return the value of a scalar dataset: numbers as float, text as str, anything else as None."""
    if item.shape not in ((), (1,)):
        return None
    if h5py.check_string_dtype(item.dtype):
        return text(item)
    check_chunks(item, Path(item.file.filename))
    return float(np.ravel(item[()])[0]) if item.dtype.kind in "iufb" else None
