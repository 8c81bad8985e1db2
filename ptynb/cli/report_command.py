"""`ptynb report`: one HTML file of a result, or of several compared."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

from rich.console import Console

from ptynb.exceptions import InvalidValueError

ENDING = ".report.html"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
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


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidValueError(
            f"{path} is not UTF-8 text; expected Markdown in UTF-8.", code="file.unknown-format"
        ) from None
