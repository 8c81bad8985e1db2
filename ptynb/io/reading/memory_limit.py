"""How much a reader may take into memory, asked before it reads: a header can announce anything."""

from __future__ import annotations

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
from ptynb.io.hdf5_file import reason
from ptynb.table import gigabytes

SHARE = 0.5
"""Of the memory that is free, for what one file asks to be read at once: engines get a copy of it."""
SMALL = 2**28
"""Bytes at most of what is read beside the patterns: positions, a mask, a probe."""
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How members of archives may be packed: zipfile unpacks others in pieces of any size, whatever is announced."""
ELSEWHERE = "open it on a machine with more memory"
UNCOMPRESSED = "store the patterns uncompressed (.npy or HDF5), where they can stay in the file"


def size(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Bytes of an array, in whole numbers of any size."""
    return math.prod(int(side) for side in shape) * dtype.itemsize


def check_room(octets: int, what: str, path: Path, remedy: str = UNCOMPRESSED) -> None:
    """Raises FileError where `octets` are more than may be read into memory at once; `remedy` is its last words."""
    free = psutil.virtual_memory().available
    room = int(free * SHARE)
    if octets > room:
        raise FileError(
            f"{path} announces {gigabytes(octets)} for {what}, and {gigabytes(room)} may be read into memory here, "
            f"half of the {gigabytes(free)} that are free; {remedy}."
        )


def check_small(octets: int, what: str, path: Path) -> None:
    """Raises FileError where something beside the patterns is larger than any scan's is."""
    if octets > SMALL:
        raise FileError(
            f"{path} announces {gigabytes(octets)} for {what}; expected at most {gigabytes(SMALL)}: the file is broken "
            "or of another kind."
        )


def mapped(path: Path, expected: str) -> NDArray[Any]:
    """The array of a .npy, mapped into memory: a header that announces more than the file has is refused, unread.

    expected: in the plural, for the sentence ("positions").
    """
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, SyntaxError, EOFError, TypeError, OverflowError, tokenize.TokenError) as error:
        raise FileError(f"{path} is not a readable .npy file ({reason(error)}); expected {expected}.") from None
    if not isinstance(values, np.ndarray):  # an archive of several, under this name
        raise FileError(f"{path} holds several arrays; expected one, {expected}.")
    return values


def packed_at_most(octets: int) -> int:
    """Bytes that so many may take packed: packing never makes numbers much longer, so what is longer is damaged."""
    return octets + octets // 4 + 2**14


def check_chunks(dataset: h5py.Dataset, path: Path) -> None:
    """Raises FileError for a chunk that is longer packed than its numbers are: HDF5 would unpack it to any size."""
    if not dataset.chunks or dataset.is_virtual:
        return
    numbers = math.prod(dataset.chunks) * dataset.id.get_type().get_size()
    most = packed_at_most(numbers)
    too_long = dataset.id.chunk_iter(lambda chunk: chunk if chunk.size > most else None)
    if too_long is not None:
        raise FileError(
            f"{path} has {gigabytes(too_long.size)} for the chunk at {too_long.chunk_offset} of {dataset.name}, whose "
            f"numbers take {gigabytes(numbers)}; the file is damaged, copy it again."
        )


def check_packing(member: zipfile.ZipInfo, path: Path) -> None:
    """Raises FileError for a member of an archive that can't be unpacked in pieces of a known size."""
    if member.compress_type not in PACKED:
        raise FileError(
            f"{path} packs {member.filename[:80]} by method {member.compress_type}; expected deflate (8) or none (0): "
            "pack the archive again with one of these."
        )
