"""How much a reader may take into memory, asked before it reads: a header can announce anything."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from ptynb.io.hdf5 import FileError

SHARE = 0.5
"""Of the memory that is free, for what one file asks to be read at once."""
SMALL = 2**28
"""Bytes at most of what is read beside the patterns: positions, a mask, a probe."""


def size(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Bytes of an array, in whole numbers of any size."""
    return math.prod(int(side) for side in shape) * dtype.itemsize


def check_room(octets: int, what: str, path: Path) -> None:
    """Raises FileError where `octets` are more than may be read into memory at once."""
    room = int(psutil.virtual_memory().available * SHARE)
    if octets > room:
        raise FileError(
            f"{path} announces {_readable(octets)} for {what}, and {_readable(room)} may be read into memory here; "
            "store the patterns uncompressed (.npy or HDF5), where they can stay in the file."
        )


def check_small(octets: int, what: str, path: Path) -> None:
    """Raises FileError where something beside the patterns is larger than any scan's is."""
    if octets > SMALL:
        raise FileError(
            f"{path} announces {_readable(octets)} for {what}; expected at most {_readable(SMALL)}: the file is broken "
            "or of another kind."
        )


def _readable(octets: int) -> str:
    power = max(0, min(6, (octets.bit_length() - 1) // 10))
    return f"{octets / 2 ** (10 * power):.3g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB')[power]}"
