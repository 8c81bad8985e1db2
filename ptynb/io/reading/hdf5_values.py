"""Small things in HDF5 files: numbers and arrays with their units, never more of them than memory is for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.data.patterns.hdf5_filters import require_filters
from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import read_all, reason
from ptynb.io.reading.file_units import attribute_of, factor, units_of
from ptynb.io.reading.memory_limit import check_chunks

MOST_BYTES = 2**28
"""Of positions, masks and other arrays that are read at once."""
SPREAD = 1e-3
"""How far the values of an array may be apart, relative to each other, that stands for one number."""


@dataclass(frozen=True)
class Quantity:
    """A number in SI (energies eV), where it was found, and what the user should know of it.

    value: None where the file has one in a unit that is not known.
    """

    value: float | None
    place: str
    note: str = ""


class Notes:
    """Where a reader found things, and what the user should know of it."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}
        self.sentences: list[str] = []

    def at(self, name: str, place: str) -> None:
        """Something was found."""
        self.places[name] = place

    def add(self, sentence: str) -> None:
        """One sentence; nothing is none."""
        if sentence and sentence not in self.sentences:
            self.sentences.append(sentence)

    def number(self, name: str, found: Quantity | None) -> float | None:
        """The value of a quantity, with its place and its remark noted."""
        if found is None:
            return None
        self.add(found.note)
        if found.value is not None:
            self.at(name, found.place)
        return found.value


def where(item: h5py.Dataset | h5py.Group) -> str:
    """The name of an object in its file."""
    name: str = item.name
    return name.lstrip("/")


def array(dataset: h5py.Dataset, what: str) -> NDArray[Any]:
    """All of a dataset. Raises FileError for one too large to be what it is taken for, or that can't be read.

    what: it is taken for, in the plural ("positions").
    """
    path = Path(dataset.file.filename)
    if dataset.shape is None:
        raise FileError(f"{path} has {what} at {where(dataset)} with nothing in it; the file is incomplete.")
    size = math.prod(dataset.shape) * dataset.dtype.itemsize
    if size > MOST_BYTES:
        raise FileError(
            f"{path} announces {what} of shape {dataset.shape} at {where(dataset)}, {size / 2**30:.3g} GiB; expected "
            f"at most {MOST_BYTES / 2**30:.3g}. Is the file damaged?"
        )
    check_chunks(dataset, path)
    try:
        require_filters(dataset)
        return np.asarray(read_all(dataset))
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        raise FileError(f"{path} has {what} at {where(dataset)} that can't be read ({reason(error)}).") from None


def real(dataset: h5py.Dataset, what: str) -> NDArray[np.float64]:
    """All of a dataset as float64. Raises FileError where it holds no real numbers."""
    if not is_real(dataset.dtype):
        raise FileError(
            f"{dataset.file.filename} has {what} of type {dataset.dtype} at {where(dataset)}; expected real numbers."
        )
    return array(dataset, what).astype(np.float64)


def is_real(dtype: np.dtype[Any]) -> bool:
    """Whether numbers of this type are real (integers or floats)."""
    return bool(np.issubdtype(dtype, np.integer) or np.issubdtype(dtype, np.floating))


def quantity(item: h5py.Dataset | None, kind: str, default: str) -> Quantity | None:
    """One number in SI, by its attribute `units`; without one it is in `default` units.

    An array stands for one number where its values agree. None where there is no number, or its units are unknown.
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
        return Quantity(None, where(item), f"{where(item)} is in {units!r}, a unit that is not known here.")
    return Quantity(value * scale, where(item), remark)


def lengths(dataset: h5py.Dataset, what: str, default: str = "m") -> tuple[NDArray[np.float64], str]:
    """Lengths [m] of a dataset by its attribute `units`, and a remark where their unit is not known."""
    values, units = real(dataset, what), units_of(dataset)
    scale = factor(units or default, "length")
    if scale is None:
        return values, f"{where(dataset)} is in {units!r}, a unit that is not known here; it is taken as metres."
    return values * scale, ""


def text(dataset: h5py.Dataset | h5py.Group | None) -> str:
    """A dataset of one text; nothing where there is none."""
    if not isinstance(dataset, h5py.Dataset) or dataset.size != 1 or not h5py.check_string_dtype(dataset.dtype):
        return ""
    if h5py.check_string_dtype(dataset.dtype).length not in (None, *range(4097)):
        return ""
    check_chunks(dataset, Path(dataset.file.filename))
    value = np.asarray(dataset[()]).reshape(-1)[0]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def nx_class(item: h5py.Group | h5py.Dataset) -> str:
    """The NeXus class of a group; nothing where it has none."""
    return str(attribute_of(item, "NX_class") or "")
