"""numpy files: .npy, whose patterns are read in place, and .npz, an archive of them.

.npy: (pattern, y, x), or (row, column, y, x) of a scan line by line. .npz: arrays with names, as
`ptynb.io.reading.named_arrays` lists them; those of numpy.savez are read in place, those of savez_compressed are
unpacked into memory, if they fit. The format is numpy's, https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html;
arrays of Python objects, which would be unpickled, are not read.

Orientation: as numpy prints the arrays, rows down and columns right.
"""

from __future__ import annotations

import ast
import math
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data.patterns import Frames
from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import reason
from ptynb.io.reading.named_arrays import Raster, StoredArray, found_in
from ptynb.io.reading.packed_patterns import PIECE, UnpackingProgress, packed
from ptynb.io.reading.reader_interface import FileRecord, Format, Head
from ptynb.io.reading.safe_reading import check_packing, size
from ptynb.io.reading.stack_axes import check_counts, placed, stacked
from ptynb.settings.load_options import LoadOptions

MAGIC = b"\x93NUMPY"
LONGEST = 2**16
"""Upper limit of the bytes of a header; numpy writes 128."""
LOCAL = struct.Struct("<4s5H3I2H")
"""Local header of a member of an archive; the last two numbers are the lengths of name and extra field."""


def recognises_npy(head: Head) -> bool:
    """Return whether the file begins with the header of .npy."""
    return head.start.startswith(MAGIC)


def recognises_npz(head: Head) -> bool:
    """Return whether this is an archive of .npy files, or a truncated archive with the suffix .npz."""
    if not head.start.startswith(b"PK"):
        return False
    try:
        with zipfile.ZipFile(head.path) as archive:
            return any(name.endswith(".npy") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError):
        return head.path.suffix.lower() == ".npz"


def read_npy(path: Path, options: LoadOptions) -> FileRecord:
    """Return the patterns of a .npy file."""
    with path.open("rb") as file:
        shape, dtype, fortran, offset = _header(file, path, "")
    frames, raster = _frames(path, offset, shape, dtype, fortran, "")
    return FileRecord(format=NPY.name, frames=frames, raster=raster, places={"patterns": str(path)})


def read_npz(path: Path, options: LoadOptions) -> FileRecord:
    """Return the content of an .npz file."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
            arrays = {member.filename.removesuffix(".npy"): _stored(archive, member, path) for member in members}
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise FileError(
            f"{path} is not a whole .npz ({reason(error)}); write it again with numpy.savez.", code="file.damaged"
        ) from None
    return found_in(NPZ.name, arrays, options, path)


NPY = Format("npy", recognises_npy, read_npy, (".npy",))
NPZ = Format("npz", recognises_npz, read_npz, (".npz",))


def _header(file: IO[bytes], path: Path, where: str) -> tuple[tuple[int, ...], np.dtype[Any], bool, int]:
    """Return (shape, type, whether in Fortran order, length of the header [bytes]) of an array in numpy's format."""
    at = f" at {where}" if where else ""
    start = file.read(8)
    long = len(start) == 8 and start[6] >= 2
    length = file.read(4 if long else 2)
    announced = int.from_bytes(length, "little")
    if start[:6] != MAGIC or announced > LONGEST or len(length) < (4 if long else 2):
        raise FileError(
            f"{path}{at} has no header of .npy; expected a file written by numpy.save.", code="file.damaged"
        )
    text = file.read(announced)
    try:
        header = ast.literal_eval(text.decode("utf-8" if start[6] >= 3 else "latin-1").strip())
        shape, described, fortran = header["shape"], header["descr"], header["fortran_order"]
        dtype = np.lib.format.descr_to_dtype(described)
    except (SyntaxError, ValueError, KeyError, TypeError, MemoryError, RecursionError, AttributeError) as error:
        raise FileError(
            f"{path}{at} has a damaged header ({type(error).__name__}); write it again with numpy.save.",
            code="file.damaged",
        ) from None
    if not isinstance(shape, tuple) or not all(isinstance(side, int) and side >= 0 for side in shape):
        raise FileError(
            f"{path}{at} has the shape {str(shape)[:60]}; expected whole numbers of at least 0.",
            code="file.unexpected-content",
        )
    return shape, dtype, bool(fortran), 8 + len(length) + announced


def _frames(
    path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any], fortran: bool, where: str
) -> tuple[Frames, Raster | None]:
    """Return uncompressed patterns in a file, from `offset` [bytes] on, and their raster."""
    stack, raster = stacked(shape, path, where)
    check_counts(dtype, path, where)
    if fortran:
        raise FileError(
            f"{path} has its patterns in Fortran order, which is not supported; save them with "
            "numpy.save(path, numpy.ascontiguousarray(patterns)).",
            code="file.unsupported-content",
        )
    return placed(path, offset, stack, dtype), raster


def _stored(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> StoredArray:
    check_packing(member, path)
    with archive.open(member) as file:
        shape, dtype, fortran, header = _header(file, path, member.filename)
    if dtype.hasobject:
        empty: Callable[[], Any] = partial(_refuse_objects, path, member.filename)
        return StoredArray((), dtype, empty, empty)
    announced = header + size(shape, dtype)
    if announced != member.file_size:
        raise FileError(
            f"{path} has {member.file_size} bytes for {member.filename}, whose header announces {announced}; the file "
            "is damaged, write it again with numpy.savez.",
            code="file.damaged",
        )
    whole = partial(_whole, path, member.filename)
    if member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1:
        return StoredArray(shape, dtype, whole, partial(_in_place, path, member, header, shape, dtype, fortran))
    return StoredArray(shape, dtype, whole, partial(packed, path, member.filename, shape, dtype, whole))


def _refuse_objects(path: Path, name: str) -> Any:
    raise FileError(
        f"{path} has Python objects in {name}, which are not read; store an array of numbers.",
        code="file.unsupported-content",
    )


def _whole(path: Path, name: str, progress: UnpackingProgress | None = None) -> NDArray[Any]:
    """Return the array of a member whose size was checked; no more is unpacked than its header announces."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(name) as file:
            shape, dtype, fortran, _ = _header(file, path, name)
            values = np.empty(math.prod(shape), dtype)
            raw, at = values.view(np.uint8).data, 0
            while at < len(raw):
                piece = file.read(min(PIECE, len(raw) - at))
                if not piece:
                    raise EOFError(f"it ends after {at} of {len(raw)} bytes")
                raw[at : at + len(piece)] = piece
                at += len(piece)
                if progress is not None:
                    progress.add(len(piece))
            if file.read(1):
                raise zipfile.BadZipFile("it unpacks to more than its header announces")
            return values.reshape(shape, order="F" if fortran else "C")
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, TypeError, ValueError, NotImplementedError) as error:
        raise FileError(
            f"{path} can't be read at {name} ({reason(error)}); write it again with numpy.savez.", code="file.damaged"
        ) from None


def _in_place(
    path: Path, member: zipfile.ZipInfo, header: int, shape: tuple[int, ...], dtype: np.dtype[Any], fortran: bool
) -> tuple[Frames, Raster | None]:
    with path.open("rb") as file:
        file.seek(member.header_offset)
        local = file.read(LOCAL.size)
    if len(local) < LOCAL.size or local[:4] != b"PK\x03\x04":
        raise FileError(f"{path} is damaged at {member.filename}; write it again: numpy.savez.", code="file.damaged")
    name, extra = LOCAL.unpack(local)[-2:]
    offset = member.header_offset + LOCAL.size + name + extra + header
    return _frames(path, offset, shape, dtype, fortran, member.filename)
