"""Texts of variable length in HDF5 files, looked at before libhdf5 reads them.

They are kept in global heaps ("GCOL": HDF5 File Format Specification 3.0, section III.E). Where one is damaged so that
its free space has no size, libhdf5 2.0 goes round in it for ever, out of reach of Ctrl-C.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

SIGNATURE = b"GCOL\x01\0\0\0"
HEADER = 16
"""Bytes before a heap's first object, and before an object's data, where lengths have 8 bytes (nearly always)."""
LOOKED_AT = 2**26
"""Bytes looked at from each end of a file: what is longer is long by its patterns, and has its texts around them."""
PIECE = 2**20
LONGEST = 2**20
"""Bytes of one heap that are looked at."""
SUPERBLOCK = b"\x89HDF\r\n\x1a\n"


def damaged_heap(path: Path) -> int | None:
    """Where in the file a global heap begins that can't be read; None where there is none, or no file to read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return _damaged_heap(path, found.st_ino, found.st_size, found.st_mtime_ns)


@functools.lru_cache(maxsize=256)  # a file is opened several times until its kind is known
def _damaged_heap(path: Path, _inode: int, size: int, _modified: int) -> int | None:
    with path.open("rb", buffering=0) as file:
        if not _has_long_lengths(file, size):
            return None
        return next((place for place in _heaps(file, size) if not _sound(file, place)), None)


def _bytes(file: FileIO, count: int, place: int) -> bytes:
    file.seek(place)
    return file.read(count)


def _has_long_lengths(file: FileIO, size: int) -> bool:
    """Whether this is an HDF5 file that writes lengths with 8 bytes."""
    place = 0
    while place < size:
        block = _bytes(file, HEADER, place)
        if block.startswith(SUPERBLOCK) and len(block) == HEADER:
            return block[14 if block[8] < 2 else 10] == 8
        place = 2 * place or 512
    return False


def _heaps(file: FileIO, size: int) -> Iterator[int]:
    """The places of what looks like a heap, in the parts of the file that are looked at."""
    ends = [(0, size)] if size <= 2 * LOOKED_AT else [(0, LOOKED_AT), (size - LOOKED_AT, size)]
    for start, stop in ends:
        for place in range(start, stop, PIECE):
            piece = _bytes(file, PIECE + len(SIGNATURE) - 1, place)
            at = piece.find(SIGNATURE)
            while at >= 0:
                yield place + at
                at = piece.find(SIGNATURE, at + 1)


def _sound(file: FileIO, place: int) -> bool:
    """Whether the objects of this heap follow each other up to its end."""
    head = _bytes(file, HEADER, place)
    if len(head) < HEADER:
        return True  # cut short, which libhdf5 refuses itself
    (size,) = struct.unpack_from("<Q", head, 8)
    heap = _bytes(file, min(size, LONGEST), place)
    at = HEADER
    while at + HEADER <= len(heap):  # what is shorter than an object's header is free space
        number, length = struct.unpack_from("<H6xQ", heap, at)
        needed = HEADER + -(-length // 8) * 8 if number else length
        if needed < HEADER or at + needed > size:
            return False
        at += needed
    return True
