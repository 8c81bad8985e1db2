"""Names of new files."""

from __future__ import annotations

from pathlib import Path


def free_name(stem: str, ending: str, folder: Path = Path()) -> str:
    """Return a file name that does not exist in the folder."""
    numbered = (f"{stem}{ending}", *(f"{stem}-{number}{ending}" for number in range(2, 10_000)))
    return next((name for name in numbered if not (folder / name).exists()), numbered[0])
