"""The page of `ptynb dashboard`: what the one cell of its notebook calls.

The cell is run once, and its kernel lives as long as the command does, whether a browser shows the page or not
(`ptynb.cli.dashboard_server`): a page that is closed, loaded again, or shown on two screens is one workbench, and
nothing that runs is touched by it. When the command ends (Ctrl-C) its kernel does. Engines with a run go on for their
lease, an hour; a command that is started again meanwhile comes back to it, and afterwards `ptynb.resume` goes on from
the state that they kept. A run in the page's own kernel (0 engines) ends with it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from ptynb.app.workbench_app import Workbench
from ptynb.io.load import load

NOTEBOOK = Path(__file__).with_suffix(".ipynb")
SCAN, GIVEN, FOLDER = "PTYNB_DASHBOARD_SCAN", "PTYNB_DASHBOARD_GIVEN", "PTYNB_DASHBOARD_FOLDER"
"""Environment variables by which the command tells the page's kernel what to open, what the user says of it (JSON), and
where files are."""


def page() -> Workbench:
    """The workbench of the scan that the environment names, or without one.

    A run of it that goes on after its page's kernel has ended is there again without a click.
    """
    if folder := os.environ.get(FOLDER):
        os.chdir(folder)  # or results would be written beside the notebook, into the package
    scan = os.environ.get(SCAN)
    given = json.loads(os.environ.get(GIVEN) or "{}")
    return Workbench(load(scan, **given) if scan else None, by_itself=True)
