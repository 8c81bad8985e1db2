"""Checks before data are read: a damaged header can announce any size, type and shape."""

from __future__ import annotations

import json
import math
import tokenize
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import psutil
from numpy.typing import NDArray

from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import Item, check_chunks, in_one_line, inside, read_all, reason
from ptynb.io.reading.large_array import is_large, mapped_dataset
from ptynb.table import gigabytes

SHARE = 0.5
"""Fraction of the free memory that the content of one file may take; engines get a copy of it."""
SMALL = 2**28
"""Maximum size of arrays other than patterns: positions, a mask, a probe [bytes]."""
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Permitted compression of members of archives; with others, zipfile unpacks blocks of any size."""
ELSEWHERE = "open it on a machine with more memory"
UNCOMPRESSED = "store the patterns uncompressed (.npy or HDF5), where they can stay in the file"


def size(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the size of an array [bytes] as a Python integer, which does not overflow."""
    return math.prod(int(side) for side in shape) * dtype.itemsize


def check_room(nbytes: int, what: str, path: Path, remedy: str = UNCOMPRESSED) -> None:
    """Raise FileError, with a remedy in the message, if `nbytes` bytes are too many to be read into memory."""
    free = psutil.virtual_memory().available
    limit = int(free * SHARE)
    if nbytes > limit:
        raise FileError(
            f"{path} announces {gigabytes(nbytes)} for {what}, and {gigabytes(limit)} may be read into memory here, "
            f"half of the {gigabytes(free)} that are free; {remedy}.",
            code="file.too-large",
        )


def check_small(nbytes: int, what: str, path: Path) -> None:
    """Raise FileError if an array other than patterns is larger than `SMALL`, more than any scan has."""
    if nbytes > SMALL:
        raise FileError(
            f"{path} announces {gigabytes(nbytes)} for {what}; expected at most {gigabytes(SMALL)}: the file is "
            "damaged or of another kind.",
            code="file.too-large",
        )


def mapped(path: Path, expected: str) -> NDArray[Any]:
    """Return the memory-mapped array of a .npy file; a header that announces more than the file has is an error.

    expected: expected content in the plural, for the message ("positions").
    """
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, SyntaxError, EOFError, TypeError, OverflowError, tokenize.TokenError) as error:
        raise FileError(
            f"{path} is not a readable .npy file ({reason(error)}); expected {expected}.", code="file.damaged"
        ) from None
    if not isinstance(values, np.ndarray):  # an .npz archive with the suffix .npy
        raise FileError(f"{path} holds several arrays; expected one, {expected}.", code="file.unexpected-content")
    return values


def check_packing(member: zipfile.ZipInfo, path: Path) -> None:
    """Raise FileError if a member of an archive cannot be unpacked in blocks of a known size."""
    if member.compress_type not in PACKED:
        raise FileError(
            f"{path} packs {member.filename[:80]} by method {member.compress_type}; expected deflate (8) or none (0): "
            "pack the archive again with one of these.",
            code="file.unexpected-content",
        )


MOST_EXPANSION = 1000
"""Maximum ratio of the size of a dataset to that of the file; the limit of gzip."""
MOST_TEXT = 2**26
"""Maximum size of a text [bytes]."""
KINDS = {
    "c": "complex numbers",
    "f": "real numbers",
    "fiu": "real numbers",
    "iu": "whole numbers",
    "biu": "true or false",
    "biuf": "true or false",
}


class Checked:
    """Access to an open file that checks values before reading them. All methods raise FileError."""

    def __init__(self, file: h5py.File, path: Path) -> None:
        self.file, self.path = file, path
        self._bytes = path.stat().st_size

    def has(self, name: str) -> bool:
        """Return whether there is a group or dataset of this name."""
        return self._inside(name) is not None

    def group(self, name: str) -> h5py.Group:
        """Return the group of this name; links into other files are not followed."""
        found = self._inside(name)
        if not isinstance(found, h5py.Group):
            raise self._missing("group", name)
        return found

    def dataset(self, name: str) -> h5py.Dataset:
        """Return the dataset of this name if the file can hold its size; links into other files are not followed."""
        found = self._inside(name)
        if not isinstance(found, h5py.Dataset):
            raise self._missing("dataset", name)
        if found.shape is None:
            raise FileError(
                f"{self.path} has a dataset {name} with nothing in it; the file is incomplete.", code="file.incomplete"
            )
        if found.nbytes > MOST_EXPANSION * self._bytes:
            raise FileError(
                f"{self.path} claims {found.nbytes:.3g} bytes for {name}, in a file of {self._bytes}; it is damaged or "
                "made up.",
                code="file.damaged",
            )
        return found

    def _inside(self, name: str) -> Item | None:
        try:
            return inside(self.file, name, self.path)
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            if isinstance(error, FileError):
                raise
            raise self._damaged(name, error) from None

    def array(
        self, name: str, kind: str, *dimensions: int, last: int | None = None, may_be_large: bool = False
    ) -> NDArray[Any]:
        """Return an array. kind: key of `KINDS`. dimensions: permitted numbers of axes. last: length of the last.

        may_be_large: whether it is memory-mapped if it is large (`large_array`) and not compressed.
        """
        stored = self.dataset(name)
        right = stored.dtype.kind in kind and stored.ndim in dimensions and 0 not in stored.shape
        if not right or last not in (None, stored.shape[-1]):
            axes = " or ".join(str(number) for number in dimensions)
            more = "" if last is None else f", {last} in the last"
            raise self._unexpected(name, stored, f"{KINDS[kind]} along {axes} axes{more}, none of length 0")
        if may_be_large and is_large(stored.nbytes):
            mapped = mapped_dataset(stored, self.path)
            if mapped is not None:
                return mapped
        return self.read(name, stored)

    def table(self, name: str, fields: dict[str, str]) -> NDArray[Any]:
        """Return a structured array. fields: kind of each required column; "O" for text."""
        stored = self.dataset(name)
        known = stored.dtype.fields or {}
        right = all(field in known and known[field][0].kind in kind for field, kind in fields.items())
        if not right or stored.ndim != 1:
            raise self._unexpected(name, stored, f"rows with {', '.join(fields)}")
        return self.read(name, stored)

    def read(self, name: str, stored: h5py.Dataset) -> NDArray[Any]:
        """Return all values of a dataset that was checked."""
        check_room(stored.nbytes, name, self.path, ELSEWHERE)
        check_chunks(stored, self.path)
        try:
            values: NDArray[Any] = read_all(stored)
        except (OSError, RuntimeError, TypeError, ValueError, MemoryError) as error:
            raise self._damaged(name, error) from None
        return values

    def text(self, name: str) -> str:
        """Return the text in a dataset."""
        stored = self.dataset(name)
        if h5py.check_string_dtype(stored.dtype) is None or stored.shape != ():
            raise self._unexpected(name, stored, "a text")
        return self._decoded(name, self.read(name, stored))

    def texts(self, name: str) -> list[Any]:
        """Return the texts in a dataset with one axis."""
        stored = self.dataset(name)
        if h5py.check_string_dtype(stored.dtype) is None or stored.ndim != 1:
            raise self._unexpected(name, stored, "texts")
        return [*self.read(name, stored)]

    def json(self, name: str, kind: type[dict[Any, Any]] | type[list[Any]]) -> Any:
        """Return the value of a dataset with JSON text: a dictionary or a list."""
        return self.parsed(name, self.text(name), kind)

    def parsed(self, name: str, text: Any, kind: type[Any] = object) -> Any:
        """Return the value of a JSON text that was already read from the dataset `name`."""
        try:
            found = json.loads(self._decoded(name, text))
        except (ValueError, RecursionError) as error:
            raise FileError(
                f"{self.path} has {name}, which is no JSON ({reason(error)}); it is damaged.", code="file.damaged"
            ) from None
        if not isinstance(found, kind):
            raise FileError(
                f"{self.path} has {name} as a {type(found).__name__}; expected a {kind.__name__}.",
                code="file.unexpected-content",
            )
        return found

    def number(self, name: str) -> float:
        """Return the number in a scalar dataset."""
        stored = self.dataset(name)
        if stored.dtype.kind not in "fiub" or stored.shape != ():
            raise self._unexpected(name, stored, "one number")
        return float(self.read(name, stored))

    def attribute(self, place: h5py.Group | h5py.Dataset, name: str) -> Any:
        """Return the value of an attribute."""
        try:
            if name in place.attrs:
                return place.attrs[name]
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            raise self._damaged(f"{place.name}@{name}", error) from None
        raise self._missing("attribute", f"{name} at {place.name}")

    def real(self, place: h5py.Group | h5py.Dataset, name: str) -> float:
        """Return a number in an attribute; it may be infinite or NaN."""
        value = self.attribute(place, name)
        try:
            return float(value)
        except (TypeError, ValueError):
            raise FileError(
                f"{self.path} has {in_one_line(value)} as attribute {name} at {place.name}; expected a number.",
                code="file.unexpected-content",
            ) from None

    def numbers(self, place: h5py.Group | h5py.Dataset, name: str, count: int) -> tuple[float, ...]:
        """Return `count` finite numbers in an attribute."""
        value = self.attribute(place, name)
        try:
            found = tuple(float(one) for one in np.atleast_1d(value))
        except (TypeError, ValueError):
            found = ()
        if len(found) != count or not all(math.isfinite(one) for one in found):
            raise FileError(
                f"{self.path} has {in_one_line(value)} as attribute {name} at {place.name}; "
                f"expected {count} finite numbers.",
                code="file.unexpected-content",
            )
        return found

    def _decoded(self, name: str, value: Any) -> str:
        try:
            text = value.decode() if isinstance(value, bytes) else str(value)
        except UnicodeDecodeError:
            raise FileError(f"{self.path} has {name} in no UTF-8; it is damaged.", code="file.damaged") from None
        if len(text) > MOST_TEXT:
            raise FileError(
                f"{self.path} has {len(text)} characters of {name}; expected at most {MOST_TEXT}.",
                code="file.too-large",
            )
        return text

    def _missing(self, kind: str, name: str) -> FileError:
        return FileError(
            f"{self.path} has no {kind} {name}; the file is incomplete or of another kind.", code="file.incomplete"
        )

    def _unexpected(self, name: str, stored: h5py.Dataset, expected: str) -> FileError:
        return FileError(
            f"{self.path} has {name} as {in_one_line(stored.dtype)} of shape {stored.shape}; expected {expected}.",
            code="file.unexpected-content",
        )

    def _damaged(self, name: str, error: Exception) -> FileError:
        return FileError(f"{self.path} is damaged: {name} can't be read ({reason(error)}).", code="file.damaged")
