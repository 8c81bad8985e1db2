"""`ptynb watch`: a page with the pictures of a run that keeps them in a folder, here or on another machine."""

from __future__ import annotations

import argparse
import contextlib
import webbrowser
from pathlib import Path

from rich.console import Console


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command."""
    watch = commands.add_parser("watch", help="show the pictures that a run keeps in a folder, live, as a page")
    watch.add_argument("folder", type=Path, metavar="FOLDER", help="where a run keeps its states; it may come later")
    watch.add_argument("--port", type=int, default=0, metavar="N", help="of the page, on this machine (default: any)")
    watch.add_argument("--no-open", action="store_true", help="print the address only")
    watch.set_defaults(run=_watch)


def _watch(chosen: argparse.Namespace) -> int:
    from ptynb.cli.status_page.status_server import Server

    # Ctrl-C ends it in order wherever it arrives, also before the page is waited for.
    with Server(chosen.folder, chosen.port) as server, contextlib.suppress(KeyboardInterrupt):
        Console().print(
            f"Showing {chosen.folder} at {server.address} until Ctrl-C.", markup=False, highlight=False, soft_wrap=True
        )
        if not chosen.no_open:
            webbrowser.open(server.address)
        server.wait()
    return 0
