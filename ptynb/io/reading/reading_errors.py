"""Errors while a file is read: what a library says of the file, what the system says, what is a fault of ptynb, and
libraries that are not installed.
"""

from __future__ import annotations

import importlib.util
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ptynb.exceptions import FileError, PtynbError
from ptynb.text import in_one_line

LIBRARIES = {
    "h5py": "HDF5",
    "json": "JSON",
    "numcodecs": "zarr",
    "rsciio": "RosettaSciIO",
    "tifffile": "tifffile",
    "zarr": "zarr",
    "zipfile": "zip",
    "zlib": "zlib",
}
"""Names of packages and modules that read files, for messages; an error of theirs is about the file."""
PACKAGE = Path(__file__).parents[2]


def reason(error: BaseException) -> str:
    """Return the message of another library's error in one line; its type if it has none."""
    return in_one_line(error) or type(error).__name__


def library_of(error: BaseException) -> str:
    """Return the library, a key of `LIBRARIES`, that raised an error or called what did; "" if ptynb's code did."""
    module = type(error).__module__.partition(".")[0]
    if module in LIBRARIES:  # C code has no frames
        return module
    files = [Path(frame.f_code.co_filename) for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not files or PACKAGE in files[-1].parents:
        return ""
    return next((name for file in files for name in (*file.parts, file.stem) if name in LIBRARIES), "")


def unreadable(path: Path, error: Exception) -> FileError:
    """Return the error that is told where a reader fails.

    Only a library that reads files can say that one is damaged: what else is raised is about the system, or a fault of
    ptynb, and the file may be valid.
    """
    if isinstance(error, PtynbError):
        return error if isinstance(error, FileError) else error.retold(FileError, f"{path}: {error}")
    if isinstance(error, MemoryError):
        return FileError(
            f"{path} needs more memory than there is here ({reason(error)}); it may be damaged, or needs a machine "
            "with more.",
            code="file.too-large",
        )
    if isinstance(error, OSError) and isinstance(error.errno, int):  # RosettaSciIO puts texts there
        return FileError(
            f"{path} can't be read ({os.strerror(error.errno)}); expected a file that the system lets you read.",
            code="file.not-readable",
        )
    library = library_of(error)
    if library:
        return FileError(
            f"{path} is damaged ({LIBRARIES[library]}: {reason(error)}); copy it again from where it was made.",
            code="file.damaged",
        )
    return FileError(
        f"{path} can't be read, by a fault of ptynb ({type(error).__name__}: {reason(error)}); the file may be valid. "
        "Please report this with the traceback, and with the file if you can.",
        code="file.reader-failed",
    )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Convert errors of a reader; see `unreadable`."""
    try:
        yield
    except FileError:
        raise
    except Exception as error:
        raise unreadable(path, error) from error


def require(module: str, name: str, path: Path) -> None:
    """Raise FileError, with the command that installs it, if a package is missing."""
    if importlib.util.find_spec(module) is None:
        raise FileError(
            f"{path} is read through {name}, which is not installed: pip install 'ptynb[formats]'.",
            code="package.not-installed",
        )
