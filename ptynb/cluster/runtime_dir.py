"""The folder of a running cluster, readable by this user only.

cluster.json    {"name", "kind", "machine", "started", "plan", "backend"}
holder.json     {"pid", "start", "machine", "lease"}: the process that holds it
processes.json  {"engines", "others": [[pid, start]], "end": [[argument]]}: its processes, and commands to end others
alone.json      {"since"}: time since which no process holds it, by its watchdog; stale if one holds it again
stopping.json   {"pid"}: `ptynb stop` is ending it, and no engine may be replaced
security/       connection files with keys, of the controller
log/            logs of the processes
"""

from __future__ import annotations

import re
from pathlib import Path

from jupyter_core.paths import jupyter_runtime_dir

from ptynb.cluster.lifetime import watchdog
from ptynb.private_folder import is_private, private_folder

read, write = watchdog.recorded, watchdog.record
"""Read one of the files above, (folder, name), empty if it is missing; write one, (folder, name, content)."""
PREFIX = "ptynb-"
NAME = re.compile(r"ptynb-[0-9a-f]{8}")


def folder_of(name: str) -> Path:
    """Return the folder of the cluster with this name."""
    return Path(jupyter_runtime_dir()) / name


def engine_file(folder: Path) -> Path:
    """Return the path of the connection file for engines."""
    return folder / "security" / "ipcontroller-engine.json"


def client_file(folder: Path) -> Path:
    """Return the path of the connection file for the notebook."""
    return folder / "security" / "ipcontroller-client.json"


def engine_log(folder: Path, rank: int | str) -> Path:
    """Return the path of an engine's output."""
    return folder / "log" / f"engine-rank{rank}.log"


def make_folder(name: str) -> Path:
    """Create the folder of a cluster, for this user only. Raises FileError if others can replace it."""
    return private_folder(folder_of(name), closed=True)


def known_clusters() -> list[Path]:
    """Return the folders of all clusters of this user, on all machines that share the home folder.

    Those that others can write to are passed over: `ptynb stop` runs commands in their files.
    """
    found = Path(jupyter_runtime_dir()).glob(f"{PREFIX}*")
    return sorted(path for path in found if is_private(path) and (path / "cluster.json").exists())


def all_folders() -> list[Path]:
    """Return the same, and the folders of clusters that ended while they started."""
    found = Path(jupyter_runtime_dir()).glob(f"{PREFIX}*")
    return sorted(path for path in found if NAME.fullmatch(path.name) and is_private(path))
