"""Ends a cluster that no process holds any more: run as a separate script, which does not import ptynb.

    watchdog.py FOLDER                  on the machine of the controller
    watchdog.py --engines NAME [RANK]   on a host of engines: ends the engines of this cluster, or one of them

FOLDER/holder.json names the process that holds the cluster, {"pid", "start", "lease"}: a notebook's kernel. After the
end of that process, and if no other one replaces it, the engines continue for `lease` seconds at most (they exit
earlier when their work is done). Then the processes in FOLDER/processes.json are ended with all their children,
{"engines": [[pid, start]], "others": [[pid, start]], "end": [[argument]]}: TERM, and KILL after the time that writing a
checkpoint may take; the commands of "end" are run; and the folder is removed.

While no process holds the cluster, FOLDER/alone.json has the time since then, {"since"}, for `ptynb ps`.

The watchdog exits when the folder is removed: the cluster was stopped. A process is identified by its id and start
time together, so that a reused id is never ended; processes that are not listed yet, by the cluster's name in their
environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

MARK = "PTYNB_CLUSTER"
"""Environment variable of every process of a cluster: name of the cluster."""
ENGINES = "--engines"
POLL_SECONDS = 0.5
SWEEPS = 3
GRACE_SECONDS = 3.0
REMOTE_GRACE_SECONDS = 10.0
KEEPING_SECONDS = 60.0
"""Time limit for the checkpoint of an engine that no process holds [s]."""
COMMAND_SECONDS = 30.0


def is_alive(pid: int, start: float) -> bool:
    """Whether the process with this id and start time still runs."""
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - start) < 1 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def recorded(folder: Path, name: str) -> dict[str, Any]:
    """Return the content of a file of the folder; empty if it is missing or incomplete."""
    try:
        found: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def record(folder: Path, name: str, content: dict[str, Any]) -> None:
    """Write a file of the folder atomically, for this user only."""
    part = folder / f"{name}.part"
    with open(part, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        json.dump(content, file)
    part.replace(folder / name)


def end(processes: Iterable[tuple[int, float]], grace: float) -> list[psutil.Process]:
    """End these processes, identified by id and start time, and their children: TERM, and after `grace` seconds KILL.

    Suspended ones are resumed, so that they receive TERM. Returns those that could not be ended.
    """
    doomed: list[psutil.Process] = []
    for pid, start in processes:
        if is_alive(pid, start):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                doomed += [*process.children(recursive=True), process]
    for process in doomed:
        with contextlib.suppress(psutil.Error):
            process.terminate()
            if process.status() == psutil.STATUS_STOPPED:
                process.resume()
    stubborn = _left(doomed, grace)
    for process in stubborn:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return _left(stubborn, GRACE_SECONDS)


def _left(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Return those that still run after so many seconds. Zombies do not count: their parent may never reap them."""
    until = time.monotonic() + seconds
    while True:
        processes = [process for process in processes if is_alive(process.pid, process.create_time())]
        if not processes or time.monotonic() > until:
            return processes
        time.sleep(0.02)


def run(commands: Iterable[list[str]]) -> list[list[str]]:
    """Run commands that end processes elsewhere; return those that failed."""
    failed = []
    for command in commands:
        try:
            subprocess.run(command, timeout=COMMAND_SECONDS, check=True, stdin=subprocess.DEVNULL, capture_output=True)
        except (OSError, subprocess.SubprocessError):
            failed.append(command)
    return failed


def end_processes(folder: Path, grace: float | None = None) -> None:
    """End the processes that the folder lists. grace: time for the engines' checkpoint [s]."""
    listed = recorded(folder, "processes.json")
    run(listed.get("end", []))
    processes = [*listed.get("engines", []), *listed.get("others", [])]
    end(((pid, start) for pid, start in processes), GRACE_SECONDS if grace is None else grace)
    for _ in range(SWEEPS):  # for processes that were started meanwhile
        left = marked(folder.name)
        if not left:
            return
        end(left, GRACE_SECONDS)


def all_marked() -> Iterator[tuple[psutil.Process, dict[str, str]]]:
    """Yield this user's running processes marked with a cluster, and environments; not this one and its parents."""
    own = psutil.Process()
    line = {own.pid, *(parent.pid for parent in own.parents())}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            environment = process.environ()
            if MARK not in environment or process.pid in line or process.username() != own.username():
                continue
            if is_alive(process.pid, process.create_time()):
                yield process, environment


def marked(name: str) -> list[tuple[int, float]]:
    """Return (process id, start time) of the processes of this cluster."""
    return [(process.pid, process.create_time()) for process, found in all_marked() if found[MARK] == name]


def marked_engines(name: str, rank: str | None = None) -> list[tuple[int, float]]:
    """Return the same for its engines, or for one. The controller may run on the same machine."""
    return [
        (process.pid, process.create_time())
        for process, found in all_marked()
        if found[MARK] == name and (own := rank_of(found)) and rank in (None, own)
    ]


def rank_of(environment: Mapping[str, str]) -> str | None:
    """Return the rank of an engine with this environment: its own variable, or that of Slurm's first step."""
    return environment.get("PTYNB_RANK") or environment.get("SLURM_PROCID")


def wait_for_end(folder: Path) -> bool:
    """Wait until no process holds the cluster; return False if it was stopped normally."""
    alone_since: float | None = None
    while folder.exists():
        holder = recorded(folder, "holder.json")
        if holder and is_alive(holder["pid"], holder["start"]):
            alone_since = None
        else:
            now = time.monotonic()
            if alone_since is None:
                alone_since = now
                with contextlib.suppress(OSError):
                    record(folder, "alone.json", {"since": time.time()})
            engines = recorded(folder, "processes.json").get("engines", [])
            left = bool(engines) and not any(is_alive(*entry) for entry in engines)
            if left or now - alone_since >= holder.get("lease", 0.0):
                return True
        time.sleep(POLL_SECONDS)
    return False


def main(folder: Path) -> None:
    """Wait for the end of the holder, then clean up."""
    if wait_for_end(folder):
        end_processes(folder, KEEPING_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1] == ENGINES:
        end(marked_engines(*sys.argv[2:4]), REMOTE_GRACE_SECONDS)
    else:
        main(Path(sys.argv[1]))
