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
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import ptynb as pt
from tests.widgets.conftest import screenshot


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    pt.save_scan(pt.simulate(patterns=36, window=32, seed=5), tmp_path / "scan.h5")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "ptynb.cli", "dashboard", "scan.h5", f"--port={port}", "--no-open", "--dark"]
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")}
    with (tmp_path / "voila.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + 150
        while True:
            said = (tmp_path / "voila.log").read_text()
            found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", said)
            if found is not None and _answers(port):
                break
            if server.poll() is not None or time.monotonic() > until:
                pytest.fail(f"Voila did not start:\n{said}")
            time.sleep(0.2)
        yield found[0]
    finally:
        server.terminate()
        server.wait(30)


def _answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def test_the_workbench_is_a_page_without_code(address: str, page: Page, tmp_path: Path) -> None:
    with urllib.request.urlopen(address.partition("?")[0], timeout=60) as answer:
        assert "/login" in answer.url  # nobody without the word gets further
    page.goto(address, timeout=120_000)
    bench = page.locator(".ptynb-workbench").first
    bench.wait_for(timeout=90_000)
    assert page.locator(".jp-InputArea, .CodeMirror, .cm-editor").locator("visible=true").count() == 0
    expect(bench).to_contain_text("36 patterns of 32 × 32", timeout=20_000)
    bench.get_by_role("tab", name="Run", exact=True).click()
    for label, value in (("Engines", "0"), ("Epochs", "200")):
        field = bench.get_by_label(label, exact=True).locator("visible=true").first
        field.fill(value)
        field.press("Enter")
    bench.locator("button").filter(has_text="New run").locator("visible=true").first.click()
    badge = bench.locator(".ptynb-live b").first
    expect(badge).to_have_text("ready", timeout=120_000)
    expect(bench.locator(".ptynb-live")).to_contain_text("epoch 200")
    screenshot(page, "dashboard")
    bench.locator("button").filter(has_text="Save result").locator("visible=true").first.click()
    expect(bench.get_by_text("saved: simulated.result.h5")).to_be_visible(timeout=30_000)
    assert len(pt.load_result(tmp_path / "simulated.result.h5").epochs) == 200
