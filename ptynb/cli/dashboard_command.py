"""`ptynb dashboard`: the workbench as a page without code, for example in a control room."""

from __future__ import annotations

import argparse
from pathlib import Path

from ptynb.cli.arguments import add_load_options, load_options_of


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    dashboard = commands.add_parser("dashboard", help="open the workbench as a web page")
    dashboard.add_argument("scan", type=Path, nargs="?", metavar="SCAN", help="file with a scan to open")
    dashboard.add_argument("--port", type=int, default=8866, metavar="N", help="port of the page (default 8866)")
    dashboard.add_argument(
        "--socket",
        type=Path,
        metavar="FILE",
        help="serve at a Unix socket instead, for a proxy that knows its user (JupyterHub, Open OnDemand)",
    )
    dashboard.add_argument("--dark", action="store_true", help="dark theme")
    dashboard.add_argument("--no-open", action="store_true", help="print the address without opening a browser")
    add_load_options(dashboard)
    dashboard.set_defaults(run=_dashboard, notebooks=True)


def _dashboard(chosen: argparse.Namespace) -> int:
    from ptynb.app.workbench_app import Workbench
    from ptynb.cli.dashboard_page.dashboard_server import serve
    from ptynb.cluster.cluster import set_interactive
    from ptynb.io.load import load

    scan = None if chosen.scan is None else load(chosen.scan, **load_options_of(chosen, Path.cwd()))
    set_interactive()
    title = "ptynb" if scan is None else f"{scan.name} - ptynb"
    serve(
        lambda: Workbench(scan, by_itself=True),
        title,
        chosen.port if chosen.socket is None else chosen.socket.absolute(),
        "The workbench is",
        dark=chosen.dark,
        browser=not chosen.no_open,
    )
    return 0
