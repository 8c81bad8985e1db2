"""Error messages: the first cause in a few lines, tracebacks and logs in a file."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from jupyter_core.paths import jupyter_runtime_dir

from ptynb.exceptions import FileError
from ptynb.private_folder import private_folder

MOST_LINES = 7
"""Largest number of lines of a cause. With the path of the file and the remedy, a message has ten lines."""
LAST_LINES = 4
OWN_LINES = re.compile(r"\s*$|.*\[(Engine|IPController|KernelNanny)[^]]*\]")
"""Lines of ipyparallel in logs without a failure."""
KEPT_FILES = 20
MOST_LOG_BYTES = 2**20


def summarize(first: str, details: str = "", logs: Iterable[Path] = ()) -> str:
    """Return the first lines of a failure, and the path of a file with all of it, the details and these logs.

    The file is in the runtime folder of Jupyter: the folder of the cluster is removed when it stops.
    """
    logs = [*logs]
    lines = first.rstrip().splitlines()
    if len(lines) <= MOST_LINES and not details and not logs:
        return "\n".join(lines)
    parts = [first, details]
    for log in logs:
        with contextlib.suppress(OSError), log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - MOST_LOG_BYTES))
            parts.append(f"--- {log.name}\n{file.read().decode(errors='replace')}")
    try:
        written = _write("\n".join(filter(None, parts)), first + details)
    except (OSError, FileError) as error:
        return "\n".join([*lines[:MOST_LINES], f"(Its tracebacks and logs could not be written to a file: {error}.)"])
    return "\n".join([*lines[:MOST_LINES], f"Tracebacks and logs: {written}"])


def log_end(logs: Iterable[Path]) -> str:
    """Return the last lines of the first log with a failure, for a message; or ""."""
    for log in logs:
        with contextlib.suppress(OSError):
            lines = [
                line
                for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
                if not OWN_LINES.match(line)
            ]
            if lines:
                return "\n".join(["", "The end of its log:", *lines[-LAST_LINES:]])
    return ""


def _write(text: str, failure: str) -> Path:
    """Write a file that only this user can read, one per failure; remove old ones."""
    folder = private_folder(Path(jupyter_runtime_dir()) / "ptynb_failures")
    path = folder / f"{hashlib.sha256(failure.encode(errors='replace')).hexdigest()[:12]}.txt"
    path.unlink(missing_ok=True)
    own = functools.partial(os.open, mode=0o600)
    with open(path, "x", encoding="utf-8", errors="replace", opener=own) as file:
        file.write(text)
    for old in sorted(folder.glob("*.txt"), key=lambda one: one.stat().st_mtime)[:-KEPT_FILES]:
        old.unlink(missing_ok=True)
    return path
