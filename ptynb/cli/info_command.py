"""`ptynb info`: contents of a file, missing metadata, and the line of Python that opens it; the installed plug-ins."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ptynb.batch.exit_statuses import COMPLETED, DATA, UNAVAILABLE
from ptynb.cli.arguments import add_load_options, load_options_of


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    info = commands.add_parser("info", help="show the contents of a file: format, metadata, what is missing; plug-ins")
    info.add_argument("file", type=Path, nargs="?", metavar="FILE", help="scan of any format, result, checkpoint, mask")
    info.add_argument("--plugins", action="store_true", help="list the installed plug-ins, and what is wrong with them")
    info.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_load_options(info)
    info.set_defaults(run=_info)


def _info(chosen: argparse.Namespace) -> int:
    if chosen.plugins:
        return _plugins(chosen)
    from ptynb.exceptions import InvalidValueError
    from ptynb.io.file_info import info

    if chosen.file is None:
        raise InvalidValueError(
            "There is no FILE; give the path of a file, or --plugins.", code="argument.missing", fields=("file",)
        )
    found = info(chosen.file, **load_options_of(chosen))
    print(json.dumps(found.to_plain()) if chosen.json else found)
    return COMPLETED if found.problem is None and not found.missing else DATA


def _plugins(chosen: argparse.Namespace) -> int:
    from ptynb.cli.plugin_checks import listed, problems

    found = problems()
    plain = [{**vars(plugin), "problem": problem} for plugin, problem in found.items()]
    print(json.dumps(plain) if chosen.json else listed(found))
    return UNAVAILABLE if any(found.values()) else COMPLETED
