"""Paths in a run file."""

from __future__ import annotations

from pathlib import Path

from ptynb.exceptions import SettingsError


def expanded(path: Path) -> Path:
    """Return a path without '~'. Raises SettingsError if that home folder is not known."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise SettingsError(
            f"The home folder in {str(path)!r} is not known; write out the whole path.", code="file.not-found"
        ) from None
