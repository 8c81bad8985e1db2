"""`ptynb diagnose`: known faults of a result, where they are, and what helps."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ptynb.cli.load_arguments import add_load_options, load_options_of


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    diagnose = commands.add_parser("diagnose", help="look for known faults of a result, and for what helps")
    diagnose.add_argument("result", type=Path, metavar="RESULT.h5", help="result file")
    diagnose.add_argument("scan", type=Path, nargs="?", metavar="SCAN", help="file with its scan")
    diagnose.add_argument("--trial", action="store_true", help="try each remedy in a short run; requires the scan")
    diagnose.add_argument("--report", type=Path, metavar="FILE.html", help="write a report with the findings, too")
    diagnose.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_load_options(diagnose)
    diagnose.set_defaults(run=_diagnose)


def _diagnose(chosen: argparse.Namespace) -> int:
    import ptynb as pt
    from ptynb.report.report_file import report

    result = pt.load_result(chosen.result)
    scan = None
    if chosen.scan is not None:
        scan = pt.prepare(pt.load(chosen.scan, **load_options_of(chosen)), result.scan.preparation)
    found = pt.diagnose(result, scan, trial=chosen.trial)
    print(json.dumps(found.to_plain()) if chosen.json else found)
    if chosen.report is not None:
        report(chosen.result, chosen.report, diagnosis=found)
    return 0
