"""Arrays that may be larger than the memory: they stay in a file, and only what is used of them is read.

One rule for all: an array of more than `LARGE_BYTES` is memory-mapped where that is possible, a smaller one is in
memory. A mapped array is read-only and goes on to exist when its file is removed or replaced; its room is freed with
it.
"""

from __future__ import annotations

import errno
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import DTypeLike, NDArray

from ptynb.exceptions import FileError

LARGE_BYTES = 2**28
"""Size above which an array is mapped: 5793 x 5793 complex numbers of single precision."""
OBJECT = "object"
"""Name of the dataset in a file of `write_piece`."""


def is_large(nbytes: int) -> bool:
    """Return whether an array of so many bytes is one that is mapped."""
    return nbytes > LARGE_BYTES


def mapped_dataset(stored: h5py.Dataset, path: Path) -> NDArray[Any] | None:
    """Return the memory-mapped values of a dataset in the file at `path`; None if they do not follow each other there.

    Raise FileError if the file ends before them.
    """
    offset = stored.id.get_offset()
    if offset is None or stored.id.get_type().get_size() != stored.dtype.itemsize:
        return None
    if offset + stored.nbytes > path.stat().st_size:
        raise FileError(f"{path} ends within {stored.name}; copy the whole file again.", code="file.damaged")
    return np.memmap(path, stored.dtype, "r", offset, stored.shape)


def write_piece(path: Path, shape: tuple[int, ...], place: tuple[int | slice, ...], values: NDArray[Any]) -> None:
    """Write values at their place in an array of this shape, of which the file has nothing (it is empty) or a part."""
    with (
        _room(path.parent, math.prod(shape) * values.itemsize),
        h5py.File(path, "r+" if path.stat().st_size else "w") as file,
    ):
        file.require_dataset(OBJECT, shape, values.dtype)[place] = values


def mapped_pieces(path: Path) -> NDArray[Any]:
    """Return the mapped array that `write_piece` has written."""
    with h5py.File(path) as file:
        found = mapped_dataset(file[OBJECT], path)
    assert found is not None, "it is written in one piece"
    return found


@contextmanager
def large_array(shape: tuple[int, ...], dtype: DTypeLike, folder: Path) -> Iterator[NDArray[Any]]:
    """Yield an array to be filled, and read-only afterwards: if it is large, in a file without a name in `folder`.

    Raise FileError if there is no room for it.
    """
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    if not is_large(nbytes):
        yield np.empty(shape, dtype)
        return
    with _room(folder, nbytes), tempfile.TemporaryFile(dir=folder) as file:
        # Room is taken now: a write to mapped memory without it would end the process.
        _take_room(file.fileno(), nbytes)
        values = np.memmap(file, dtype, "r+", shape=shape)
    yield values
    values.flags.writeable = False


def _take_room(file: int, nbytes: int) -> None:
    """Reserve so many bytes for a file."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, nbytes)
        return
    zeros = bytes(2**24)
    for start in range(0, nbytes, len(zeros)):
        os.write(file, zeros[: nbytes - start])


@contextmanager
def _room(folder: Path, nbytes: int) -> Iterator[None]:
    """Convert errors of writing a large object."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "free disk space there" if full else "see that files can be made there"
        raise FileError(
            f"The object has {nbytes / 1e9:.3g} GB, too much for memory, and can't be written to a file in {folder} "
            f"({error.strerror or error}); {remedy}.",
            code="file.not-writable",
        ) from None
