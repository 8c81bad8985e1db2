"""MATLAB files of versions 5 to 7: numeric arrays, also in structs, with every length checked.

scipy reads these files too, but crashes the process on some damaged ones. Here no more is read or
decompressed than the tags announce, and inconsistent lengths are errors.

A file is a header of 128 bytes and elements: a tag (type, bytes) and its data, padded to 8 bytes; up to 4 bytes of data
are in the tag itself. A variable is an element that contains elements: flags, dimensions, name, and then numbers
(often stored in a smaller type than that of the array), or the fields of a struct. From version 7 on, variables are
compressed by zlib.

Source: MathWorks, MAT-File Format (2024), Level 5.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import reason
from ptynb.io.reading.packed_patterns import PIECE, UnpackingProgress
from ptynb.io.reading.safe_reading import check_room, check_small

HEAD = 2**16
"""Number of first bytes of a variable that contain flags, dimensions and name; also the block size for reading."""
MOST = 10_000
"""Limit of variables in a file and of fields in a struct."""
MATRIX, COMPRESSED, STRUCT = 14, 15, 2
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
"""Array types by MATLAB class; other classes are not numeric."""
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""Storage types of numbers."""
COMPLEX, LOGICAL = 0x0800, 0x0200


class DamagedError(ValueError):
    """Lengths in the file are inconsistent."""


@dataclass(frozen=True)
class Variable:
    """A variable of a file, of which only flags, dimensions and name have been read.

    kind: MATLAB class. dtype: type of the numbers; stored: type in the file. start, length: of its element in the
    file [bytes]. packed: whether it is compressed. place, nbytes: offset and size of the numbers in the decompressed
    element [bytes].
    """

    path: Path
    name: str
    kind: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stored: np.dtype[Any]
    start: int
    length: int
    packed: bool
    place: int
    nbytes: int

    @property
    def numbers(self) -> bool:
        """Whether it is a numeric array."""
        return self.kind in CLASSES

    @property
    def whole(self) -> bool:
        """Whether its numbers are stored uncompressed, in the type of the array."""
        return not self.packed and self.dtype.kind != "c" and self.stored.newbyteorder("=") == self.dtype

    def values(self, progress: UnpackingProgress | None = None) -> NDArray[Any]:
        """Return the array with axes in MATLAB's order. Raise FileError if the file is damaged."""
        parts = 2 if self.dtype.kind == "c" else 1
        check_room(parts * self.nbytes + math.prod(self.shape) * self.dtype.itemsize, self.name, self.path)
        with _as_file_error(self.path):
            content = _unpacked(
                self.path, _order(self.stored), self.start, self.length, self.packed,
                self.place + parts * (self.nbytes + 16), progress,
            )  # fmt: skip
            return _numbers(content, self.place, self.shape, self.dtype, self.stored)

    def fields(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield (name, array) of the numeric fields of a 1 x 1 struct and of nested structs ("p/lambda")."""
        check_small(self.length if not self.packed else 0, f"the struct {self.name}", self.path)
        with _as_file_error(self.path):
            order = _order(self.stored)
            content = _unpacked(self.path, order, self.start, self.length, self.packed, None)
            found = list(_fields(content, self.name, order, 0))
        yield from found


def variables(path: Path) -> list[Variable]:
    """Return the variables of a file. Raise FileError if it is damaged, or not of this version."""
    found: list[Variable] = []
    with _as_file_error(path), path.open("rb") as file:
        header, size = file.read(128), path.stat().st_size
        order = {b"IM": "<", b"MI": ">"}.get(header[126:128])
        if order is None or header[:6] != b"MATLAB":
            raise DamagedError("no header of version 5")
        at = len(header)
        while at + 8 <= size and len(found) < MOST:
            file.seek(at)
            kind, length = struct.unpack(f"{order}2I", file.read(8))
            if at + 8 + length > size:
                raise DamagedError(f"an element at byte {at} announces {length} bytes, and the file ends before")
            if kind in (COMPRESSED, MATRIX):
                packed = kind == COMPRESSED
                content = _unpacked(path, order, at + 8, length, packed, HEAD)
                kind, flags, shape, name, after = _head(content, order)
                if kind == STRUCT:
                    types = np.dtype(f"{order}u2"), np.dtype(f"{order}u2"), after, 0
                elif kind in CLASSES and not (flags & LOGICAL and kind != 9):
                    types = _types(content, after, order, kind, flags, shape)
                else:
                    types = None
                if types is not None:
                    dtype, stored, place, nbytes = types
                    found.append(
                        Variable(path, name, kind, shape, dtype, stored, at + 8, length, packed, place, nbytes)
                    )
            at += 8 + length
    return found


@contextmanager
def _as_file_error(path: Path) -> Iterator[None]:
    try:
        yield
    except (DamagedError, struct.error, zlib.error, OSError, EOFError) as error:
        raise FileError(
            f"{path} is not a whole .mat ({reason(error)}); save it again, patterns with '-v7.3'.", code="file.damaged"
        ) from None


def _order(dtype: np.dtype[Any]) -> str:
    return ">" if dtype.byteorder == ">" else "<"


def _unpacked(
    path: Path,
    order: str,
    start: int,
    length: int,
    packed: bool,
    most: int | None,
    progress: UnpackingProgress | None = None,
) -> bytes | bytearray:
    """Return the first `most` bytes of an element without its tag, decompressed; all announced bytes if None."""
    with path.open("rb") as file:
        file.seek(start)
        if not packed:
            return file.read(length if most is None else min(length, most))
        unpack, left, found, end = zlib.decompressobj(), length, bytearray(), 8
        while not unpack.eof:
            if len(found) >= end:
                if end > 8:
                    break
                if most is None:
                    most = struct.unpack_from(f"{order}2I", found)[1]
                    check_small(most, "a struct", path)
                end += max(1, most)
            block = unpack.unconsumed_tail or file.read(min(HEAD, left))
            if not unpack.unconsumed_tail:
                left -= len(block)
            # In blocks, between which Ctrl-C is handled.
            piece = unpack.decompress(block, min(PIECE, end - len(found)))
            if not piece and not block:
                break
            if progress is not None and end > 8:
                progress.add(len(piece))
            found += piece
    if len(found) < 8:
        raise DamagedError("a compressed variable ends too early")
    del found[:8]
    return found


def _tag(content: bytes | bytearray, at: int, order: str) -> tuple[int, int, int, int]:
    """Return (type, length, offset of the data, offset of the next element) [bytes] of the element at an offset."""
    if at < 0 or at + 8 > len(content):
        raise DamagedError("an element ends too early")
    kind, length = struct.unpack_from(f"{order}2I", content, at)
    if kind >> 16:
        length, kind = kind >> 16, kind & 0xFFFF
        if length > 4:
            raise DamagedError(f"a short element announces {length} bytes")
        return kind, length, at + 4, at + 8
    return kind, length, at + 8, at + 8 + length + -length % 8


def _head(content: bytes | bytearray, order: str) -> tuple[int, int, tuple[int, ...], str, int]:
    """Return (class, flags, shape, name, offset of the next element) of a variable."""
    _, length, at, after = _tag(content, 0, order)
    if length != 8 or at + 8 > len(content):
        raise DamagedError("a variable has no flags")
    flags = struct.unpack_from(f"{order}I", content, at)[0]
    kind, length, at, after = _tag(content, after, order)
    if kind != 5 or length % 4 or not 8 <= length <= 128 or at + length > len(content):
        raise DamagedError("a variable has no dimensions")
    shape = struct.unpack_from(f"{order}{length // 4}i", content, at)
    if min(shape) < 0:
        raise DamagedError(f"a variable has the shape {shape}")
    _, length, at, after = _tag(content, after, order)
    if length > 1024 or at + length > len(content):
        raise DamagedError("a variable has no name")
    return flags & 0xFF, flags, tuple(shape), content[at : at + length].decode("latin-1"), after


def _types(
    content: bytes | bytearray, at: int, order: str, kind: int, flags: int, shape: tuple[int, ...]
) -> tuple[np.dtype[Any], np.dtype[Any], int, int]:
    """Return (type, stored type, offset, length [bytes]) of the numbers of an array."""
    number, nbytes, place, _ = _tag(content, at, order)
    if number not in TYPES or nbytes != math.prod(shape) * np.dtype(TYPES[number]).itemsize:
        raise DamagedError(f"an array of {shape} has {nbytes} bytes of type {number}")
    dtype = np.dtype(("c8" if kind == 7 else "c16") if flags & COMPLEX else CLASSES[kind])
    return dtype, np.dtype(f"{order}{TYPES[number]}"), place, nbytes


def _numbers(
    content: bytes | bytearray, place: int, shape: tuple[int, ...], dtype: np.dtype[Any], stored: np.dtype[Any]
) -> NDArray[Any]:
    count = math.prod(shape)
    nbytes = count * stored.itemsize
    if place + nbytes > len(content):
        raise DamagedError("its numbers end too early")
    real = np.frombuffer(content, stored, count, place)
    if dtype.kind != "c":
        return real.astype(dtype, copy=False).reshape(shape, order="F")
    # Numbers of up to 4 bytes are in the tag, and the imaginary part follows it.
    number, length, at, _ = _tag(content, place + 4 if nbytes <= 4 else place + nbytes + -nbytes % 8, _order(stored))
    if number not in TYPES or length != count * np.dtype(TYPES[number]).itemsize or at + length > len(content):
        raise DamagedError("its imaginary part has another length")
    imaginary = np.frombuffer(content, np.dtype(f"{_order(stored)}{TYPES[number]}"), count, at)
    return (real + 1j * imaginary).astype(dtype).reshape(shape, order="F")


def _fields(content: bytes | bytearray, name: str, order: str, depth: int) -> Iterator[tuple[str, NDArray[Any]]]:
    kind, flags, shape, _, at = _head(content, order)
    if kind in CLASSES:
        dtype, stored, place, _ = _types(content, at, order, kind, flags, shape)
        yield name, _numbers(content, place, shape, dtype, stored)
    if kind != STRUCT or depth > 8 or math.prod(shape) != 1:
        return
    _, length, place, at = _tag(content, at, order)
    width = struct.unpack_from(f"{order}i", content, place)[0] if length == 4 else 0
    _, length, place, at = _tag(content, at, order)
    if width < 1 or length % width or length // width > MOST or place + length > len(content):
        raise DamagedError("a struct has no names of fields")
    names = [content[place + first : place + first + width].split(b"\0")[0] for first in range(0, length, width)]
    for one in names:
        kind, length, place, at = _tag(content, at, order)
        if kind != MATRIX or place + length > len(content):
            raise DamagedError("a field of a struct ends too early")
        if length:
            yield from _fields(content[place : place + length], f"{name}/{one.decode('latin-1')}", order, depth + 1)
