"""Masks in files: HDF5 (dataset /mask, bool) or numpy's .npy, True where the detector works."""

from __future__ import annotations

import uuid
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.exceptions import FileError, InvalidValueError
from ptynb.io.hdf5_file import open_for_reading, replacing
from ptynb.io.reading.safe_reading import Checked, check_small, mapped

NUMPY, HDF5 = (".npy",), (".h5", ".hdf5", ".hdf", ".nxs", ".cxi")


def save_mask(mask: ArrayLike, path: str | Path) -> Path:
    """Writes a mask (y, x), True where the detector works, and returns the path; its ending says how.

    .npy: numpy's own; .h5, .hdf5: HDF5, as dataset /mask. A file that is there is replaced once the new one is whole.

    Raises ValueError for another shape or values, and FileError for another ending or a folder that does not exist.
    """
    values = np.asarray(mask)
    if values.ndim != 2 or not (values.dtype == bool or np.isin(values, (0, 1)).all()):
        raise InvalidValueError(
            f"The mask has shape {values.shape} and type {values.dtype}; expected (y, x), True or 1 where the detector "
            "works, False or 0 elsewhere.",
            code="argument.invalid-value",
        )
    path = Path(path).expanduser()
    if path.suffix in NUMPY:
        _write_numpy(values.astype(bool), path)
    elif path.suffix in (".h5", ".hdf5"):
        with replacing(path) as file:
            file["mask"] = values.astype(bool)
    else:
        raise FileError(
            f"A mask is to be written to {path.name}; expected a name that ends with .npy, .h5 or .hdf5.",
            code="file.unknown-format",
        )
    return path


def load_mask(path: str | Path) -> NDArray[np.bool_]:
    """The mask (y, x) of a file that `save_mask` wrote, or of any .npy of a mask, True where the detector works.

    Raises FileError for files that are none.
    """
    path = Path(path).expanduser()
    if path.suffix in NUMPY:
        values = mapped(path, "a mask (y, x)")
        check_small(values.size, "a mask", path)
    elif path.suffix in HDF5:
        with open_for_reading(path) as file:
            checked = Checked(file, path)
            check_small(checked.dataset("mask").size, "a mask", path)
            values = checked.array("mask", "biuf", 2)
    else:
        raise FileError(
            f"{path.name} is to be read as a mask; expected a name that ends with .npy, .h5 or .hdf5.",
            code="file.unknown-format",
        )
    if values.ndim != 2 or values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        raise FileError(
            f"{path} holds an array of shape {values.shape} and type {values.dtype}; expected a mask (y, x), True or 1 "
            "where the detector works, False or 0 elsewhere.",
            code="file.unexpected-content",
        )
    return values.astype(bool)


def _write_numpy(mask: NDArray[np.bool_], path: Path) -> None:
    if not path.parent.is_dir():
        raise FileError(
            f"There is no folder {path.parent} to write {path.name} in; make it first.", code="file.not-writable"
        )
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with beside.open("wb") as file:
            np.save(file, mask, allow_pickle=False)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
