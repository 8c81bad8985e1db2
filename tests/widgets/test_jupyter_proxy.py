"""The dashboard behind jupyter-server-proxy, as in JupyterHub and Open OnDemand: below a prefix, at a Unix socket."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from ptynb.cli.dashboard_page.dashboard_server import serve
from ptynb.cli.jupyter_proxy import server_process
from ptynb.widgets.element_tree import Element
from tests.raising import raises
from tests.slurm.daemons import free_ports
from tests.waiting import until
from tests.widgets.conftest import screenshot

ROOT = Path(__file__).parents[2]
TOKEN = "of-the-tests"
SLOW = 120_000


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    """The address, below the prefix of a user, of a Jupyter server that has the entry points of pyproject.toml."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    packages, home = tmp_path / "packages/ptynb_points-0.dist-info", tmp_path / "home"
    packages.mkdir(parents=True)
    home.mkdir()
    (packages / "METADATA").write_text("Metadata-Version: 2.1\nName: ptynb-points\nVersion: 0\n")
    ((kind, points),) = [(kind, points) for kind, points in named.items() if kind == "jupyter_serverproxy_servers"]
    (packages / "entry_points.txt").write_text(f"[{kind}]\n" + "".join(f"{key} = {points[key]}\n" for key in points))
    (port,) = free_ports(1)
    options = [f"--port={port}", "--ServerApp.base_url=/user/me/", f"--IdentityProvider.token={TOKEN}"]
    paths = os.pathsep.join([str(ROOT), str(packages.parent)])
    variables = {"HOME": str(home), "PYTHONPATH": paths, "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}
    command = [sys.executable, "-m", "jupyter_server", "--allow-root", "--no-browser", *options]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=home, env={**os.environ, **variables}, stdout=log, stderr=log)
        try:
            address = f"http://127.0.0.1:{port}/user/me/"
            until(lambda: answers(f"{address}api"), 240, "the server answers")
            yield address
        finally:
            server.terminate()
            server.wait(30)


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address):
            return True
    except (OSError, HTTPException):
        return False


@pytest.mark.timeout(600)
def test_the_workbench_opens_below_the_prefix_of_a_hub(hub: str, browser: Browser) -> None:
    with urllib.request.urlopen(f"{hub}ptynb/") as shown:
        assert "/login" in shown.url, "who has not logged in sees nothing"
    page = browser.new_page()
    page.goto(f"{hub}ptynb/?token={TOKEN}", timeout=SLOW)
    expect(page.get_by_role("tab", name="Settings")).to_be_visible(timeout=SLOW)
    page.get_by_role("tab", name="Python").click()  # through the WebSocket, and back
    expect(page.get_by_role("tab", name="Python")).to_have_attribute("aria-selected", "true", timeout=SLOW)
    expect(page.locator("#lost")).to_be_hidden()
    screenshot(page, "jupyter_proxy")
    page.close()


def test_the_socket_is_in_a_folder_that_nobody_else_enters(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir(mode=0o755)
    with raises("file.not-private", "0700"):
        serve(Element, "ptynb", open_to_all / "socket", "It is")
    assert [*open_to_all.iterdir()] == []
    assert server_process()["unix_socket"] is True, "the proxy makes the folder"
