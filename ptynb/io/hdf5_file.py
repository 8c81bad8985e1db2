"""HDF5 files: opening and writing, protected against damaged and malicious files; links: `reading.hdf5_links`.

- libhdf5 2.0 hangs, out of reach of Ctrl-C, in a damaged global heap ("GCOL": HDF5 File Format Specification 3.0,
  section III.E), in which texts of variable length and the sources of virtual datasets are stored. `_Source` checks
  each heap when HDF5 reads it, so that nothing has to be searched for.
- A chunk whose packed size is damaged is unpacked to any size: `check_chunks`.
"""

from __future__ import annotations

import atexit
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import FileIO
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import h5py
from numpy.typing import NDArray

from ptynb.exceptions import FileError, PtynbError
from ptynb.io.new_files import replacing_file
from ptynb.io.reading.reading_errors import library_of, unreadable
from ptynb.io.reading.reading_errors import reason as reason
from ptynb.table import gigabytes
from ptynb.text import in_one_line as in_one_line

HEAP_SIGNATURE = b"GCOL"
MOST_IN_HEAP = 2**16
"""Maximum number of objects of a heap: their numbers have two bytes."""
MOST_TEXTS = 10**6
"""Maximum number of texts of a dataset that `check_texts` reads."""
SUPERBLOCK = b"\x89HDF\r\n\x1a\n"
CONSISTENCY_FLAGS = 11
"""Place of the byte of a superblock of version 3 whose first bit says that the file is open for writing."""

Item: TypeAlias = h5py.Group | h5py.Dataset


def is_being_written(path: Path) -> bool:
    """Return whether an HDF5 file is marked as open for writing; its writer may have ended without closing it.

    HDF5 marks files in the newest format only, which SWMR requires.
    """
    with path.open("rb") as file:
        block = file.read(CONSISTENCY_FLAGS + 1)
    return block.startswith(SUPERBLOCK) and len(block) > CONSISTENCY_FLAGS and block[8] == 3 and block[-1] & 1 == 1


class _Source(FileIO):
    """A file as h5py's driver for Python's files reads it, which checks a global heap before HDF5 decodes it."""

    length_bytes = 8

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer, beyond the end of the file with zeros. Raise FileError for a damaged heap."""
        place, wanted, done = self.tell(), memoryview(buffer), 0
        while done < len(wanted) and (count := super().readinto(wanted[done:])):
            done += count
        wanted[done:] = bytes(len(wanted) - done)
        if wanted[: len(HEAP_SIGNATURE)] == HEAP_SIGNATURE and not self._is_sound(place):
            raise FileError(
                f"{os.fsdecode(self.name)} is damaged (the texts at byte {place} have wrong lengths); copy it again "
                "from where it was made.",
                code="file.damaged",
            )
        return len(wanted)

    def _number(self, count: int, place: int) -> int:
        self.seek(place)
        return int.from_bytes(self.read(count), "little")

    def _is_sound(self, place: int) -> bool:
        """Return whether the objects of this heap follow each other up to its end."""
        at = header = -(-(8 + self.length_bytes) // 8) * 8  # of the heap, and of each object
        size = self._number(self.length_bytes, place + 8)
        for _ in range(MOST_IN_HEAP):
            if at + header > size:  # what is shorter than an object's header is free space
                return True
            length = self._number(self.length_bytes, place + at + 8)
            # Object 0 is free space, whose length includes its header.
            needed = header + -(-length // 8) * 8 if self._number(2, place + at) else length
            if needed < header or at + needed > size:
                return False
            at += needed
        return False


_checked: dict[int, h5py.File] = {}


@atexit.register
def _close_checked() -> None:
    """Close what is still open: after Python's end HDF5 would do it, and crash, as the driver is Python's."""
    for file in [*_checked.values()]:
        file.close()


@contextmanager
def opened_checked(path: Path) -> Iterator[h5py.File]:
    """Yield the file opened so that heaps are checked; HDF5 reads no other files through it, but zeros for them."""
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    with _Source(path) as source:
        access.set_fileobj_driver(h5py.h5fd.fileobj_driver, source)
        with h5py.File(h5py.h5f.open(os.fsencode(path), h5py.h5f.ACC_RDONLY, access)) as file:
            source.length_bytes = file.id.get_create_plist().get_sizes()[1]
            _checked[id(file)] = file
            try:
                yield file
            finally:
                del _checked[id(file)]


def check_attributes(item: Item) -> None:
    """Raise FileError if texts among the attributes are damaged."""
    for name in item.attrs:
        try:
            item.attrs[name]
        except FileError:
            raise
        except (KeyError, TypeError, RuntimeError, OSError, ValueError):
            continue  # h5py refuses its type or content


def check_texts(file: h5py.File) -> None:
    """Raise FileError if texts of a file are damaged, which is opened next by something else, and would hang it."""

    def check(_: str, item: Item) -> None:
        check_attributes(item)
        if isinstance(item, h5py.Dataset) and item.dtype.hasobject and not item.is_virtual:
            if (item.size or 0) > MOST_TEXTS:
                raise FileError(
                    f"{file.filename} claims {item.size} texts for {item.name}; expected {MOST_TEXTS} at most. It is "
                    "damaged, copy it again.",
                    code="file.damaged",
                )
            item[()]

    check_attributes(file)
    file.visititems(check)


@contextmanager
def open_for_reading(path: Path) -> Iterator[h5py.File]:
    """Yield the open file. Raise FileError if it is no readable HDF5 file.

    HDF5 does not find the sources of a virtual dataset of this file (it reads zeros), but of the ones that `Linked`
    returns.
    """
    with opened_both(path) as (file, _):
        yield file


@contextmanager
def opened_both(path: Path) -> Iterator[tuple[h5py.File, h5py.File]]:
    """Yield the open file as `open_for_reading` does, and as HDF5 opens it itself."""
    if not path.exists():
        raise FileError(f"There is no file {path}. Working folder: {Path.cwd()}.", code="file.not-found")
    if not path.is_file():
        raise FileError(
            f"{path} is a folder, so it is not a readable HDF5 file; name the file in it.", code="file.not-found"
        )
    stack = ExitStack()
    try:
        own = stack.enter_context(h5py.File(path, "r"))
        file = stack.enter_context(opened_checked(path))
    except OSError as error:
        stack.close()
        if is_being_written(path):
            raise FileError(
                f"{path} is still being written, or was when its writer ended. While it is written, ptynb.listen "
                f"follows it: listen('{path.name}', plan=Plan(...)); after the end of its writer, h5clear -s makes it "
                "readable.",
                code="file.being-written",
            ) from None
        if isinstance(error, BlockingIOError):
            raise FileError(
                f"{path} is locked by another program, which has it open for writing; load it when that has closed it.",
                code="file.being-written",
            ) from None
        if isinstance(error, PermissionError):
            raise unreadable(path, error) from None
        raise FileError(
            f"{path} is not a readable HDF5 file ({reason(error)}); expected a whole one; "
            "copy it again from where it was made.",
            code="file.damaged",
        ) from None
    with stack, _keep_interrupts():
        try:
            yield file, own
        except Exception as error:
            # Its errors have many types for damaged files; those of others pass.
            if isinstance(error, PtynbError) or library_of(error) != "h5py":
                raise
            raise unreadable(path, error) from None


@contextmanager
def replacing(path: Path) -> Iterator[h5py.File]:
    """Yield a new file that replaces `path` once it is complete and on the disk; until then the old one stays."""
    with replacing_file(path) as beside, _keep_interrupts(), h5py.File(beside, "w") as file:
        yield file


class _Interrupts:
    """A handler of SIGINT that records which KeyboardInterrupt the previous handler raised."""

    def __init__(self, before: Callable[[int, FrameType | None], Any]) -> None:
        self._before = before
        self.raised: type[KeyboardInterrupt] | None = None  # the type only, without references to frames

    def __call__(self, number: int, frame: FrameType | None) -> None:
        try:
            self._before(number, frame)
        except KeyboardInterrupt as error:
            self.raised = type(error)
            raise


@contextmanager
def _keep_interrupts() -> Iterator[None]:
    """Raise a KeyboardInterrupt at the end of a block in which it was raised and lost.

    h5py keeps its identifiers in a WeakValueDictionary, and Python ignores what is raised in the callback that removes
    a dead one. Writing a result's file takes several hundred of them.
    """
    before = signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()  # only there does Python call handlers
    if not main or not callable(before) or isinstance(before, _Interrupts):
        yield
        return
    interrupts = _Interrupts(before)
    signal.signal(signal.SIGINT, interrupts)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts.raised is not None:
        raise interrupts.raised


def values_text(values: NDArray[Any]) -> str:
    """Return up to six numbers as text, of more only the shape, for a message."""
    return f"{values.tolist()}" if values.size <= 6 else f"of shape {values.shape}"


def read_all(dataset: h5py.Dataset) -> Any:
    """Return all values of a dataset. Raise FileError if the columns of its type overlap.

    They overlap where the description of a number in a compound type is damaged: h5py takes it for a longer number, and
    HDF5 then writes beyond the array's memory (seen with h5py 3.16 and HDF5 2.0; the process aborts when it ends).
    """
    columns = (dataset.dtype.fields or {}).values()
    if columns and sum(kind.itemsize for kind, *_ in columns) > dataset.dtype.itemsize:
        raise FileError(
            f"{dataset.file.filename} is damaged at {dataset.name}, whose columns overlap "
            f"({in_one_line(dataset.dtype)}); copy it again from where it was made.",
            code="file.damaged",
        )
    return dataset[()]


def packed_at_most(octets: int) -> int:
    """Return the maximum packed size of so many bytes: packing hardly enlarges numbers, so longer data are damaged."""
    return octets + octets // 4 + 2**14


def check_chunks(dataset: h5py.Dataset, path: Path) -> None:
    """Raise FileError for a chunk that is longer packed than its numbers are: HDF5 would unpack it to any size."""
    if not dataset.chunks or dataset.is_virtual:
        return
    numbers = math.prod(dataset.chunks) * dataset.id.get_type().get_size()
    most = packed_at_most(numbers)
    too_long = dataset.id.chunk_iter(lambda chunk: chunk if chunk.size > most else None)
    if too_long is not None:
        raise FileError(
            f"{path} has {gigabytes(too_long.size)} for the chunk at {too_long.chunk_offset} of {dataset.name}, whose "
            f"numbers take {gigabytes(numbers)}; the file is damaged, copy it again.",
            code="file.damaged",
        )
