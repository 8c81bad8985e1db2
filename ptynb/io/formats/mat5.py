"""MATLAB's files of version 5 to 7: numbers, and numbers in structs, read with every length checked.

scipy reads these files too, and ends the process where lengths in a damaged one disagree. Here nothing is read or
unpacked that has not been announced, and nothing announced is believed that does not fit.

A file is a header of 128 bytes and elements: a tag (type, bytes) and what it announces, filled up to 8 bytes; up to 4
bytes stand in the tag itself. A variable is an element that holds others: flags, sides, name, and then numbers (often
stored as a smaller type than they have), or the fields of a struct. From version 7 on, variables are packed by zlib.

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
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import reason
from ptynb.io.reading.packed_patterns import PIECE, UnpackingProgress
from ptynb.io.reading.safe_reading import check_room, check_small

HEADER = 128
HEAD = 2**16
"""Bytes of a variable in which its flags, sides and name stand; also what is read at once of one that is packed."""
MOST = 10_000
"""Variables of a file and fields of a struct looked at."""
MATRIX, COMPRESSED, STRUCT = 14, 15, 2
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
"""What an array is; those that are left out hold no numbers."""
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""What its numbers are stored as."""
COMPLEX, LOGICAL = 0x0800, 0x0200


class DamagedError(ValueError):
    """Lengths that don't fit together."""


@dataclass(frozen=True)
class Variable:
    """A variable of a file, of which only the head has been read.

    kind: its class. dtype: of its numbers, stored as `stored`. start, length: of its element in the file [bytes].
    place, octets: of its numbers in the element, unpacked.
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
    octets: int

    @property
    def numbers(self) -> bool:
        """Whether it is an array of numbers."""
        return self.kind in CLASSES

    @property
    def whole(self) -> bool:
        """Whether its numbers lie in the file as they are."""
        return not self.packed and self.dtype.kind != "c" and self.stored.newbyteorder("=") == self.dtype

    def values(self, progress: UnpackingProgress | None = None) -> NDArray[Any]:
        """All of its numbers, with the axes that MATLAB counts. Raises FileError for a damaged file."""
        parts = 2 if self.dtype.kind == "c" else 1
        check_room(parts * self.octets + math.prod(self.shape) * self.dtype.itemsize, self.name, self.path)
        with _sentence(self.path):
            content = _content(self, self.place + parts * (self.octets + 16), progress)
            return _numbers(content, self.place, self.shape, self.dtype, self.stored)

    def fields(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """(name, numbers) of a struct of one element, and of structs in it ("p/lambda")."""
        check_small(self.length if not self.packed else 0, f"the struct {self.name}", self.path)
        with _sentence(self.path):
            content = _content(self, None)
            found = list(_fields(content, self.name, _order(self.stored), 0))
        yield from found


def variables(path: Path) -> list[Variable]:
    """The variables of a file. Raises FileError for one that is not whole, or not of this version."""
    found: list[Variable] = []
    with _sentence(path), path.open("rb") as file:
        header, size = file.read(HEADER), path.stat().st_size
        order = {b"IM": "<", b"MI": ">"}.get(header[126:128])
        if len(header) < HEADER or order is None or header[:6] != b"MATLAB":
            raise DamagedError("it does not begin as one of version 5 does")
        at = HEADER
        while at + 8 <= size and len(found) < MOST:
            file.seek(at)
            kind, length = struct.unpack(f"{order}2I", file.read(8))
            if at + 8 + length > size:
                raise DamagedError(f"an element at byte {at} announces {length} bytes, and the file ends before")
            if kind in (COMPRESSED, MATRIX):
                variable = _variable(path, order, at + 8, length, kind == COMPRESSED)
                if variable is not None:
                    found.append(variable)
            at += 8 + length
    return found


@contextmanager
def _sentence(path: Path) -> Iterator[None]:
    """Turns what goes wrong inside into one sentence about the file."""
    try:
        yield
    except (DamagedError, struct.error, zlib.error, OSError, EOFError) as error:
        raise FileError(
            f"{path} is not a whole .mat ({reason(error)}); save it again, patterns with '-v7.3'.", code="file.damaged"
        ) from None


def _order(dtype: np.dtype[Any]) -> str:
    return ">" if dtype.byteorder == ">" else "<"


def _content(variable: Variable, most: int | None, progress: UnpackingProgress | None = None) -> bytes | bytearray:
    order = _order(variable.stored)
    return _unpacked(variable.path, variable.start, variable.length, variable.packed, most, order, progress)


def _unpacked(
    path: Path,
    start: int,
    length: int,
    packed: bool,
    most: int | None,
    order: str,
    progress: UnpackingProgress | None = None,
) -> bytes | bytearray:
    """The first bytes of an element, at most so many, without its tag; all that is announced where `most` is None."""
    with path.open("rb") as file:
        file.seek(start)
        if not packed:
            return file.read(length if most is None else min(length, most))
        inflating = _Inflating(file, length)
        tag = inflating.read(8)
        if len(tag) < 8:
            raise DamagedError("a packed variable ends too early")
        if most is None:
            most = struct.unpack(f"{order}2I", tag)[1]
            check_small(most, "a struct", path)
        return inflating.read(max(1, most), progress)


class _Inflating:
    """What the next bytes of a file unpack to, in pieces: Ctrl-C gets through between them."""

    def __init__(self, file: IO[bytes], length: int) -> None:
        self._file, self._left, self._unpack = file, length, zlib.decompressobj()

    def read(self, most: int, progress: UnpackingProgress | None = None) -> bytearray:
        """So many bytes, fewer where there are no more."""
        found = bytearray()
        while len(found) < most and not self._unpack.eof:
            packed = self._unpack.unconsumed_tail or self._file.read(min(HEAD, self._left))
            if not self._unpack.unconsumed_tail:
                self._left -= len(packed)
            piece = self._unpack.decompress(packed, min(PIECE, most - len(found)))
            if not piece and not packed:
                break
            found += piece
            if progress is not None:
                progress.add(len(piece))
        return found


def _tag(content: bytes | bytearray, at: int, order: str) -> tuple[int, int, int, int]:
    """(type, bytes, place of the data, place of the next element)."""
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
    """(class, flags, sides, name, place of what follows) of a variable."""
    _, length, at, after = _tag(content, 0, order)
    if length != 8 or at + 8 > len(content):
        raise DamagedError("a variable has no flags")
    flags = struct.unpack_from(f"{order}I", content, at)[0]
    kind, length, at, after = _tag(content, after, order)
    if kind != 5 or length % 4 or not 8 <= length <= 128 or at + length > len(content):
        raise DamagedError("a variable has no sides")
    sides = struct.unpack_from(f"{order}{length // 4}i", content, at)
    if min(sides) < 0:
        raise DamagedError(f"a variable has the sides {sides}")
    _, length, at, after = _tag(content, after, order)
    if length > 1024 or at + length > len(content):
        raise DamagedError("a variable has no name")
    return flags & 0xFF, flags, tuple(sides), content[at : at + length].decode("latin-1"), after


def _variable(path: Path, order: str, start: int, length: int, packed: bool) -> Variable | None:
    content = _unpacked(path, start, length, packed, HEAD, order)
    kind, flags, shape, name, after = _head(content, order)
    if kind == STRUCT:
        nothing = np.dtype(f"{order}u2")
        return Variable(path, name, kind, shape, nothing, nothing, start, length, packed, after, 0)
    if kind not in CLASSES or (flags & LOGICAL and kind != 9):
        return None
    dtype, stored, place, octets = _types(content, after, order, kind, flags, shape)
    return Variable(path, name, kind, shape, dtype, stored, start, length, packed, place, octets)


def _types(
    content: bytes | bytearray, at: int, order: str, kind: int, flags: int, shape: tuple[int, ...]
) -> tuple[np.dtype[Any], np.dtype[Any], int, int]:
    """(type, stored type, place, bytes) of the numbers of an array."""
    number, octets, place, _ = _tag(content, at, order)
    if number not in TYPES or octets != math.prod(shape) * np.dtype(TYPES[number]).itemsize:
        raise DamagedError(f"an array of {shape} has {octets} bytes of type {number}")
    dtype = np.dtype(CLASSES[kind])
    if flags & COMPLEX:
        dtype = np.dtype("c8" if kind == 7 else "c16")
    return dtype, np.dtype(f"{order}{TYPES[number]}"), place, octets


def _numbers(
    content: bytes | bytearray, place: int, shape: tuple[int, ...], dtype: np.dtype[Any], stored: np.dtype[Any]
) -> NDArray[Any]:
    count = math.prod(shape)
    if place + count * stored.itemsize > len(content):
        raise DamagedError("its numbers end too early")
    real = np.frombuffer(content, stored, count, place)
    if dtype.kind != "c":
        return real.astype(dtype, copy=False).reshape(shape, order="F")
    octets = count * stored.itemsize
    # Numbers of up to 4 bytes stand in the tag, and the imaginary part follows it.
    number, length, at, _ = _tag(content, place + 4 if octets <= 4 else place + octets + -octets % 8, _order(stored))
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
