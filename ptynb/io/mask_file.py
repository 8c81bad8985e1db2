"""Masks in files: HDF5 (dataset /mask, bool) or numpy's .npy, True where the detector works."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.exceptions import FileError, InvalidValueError
from ptynb.io.hdf5_file import open_for_reading, replacing
from ptynb.io.new_files import replacing_file
from ptynb.io.reading.safe_reading import Checked, check_small, mapped

NUMPY, HDF5 = (".npy",), (".h5", ".hdf5", ".hdf", ".nxs", ".cxi")


def save_mask(mask: ArrayLike, path: str | Path) -> Path:
    """Write a mask to a file. An existing file is replaced once the new one is complete.

    Parameters
    ----------
    mask : array_like
        Mask (y, x), True or 1 where the detector works.
    path : str or Path
        File to write; its suffix is .npy, or .h5 or .hdf5 (HDF5 with the dataset /mask).

    Returns
    -------
    Path
        The path of the file.

    Raises
    ------
    InvalidValueError
        If the mask has another shape or other values.
    FileError
        If the suffix is another one, or the folder does not exist.
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
        with replacing_file(path) as beside, beside.open("wb") as file:
            np.save(file, values.astype(bool), allow_pickle=False)
    elif path.suffix in (".h5", ".hdf5"):
        with replacing(path) as file:
            file["mask"] = values.astype(bool)
    else:
        raise FileError(
            f"{path.name} is no name for a mask; expected the suffix .npy, .h5 or .hdf5.",
            code="file.unknown-format",
        )
    return path


def load_mask(path: str | Path) -> NDArray[np.bool_]:
    """Read a mask from a file of `save_mask`, or from any .npy file that contains a mask.

    Parameters
    ----------
    path : str or Path
        File with the suffix .npy, or one of HDF5 (.h5, .hdf5, .hdf, .nxs, .cxi) with the dataset /mask.

    Returns
    -------
    ndarray of bool
        Mask (y, x), True where the detector works.

    Raises
    ------
    FileError
        If the file is missing, damaged, or contains no mask.
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
            f"{path.name} is no name of a mask; expected the suffix .npy, .h5 or .hdf5.",
            code="file.unknown-format",
        )
    if values.ndim != 2 or values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        raise FileError(
            f"{path} holds an array of shape {values.shape} and type {values.dtype}; expected a mask (y, x), True or 1 "
            "where the detector works, False or 0 elsewhere.",
            code="file.unexpected-content",
        )
    return values.astype(bool)
