"""What Linux, macOS and Windows do differently, where the standard library leaves it to its user."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ON_WINDOWS = sys.platform == "win32"
NEW_GROUP: int = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
"""`creationflags` of a process that Ctrl-C is not meant for, beside `start_new_session`, which Windows ignores."""
BUSY_SECONDS = 1.0
"""Time for which a file that others read is waited for [s]."""


def terminate_self() -> None:
    """Send SIGTERM to this process, from any of its threads, so that its handler runs in the main thread."""
    if ON_WINDOWS:
        signal.raise_signal(signal.SIGTERM)  # os.kill would end the process without its handler
    else:
        os.kill(os.getpid(), signal.SIGTERM)


def become(command: Sequence[str]) -> int:
    """Run a command in place of this process; return its exit status where that has to be done as a child.

    On Windows `os.execv` ends this process at once, and the shell goes on beside the command.
    """
    if ON_WINDOWS:
        return subprocess.run(command, check=False).returncode
    os.execv(command[0], list(command))


def replace_file(source: Path, target: Path) -> None:
    """Rename a file to `target`, which is replaced. Raises OSError.

    Windows refuses this while another process has the target open, as whoever watches a run does for moments.
    """
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            source.replace(target)
            return
        except PermissionError:
            if not ON_WINDOWS or time.monotonic() > until:
                raise
            time.sleep(0.01)
