"""How much a reader may take into memory, asked before it reads: a header can announce anything."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from ptynb.io.hdf5 import FileError
from ptynb.table import gigabytes

SHARE = 0.5
"""Of the memory that is free, for what one file asks to be read at once: engines get a copy of it."""
SMALL = 2**28
"""Bytes at most of what is read beside the patterns: positions, a mask, a probe."""
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How members of archives may be packed: zipfile unpacks others in pieces of any size, whatever is announced."""
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


def check_packing(member: zipfile.ZipInfo, path: Path) -> None:
    """Raises FileError for a member of an archive that can't be unpacked in pieces of a known size."""
    if member.compress_type not in PACKED:
        raise FileError(
            f"{path} packs {member.filename[:80]} by method {member.compress_type}; expected deflate (8) or none (0): "
            "pack the archive again with one of these."
        )
