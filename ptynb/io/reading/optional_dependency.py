"""What readers through other packages share: whether the package is there, and one sentence for whatever it raises."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import reason


def require(module: str, name: str, path: Path) -> None:
    """Raises FileError with the line that installs it where a package is not there."""
    if importlib.util.find_spec(module) is None:
        raise FileError(
            f"{path} is read through {name}, which is not installed: pip install 'ptynb[formats]'.",
            code="package.not-installed",
        )


@contextmanager
def sentences(path: Path, name: str) -> Iterator[None]:
    """Turns whatever another package raises for a broken file into a FileError of one sentence."""
    try:
        yield
    except FileError:
        raise
    except Exception as error:  # noqa: BLE001
        raise FileError(
            f"{path} can't be read by {name} ({reason(error)}); is the file whole? Copy it again.", code="file.damaged"
        ) from None
