"""The page of `ptynb dashboard`: what the one cell of its notebook calls."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ptynb.bench.workbench import Workbench
from ptynb.io.load import load

NOTEBOOK = Path(__file__).with_suffix(".ipynb")
SCAN, GIVEN, FOLDER = "PTYNB_DASHBOARD_SCAN", "PTYNB_DASHBOARD_GIVEN", "PTYNB_DASHBOARD_FOLDER"
"""Environment variables by which the command tells the page's kernel what to open, what the user says of it (JSON), and
where files are."""


def page() -> Workbench:
    """The workbench of the scan that the environment names, or without one.

    A run of it that goes on without a page's kernel is there again without a click.
    """
    if folder := os.environ.get(FOLDER):
        os.chdir(folder)  # or results would be written beside the notebook, into the package
    scan = os.environ.get(SCAN)
    given = json.loads(os.environ.get(GIVEN) or "{}")
    return Workbench(load(scan, **given) if scan else None, by_itself=True)
