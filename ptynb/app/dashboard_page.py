"""The page of `ptynb dashboard`, which the one cell of its notebook calls.

The cell runs once, and its kernel lives as long as the command (`ptynb.cli.dashboard_server`): a page that is closed,
reloaded, or shown on two screens is the same workbench, and runs are not affected. When the command ends (Ctrl-C), its
kernel ends. Engines with a run continue for `detached_timeout`, an hour; a command started within it attaches to the
run, and later `ptynb.resume` continues from its checkpoints. A run in the kernel of the page (0 engines) ends with it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from ptynb.app.workbench_app import Workbench
from ptynb.io.load import load

NOTEBOOK = Path(__file__).with_suffix(".ipynb")
SCAN, GIVEN, FOLDER = "PTYNB_DASHBOARD_SCAN", "PTYNB_DASHBOARD_GIVEN", "PTYNB_DASHBOARD_FOLDER"
"""Environment variables of the kernel of the page: the scan to open, load options (JSON), and the working folder."""


def page() -> Workbench:
    """Return the workbench of the scan in the environment, if there is one; attach to a run of it without a click."""
    if folder := os.environ.get(FOLDER):
        os.chdir(folder)  # results must not be written next to the notebook, into the package
    scan = os.environ.get(SCAN)
    options = json.loads(os.environ.get(GIVEN) or "{}")
    return Workbench(load(scan, **options) if scan else None, by_itself=True)
