"""New files: free names, and files that replace others once they are complete."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ptynb.exceptions import FileError
from ptynb.systems import replace_file


def free_name(stem: str, ending: str, folder: Path = Path()) -> str:
    """Return a file name that does not exist in the folder."""
    numbered = (f"{stem}{ending}", *(f"{stem}-{number}{ending}" for number in range(2, 10_000)))
    return next((name for name in numbered if not (folder / name).exists()), numbered[0])


def require_folder(path: Path) -> None:
    """Raise FileError if the folder of a file that is to be written does not exist, or is not writable."""
    if not path.parent.is_dir():
        raise FileError(
            f"There is no folder {path.parent} to write {path.name} in; make it first.", code="file.not-writable"
        )
    if not os.access(path.parent, os.W_OK):
        raise FileError(
            f"{path.name} is to be written in {path.parent}, which is not writable; choose another folder.",
            code="file.not-writable",
        )


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Yield the path of a file beside `path`, which replaces it once the block is left and the file is on the disk.

    After an error the old file stays. Raises FileError if the folder does not exist, or is not writable.
    """
    require_folder(path)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        yield beside
        with beside.open("r+b") as written:
            os.fsync(written.fileno())
        replace_file(beside, path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Convert errors of writing a file."""
    try:
        yield
    except OSError as error:
        raise FileError(
            f"{path} cannot be written ({error.strerror or error}); choose another path.", code="file.not-writable"
        ) from None
