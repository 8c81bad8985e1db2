"""`ptynb dashboard` in JupyterLab's launcher, by jupyter-server-proxy: also in JupyterHub and Open OnDemand."""

from __future__ import annotations

import sys
from typing import Any

START_SECONDS = 120
"""Time limit for the import of everything from a slow file system."""


def server_process() -> dict[str, Any]:
    """Return how jupyter-server-proxy starts the dashboard: the value of its entry point.

    It makes the socket's name in a new folder that only the user can enter, and connects to it for users whom Jupyter
    has authenticated, at `<server>/ptynb/`.
    """
    options = ["dashboard", "--socket", "{unix_socket}", "--no-open"]
    return {
        "command": [sys.executable, "-P", "-m", "ptynb.cli.main", *options],
        "unix_socket": True,
        "timeout": START_SECONDS,
        "launcher_entry": {"title": "ptynb"},
    }
