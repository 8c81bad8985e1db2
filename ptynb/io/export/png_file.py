"""PNG files that are written in bands of rows, so that only one band is in memory.

Format: https://www.w3.org/TR/png-3/
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

GREY, RGB = 0, 2
UP = 2
"""Filter of all rows: differences to the row above; of phases and amplitudes they compress best of the simple ones."""


def write_png_bands(
    path: Path,
    shape: tuple[int, int],
    bands: Iterable[NDArray[Any]],
    texts: Mapping[str, str],
    per_metre: tuple[int, int] | None = None,
) -> None:
    """Write a PNG of `shape` (y, x) from bands of its rows, (y, x) or (y, x, rgb) uint8, or (y, x) uint16.

    texts: by keyword, in Latin-1. per_metre: resolution (y, x) [pixels/m].
    """
    compressor, above = zlib.compressobj(), None
    with path.open("wb") as file:

        def chunk(kind: bytes, content: bytes) -> None:
            if content or kind == b"IEND":
                file.write(struct.pack(">I", len(content)) + kind + content)
                file.write(struct.pack(">I", zlib.crc32(content, zlib.crc32(kind))))

        file.write(b"\x89PNG\r\n\x1a\n")
        for band in bands:
            rows = np.ascontiguousarray(band, band.dtype.newbyteorder(">")).view(np.uint8).reshape(len(band), -1)
            if above is None:
                bits, colours = 8 * band.itemsize, RGB if band.ndim == 3 else GREY
                chunk(b"IHDR", struct.pack(">2I5B", shape[1], shape[0], bits, colours, 0, 0, 0))
                if per_metre is not None:
                    chunk(b"pHYs", struct.pack(">2IB", per_metre[1], per_metre[0], 1))
                for name, text in texts.items():
                    chunk(b"tEXt", f"{name}\0{text}".encode("latin-1", "replace"))
                above = np.zeros((1, rows.shape[1]), np.uint8)
            filtered = np.full((len(rows), 1 + rows.shape[1]), UP, np.uint8)
            np.subtract(rows, np.concatenate([above, rows[:-1]]), out=filtered[:, 1:])
            chunk(b"IDAT", compressor.compress(filtered.data))
            above = rows[-1:]
        chunk(b"IDAT", compressor.flush())
        chunk(b"IEND", b"")
