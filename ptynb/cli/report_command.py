"""`ptynb report`: one HTML file of a result, or of several compared. `ptynb diagnose`: known faults of a result."""

from __future__ import annotations

import argparse
import json
import webbrowser
from pathlib import Path

from rich.console import Console

from ptynb.cli.arguments import add_load_options, load_options_of
from ptynb.exceptions import InvalidValueError

ENDING = ".report.html"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add both commands."""
    report = commands.add_parser("report", help="write an HTML file of a result, or of several compared")
    report.add_argument(
        "results", type=Path, nargs="+", metavar="RESULT.h5", help="result files; the first is the reference"
    )
    report.add_argument(
        "-o", "--output", type=Path, metavar="FILE.html", help="output file (default: beside the first result)"
    )
    report.add_argument("--title", metavar="TEXT", help="title (default: that of the result)")
    report.add_argument(
        "--comments", type=Path, metavar="FILE.md", help="comments in Markdown (default: those of the result)"
    )
    report.add_argument("--full", action="store_true", help="all pixels, regardless of the size of the file")
    report.add_argument("--open", action="store_true", help="open the report in the browser")
    report.set_defaults(run=_report)
    diagnose = commands.add_parser("diagnose", help="look for known faults of a result, and for what helps")
    diagnose.add_argument("result", type=Path, metavar="RESULT.h5", help="result file")
    diagnose.add_argument("scan", type=Path, nargs="?", metavar="SCAN", help="file with its scan")
    diagnose.add_argument("--trial", action="store_true", help="try each remedy in a short run; requires the scan")
    diagnose.add_argument("--report", type=Path, metavar="FILE.html", help="write a report with the findings, too")
    diagnose.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_load_options(diagnose)
    diagnose.set_defaults(run=_diagnose)


def _report(chosen: argparse.Namespace) -> int:
    from ptynb.report.report_file import report

    first: Path = chosen.results[0]
    output = chosen.output
    if output is None:
        output = first.with_name(f"{first.name.removesuffix('.h5').removesuffix('.result')}{ENDING}")
    comments = None if chosen.comments is None else _text(chosen.comments)
    written = report(chosen.results, output, title=chosen.title, comments=comments, full=chosen.full).absolute()
    size = f"{written.stat().st_size / 1e6:.2g} MB"
    Console().print(f"Report:  {written} ({size})", markup=False, highlight=False, soft_wrap=True)
    if chosen.open:
        webbrowser.open(written.as_uri())
    return 0


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


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidValueError(
            f"{path} is not UTF-8 text; expected Markdown in UTF-8.", code="file.unknown-format"
        ) from None
