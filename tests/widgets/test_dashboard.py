"""`ptynb dashboard`: the workbench as a page, by Voila, in a real browser."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from jupyter_client import BlockingKernelClient
from playwright.sync_api import Locator, Page, expect

import ptynb as pt
from ptynb.cluster import runtime_dir
from tests.widgets.conftest import screenshot

SLOW = 120_000
"""Milliseconds that a machine with much else to do may take."""


@dataclass
class Dashboard:
    """A running `ptynb dashboard`, and where it was started."""

    address: str
    server: psutil.Process
    folder: Path

    def kernels(self) -> list[int]:
        """Process ids of its kernels."""
        own = self.server.children(recursive=True)
        return [one.pid for one in own if any("ipykernel" in word for word in one.cmdline())]

    def client(self) -> BlockingKernelClient:
        """A client of its kernel, which has one once the page was opened."""
        (kernel,) = map(psutil.Process, self.kernels())
        client = BlockingKernelClient()
        client.load_connection_file(next(word for word in kernel.cmdline() if word.endswith(".json")))
        client.start_channels()
        return client


@contextmanager
def started_dashboard(folder: Path, *options: str) -> Iterator[Dashboard]:
    """A dashboard in this folder, and what it leaves behind is ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "ptynb.cli.main", "dashboard", f"--port={port}", "--no-open", *options]
    environment = {**os.environ, "IPYTHONDIR": str(folder.parent / "ipython")}
    log = folder.parent / "voila.log"
    with log.open("wb") as written:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=written, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + 150
        while True:
            said = log.read_text()
            found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", said)
            if found is not None and _answers(port):
                break
            if server.poll() is not None or time.monotonic() > until:
                pytest.fail(f"Voila did not start:\n{said}")
            time.sleep(0.2)
        yield Dashboard(found[0], psutil.Process(server.pid), folder)
    finally:
        server.terminate()
        server.wait(SLOW / 1000)
        if left := [folder.name for folder in runtime_dir.all_folders()]:  # a run goes on without its page
            subprocess.run([sys.executable, "-m", "ptynb.cli.main", "stop", *left], check=True)


SLOW_OUTPUT = """\
from ipykernel.iostream import IOPubThread

send, held, waits = IOPubThread._really_send, [], []


def slowly(self, *message, **options):
    if not waits and any(b'"execute_result"' in bytes(part) for part in message[0]):
        waits.append(True)
        self.io_loop.call_later(6, release, self)
    if True in waits:
        held.append((message, options))
    else:
        send(self, *message, **options)


def release(self):
    waits[:] = [False]
    for message, options in held:
        send(self, *message, **options)


IOPubThread._really_send = slowly
"""
"""The output of the cell arrives long after the answer that it was executed, as on a machine with much else to do."""


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[Dashboard]:
    folder = tmp_path / "work"
    folder.mkdir()
    startup = tmp_path / "ipython/profile_default/startup"
    startup.mkdir(parents=True)
    (startup / "slow.py").write_text(SLOW_OUTPUT)
    pt.save_scan(pt.simulate(patterns=36, window=32, seed=5), folder / "scan.h5")
    with started_dashboard(folder, "scan.h5", "--dark") as running:
        yield running


def _answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def test_the_workbench_is_a_page_without_code(dashboard: Dashboard, page: Page) -> None:
    with urllib.request.urlopen(dashboard.address.partition("?")[0], timeout=60) as answer:
        assert "/login" in answer.url  # nobody without the word gets further
    page.route(re.compile(r"^https?://(?!127\.0\.0\.1)"), lambda _: None)  # what is elsewhere never answers
    live = _begin(page, dashboard, engines=0, epochs=200)
    bench = page.locator(".ptynb-workbench")
    assert page.locator(".jp-InputArea, .CodeMirror, .cm-editor").locator("visible=true").count() == 0
    expect(bench).to_contain_text("36 patterns of 32 × 32", timeout=SLOW)
    expect(live.locator("b").first).to_have_text("ready", timeout=SLOW)
    expect(live).to_contain_text("epoch 200")
    screenshot(page, "dashboard")
    for width, height in ((1280, 720), (1920, 1080)):  # the page is as high as the window, without a scroll bar
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(1000)
        screenshot(page, f"dashboard-{width}")
        box = live.bounding_box()
        assert box is not None
        assert height - 40 < box["y"] + box["height"] <= height
        assert page.evaluate("document.scrollingElement.scrollHeight") <= height
    bench.locator("button").filter(has_text="Result").locator("visible=true").first.click()
    bench.locator("button").filter(has_text="Save result").locator("visible=true").first.click()
    expect(bench.get_by_text("saved: simulated.result.h5")).to_be_visible(timeout=SLOW)
    assert len(pt.load_result(dashboard.folder / "simulated.result.h5").epochs) == 200


def test_a_page_that_is_loaded_again_shows_the_run_that_goes_on(dashboard: Dashboard, page: Page) -> None:
    first = page.context.new_page()
    live = _begin(first, dashboard, engines=1, epochs=1_000_000)
    expect(live.locator("b").first).to_have_text("running", timeout=SLOW)
    kernels, clusters = dashboard.kernels(), runtime_dir.known_clusters()
    assert len(kernels) == len(clusters) == 1
    seen = _epoch(live, above=1)

    first.reload(timeout=SLOW)
    seen = _epoch(live, above=seen)  # the tab is the same one too
    expect(live.locator("b").first).to_have_text("running")
    first.close()  # nobody looks for a while
    page.goto(dashboard.address, timeout=SLOW)
    live = page.locator(".ptynb-live")
    seen = _epoch(live, above=seen)
    live.locator("[data-frame]").first.wait_for(timeout=SLOW)
    screenshot(page, "dashboard-again")
    assert (dashboard.kernels(), runtime_dir.known_clusters()) == (kernels, clusters)

    live.locator("button").filter(has_text="Stop").click()
    expect(live.locator("b").first).to_have_text("ready", timeout=SLOW)
    stopped = _epoch(live, above=seen - 1)
    page.reload(timeout=SLOW)  # what has been reconstructed stays, too
    assert _epoch(live, above=0) == stopped


def _begin(page: Page, dashboard: Dashboard, engines: int, epochs: int) -> Locator:
    """Opens the page and starts a run there; its live view."""
    page.goto(dashboard.address, timeout=SLOW)
    bench = page.locator(".ptynb-workbench")
    bench.wait_for(timeout=SLOW)
    bench.get_by_role("tab", name="Run", exact=True).click()
    for label, value in (("Engines", engines), ("Epochs", epochs)):
        field = bench.get_by_label(label, exact=True).locator("visible=true").first
        field.fill(str(value))
        field.press("Enter")
    bench.locator("button").filter(has_text="New run").locator("visible=true").first.click()
    return bench.locator(".ptynb-live")


def _epoch(live: Locator, above: int) -> int:
    """The epoch that the page shows, once it is above that one."""
    until = time.monotonic() + SLOW / 1000
    while True:
        live.wait_for(timeout=SLOW)
        found = re.search(r"epoch ([\d,]+)", live.inner_text())
        epoch = int(found[1].replace(",", "")) if found else 0
        if epoch > above:
            return epoch
        if time.monotonic() > until:
            pytest.fail(f"epoch {epoch} after {SLOW // 1000} s; expected one above {above}")
        time.sleep(0.1)
