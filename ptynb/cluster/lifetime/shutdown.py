"""Ends a cluster from outside: its processes, what it asked for elsewhere, its folder. Its state is kept before."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from ptynb.cluster import runtime_dir
from ptynb.cluster.lifetime import watchdog
from ptynb.cluster.lifetime.orphans import FoundCluster, again
from ptynb.io import checkpoint_branches
from ptynb.io.checkpoint_dir import default_folder
from ptynb.io.checkpoint_file import NAME, newest_written, states

ROUNDS = 3
"""Times that what is left is looked for again: who held the cluster may just have started an engine in place of one."""


@dataclass(frozen=True)
class Ended:
    """What became of a cluster. kept: the newest state that it wrote, if it did. failures: sentences."""

    kept: Path | None
    failures: tuple[str, ...]

    @property
    def epoch(self) -> str:
        """Of the state: '41', or '41 and 7 updates of the next'."""
        match = None if self.kept is None else NAME.fullmatch(self.kept.name)
        if match is None:
            return ""
        return str(int(match[1])) + (f" and {int(match[2])} updates of the next" if match[2] else "")


def end(found: FoundCluster) -> Ended:
    """Ends all of it: engines first, which have a minute to keep their state, then the rest; TERM, and then KILL.

    Its folder stays where something could not be ended, so that it can be tried again.
    """
    began = time.time_ns()
    if found.folder is not None:
        with contextlib.suppress(OSError):
            runtime_dir.write(found.folder, "stopping.json", {"pid": os.getpid()})
    commands = [] if found.folder is None else runtime_dir.read(found.folder, "processes.json").get("end", [])
    failures = [f"this command failed: {shlex.join(command)}" for command in watchdog.run(commands)]
    left: list[psutil.Process] = []
    present: FoundCluster | None = found
    for _ in range(ROUNDS):
        if present is None or not present.processes:
            break
        left = watchdog.end((one.key for one in present.engines), watchdog.KEEPING_SECONDS)
        left += watchdog.end((one.key for one in present.others), watchdog.GRACE_SECONDS)
        present = again(found)
    if found.folder is not None and not left and not failures:
        shutil.rmtree(found.folder, ignore_errors=True)
        if found.folder.exists():
            failures.append(f"its folder {found.folder} could not be removed")
        late = again(found)  # without the folder nobody can start any more
        left = [] if late is None else watchdog.end((one.key for one in late.processes), watchdog.GRACE_SECONDS)
    failures += [f"its process {process.pid} did not end" for process in left]
    return Ended(_state_since(found, began), tuple(failures))


def _state_since(found: FoundCluster, began: int) -> Path | None:
    """The newest state of what ran there; in ptynb's own folder for states, that written since `began` [ns]."""
    if found.work is None or not found.work.keeps:
        return None
    folder = found.work.folder
    if folder is None:
        found_lines = [line for path in default_folder().glob("*") for line in checkpoint_branches.lines(path)]
        fresh = [line for line in found_lines if newest_written(line) >= began]
        line = max(fresh, key=newest_written, default=None)
    else:
        line = checkpoint_branches.last_line(folder)
    written = [] if line is None else states(line)
    return written[-1] if written else None
