"""The scan that a run file names, with the start that it names."""

from __future__ import annotations

from ptynb.io.load import load
from ptynb.io.starts.start_from import load_initial_guess
from ptynb.scan import Scan
from ptynb.settings.runfile import RunFile


def scan_of(plan: RunFile) -> Scan:
    """Every rank calls this and gets the same. Raises FileError and ScanError."""
    scan = load(plan.scan, **plan.load.words)
    return scan if plan.start is None else load_initial_guess(scan, plan.start)
