"""`ptynb direct`: the first pictures of a scan, without a reconstruction."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from ptynb.cli.arguments import add_load_options, load_options_of

ARRAYS = (".h5", ".npz")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    direct = commands.add_parser("direct", help="show a scan without a reconstruction: detectors, phase, aberrations")
    direct.add_argument("scan", type=Path, metavar="SCAN", help="file with a scan")
    direct.add_argument(
        "--output",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="files to write: .h5 or .npz with all arrays, or .png, .pdf or .svg as a figure",
    )
    direct.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_load_options(direct)
    direct.set_defaults(run=_direct)


def _direct(chosen: argparse.Namespace) -> int:
    import ptynb as pt
    from ptynb.io.new_files import require_folder, writable

    for path in chosen.output:
        require_folder(path)  # before the scan is read
    scan = pt.load(chosen.scan, **load_options_of(chosen))
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("patterns", total=len(scan))
        found = pt.direct(scan, report=lambda count: progress.update(task, completed=count))
    print(json.dumps(found.to_plain()) if chosen.json else found)
    for path in chosen.output:
        if path.suffix.lower() in ARRAYS:
            pt.export(found, path)
        else:
            with writable(path):
                pt.figure(found).savefig(path)
    return 0
