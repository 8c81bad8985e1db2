"""Compression of patterns: as detectors send them, by the library that hdf5plugin has for HDF5.

    none        the numbers themselves
    lz4         one block of LZ4 (Simplon "lz4<", areaDetector)
    h5lz4       HDF5's filter 32004: size (8 bytes), size of a block (4), and blocks with their length (4), big-endian
    bslz4       bitshuffle and LZ4 without a header (areaDetector): blocks with their length (4), big-endian
    h5bslz4     HDF5's filter 32008: size (8 bytes), size of a block (4), and such blocks (Simplon "bs16-lz4<", stream2
                "bslz4")
    blosc       a buffer of Blosc, HDF5's filter 32001 (areaDetector)

hdf5plugin's shared library of bitshuffle exports what is needed, and is called without Python's lock: 0.07 ms for 256 x
256 of 16 bits, against 0.23 ms through a dataset of HDF5 in memory, the way where a build of hdf5plugin exports
nothing. Both trust what they are given, so lengths are checked before: those of all blocks lie within the message, and
unpacked they are as many numbers as the pattern has.

Masui et al., A compression scheme for radio data in high performance computing, Astronomy and Computing 12 (2015) 181.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from dataclasses import dataclass
from typing import Any, Literal

import h5py
import hdf5plugin
import numpy as np
from numpy.typing import NDArray

from ptynb.exceptions import AcquisitionError
from ptynb.text import in_one_line

Compression = Literal["none", "lz4", "h5lz4", "bslz4", "h5bslz4", "blosc"]
LARGEST_BLOCK = 2**24
"""Most bytes of a block of bitshuffle; 8192 are usual."""
MULTIPLE = 8
"""Numbers in the smallest block of bitshuffle; what is left at the end is stored as it is."""


@dataclass(frozen=True, eq=False)
class Packed:
    """The counts of a pattern as they came: bytes, shape (y, x) and type of the numbers, and their compression."""

    data: Any
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    compression: Compression = "none"

    def counts(self) -> NDArray[Any]:
        """Return the counts (y, x). Raise AcquisitionError if the bytes are not what the message announced."""
        data = np.frombuffer(self.data, np.uint8)
        size = self.shape[0] * self.shape[1] * self.dtype.itemsize
        if self.compression == "none":
            if len(data) != size:
                raise damaged(f"{len(data)} bytes of counts; {size} were announced")
            return data.view(self.dtype).reshape(self.shape)
        out = np.empty(self.shape, self.dtype)
        raw = out.reshape(-1).view(np.uint8)
        if self.compression == "lz4":
            _unpack_lz4(data, raw)
        elif self.compression == "h5lz4":
            _unpack_h5lz4(data, raw)
        elif self.compression == "blosc":
            _unpack_blosc(data, out)
        else:
            _unpack_bslz4(data, raw, self.dtype.itemsize, headed=self.compression == "h5bslz4")
        return out


def pack_bslz4(counts: NDArray[Any]) -> bytes:
    """Return counts as HDF5's filter of bitshuffle and LZ4 stores them, for emulators and tests."""
    library, counts = _required(), np.ascontiguousarray(counts)
    block = library.bshuf_default_block_size(counts.itemsize)
    most = library.bshuf_compress_lz4_bound(counts.size, counts.itemsize, block)
    out = np.empty(most, np.uint8)
    length = library.bshuf_compress_lz4(counts.ctypes.data, out.ctypes.data, counts.size, counts.itemsize, block)
    assert length > 0, "bitshuffle failed"
    return struct.pack(">QI", counts.nbytes, block * counts.itemsize) + out[:length].tobytes()


def pack_lz4(counts: NDArray[Any]) -> bytes:
    """Return counts as one block of LZ4, for emulators and tests."""
    library, counts = _required(), np.ascontiguousarray(counts)
    out = np.empty(library.LZ4_compressBound(counts.nbytes), np.uint8)
    length = library.LZ4_compress_default(counts.ctypes.data, out.ctypes.data, counts.nbytes, len(out))
    assert length > 0, "LZ4 failed"
    return out[:length].tobytes()


def pack_h5lz4(counts: NDArray[Any], block: int = 2**16) -> bytes:
    """Return counts as HDF5's filter of LZ4 stores them, for emulators and tests."""
    raw, parts = np.ascontiguousarray(counts).reshape(-1).view(np.uint8), [struct.pack(">QI", counts.nbytes, block)]
    for start in range(0, len(raw), block):
        piece = raw[start : start + block]
        packed = pack_lz4(piece)
        stored = packed if len(packed) < len(piece) else piece.tobytes()
        parts += [struct.pack(">I", len(stored)), stored]
    return b"".join(parts)


def is_exported() -> bool:
    """Return whether hdf5plugin's library can be called; the first call loads it, which takes 0.1 s."""
    return _library() is not None


@functools.cache
def _library() -> ctypes.CDLL | None:
    """Return hdf5plugin's library of bitshuffle, which contains LZ4; None if it cannot be called."""
    path = hdf5plugin.get_config().registered_filters.get("bshuf")
    try:
        library = ctypes.CDLL(str(path))
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        library.bshuf_decompress_lz4.argtypes = library.bshuf_compress_lz4.argtypes = [pointer, pointer, *[size] * 3]
        library.bshuf_decompress_lz4.restype = library.bshuf_compress_lz4.restype = ctypes.c_int64
        library.bshuf_compress_lz4_bound.argtypes, library.bshuf_compress_lz4_bound.restype = [size] * 3, size
        library.bshuf_default_block_size.argtypes, library.bshuf_default_block_size.restype = [size], size
        library.LZ4_decompress_safe.argtypes = [pointer, pointer, ctypes.c_int, ctypes.c_int]
        library.LZ4_compress_default.argtypes = [pointer, pointer, ctypes.c_int, ctypes.c_int]
        library.bshuf_decompress_lz4(None, None, 0, 1, 0)
    except (OSError, AttributeError):
        return None
    return library


def _required() -> ctypes.CDLL:
    library = _library()
    if library is None:
        raise AcquisitionError(
            f"This build of hdf5plugin {hdf5plugin.version} does not export bitshuffle, with which emulators compress; "
            "install that of the package index: pip install --force-reinstall hdf5plugin.",
            code="package.not-installed",
        )
    return library


def _unpack_bslz4(data: NDArray[np.uint8], out: NDArray[np.uint8], itemsize: int, *, headed: bool) -> None:
    library, start = _library(), 12 if headed else 0
    count = len(out) // itemsize
    block = (_header(data, len(out)) if headed else 0) // itemsize or _default_block(itemsize)
    if block % MULTIPLE or not 0 < block * itemsize <= LARGEST_BLOCK:
        raise damaged(f"blocks of {block} numbers; expected a multiple of {MULTIPLE}, up to {LARGEST_BLOCK} bytes")
    whole, rest = divmod(count, block)
    blocks = whole + (rest >= MULTIPLE)
    at = _walk(data, start, blocks)
    if at + count % MULTIPLE * itemsize != len(data):
        raise damaged(f"{len(data)} bytes of compressed counts; its blocks end at byte {at}")
    if library is None:
        header = struct.pack(">QI", len(out), block * itemsize)
        numbers = out.view(f"u{itemsize}")
        _through_hdf5(header + data[start:].tobytes(), numbers, hdf5plugin.Bitshuffle())
        return
    used = library.bshuf_decompress_lz4(data.ctypes.data + start, out.ctypes.data, count, itemsize, block)
    if used != len(data) - start:
        raise damaged(f"compressed counts that cannot be unpacked (bitshuffle's error {used})")


def _walk(data: NDArray[np.uint8], start: int, blocks: int) -> int:
    """Return where blocks end that begin with their length. Raise AcquisitionError if one reaches beyond the data."""
    memory, at, end = data.data, start, len(data)
    for _ in range(blocks):
        if at + 4 > end:
            raise damaged(f"{end} bytes of compressed counts, which lack a block")
        at += 4 + int.from_bytes(memory[at : at + 4], "big")
    if at > end:
        raise damaged(f"{end} bytes of compressed counts, and blocks up to byte {at}")
    return at


def _unpack_lz4(data: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    library = _library()
    if library is None:
        _through_hdf5(struct.pack(">QII", len(out), len(out), len(data)) + data.tobytes(), out, hdf5plugin.LZ4())
        return
    written = library.LZ4_decompress_safe(data.ctypes.data, out.ctypes.data, len(data), len(out))
    if written != len(out):
        raise damaged(f"compressed counts that unpack to {max(0, written)} bytes; {len(out)} were announced")


def _unpack_h5lz4(data: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    block, at = _header(data, len(out)), 12
    if not 0 < block <= 2**31 - 1:
        raise damaged(f"blocks of {block} bytes")
    for start in range(0, len(out), block):
        target = out[start : start + block]
        end = _walk(data, at, 1)
        stored = data[at + 4 : end]
        if len(stored) == len(target):
            target[:] = stored  # it did not become smaller
        else:
            _unpack_lz4(stored, target)
        at = end
    if at != len(data):
        raise damaged(f"{len(data)} bytes of compressed counts; its blocks end at byte {at}")


def _unpack_blosc(data: NDArray[np.uint8], out: NDArray[Any]) -> None:
    # bytes 4 to 7 of Blosc's header: size of the unpacked buffer, 12 to 15: of the packed one
    if len(data) < 16 or struct.unpack_from("<I4xI", data.data, 4) != (out.nbytes, len(data)):
        raise damaged("a buffer of Blosc with other sizes than were announced")
    _through_hdf5(data.tobytes(), out, hdf5plugin.Blosc())


def _through_hdf5(raw: bytes, out: NDArray[Any], options: Any) -> None:
    """Unpack what a filter of HDF5 has stored, by a dataset in memory."""
    with h5py.File("memory", "w", driver="core", backing_store=False) as file:
        stored = file.create_dataset("one", out.shape, out.dtype, chunks=out.shape, **options)
        try:
            stored.id.write_direct_chunk((0,) * out.ndim, raw)
            stored.read_direct(out)
        except (OSError, RuntimeError) as error:
            raise damaged(f"compressed counts that cannot be unpacked ({in_one_line(error, 80)})") from None


def _default_block(itemsize: int) -> int:
    """Return bitshuffle's numbers in a block, where its header says 0."""
    return max(8192 // itemsize // 8 * 8, 128)


def _header(data: NDArray[np.uint8], size: int) -> int:
    """Return the size of a block [bytes] from the header of HDF5's filters."""
    if len(data) < 12:
        raise damaged(f"{len(data)} bytes of compressed counts; expected a header of 12")
    announced, block = struct.unpack_from(">QI", data.data)
    if announced != size:
        raise damaged(f"compressed counts of {announced} bytes; the pattern has {size}")
    return int(block)


def damaged(what: str) -> AcquisitionError:
    """Return the error for a message that has something which cannot be."""
    return AcquisitionError(f"A message has {what}.", code="acquisition.damaged-message")
