"""MATLAB files, of versions 5 to 7 (compressed patterns are unpacked into memory) and 7.3 (HDF5; read in place).

The patterns are a stack (ky, kx, pattern) or a raster (ky, kx, row, column) as MATLAB counts axes, under any name that
`ptynb.io.reading.named_arrays` lists ("dp", "cbed", "data", ...) or as the only such array; a stack written from Python
is (pattern, ky, kx), recognised by two equal sides at the end, or by the number of positions. Fields of structs count
as well, and those of the struct `p` of PtychoShelves and fold_slice have their units:

    p.lambda [m], p.energy [keV], p.z [m], p.ds (detector pixel [m]), p.positions_real (pattern, yx) [m]
    ppY, ppX [m]: positions of the sample's stage; the probe moves in the opposite direction

Beside "*_dp.hdf5", which has (pattern, y, x) as h5py counts axes, "*_para.hdf5" is read for ppY and ppX.

Orientation: rows are MATLAB's first axis, columns its second; HDF5 has the axes of 7.3 in reverse, which is undone. A
raster is scanned along its rows: p(row, column) is pattern row * columns + column here, whatever MATLAB's order is.

Sources: MathWorks, MAT-File Format (2024); fold_slice's +scans/+positions/hdf5_pos.m and matlab_pos.m.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.data.patterns import Frames, HDF5Frames, PlacedFrames, SelectedFrames
from ptynb.exceptions import FileError
from ptynb.io.formats.mat5 import Variable, variables
from ptynb.io.hdf5_file import LinkPolicy, check_chunks, open_for_reading, own, read_all, reason
from ptynb.io.reading.named_arrays import PIXEL_POSITIONS, POSITIONS, Raster, StoredArray, found_in
from ptynb.io.reading.packed_patterns import packed
from ptynb.io.reading.reader_interface import FileRecord, Format, Head
from ptynb.io.reading.stack_axes import check_counts, native, stacked, transposed
from ptynb.settings.load_options import LoadOptions

MOST = 4096
"""Limit of datasets that are visited in a file."""
P_FIELDS = {"z": "distance", "ds": "detector_pixel", "energy": "energy_keV"}
"""Fields of the struct p of PtychoShelves, and their names in ptynb."""


def recognises(head: Head) -> bool:
    """Return whether this is a MATLAB file, by first bytes, suffix, attributes, or an accompanying positions file."""
    if head.file is None:
        return head.start.startswith(b"MATLAB 5.0") or (head.path.suffix.lower() == ".mat" and head.path.is_file())
    if head.start.startswith(b"MATLAB 7.3") or head.path.suffix.lower() == ".mat" or _para(head.path) is not None:
        return True
    return any("MATLAB_class" in item.attrs for _, item in own(head.file) if isinstance(item, h5py.Dataset))


def read(path: Path, options: LoadOptions) -> FileRecord:
    """Return the content of the variables."""
    if not h5py.is_hdf5(path):
        return found_in(FORMAT.name, _with_standard_names(_version_5(path), path), options, path)
    return found_in(FORMAT.name, _with_standard_names(_version_73(path, options), path), options, path)


FORMAT = Format("MATLAB", recognises, read, (".mat",))


def _para(path: Path) -> Path | None:
    """Return the file "*_para.hdf5" with the positions of "*_dp.hdf5"; None if there is none."""
    beside = path.with_name(f"{path.name.removesuffix('_dp.hdf5')}_para.hdf5")
    return beside if path.name.endswith("_dp.hdf5") and beside.is_file() else None


def _with_standard_names(arrays: dict[str, StoredArray], path: Path) -> dict[str, StoredArray]:
    """Rename fields of p to names with units, and combine ppY and ppX to positions of the probe."""
    named = {
        f"p/{P_FIELDS[name[2:]]}" if name.startswith("p/") and name[2:] in P_FIELDS else name: stored
        for name, stored in arrays.items()
    }
    stage = [
        next((stored for name, stored in named.items() if name.split("/")[-1] == way), None) for way in ("ppY", "ppX")
    ]
    if stage[0] is not None and stage[1] is not None:
        both: Callable[[], Any] = partial(_probe_of_stage, stage[0], stage[1], path)
        named["positions"] = StoredArray((*stage[0].shape, 2), np.dtype("f8"), both, both)
    names = (*POSITIONS, *PIXEL_POSITIONS)
    shapes = (stored.shape for name, stored in named.items() if name.split("/")[-1].lower() in names)
    count = max(next(shapes, ()), default=None)
    return {name: dataclasses.replace(stored, frames=partial(stored.frames, count)) for name, stored in named.items()}


def _probe_of_stage(rows: StoredArray, columns: StoredArray, path: Path) -> NDArray[Any]:
    read = [stored.read().ravel() for stored in (rows, columns)]
    if len(read[0]) != len(read[1]):
        raise FileError(
            f"{path} has {len(read[0])} ppY and {len(read[1])} ppX; expected equal numbers.", code="file.count-mismatch"
        )
    return -np.column_stack(read)


def _order(shape: tuple[int, ...], count: int | None) -> tuple[int, ...]:
    """Return the permutation of axes to (pattern, y, x) or (row, column, y, x); () for other arrays.

    count: number of positions; None if unknown.
    """
    if len(shape) not in (3, 4):
        return ()
    in_order = shape[-1] == shape[-2] and shape[0] != shape[1]
    if len(shape) == 3 and count is not None and (shape[0] == count) != (shape[2] == count):
        in_order = shape[0] == count
    axes = tuple(range(len(shape)))
    return axes if in_order else (*axes[2:], 0, 1)


# Version 5 to 7


def _version_5(path: Path) -> dict[str, StoredArray]:
    arrays: dict[str, StoredArray] = {}
    for variable in variables(path):
        if variable.numbers:
            shape, dtype = variable.shape, variable.dtype
            arrays[variable.name] = StoredArray(shape, dtype, variable.values, partial(_frames_5, variable))
        else:
            arrays |= {name: _array_in_memory(name, value, path) for name, value in variable.fields()}
    return arrays


def _array_in_memory(name: str, value: NDArray[Any], path: Path) -> StoredArray:
    def frames(count: int | None) -> tuple[Frames, Raster | None]:
        return packed(path, name, value.shape, value.dtype, lambda progress: value, _order(value.shape, count))

    return StoredArray(value.shape, value.dtype, lambda: value, frames)


def _frames_5(variable: Variable, count: int | None) -> tuple[Frames, Raster | None]:
    """Return patterns that are read in place if stored uncompressed and contiguously; else in memory."""
    shape, path = variable.shape, variable.path
    order = _order(shape, count)
    if not variable.whole or not order or order[0] == 0:
        return packed(path, variable.name, shape, variable.dtype, variable.values, order)
    (number, rows, columns), raster = stacked(tuple(shape[axis] for axis in order), path, variable.name)
    check_counts(variable.dtype, path, variable.name)
    # MATLAB's first axis is the fastest: patterns are transposed, and those of a column of the scan are adjacent.
    numbers = np.arange(number, dtype=np.int64)
    if raster is not None:
        numbers = numbers.reshape(raster[::-1]).T.ravel()
    places = variable.start + variable.place + numbers * (rows * columns * variable.stored.itemsize)
    frames = PlacedFrames(path.resolve(), places, (number, columns, rows), variable.stored.str)
    return transposed(native(frames)), raster


# Version 7.3


def _version_73(path: Path, options: LoadOptions) -> dict[str, StoredArray]:
    para = _para(path)
    if para is not None:
        LinkPolicy.around(path, options.links).check(para, f"{path} stores its positions")
    with open_for_reading(path) as file:
        arrays = {name: _dataset(path, found, para is None) for name, found in _datasets(file)}
    if para is not None:
        with open_for_reading(para) as file:
            arrays |= {name: _dataset(para, found, True) for name, found in _datasets(file) if name not in arrays}
    return arrays


def _datasets(file: h5py.File) -> Iterator[tuple[str, h5py.Dataset]]:
    """Yield (name, dataset); links out of the file are not followed."""
    found: list[tuple[str, h5py.Dataset]] = []

    def visit(name: str, item: Any) -> bool | None:
        numbers = isinstance(item, h5py.Dataset) and not name.startswith("#") and "MATLAB_empty" not in item.attrs
        # MATLAB does not write virtual and external datasets.
        if numbers and not item.is_virtual and not item.external:
            found.append((name, item))
        return True if len(found) >= MOST else None

    file.visititems(visit)
    yield from found


def _dataset(path: Path, dataset: h5py.Dataset, as_matlab: bool) -> StoredArray:
    """Return a variable of version 7.3. as_matlab: whether its axes are reversed in HDF5."""
    check_chunks(dataset, path)
    dtype = dataset.dtype
    if dtype.names is not None and set(dtype.names) == {"real", "imag"}:
        dtype = np.dtype("c16" if dtype["real"].itemsize == 8 else "c8")
    shape = tuple(dataset.shape or ())[:: -1 if as_matlab else 1]
    name = dataset.name.lstrip("/")
    whole = partial(_read_dataset, path, name, as_matlab)
    return StoredArray(shape, dtype, whole, partial(_frames, path, name, shape, dtype, as_matlab))


def _read_dataset(path: Path, name: str, as_matlab: bool) -> NDArray[Any]:
    try:
        with open_for_reading(path) as file:
            value = np.asarray(read_all(file[name]))
    except (OSError, KeyError) as error:
        raise FileError(
            f"{path} can't be read at {name} ({reason(error)}); copy it again.",
            code="file.damaged",
        ) from None
    if value.dtype.names is not None and set(value.dtype.names) == {"real", "imag"}:
        if not all(value.dtype[part].kind in "fiu" for part in ("real", "imag")):
            raise FileError(
                f"{path} has {name} of type {value.dtype}; expected numbers.", code="file.unexpected-content"
            )
        value = value["real"] + 1j * value["imag"]
    return value.T if as_matlab else value


def _frames(
    path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], as_matlab: bool, count: int | None
) -> tuple[Frames, Raster | None]:
    order = (as_matlab and _order(shape, count)) or tuple(range(len(shape)))
    _, raster = stacked(tuple(shape[axis] for axis in order), path, name)
    check_counts(dtype, path, name)
    if as_matlab and order[0] == 0:
        # Patterns are interleaved in the file.
        return packed(path, name, shape, dtype, lambda progress: _read_dataset(path, name, True), order)
    with open_for_reading(path) as file:
        frames: Frames = HDF5Frames.of(file[name])
    if not as_matlab:
        return frames, raster
    frames = transposed(frames)
    if raster is None:
        return frames, None
    # HDF5 has (column, row): the pattern of row i and column j is number j * rows + i.
    return SelectedFrames.of(frames, np.arange(raster[0] * raster[1]).reshape(raster[::-1]).T.ravel()), raster
