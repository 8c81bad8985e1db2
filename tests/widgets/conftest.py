"""A real JupyterLab and a real Chromium."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client import BlockingKernelClient
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

expect.set_options(timeout=20_000)  # kernels, engines and pages share two cores, with other tests beside them

CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Lab:
    """A JupyterLab that `ptynb lab` started."""

    address: str
    token: str
    folder: Path
    runtime: Path

    def request(self, path: str, method: str = "GET") -> Any:
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(f"{self.address}{path}", headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.loads(answer.read() or "null")

    def kernel_of(self, notebook: str) -> str:
        """The notebook's kernel, once it is idle."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            for session in self.request("/api/sessions"):
                if session["path"] == notebook and session["kernel"]["execution_state"] == "idle":
                    return str(session["kernel"]["id"])
            time.sleep(0.2)
        pytest.fail(f"the kernel of {notebook} did not become idle in 60 s")

    def client(self, notebook: str) -> BlockingKernelClient:
        client = BlockingKernelClient()
        client.load_connection_file(str(self.runtime / f"kernel-{self.kernel_of(notebook)}.json"))
        client.start_channels()
        return client

    def open(self, page: Page, notebook: str) -> Locator:
        """Opens a notebook on a page that shows nothing else, and returns its first cell."""
        page.goto(f"{self.address}/lab/tree/{notebook}?reset&token={self.token}")
        first = page.locator(".jp-Notebook .jp-Cell").first
        first.wait_for(timeout=60_000)
        return first

    def run(self, page: Page, notebook: str, *cells: str) -> BlockingKernelClient:
        """Writes a notebook, opens it, and runs its first cell; returns a client of its kernel."""
        written = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
        written.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(written, self.folder / notebook)
        first = self.open(page, notebook)
        client = self.client(notebook)  # a cell that is run before there is a kernel is run never
        first.click()
        page.keyboard.press("Shift+Enter")
        return client


OLDER_KERNEL = Path(sys.prefix) / "ipykernel-7.2"
"""Where tests/run.py puts the oldest kernel that is tested."""


@contextmanager
def started_lab(tmp_path: Path, kernel: str = "newest") -> Iterator[Lab]:
    """A JupyterLab with folders of its own below this one, and nothing of the user's."""
    folder, runtime = tmp_path / "work", tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    notifications = tmp_path / "settings" / "@jupyterlab" / "apputils-extension"
    notifications.mkdir(parents=True)
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    (notifications / "notification.jupyterlab-settings").write_text(json.dumps(quiet))
    token = secrets.token_hex(16)
    environment = {
        **os.environ,
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "JUPYTER_DATA_DIR": str(tmp_path / "data"),
        "JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "settings"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "JUPYTER_TOKEN": token,
    }
    if kernel != "newest":
        if not OLDER_KERNEL.is_dir():
            pytest.fail(f"There is no {OLDER_KERNEL}; tests/run.py makes it.")
        environment["PYTHONPATH"] = os.pathsep.join([str(OLDER_KERNEL), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "ptynb.cli.main", "lab", f"--folder={folder}", "--"]
    command += ["--no-browser", "--allow-root", f"--port={port}", "--ServerApp.port_retries=0"]
    with (tmp_path / "lab.log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    running = Lab(f"http://127.0.0.1:{port}", token, folder, runtime)
    try:
        until = time.monotonic() + 60
        while True:
            try:
                running.request("/api/status")
                break
            except OSError:
                if server.poll() is not None or time.monotonic() > until:
                    pytest.fail(f"JupyterLab did not start:\n{(tmp_path / 'lab.log').read_text()}")
                time.sleep(0.2)
        yield running
    finally:
        for kernel in running.request("/api/kernels"):
            running.request(f"/api/kernels/{kernel['id']}", method="DELETE")
        server.terminate()
        server.wait(30)


@pytest.fixture
def lab(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """With the newest kernel; the parameter "7.2": with that one."""
    with started_lab(tmp_path, getattr(request, "param", "newest")) as running:
        yield running


@contextmanager
def started_browser(*flags: str) -> Iterator[Browser]:
    """This system's Chromium, headless."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.fail("There is no chromium; tests/run.py installs it where it may, else install your system's package.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[*CHROMIUM_FLAGS, *flags])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with started_browser() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page whose last look is kept beside the others."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    page = context.new_page()
    yield page
    screenshot(page, "last")
    context.close()


def screenshot(page: Page, name: str) -> None:
    """Kept for a person's eye in PTYNB_TEST_ARTIFACTS."""
    folder = Path(os.environ.get("PTYNB_TEST_ARTIFACTS", "test-artifacts"))
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{name}.png")
