"""`ptynb info`: contents of a file, missing metadata, and the line of Python that opens it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ptynb.cli.arguments import add_load_options, load_options_of
from ptynb.exit_statuses import COMPLETED, DATA


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    info = commands.add_parser("info", help="show the contents of a file: format, metadata, what is missing")
    info.add_argument("file", type=Path, metavar="FILE", help="scan of any format, result, checkpoint or mask")
    info.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_load_options(info)
    info.set_defaults(run=_info)


def _info(chosen: argparse.Namespace) -> int:
    from ptynb.io.file_info import info

    found = info(chosen.file, **load_options_of(chosen))
    print(json.dumps(found.to_plain()) if chosen.json else found)
    return COMPLETED if found.problem is None and not found.missing else DATA
