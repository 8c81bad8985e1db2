"""Access to arrays in results of other packages: numbers of the expected rank, no larger than the file can hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import check_chunks, dataset, has, inside, read_all
from ptynb.io.reading.reading_errors import reading
from ptynb.io.reading.safe_reading import ELSEWHERE, check_room

Array = NDArray[Any]
SMALL = 2**26
"""Size in memory that is permitted for any dataset [bytes]."""
COMPRESSION = 1100
"""Highest ratio of bytes in memory to bytes on the disk; the limit of deflate is 1032."""


@dataclass(frozen=True)
class ForeignResult:
    """An open HDF5 file with a result of another package. Its methods raise FileError for invalid datasets."""

    file: h5py.File
    path: Path

    def has(self, *names: str) -> bool:
        """Return whether the file has groups or datasets of all these names."""
        return has(self.file, *names)

    def array(self, name: str, *dimensions: int) -> Array:
        """Return the numbers of a dataset in this file, which has one of these numbers of dimensions."""
        path = self.path
        with reading(path):
            found = dataset(self.file, name, path)
            shape = found.shape
            if shape is None or 0 in shape:
                raise FileError(
                    f"{path} has an empty dataset {name} (shape {shape}); the file is incomplete.",
                    code="file.incomplete",
                )
            if len(shape) not in dimensions:
                raise FileError(
                    f"{path} has {name} of shape {shape}; expected {' or '.join(map(str, dimensions))} dimensions.",
                    code="file.unexpected-content",
                )
            memory = int(np.prod(shape, dtype=object)) * found.dtype.itemsize
            if memory > max(SMALL, COMPRESSION * found.id.get_storage_size()):
                raise FileError(
                    f"{path} claims {memory / 2**30:.3g} GiB in {name}, more than the file can hold; it is damaged, "
                    "copy it again.",
                    code="file.damaged",
                )
            check_room(memory, name, path, ELSEWHERE)
            check_chunks(found, path)
            return as_numbers(np.asarray(read_all(found)), name, path)

    def reals(self, name: str, *shapes: tuple[int | str, ...]) -> NDArray[np.float64]:
        """Return finite real numbers of one of these shapes; see `as_reals`."""
        return as_reals(self.array(name, *{len(shape) for shape in shapes}), name, self.path, *shapes)

    def number(self, name: str) -> float | None:
        """Return the finite real number in a dataset of one value; None if there is none."""
        found = inside(self.file, name, self.path)
        if not isinstance(found, h5py.Dataset) or found.size != 1:
            return None
        value = self.array(name, *range(5)).reshape(-1)[0]
        return float(value) if value.dtype.kind != "c" and np.isfinite(value) else None


def as_numbers(values: Array, name: str, path: Path) -> Array:
    """Return bool, integers, floats or complex numbers; pairs of `real` and `imag`, as of MATLAB, become complex."""
    if values.dtype.names == ("real", "imag") and all(values.dtype[part].kind in "fiu" for part in ("real", "imag")):
        values = values["real"] + 1j * values["imag"]
    if values.dtype.kind not in "biufc":
        raise FileError(f"{path} has {name} of type {values.dtype}; expected numbers.", code="file.unexpected-content")
    return values


def as_reals(values: Array, name: str, path: Path, *shapes: tuple[int | str, ...]) -> NDArray[np.float64]:
    """Return finite real numbers as float64, of one of these shapes; a named axis has any length above 0."""
    fits = any(
        len(shape) == values.ndim
        and all(
            found > 0 if isinstance(side, str) else found == side
            for side, found in zip(shape, values.shape, strict=True)
        )
        for shape in shapes
    )
    if values.dtype.kind == "c" or not fits:
        expected = " or ".join(f"({', '.join(map(str, shape))})" for shape in shapes)
        raise FileError(
            f"{path} has {name} of shape {values.shape} and type {values.dtype}; expected real numbers of shape "
            f"{expected}.",
            code="file.unexpected-content",
        )
    if not np.isfinite(values).all():
        raise FileError(f"{path} has {name} with values that are not finite.", code="array.not-finite")
    return values.astype(np.float64)


def as_complex(values: Array) -> NDArray[np.complex64]:
    """Return the values as complex64, which is enough for a guess; larger ones become infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.complex64)
