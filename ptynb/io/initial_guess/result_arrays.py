"""What the readers of others' results share: arrays out of HDF5 that are numbers, of the right rank, and bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import check_chunks, dataset, inside, read_all, reason
from ptynb.io.reading.safe_reading import ELSEWHERE, check_room

Array = NDArray[Any]
SMALL = 2**26
"""Bytes that any dataset may take in memory."""
COMPRESSION = 1100
"""Bytes in memory for one on the disk, at most: deflate's own limit is 1032. What claims more was never written."""


def array(file: h5py.File, name: str, path: Path, dimensions: tuple[int, ...]) -> Array:
    """The numbers of a dataset inside this file; bool and compound types of real and imaginary part count as numbers.

    Raises FileError where it is missing, elsewhere, of another rank or kind, or larger than what the file holds.
    """
    found = _inside(file, name, path)
    if found.shape is None:
        raise FileError(f"{path} has a dataset {name} with nothing in it; the file is incomplete.")
    if found.ndim not in dimensions:
        expected = " or ".join(str(number) for number in dimensions)
        raise FileError(f"{path} has {name} of shape {found.shape}; expected {expected} dimensions.")
    memory = int(np.prod(found.shape, dtype=object)) * found.dtype.itemsize
    if memory > max(SMALL, COMPRESSION * found.id.get_storage_size()):
        raise FileError(
            f"{path} claims {memory / 2**30:.3g} GiB in {name}, which it does not hold; "
            "the file is broken, take it from where it was made again."
        )
    check_room(memory, name, path, ELSEWHERE)
    check_chunks(found, path)
    try:
        return as_numbers(np.asarray(read_all(found)), name, path)
    except (OSError, TypeError) as error:
        raise FileError(f"{path} has a dataset {name} that can't be read ({reason(error)}).") from None


def _inside(file: h5py.File, name: str, path: Path) -> h5py.Dataset:
    try:
        return dataset(file, name, path)
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} has a dataset {name} that can't be read ({reason(error)}).") from None


def as_numbers(values: Array, name: str, path: Path) -> Array:
    """The values as bool, integers, floats or complex; pairs of `real` and `imag`, as MATLAB writes, become complex."""
    if values.dtype.names == ("real", "imag") and all(values.dtype[part].kind in "fiu" for part in ("real", "imag")):
        values = values["real"] + 1j * values["imag"]
    if values.dtype.kind not in "biufc":
        raise FileError(f"{path} has {name} of type {values.dtype}; expected numbers.")
    return values


def as_complex(values: Array, name: str, path: Path) -> NDArray[np.complex64]:
    """The values as complex64, which a guess needs no more than. Raises FileError where they exceed it."""
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = values.astype(np.complex64)
    if not np.isfinite(narrow).all():
        raise FileError(f"{path} has {name} with {int((~np.isfinite(narrow)).sum())} values that are not finite.")
    return narrow


def first(values: Array, name: str, path: Path) -> Array:
    """The first of several modes or states. Raises FileError where there is none."""
    if len(values) == 0:
        raise FileError(f"{path} has {name} of shape {values.shape}, with nothing in it; the file is incomplete.")
    found: Array = values[0]
    return found


def as_places(values: Array, name: str, path: Path) -> NDArray[np.float64]:
    """Positions (pattern, 2) as float64. Raises FileError for complex ones and for other shapes."""
    if values.dtype.kind == "c" or values.ndim != 2 or values.shape[1] != 2 or len(values) == 0:
        raise FileError(f"{path} has {name} of shape {values.shape} and type {values.dtype}; expected (pattern, 2).")
    return values.astype(np.float64)


def number(file: h5py.File, name: str, path: Path) -> float | None:
    """A finite number of a dataset with one value; None where there is none."""
    if not isinstance(inside(file, name, path), h5py.Dataset):
        return None
    values = array(file, name, path, tuple(range(5)))
    if values.size != 1 or values.dtype.kind == "c":
        return None
    value = float(values.reshape(-1)[0])
    return value if np.isfinite(value) else None


def flag(file: h5py.File, name: str, path: Path) -> bool:
    """Whether a dataset holds a single true value."""
    return bool(number(file, name, path))


def square(size: float | None) -> tuple[float, float] | None:
    """A pixel size (y, x) from one that counts for both."""
    return None if size is None else (size, size)
