"""`ptynb dashboard`: the workbench as a page without code, through Voila, for example in a control room."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import webbrowser
from pathlib import Path

from ptynb.cli.load_arguments import add_load_options, load_options_of
from ptynb.exceptions import InvalidValueError


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    dashboard = commands.add_parser("dashboard", help="open the workbench as a web page (needs ptynb[dashboard])")
    dashboard.add_argument("scan", type=Path, nargs="?", metavar="SCAN", help="file with a scan to open")
    dashboard.add_argument("--port", type=int, default=8866, metavar="N", help="port of the page (default 8866)")
    dashboard.add_argument("--dark", action="store_true", help="dark theme")
    dashboard.add_argument("--no-open", action="store_true", help="print the address without opening a browser")
    add_load_options(dashboard)
    dashboard.set_defaults(run=_dashboard, notebooks=True)


def _dashboard(chosen: argparse.Namespace) -> int:
    try:
        import voila  # noqa: F401
    except ImportError:
        raise InvalidValueError(
            "Voila, which serves the page, is not installed; run pip install 'ptynb[dashboard]'.",
            code="package.not-installed",
        ) from None
    from ptynb.app.dashboard_page import FOLDER, GIVEN, NOTEBOOK, SCAN
    from ptynb.cli.dashboard_server import OPTIONS, OnePageServer
    from ptynb.io.load import load

    if chosen.scan is not None:
        given = load_options_of(chosen, Path.cwd())
        load(chosen.scan, **given)  # errors are shown here, not on the page
        os.environ[SCAN], os.environ[GIVEN] = str(chosen.scan.resolve()), json.dumps(given)
    os.environ[FOLDER] = os.getcwd()
    # The token allows running Python as this user: not on the command line, which others can read.
    os.environ["JUPYTER_TOKEN"] = token = secrets.token_urlsafe(24)
    address = f"http://127.0.0.1:{chosen.port}/?token={token}"

    class Page(OnePageServer):
        def launch_browser(self) -> None:
            webbrowser.open(address)

    print(f"The workbench is at {address} until Ctrl-C.", flush=True)
    options = [str(NOTEBOOK), f"--port={chosen.port}", f"--theme={'dark' if chosen.dark else 'light'}"]
    options += ["--Voila.ip=127.0.0.1", "--Voila.auto_token=True", "--strip_sources=True", *OPTIONS]
    Page.launch_instance([*options, *(["--no-browser"] if chosen.no_open else [])])
    return 0
