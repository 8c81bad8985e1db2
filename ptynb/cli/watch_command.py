"""`ptynb watch`: a page with the pictures that a run writes to its checkpoint folder."""

from __future__ import annotations

import argparse
import contextlib
import webbrowser
from pathlib import Path

from rich.console import Console


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
    from ptynb.cli.status_page.status_server import Server

    # Ctrl-C closes the server at any time, also before `wait`.
    with Server(chosen.folder, chosen.port) as server, contextlib.suppress(KeyboardInterrupt):
        Console().print(
            f"Showing {chosen.folder} at {server.address} until Ctrl-C.", markup=False, highlight=False, soft_wrap=True
        )
        if not chosen.no_open:
            webbrowser.open(server.address)
        server.wait()
    return 0
