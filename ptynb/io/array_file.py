"""Real arrays in files of their own: numpy's .npy, text with numbers in columns, and masks in HDF5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import reason
from ptynb.io.mask_file import HDF5, load_mask
from ptynb.io.reading.safe_reading import check_small, mapped

FIELDS = ("probe", "object")
"""Names of arrays that may be complex and large."""


def read_array(path: Path, name: str) -> NDArray[Any]:
    """Return the array in a file. name: "mask", which may be in HDF5, or of another array, for messages.

    Raises FileError if there is no such file, or it contains no real numbers.
    """
    if not path.is_file():
        raise FileError(f"There is no file {path}, which is to contain the {name}.", code="file.not-found")
    if name == "mask" and path.suffix in HDF5:
        return load_mask(path)
    if path.suffix != ".npy" or name not in FIELDS:
        check_small(path.stat().st_size, name, path)
    if path.suffix == ".npy":
        return real_numbers(np.array(mapped(path, name)), name, str(path))
    try:
        read = np.loadtxt(path, delimiter="," if path.suffix == ".csv" else None, ndmin=2)
    except (OSError, ValueError) as error:
        raise FileError(
            f"{path} can't be read as {name} ({reason(error)}); expected .npy, or text with numbers in columns.",
            code="file.unknown-format",
        ) from None
    return real_numbers(read, name, str(path))


def real_numbers(values: NDArray[Any], name: str, where: str) -> NDArray[Any]:
    """Return the values. Raises FileError if they are not real numbers; probe and object may have complex ones."""
    numbers = np.issubdtype(values.dtype, np.number) or values.dtype == bool
    if not numbers or (np.iscomplexobj(values) and name not in FIELDS):
        raise FileError(
            f"The {name} in {where} are of type {values.dtype}; expected {'' if name in FIELDS else 'real '}numbers.",
            code="file.unexpected-content",
        )
    return values
