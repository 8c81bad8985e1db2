"""Optional packages of readers: check that a package is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from ptynb.exceptions import FileError


def require(module: str, name: str, path: Path) -> None:
    """Raise FileError, with the command that installs it, if a package is missing."""
    if importlib.util.find_spec(module) is None:
        raise FileError(
            f"{path} is read through {name}, which is not installed: pip install 'ptynb[formats]'.",
            code="package.not-installed",
        )
