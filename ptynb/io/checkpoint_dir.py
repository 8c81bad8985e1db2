"""Default folder for checkpoints, and the limits of its age and size."""

from __future__ import annotations

import os
import re
import secrets
import time
from datetime import datetime
from pathlib import Path

from ptynb.private_folder import private_folder
from ptynb.site_values import caches

DAYS = 14
"""Age since the last change after which checkpoints are removed."""
MOST_BYTES = 10 * 2**30
"""Total size above which the oldest are removed."""
FOLDER = re.compile(r".+-\d{8}-\d{6}-[0-9a-f]{4}")
OURS = re.compile(
    r"\.?state-.*\.(h5|part)|(status|branch)\.json|tuning\.journal(\.open)?|(amplitude|phase|probe)\.jpg|\..*\.part"
)
"""Files that ptynb writes in such a folder; any other file stays, and its folder with it."""


def default_folder() -> Path:
    """Return the folder that PTYNB_KEPT names, else one of all caches, or beside Jupyter's data; it need not exist."""
    named = os.environ.get("PTYNB_KEPT")
    if named:
        return Path(named).expanduser().absolute()
    if (place := caches()) is not None:
        return place.absolute() / "ptynb" / "kept"
    from jupyter_core.paths import jupyter_data_dir

    return Path(jupyter_data_dir()) / "ptynb" / "kept"


def new_folder(scan: str) -> Path:
    """Return a path for the folder of one reconstruction of this scan, without creating it."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", scan).strip("_")[:60] or "scan"
    return default_folder() / f"{plain}-{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def create_and_prune(present: Path, remove: bool = True) -> None:
    """Create ptynb's folder, private to the user, and remove old or excess checkpoints, never `present`."""
    base = private_folder(present.parent)
    if not remove:
        return
    found = []
    for folder in base.iterdir():
        if folder != present and not folder.is_symlink() and folder.is_dir() and FOLDER.fullmatch(folder.name):
            sizes = [(path.lstat().st_mtime, path.lstat().st_size) for path in _ours(folder)]
            touched = max((touched for touched, _ in sizes), default=folder.stat().st_mtime)
            found.append((touched, sum(size for _, size in sizes), folder))
    total = sum(path.lstat().st_size for path in _ours(present)) if present.is_dir() else 0
    oldest_allowed = time.time() - DAYS * 86400
    for touched, size, folder in sorted(found, reverse=True):
        total += size
        if touched < oldest_allowed or total > MOST_BYTES:
            _remove(folder)


def _ours(folder: Path) -> list[Path]:
    inside = [path for one in _with_branches(folder) for path in one.iterdir()]
    return [path for path in inside if OURS.fullmatch(path.name) and not path.is_dir()]


def _is_dir(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _with_branches(folder: Path) -> list[Path]:
    """Return the folder and those of its branches; see `ptynb.io.checkpoint_branches`."""
    inner = folder / "branches"
    return [folder, *(path for path in inner.iterdir() if _is_dir(path))] if _is_dir(inner) else [folder]


def _remove(folder: Path) -> None:
    for path in _ours(folder):
        path.unlink(missing_ok=True)
    for one in (*reversed(_with_branches(folder)[1:]), folder / "branches", folder):
        if one.is_dir() and not any(one.iterdir()):
            one.rmdir()
