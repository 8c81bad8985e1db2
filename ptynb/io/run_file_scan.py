"""Scan of a run file, prepared, with its initial guess."""

from __future__ import annotations

from ptynb.data.scan import Scan
from ptynb.io.initial_guess.guess_loader import load_initial_guess
from ptynb.io.load import load
from ptynb.io.prepared_scan import prepare
from ptynb.settings.run_file import RunFile


def scan_of(plan: RunFile) -> Scan:
    """Load and prepare the scan, the same in every rank. Raise FileError, ScanError, or InvalidValueError."""
    scan = prepare(load(plan.scan, **plan.load.arguments), plan.prepare)
    return scan if plan.start is None else load_initial_guess(scan, plan.start)
