"""Scan of a run file, prepared, with its initial guess; several as one."""

from __future__ import annotations

from ptynb.data.scan import Scan
from ptynb.io.initial_guess.guess_loader import load_initial_guess
from ptynb.io.load import load
from ptynb.io.prepared_scan import prepare
from ptynb.preparation.combination import as_one_scan
from ptynb.settings.run_files.run_file import RunFile, RunScan


def scan_of(plan: RunFile) -> Scan:
    """Load and prepare the scans, the same in every rank. Raise FileError, ScanError, or InvalidValueError."""
    scans = [_prepared(plan, one) for one in plan.scan]
    if plan.share is None:
        return scans[0]
    shifts = [one.shift or (0.0, 0.0) for one in plan.scan] if plan.share == "object" else None
    return as_one_scan(scans, plan.share, plan.recipe.stage_settings, shifts)


def _prepared(plan: RunFile, one: RunScan) -> Scan:
    """Return one of the scans; errors name its file if there are several."""
    start = one.start or plan.start
    try:
        scan = prepare(load(one.file, **plan.options_of(one).arguments), (*plan.prepare, *one.prepare))
        return scan if start is None else load_initial_guess(scan, start)
    except ValueError as error:
        if len(plan.scan) > 1 and str(one.file) not in str(error):
            error.args = (f"{one.file}: {error}", *error.args[1:])
        raise
