"""Processes that end with the one that started them, however that ends: on each system, and by kill -9.

    python -m ptynb.service.guarded_process MODULE [ARGUMENT ...]

runs a module as `python -m MODULE` does, with the read end of a pipe as its standard input, whose write end only the
starting process has. When that is closed, this process gets SIGTERM, after which a run writes a checkpoint, and after a
minute it is ended. (On Linux a process may also be told by prctl; it would follow the thread that started it, and be
set between fork and exec, where Python with threads is not safe.)
"""

from __future__ import annotations

import contextlib
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from ptynb.supervised_thread import SupervisedThread
from ptynb.systems import terminate_self

GRACE = 60.0
"""Time for a checkpoint after the end of the process that started this one [s]."""
SERVICE = "PTYNB_SITE_SERVE"
"""Beginning of the variables of the site file's [serve], with the database's password perhaps, which no run needs."""


def start(
    arguments: Sequence[str], *, folder: Path | None = None, first: str = "", **pipes: int | IO[Any] | None
) -> subprocess.Popen[bytes]:
    """Start `python -m` with these arguments, a process that ends with this one; see `end_with_parent`.

    first: a line that it gets on its standard input. pipes: `stdout` and `stderr` of subprocess.Popen. Raises OSError
    if there is no process or memory for it.
    """
    # A terminal sends Ctrl-C to all its processes; this one decides when its own are told.
    child: subprocess.Popen[bytes] = subprocess.Popen(
        [sys.executable, "-P", "-m", *arguments],
        stdin=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.upper().startswith(SERVICE)},
        cwd=folder,
        start_new_session=True,
        **pipes,  # type: ignore[call-overload]
    )
    assert child.stdin is not None
    try:
        child.stdin.write(f"{first}\n".encode() if first else b"")
        child.stdin.flush()
    except OSError:  # it has ended already
        end(child, 0.0)
        raise
    return child


def end(child: subprocess.Popen[bytes], seconds: float) -> None:
    """Tell a process to end, wait, and kill it if it does not."""
    child.terminate()
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    close(child)


def close(child: subprocess.Popen[bytes]) -> None:
    """Close the standard input of a process that has ended.

    A pipe that a thread reads is closed by that thread: others would wait for it, and so for the end of all processes
    that have inherited the pipe.
    """
    assert child.stdin is not None
    with contextlib.suppress(OSError):  # of what was not read
        child.stdin.close()


def first_line() -> str:
    """Return the line that this process was started with."""
    line = bytearray()
    while (letter := os.read(0, 1)) not in (b"", b"\n"):
        line += letter
    return line.decode()


def end_with_parent() -> None:
    """End this process when its standard input is closed; it reads as empty from now on."""
    pipe = os.dup(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    SupervisedThread("ptynb guard", _wait_for_end, pipe).start()


def _wait_for_end(pipe: int) -> None:
    while os.read(pipe, 4096):
        pass
    terminate_self()
    time.sleep(GRACE)
    os._exit(1)


if __name__ == "__main__":
    end_with_parent()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
