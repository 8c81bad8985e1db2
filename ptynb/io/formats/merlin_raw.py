"""Raw data of Merlin (Medipix3) in .mib: counts as the chips send them, in 1, 6, 12 or 24 bits (R64).

A pattern follows a header of text: MQ1, number, bytes of the header, chips, width, height, R64, layout, ..., bits. Its
pixels are in big-endian words of 64 bits, the first pixel in the lowest bits: 64 pixels of 1 bit, 8 of 6 bits in a byte
each, 4 of 12 bits in two bytes each. 24 bits are two patterns of 12 bits, the more significant one first.

A quad (2x2) has rows of four chips, 4 | 3 | 2 | 1, of which the lower ones, 3 and 4, are mounted upside down. The chip
side follows from the header, so regions of other sizes than 256 are read too. Of 24 bits on a quad no description is
public, so they are refused.

NAME.hdr beside it says how many patterns there are, and how many a trigger (a line).
Orientation: rows from last to first, as in processed .mib. Source: LiberTEM, io/dataset/mib.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data.patterns import FileFrames, Frames
from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import LinkPolicy
from ptynb.io.reading.reader_interface import FileRecord, Format, Head
from ptynb.io.reading.stack_axes import placed, stacked
from ptynb.settings.load_options import LoadOptions

TYPES = {1: "|u1", 6: "|u1", 12: "<u2", 24: "<u4"}
"""Types of the counts, by their bits."""
STORED = {1: 1, 6: 8, 12: 16, 24: 32}
"""Bits that a pixel takes in the file, by those of its count."""
LONGEST = 2**16
"""Upper limit of the bytes of a .hdr."""
PER_LINE = re.compile(r"Frames per Trigger[^:]*:\s*(\d{1,9})")


@dataclass(frozen=True)
class RawMerlinFrames(FileFrames):
    """Patterns in the words of the chips. words: (pattern, 1, word); chip: (rows, columns); quad: has four chips."""

    words: Frames
    bits: int
    chip: tuple[int, int]
    quad: bool
    file_shape: tuple[int, int, int]
    file_dtype: str

    def read(self, start: int, stop: int) -> NDArray[Any]:
        raw = self.words.read(start, stop).astype("<u8").reshape(stop - start, -1).view("|u1")
        if self.bits == 1:
            counts = np.unpackbits(raw, axis=1, bitorder="little")
        elif self.bits == 24:
            high, low = raw.view("<u2").reshape(stop - start, 2, -1).swapaxes(0, 1).astype("<u4")
            counts = (high << 12) + low
        else:
            counts = raw.view(self.file_dtype)
        rows, columns = self.chip
        if not self.quad:
            return counts.reshape(-1, rows, columns)[:, ::-1]
        fourth, third, second, first = counts.reshape(-1, rows, 4, columns).transpose(2, 0, 1, 3)
        upper = np.concatenate([first, second], -1)
        lower = np.concatenate([third[:, ::-1, ::-1], fourth[:, ::-1, ::-1]], -1)
        return np.concatenate([upper, lower], 1)[:, ::-1]


def recognises(head: Head) -> bool:
    """Return whether the file begins with Merlin's header of raw data."""
    return head.start.startswith(b"MQ1,") and b",R64," in head.start[:384]


def read(path: Path, options: LoadOptions) -> FileRecord:
    """Return the patterns, and the raster if the .hdr has it."""
    with path.open("rb") as file:
        start = file.read(4096)
    header, width, height, bits, layout = _header(start, path)
    quad = layout.startswith("2x2")
    if layout.rstrip("G") not in ("1x1", "2x2") or bits not in TYPES or (quad and bits == 24):
        raise FileError(
            f"{path} has raw data (R64) of {bits} bits in the layout {layout}; expected 1, 6, 12 or 24 bits in 1x1, or "
            "1, 6 or 12 in 2x2: save it as U08, U16 or U32, or as .npy.",
            code="file.unsupported-content",
        )
    width //= 2 if bits == 24 else 1
    chip = (height, width // 4) if quad else (height, width)
    nbytes = width * height * STORED[bits] // 8
    if min(chip) < 1 or width * height * STORED[bits] % 64 or (quad and width % 4):
        raise FileError(
            f"{path} announces patterns of {width} x {height} pixels of {bits} bits in the layout {layout}; expected "
            "whole words of 64 bits. The header is damaged, copy the file again.",
            code="file.damaged",
        )
    count, rest = divmod(path.stat().st_size, header + nbytes)
    if not count:
        raise FileError(f"{path} ends within its first pattern; it is incomplete, copy it again.", code="file.damaged")
    sides = (2 * chip[0], 2 * chip[1]) if quad else chip
    shape, _ = stacked((count, *sides), path)
    words = placed(path, header, (count, 1, nbytes // 8), np.dtype(">u8"), stride=header + nbytes)
    note = f"{path.name} ends with {rest} bytes of a pattern that is incomplete and left out."
    return FileRecord(
        format=FORMAT.name,
        frames=RawMerlinFrames(words, bits, chip, quad, shape, TYPES[bits]),
        raster=_raster(path, count, options),
        places={"patterns": f"raw data of {bits} bits, {layout}"},
        notes=(note,) if rest else (),
    )


FORMAT = Format("MIB, raw data", recognises, read, (".mib",))


def _header(start: bytes, path: Path) -> tuple[int, int, int, int, str]:
    """Return (bytes of the header, width, height, bits, layout)."""
    parts = start.decode("ascii", "replace").split(",")
    try:
        length, width, height = int(parts[2]), int(parts[4]), int(parts[5])
        words = start[:length].decode("ascii", "replace").replace("\0", " ").strip(" ,\r\n").split(",")
        bits, layout = int(words[-1]), parts[7].strip()
    except (ValueError, IndexError):
        length, width, height, bits, layout = 0, 0, 0, 0, ""
    if not (0 < length <= len(start) and 0 < width < 2**16 and 0 < height < 2**16):
        raise FileError(
            f"{path} has the header {start[:40].decode('ascii', 'replace')!r}, without the sizes of its patterns; "
            "it is damaged, copy it again.",
            code="file.damaged",
        )
    return length, width, height, bits, layout


def _raster(path: Path, count: int, options: LoadOptions) -> tuple[int, int] | None:
    beside = path.with_suffix(".hdr")
    LinkPolicy.around(path, options.links).check(beside, f"{path} stores a part of the scan")
    if not beside.is_file() or beside.stat().st_size > LONGEST:
        return None
    found = PER_LINE.search(beside.read_text("latin-1"))
    columns = int(found[1]) if found else 0
    return (count // columns, columns) if columns > 1 and count % columns == 0 and count > columns else None
