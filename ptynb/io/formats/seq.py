"""SEQ of StreamPix (NorPix), as cameras of Direct Electron and others write: uncompressed grey images of one size.

The little-endian header has 0xFEED, "Norpix seq" in UTF-16, and from byte 548 on: width, height, bits per pixel, real
bits, bytes of an image, format (100: grey), allocated images, origin, bytes from one image to the next; at byte 620 the
compression. Images begin at byte 8192 (1024 before version 5), each followed by its time stamp.

Orientation: as the images are stored. The file contains no metadata of the scan.
Source: NorPix, Sequence File Format, as PIMS and LiberTEM read it.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from ptynb.exceptions import FileError
from ptynb.io.reading.reader_interface import FileRecord, Format, Head
from ptynb.io.reading.stack_axes import placed, stacked
from ptynb.settings.load_options import LoadOptions

MAGIC = struct.pack("<I", 0xFEED) + "Norpix seq".encode("utf-16-le")
GREY = 100
TYPES = {8: "<u1", 16: "<u2", 32: "<u4"}


def recognises(head: Head) -> bool:
    """Return whether the file begins with the header of StreamPix."""
    return head.start.startswith(MAGIC)


def read(path: Path, options: LoadOptions) -> FileRecord:
    """Return the patterns."""
    with path.open("rb") as file:
        header = file.read(1024)
    if len(header) < 1024:
        raise FileError(f"{path} ends within its header; it is incomplete, copy it again.", code="file.damaged")
    version = struct.unpack_from("<i", header, 28)[0]
    width, height, bits, _, _, form, allocated, _, stride = struct.unpack_from("<9I", header, 548)
    compression = struct.unpack_from("<I", header, 620)[0]
    if form != GREY or compression or bits not in TYPES:
        raise FileError(
            f"{path} has images of format {form} with {bits} bits per pixel, compression {compression}; expected "
            "uncompressed grey ones of 8, 16 or 32 bits: export it in this form from StreamPix.",
            code="file.unsupported-content",
        )
    offset, dtype = 8192 if version >= 5 else 1024, np.dtype(TYPES[bits])
    if stride < width * height * dtype.itemsize or not stride:
        raise FileError(
            f"{path} has {stride} bytes from one image to the next, and an image has {width} x {height} pixels of "
            f"{dtype.itemsize} bytes; the header is damaged, copy the file again.",
            code="file.damaged",
        )
    # Not all allocated images may have been recorded; the time stamp after the last image may be missing.
    inside = max(0, path.stat().st_size - offset + stride - width * height * dtype.itemsize) // stride
    count = min(allocated, inside) if allocated else inside
    stack, _ = stacked((count, height, width), path)
    note = f"{path.name} announces {allocated} images and contains {count}; it may be incomplete."
    return FileRecord(
        format=FORMAT.name,
        frames=placed(path, offset, stack, dtype, stride=stride),
        places={"patterns": f"from byte {offset} on"},
        notes=(note,) if allocated > count else (),
    )


FORMAT = Format("SEQ", recognises, read, (".seq",))
