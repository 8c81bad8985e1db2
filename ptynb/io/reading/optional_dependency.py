"""Optional packages of readers: check that a package is installed, and convert its errors."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import reason


def require(module: str, name: str, path: Path) -> None:
    """Raise FileError, with the command that installs it, if a package is missing."""
    if importlib.util.find_spec(module) is None:
        raise FileError(
            f"{path} is read through {name}, which is not installed: pip install 'ptynb[formats]'.",
            code="package.not-installed",
        )


@contextmanager
def sentences(path: Path, name: str) -> Iterator[None]:
    """Convert any error of another package into a FileError with a message of one line."""
    try:
        yield
    except FileError:
        raise
    except Exception as error:  # noqa: BLE001
        raise FileError(
            f"{path} can't be read by {name} ({reason(error)}); the file may be damaged: copy it again.",
            code="file.damaged",
        ) from None
