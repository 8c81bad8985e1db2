"""`ptynb watch`: a page with the pictures that a run writes to its checkpoint folder."""

from __future__ import annotations

import argparse
from pathlib import Path


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    watch = commands.add_parser("watch", help="show the pictures in a run's checkpoint folder on a live page")
    watch.add_argument("folder", type=Path, metavar="FOLDER", help="checkpoint folder of a run; it need not exist yet")
    watch.add_argument(
        "--port", type=int, default=0, metavar="N", help="port of the page on this machine (default: any)"
    )
    watch.add_argument("--no-open", action="store_true", help="print the address only")
    watch.set_defaults(run=_watch)


def _watch(chosen: argparse.Namespace) -> int:
    from ptynb.cli.dashboard_page.dashboard_server import serve
    from ptynb.widgets.watch_view import Watch

    folder: Path = chosen.folder
    title = f"{folder.resolve().name} - ptynb"
    serve(lambda: Watch(folder), title, chosen.port, f"Showing {folder}", browser=not chosen.no_open)
    return 0
