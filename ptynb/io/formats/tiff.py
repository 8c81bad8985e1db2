"""TIFF: one file of many pages, or a folder with one pattern per file, ordered by name ("f2" before "f10").

Uncompressed pages are read in place; compressed ones are unpacked by tifffile when they are needed
(LZW and some others need `pip install imagecodecs`). Four axes, as ImageJ and tifffile describe them, are a raster.
A TIFF contains no metadata of the scan.

Orientation: rows down and columns right as pictures are shown; the tag for orientation is ignored.
Format: Adobe, TIFF 6.0 (1992), and BigTIFF, by tifffile. References to other files, as in OME-TIFF, Micro-Manager
and NDTiff, are not followed: only the pages of the file itself are read.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from ptynb.data.patterns import FileFrames, Frames, PlacedFrames
from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import LinkPolicy, packed_at_most
from ptynb.io.reading.reader_interface import FileRecord, Format, Head
from ptynb.io.reading.safe_reading import check_room
from ptynb.io.reading.stack_axes import check_counts, native, stacked
from ptynb.process_state import ProcessState
from ptynb.settings.load_options import LoadOptions
from ptynb.table import gigabytes
from ptynb.text import natural_order

MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
SUFFIXES = (".tif", ".tiff")
BROKEN = (
    ValueError, TypeError, OSError, EOFError, KeyError, IndexError, NotImplementedError, MemoryError, OverflowError,
    AttributeError, ZeroDivisionError, RuntimeError, AssertionError, struct.error, zlib.error,
)  # fmt: skip
"""Exceptions that tifffile raises for damaged files."""


def recognises(head: Head) -> bool:
    """Return whether this is a TIFF by its first four bytes, or a folder with files of its suffixes."""
    if not head.path.is_dir():
        return head.start[:4] in MAGIC
    with os.scandir(head.path) as inside:
        return any(one.name.lower().endswith(SUFFIXES) for one in inside)


def read(path: Path, options: LoadOptions) -> FileRecord:
    """Return the patterns, and the raster if the file has four axes."""
    if path.is_dir():
        frames: Frames = _folder(path, LinkPolicy.around(path, options.links))
        raster, notes = None, tuple[str, ...]()
    else:
        frames, raster, notes = _pages(path)
    return FileRecord(
        format=FORMAT.name, frames=native(frames), raster=raster, places={"patterns": str(path)}, notes=notes
    )


FORMAT = Format("TIFF", recognises, read, (".tif", ".tiff"))


@dataclass(frozen=True)
class TiffFrames(FileFrames):
    """Compressed pages of a TIFF, from page `first` on; each process opens the file itself."""

    path: Path
    first: int
    file_shape: tuple[int, int, int]
    file_dtype: str

    @property
    def stored_bytes(self) -> int | None:
        return self.path.stat().st_size

    def read(self, start: int, stop: int) -> NDArray[Any]:
        patterns = np.empty((stop - start, *self.shape[1:]), self.dtype)
        with _opened(self.path) as tiff:
            for index in range(start, stop):
                page = tiff.pages[self.first + index]
                _fill(patterns[index - start], page, self.path)
        return patterns


@dataclass(frozen=True)
class FolderFrames(FileFrames):
    """One pattern per file; each process opens the files that it needs, and checks the policy again."""

    folder: Path
    names: tuple[str, ...]
    file_shape: tuple[int, int, int]
    file_dtype: str
    policy: LinkPolicy

    @property
    def stored_bytes(self) -> int | None:
        return sum((self.folder / name).stat().st_size for name in self.names)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        patterns = np.empty((stop - start, *self.shape[1:]), self.dtype)
        for index in range(start, stop):
            path = _allowed(self.folder, self.names[index], self.policy)
            with _opened(path) as tiff:
                _fill(patterns[index - start], tiff.pages[0], path)
        return patterns


def _stop_propagation() -> Callable[[], object]:
    logger = logging.getLogger("tifffile")
    before, logger.propagate = logger.propagate, False
    return lambda: setattr(logger, "propagate", before)


_ERRORS_ARE_RAISED = ProcessState(_stop_propagation)


@contextmanager
def _opened(path: Path) -> Iterator[tifffile.TiffFile]:
    """Yield the open file; errors in the block, and errors that tifffile only logs, are raised as FileError."""
    problems: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: problems.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("tifffile")
    logger.addHandler(handler)
    try:
        # Formats with pages in other files: read only the pages of this file.
        with (
            _ERRORS_ARE_RAISED,
            tifffile.TiffFile(path, is_ome=False, is_mmstack=False, is_ndtiff=False, _multifile=False) as tiff,
        ):
            yield tiff
    except FileError:
        if not problems:  # otherwise it is a consequence of the first problem
            raise
    except BROKEN as error:
        problems.append(str(error) or type(error).__name__)
    finally:
        logger.removeHandler(handler)
    if problems:
        first = " ".join(problems[0].split())[:120]
        raise FileError(
            f"{path} can't be read as TIFF ({first}); copy it again, or save it uncompressed.",
            code="file.damaged",
        )


def _fill(target: NDArray[Any], page: Any, path: Path) -> None:
    shape, dtype = tuple(page.shape), np.dtype(page.dtype)
    if shape != target.shape or dtype != target.dtype.newbyteorder("="):
        raise FileError(
            f"{path} has a pattern of shape {shape} and type {dtype}; expected {target.shape} and "
            f"{target.dtype.newbyteorder('=')} as in the first one: remove it from the scan.",
            code="file.unexpected-content",
        )
    if sum(page.databytecounts) > packed_at_most(target.nbytes):
        raise FileError(
            f"{path} has a page of {gigabytes(sum(page.databytecounts))} for {gigabytes(target.nbytes)} of counts; the "
            "file is damaged, copy it again.",
            code="file.damaged",
        )
    target[...] = page.asarray()


def _check_page(page: Any, path: Path) -> np.dtype[Any]:
    """Return the type of the counts. Raise FileError for colours, other types, and pages larger than the memory."""
    if page.samplesperpixel != 1 or len(page.shape) != 2 or page.dtype is None:
        raise FileError(
            f"{path} has pages of shape {tuple(page.shape)} with {page.samplesperpixel} samples per pixel; expected "
            "counts (y, x) without colours.",
            code="file.unsupported-content",
        )
    dtype = np.dtype(page.dtype)
    check_counts(dtype, path)
    check_room(int(page.nbytes), "one page", path)
    return dtype


def _pages(path: Path) -> tuple[Frames, tuple[int, int] | None, tuple[str, ...]]:
    with _opened(path) as tiff:
        # tifffile finds a chain of pages that leads back to itself only if it follows the whole chain, as for a length;
        # page by page it reads the same one until there are 2^32 of it.
        if not len(tiff.pages) or not tiff.series:
            raise FileError(f"{path} has no pages; expected one for each pattern.", code="file.incomplete")
        series = max(tiff.series, key=len)
        left = len(tiff.series) - 1
        page = series.keyframe
        dtype = _check_page(page, path)
        stack, raster = stacked(tuple(int(side) for side in series.shape), path)
        first = int(page.index)
        places = _places(series, stack)
        stored = dtype.newbyteorder(tiff.byteorder)
    notes = (f"{left} other series of pages in {path.name} are left out.",) if left else ()
    if places is None:
        return TiffFrames(path.resolve(), first, stack, dtype.str), raster, notes
    end = int(places.max()) + stack[1] * stack[2] * dtype.itemsize
    if end > path.stat().st_size or places.min() < 0:
        raise FileError(
            f"{path} ends after {path.stat().st_size} bytes; expected {end}: it is incomplete, copy it again.",
            code="file.damaged",
        )
    return PlacedFrames(path.resolve(), places, stack, stored.str), raster, notes


def _places(series: Any, stack: tuple[int, int, int]) -> NDArray[np.int64] | None:
    """Return the offset of each pattern [bytes]; None if pages are compressed or split."""
    page = series.keyframe
    size = stack[1] * stack[2] * np.dtype(page.dtype).itemsize
    if not (page.is_final and page.is_contiguous):
        return None
    if series.dataoffset is not None:
        return int(series.dataoffset) + size * np.arange(stack[0], dtype=np.int64)
    pages = list(series.pages)
    if len(pages) != stack[0] or any(one is None or len(one.dataoffsets) != len(page.dataoffsets) for one in pages):
        return None
    runs = [np.cumsum([one.dataoffsets[0], *one.databytecounts[:-1]]) for one in pages]
    if any(tuple(run) != tuple(one.dataoffsets) for run, one in zip(runs, pages, strict=True)):
        return None
    return np.array([one.dataoffsets[0] for one in pages], dtype=np.int64)


def _folder(path: Path, policy: LinkPolicy) -> Frames:
    folder = path.resolve()
    with os.scandir(folder) as inside:
        found = [one for one in inside if Path(one.name).suffix.lower() in SUFFIXES]
    # Check links first, as is_file follows them.
    for one in found:
        if one.is_symlink():
            _allowed(folder, one.name, policy)
    names = sorted((one.name for one in found if one.is_file()), key=natural_order)
    if not names:
        raise FileError(f"{path} contains no readable TIFF; expected one for each pattern.", code="file.incomplete")
    first: tuple[tuple[int, ...], np.dtype[Any]] | None = None
    for name in (names[0], names[-1]):
        file = _allowed(folder, name, policy)
        with _opened(file) as tiff:
            if len(tiff.pages) != 1:
                raise FileError(
                    f"{file} has {len(tiff.pages)} pages; expected one in each file of a folder: load the file itself.",
                    code="file.unsupported-content",
                )
            page = tiff.pages[0]
            shape, dtype = tuple(page.shape), _check_page(page, file)
            if first is not None and (shape, dtype) != first:
                raise FileError(
                    f"{file} has a pattern of shape {shape} and type {dtype}; expected {first[0]} and {first[1]} as "
                    f"in {names[0]}: remove it from the folder.",
                    code="file.unexpected-content",
                )
            first = shape, dtype
    assert first is not None
    height, width = map(int, first[0])
    return FolderFrames(folder, tuple(names), (len(names), height, width), first[1].str, policy)


def _allowed(folder: Path, name: str, policy: LinkPolicy) -> Path:
    return policy.check(folder / name, f"{folder} stores a pattern")
