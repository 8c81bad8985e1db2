"""The folder of a running cluster: what other processes of this user need to know of it, readable by them only.

cluster.json    {"name", "kind", "machine", "started", "plan", "backend"}
holder.json     {"pid", "start", "machine", "lease"}: who holds it
processes.json  {"engines", "others": [[pid, start]], "end": [[argument]]}: what belongs to it
alone.json      {"since"}: since when nobody has held it, as its guardian noticed; stale where somebody does again
stopping.json   {"pid"}: `ptynb stop` is ending it, so that nobody starts engines again
security/       how to connect, with the keys, written by ipyparallel's controller
log/            what the processes wrote
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_runtime_dir

from ptynb.cluster.lifetime.watchdog import record, recorded

PREFIX = "ptynb-"
NAME = re.compile(r"ptynb-[0-9a-f]{8}")


def folder_of(name: str) -> Path:
    """Where the cluster of this name has its files."""
    return Path(jupyter_runtime_dir()) / name


def make_folder(name: str) -> Path:
    """Makes it, for this user only."""
    folder = folder_of(name)
    folder.mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    return folder


def known_clusters() -> list[Path]:
    """The folders of all clusters of this user, on whichever machine that shares its home folder."""
    found = Path(jupyter_runtime_dir()).glob(f"{PREFIX}*")
    return sorted(path for path in found if _is_own(path) and (path / "cluster.json").exists())


def all_folders() -> list[Path]:
    """The same, and those of clusters that ended before they had written what they are."""
    found = Path(jupyter_runtime_dir()).glob(f"{PREFIX}*")
    return sorted(path for path in found if NAME.fullmatch(path.name) and _is_own(path))


def _is_own(path: Path) -> bool:
    """Whether it is a folder in which only this user can write: `ptynb stop` runs commands that its files name."""
    try:
        found = path.lstat()
    except OSError:  # it has just been removed
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def write(folder: Path, name: str, content: dict[str, Any]) -> None:
    """Writes one of the files above, whole or not at all."""
    record(folder, name, content)


def read(folder: Path, name: str) -> dict[str, Any]:
    """What one of the files above holds; nothing where it is missing."""
    return recorded(folder, name)
