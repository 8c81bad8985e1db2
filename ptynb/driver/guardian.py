"""Ends a cluster whose notebook died: run as a script of its own, with nothing of ptynb imported.

usage: guardian.py KERNEL_PID KERNEL_START FOLDER

Waits for the kernel to end, however it does, then ends the processes listed in FOLDER/processes.json with all
their children (TERM, after 3 s KILL) and removes the folder. Leaves when the folder is gone: the cluster was stopped
in order. A process is known by its id and start time together, so that a reused id is never touched.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import time
from pathlib import Path

import psutil

POLL_SECONDS = 0.5
GRACE_SECONDS = 3.0


def is_alive(pid: int, start: float) -> bool:
    """Whether the process of this id that began at this time still runs."""
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - start) < 1 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def end_processes(folder: Path) -> None:
    """Ends the listed processes that are still the same ones, and their children."""
    doomed: list[psutil.Process] = []
    listing = folder / "processes.json"
    if not listing.exists():
        return
    for pid, start in json.loads(listing.read_text()):
        if is_alive(pid, start):
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                doomed += [*process.children(recursive=True), process]
    for process in doomed:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, stubborn = psutil.wait_procs(doomed, timeout=GRACE_SECONDS)
    for process in stubborn:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(stubborn, timeout=GRACE_SECONDS)


def main(kernel: int, start: float, folder: Path) -> None:
    """Waits, then cleans up."""
    while is_alive(kernel, start):
        if not folder.exists():
            return
        time.sleep(POLL_SECONDS)
    end_processes(folder)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]))
