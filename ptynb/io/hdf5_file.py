"""What all HDF5 formats share: opening with a clear refusal, and writing beside the target before renaming."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import h5py
from numpy.typing import NDArray

from ptynb.exceptions import FileError
from ptynb.io.hdf5_heap_check import damaged_heap
from ptynb.text import in_one_line as in_one_line

FEW = 6
"""Numbers that a sentence may hold."""


def reason(error: BaseException) -> str:
    """What another library said was wrong, in one line; the error's type where it said nothing."""
    return in_one_line(error) or type(error).__name__


@contextmanager
def open_for_reading(path: Path) -> Iterator[h5py.File]:
    """The open file. Raises FileError where there is no readable HDF5 file."""
    if not path.exists():
        raise FileError(f"There is no file {path}. Working folder: {Path.cwd()}.")
    if not path.is_file():
        raise FileError(f"{path} is a folder, so it is not a readable HDF5 file; name the file in it.")
    try:
        heap = damaged_heap(path)
        if heap is not None:
            raise FileError(
                f"{path} is damaged (texts kept at byte {heap} don't end where they should); "
                "copy it again from where it was made."
            )
        file = h5py.File(path, "r")
    except OSError as error:
        raise FileError(
            f"{path} is not a readable HDF5 file ({reason(error)}); expected a whole one; "
            "copy it again from where it was made."
        ) from None
    with file, _interrupts_kept():
        try:
            yield file
        except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
            if not _of_hdf5(error):
                raise
            raise FileError(f"{path} is damaged ({reason(error)}); copy it again from where it was made.") from None


def _of_hdf5(error: BaseException) -> bool:
    """Whether h5py raised it, as it does in all these types for what is damaged in a file, and nothing of ours."""
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    return where is not None and "h5py" in Path(where.tb_frame.f_code.co_filename).parts


@contextmanager
def replacing(path: Path) -> Iterator[h5py.File]:
    """A new file that takes the place of `path` once it is whole and on the disk; until then the old one stays."""
    if not path.parent.is_dir():
        raise FileError(f"There is no folder {path.parent} to write {path.name} in; make it first.")
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with _interrupts_kept(), h5py.File(beside, "w") as file:
            yield file
        with beside.open("rb") as written:
            os.fsync(written.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


class _Interrupts:
    """A handler of SIGINT that records which KeyboardInterrupt the handler before it raised."""

    def __init__(self, before: Callable[[int, FrameType | None], Any]) -> None:
        self._before = before
        self.raised: type[KeyboardInterrupt] | None = None  # no more than its type, which holds no frames

    def __call__(self, number: int, frame: FrameType | None) -> None:
        try:
            self._before(number, frame)
        except KeyboardInterrupt as error:
            self.raised = type(error)
            raise


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Raises a KeyboardInterrupt at the end of a block in which it was raised and lost.

    h5py keeps its identifiers in a WeakValueDictionary, and Python ignores what is raised in the callback that removes
    a dead one. A result's file takes several hundred of them.
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
    """A few numbers as they are, more of them by their shape: in a sentence."""
    return f"{values.tolist()}" if values.size <= FEW else f"of shape {values.shape}"


def read_all(dataset: h5py.Dataset) -> Any:
    """All values of a dataset. Raises OSError where the columns of its type overlap.

    They do where the description of a number in a compound type is damaged: h5py takes it for a longer number, and
    HDF5 then writes beyond the array's memory (seen with h5py 3.16 and HDF5 2.0; the process aborts when it ends).
    """
    columns = (dataset.dtype.fields or {}).values()
    if columns and sum(kind.itemsize for kind, *_ in columns) > dataset.dtype.itemsize:
        raise OSError(f"the columns of its type overlap: {dataset.dtype}")
    return dataset[()]


def attribute(place: h5py.Group | h5py.Dataset, name: str, path: Path) -> Any:
    """The value of an attribute of a file, group or dataset. Raises FileError where it is missing."""
    if name not in place.attrs:
        raise FileError(f"{path} has no attribute {name} at {place.name}; the file is incomplete or of another kind.")
    return place.attrs[name]
