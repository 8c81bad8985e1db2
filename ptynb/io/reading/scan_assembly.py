"""The scan that a file and its user describe together: units and axes, decided once for all formats."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.data.geometry import Geometry, metres_to_pixels
from ptynb.data.scan import AnyGeometry, Scan, default_name
from ptynb.exceptions import FileError, PtynbWarning
from ptynb.io.hdf5_file import reason
from ptynb.io.mask_file import HDF5, load_mask
from ptynb.io.reading.file_units import factor, units_of
from ptynb.io.reading.hdf5_links import Linked
from ptynb.io.reading.hdf5_values import array
from ptynb.io.reading.memory_limit import check_small, mapped
from ptynb.io.reading.packed_patterns import LARGE, PackedFrames
from ptynb.io.reading.records import FileRecord, Given, missing
from ptynb.io.reading.sanity_checks import check_geometry, check_positions

LENGTHS = "wavelength", "energy", "voltage", "distance", "detector_pixel", "angular_pixel"


def assemble(found: FileRecord, given: Given, path: Path, unpack: bool = True) -> Scan:
    """The scan, none of whose patterns has been looked at.

    unpack: whether patterns that are packed together are unpacked into memory, as a warning says of many.

    Raises FileError that names all that is missing, and how to give it; ScanError for what does not fit together.
    """
    if unpack and isinstance(found.frames, PackedFrames):
        found.frames.check()
    lacks = missing(found, given)
    if lacks:
        names, ways = ", ".join(lack.name for lack in lacks), ", ".join(lack.give for lack in lacks)
        raise FileError(f"{path} ({found.format}) does not say {names}; give it: load(..., {ways}).")
    assert found.frames is not None
    try:
        geometry = _geometry(found, given)
    except FileError:
        raise
    except ValueError as error:
        raise FileError(f"{path}: {error}") from None
    window = found.frames.shape[1:]
    if isinstance(geometry, Geometry) and found.geometry is None:
        check_geometry(found, given, geometry, window, path)
    positions = _positions(found, given, path, geometry)
    in_pixels = given.units == "pixels" if given.positions is not None else found.pixel_positions is not None
    if geometry is not None and not in_pixels and min(window) > 0:
        check_positions(positions, window, geometry.object_pixel(window), found, path)
    frames = found.frames
    if unpack and isinstance(frames, PackedFrames):
        if frames.nbytes >= LARGE:
            warnings.warn(f"{path}: {frames.note}", PtynbWarning, stacklevel=3)
        frames = frames.unpacked()
    return Scan(
        frames=frames,
        positions=positions,
        centred=found.centred,
        mask=found.mask if given.mask is None else _array(given.mask, path, "mask", found, given).astype(bool),
        probe=found.probe,
        object=found.object,
        geometry=geometry,
        clip_negative=given.clip_negative,
        name=default_name(path),
    )


def _geometry(found: FileRecord, given: Given) -> AnyGeometry | None:
    if found.geometry is not None:
        extra = [name for name in LENGTHS if name in given.names]
        if extra:
            raise FileError(f"The file has a geometry of its own; leave out {', '.join(extra)}.")
        return found.geometry
    wavelength = found.wavelength if given.beam is None else given.beam
    distance = found.distance if given.distance is None else given.distance
    pixel = found.detector_pixel if given.detector_pixel is None else given.detector_pixel
    angle = given.angular_pixel
    if angle is None and given.distance is None and given.detector_pixel is None:
        angle = found.angular_pixel
    if angle is not None:
        distance, pixel = 1.0, angle  # an angle is a length seen from one metre
    if wavelength is None or distance is None or pixel is None:
        return None
    return Geometry(wavelength=wavelength, distance=distance, detector_pixel=pixel)


def _positions(found: FileRecord, given: Given, path: Path, geometry: AnyGeometry | None) -> NDArray[np.float64]:
    """(pattern, yx) [object pixels]."""
    assert found.frames is not None
    pixel = (1.0, 1.0) if geometry is None else geometry.object_pixel(found.frames.shape[1:])
    metres, in_pixels = found.positions, found.pixel_positions
    if given.positions is not None:
        stated = _array(given.positions, path, "positions", found, given).astype(np.float64)
        metres, in_pixels = (stated, None) if given.units == "metres" else (None, stated)
    elif given.raster or given.step or (metres is None and in_pixels is None):
        metres, in_pixels = _raster(found, given, path), None
    if metres is None:
        assert in_pixels is not None
        metres = in_pixels * np.asarray(pixel) if in_pixels.ndim == 2 and in_pixels.shape[1] == 2 else in_pixels
    angle = found.rotation if given.rotation is None else given.rotation
    if metres.ndim != 2 or metres.shape[1] != 2:
        return metres  # Scan says what is wrong with it
    return metres_to_pixels(_turned(metres, angle or 0.0), pixel)


def _turned(positions: NDArray[np.float64], angle: float) -> NDArray[np.float64]:
    """Positions turned about their mean, from x towards y: clockwise as arrays are printed."""
    if not math.isfinite(angle):
        raise FileError(f"The rotation of the scan is {angle} rad; expected a finite angle.")
    if angle == 0:
        return positions
    centre = positions.mean(0)
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    return centre + (positions - centre) @ turn.T


def _raster(found: FileRecord, given: Given, path: Path) -> NDArray[np.float64]:
    """Positions [m] of a scan line by line, from its first corner."""
    rows_columns = given.raster or found.raster
    step = given.step or found.step
    assert found.frames is not None
    assert rows_columns is not None
    assert step is not None
    count = found.frames.shape[0]
    if rows_columns[0] * rows_columns[1] != count or min(rows_columns) < 1:
        raise FileError(
            f"{path} has {count} patterns, and the raster has {rows_columns[0]} x {rows_columns[1]} positions; "
            f"expected as many. Give raster=(rows, columns) with a product of {count}."
        )
    if not (all(math.isfinite(size) and size != 0 for size in step)):
        raise FileError(
            f"The scan's step is {step} m; expected two finite numbers that are not 0: step=(20e-9, 20e-9)."
        )
    rows, columns = np.indices(rows_columns).reshape(2, -1)
    return np.column_stack([rows * step[0], columns * step[1]])


def _array(value: str | Path | ArrayLike, path: Path, name: str, found: FileRecord, given: Given) -> NDArray[Any]:
    """An array that was given as such, as the name of a dataset of the file at `path`, or as a file of its own."""
    if not isinstance(value, str | Path):
        return _numbers(np.asarray(value), name, "what was given")
    if isinstance(value, str) and path.is_file() and h5py.is_hdf5(path):
        with Linked(path, given.links) as linked:
            stored = linked.dataset(value)
            if stored is not None:
                values = _numbers(array(stored, name), name, f"{path} at {value}")
                scale = factor(units_of(stored), "length") if name == "positions" and given.units == "metres" else None
                return values if scale is None else values * scale
    inside = found.named(value) if isinstance(value, str) and found.named is not None else None
    if inside is not None:
        return _numbers(inside, name, f"{path} at {value}")
    beside = Path(value).expanduser()
    if not beside.is_file():
        raise FileError(f"{name} is {str(value)!r}, which is neither a dataset of {path} nor a file; name one of them.")
    if name == "mask" and beside.suffix in HDF5:
        return load_mask(beside)
    check_small(beside.stat().st_size, name, beside)
    if beside.suffix == ".npy":
        return _numbers(np.array(mapped(beside, name)), name, str(beside))
    try:
        read = np.loadtxt(beside, delimiter="," if beside.suffix == ".csv" else None, ndmin=2)
    except (OSError, ValueError) as error:
        raise FileError(
            f"{beside} can't be read as {name} ({reason(error)}); expected .npy, or text with numbers in columns."
        ) from None
    return _numbers(read, name, str(beside))


def _numbers(values: NDArray[Any], name: str, where: str) -> NDArray[Any]:
    if not (np.issubdtype(values.dtype, np.number) or values.dtype == bool) or np.iscomplexobj(values):
        raise FileError(f"The {name} in {where} are of type {values.dtype}; expected real numbers.")
    return values
