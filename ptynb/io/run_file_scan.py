"""Scan of a run file, with its initial guess."""

from __future__ import annotations

from ptynb.data.scan import Scan
from ptynb.io.initial_guess.guess_loader import load_initial_guess
from ptynb.io.load import load
from ptynb.settings.run_file import RunFile


def scan_of(plan: RunFile) -> Scan:
    """Load the scan, the same in every rank. Raise FileError and ScanError."""
    scan = load(plan.scan, **plan.load.arguments)
    return scan if plan.start is None else load_initial_guess(scan, plan.start)
