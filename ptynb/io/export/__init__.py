"""Results for other programs: CXI, TIFF, PNG, npz; one format a file, chosen by the path's ending."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from ptynb.data.result import Result
from ptynb.exceptions import FileError
from ptynb.io.export.cxi_export import write_cxi
from ptynb.io.export.exported_arrays import Chosen, Of, What
from ptynb.io.export.npz_export import write_npz
from ptynb.io.export.png_export import write_png
from ptynb.io.export.tiff_export import write_tiff
from ptynb.io.result_file import load_result, save_result

ENDINGS = (".cxi", ".tif", ".tiff", ".png", ".npz", ".h5")


def export(
    result: Result | str | Path,
    path: str | Path,
    *,
    of: Of = "object",
    what: What | None = None,
    slice: int | None = None,
    bits: Literal[8, 16] = 8,
    colours: str = "gray",
) -> Path:
    """Writes a result, or what a result file holds, for other programs; returns the path.

    path: its ending chooses. `.cxi`: object, probe, positions and geometry in HDF5. `.tif`: 32-bit floats for ImageJ
        and others, with the pixel size. `.png`: a picture. `.npz`: all arrays, for numpy. `.h5`: ptynb's own.
    of: "object" or "probe"; what: "amplitude" or "phase" [rad], of a PNG also "complex" (phase as hue, amplitude as
        brightness). None: both in a TIFF, the phase in a PNG. Both are for TIFF and PNG only.
    slice: of a thick object, or mode of the probe, from 0. None: all of them in a TIFF; in a PNG the product of the
        slices, or the first mode.
    bits, colours: of a PNG: 8 with any colour map of matplotlib's, or 16 in grey.

    An existing file is replaced once the new one is whole. Raises FileError for what can't be written so.
    """
    path = Path(path).expanduser()
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise FileError(
            f"{path.name} has the ending {ending!r}; expected one of {', '.join(ENDINGS)}.", code="file.unknown-format"
        )
    if not path.parent.is_dir():
        raise FileError(
            f"There is no folder {path.parent} to write {path.name} in; make it first.", code="file.not-writable"
        )
    found = result if isinstance(result, Result) else load_result(result)
    chosen = Chosen(of, what, slice)
    if ending == ".h5":
        return save_result(found, path)
    if ending == ".cxi":
        write_cxi(found, path)
        return path
    with beside(path) as part:
        if ending == ".png":
            part.write_bytes(write_png(found, chosen, bits, colours))
        elif ending == ".npz":
            write_npz(found, part)
        else:
            write_tiff(found, chosen, part)
    return path


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A name beside this one, that takes its place once it is written and on the disk."""
    part = path.with_name(f".{path.stem}.{secrets.token_hex(4)}.part{path.suffix}")
    try:
        yield part
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
