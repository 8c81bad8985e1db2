"""`ptynb dashboard`: the workbench as a page, served by the real command, in a real browser."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import ptynb as pt
from ptynb.cluster import runtime_dir
from tests.widgets.conftest import screenshot

SLOW = 120_000
"""Milliseconds that a machine with much else to do may take."""
SOON = 10.0
"""Seconds in which a page that was loaded again must show the run; on a quiet machine it takes less than one."""


@dataclass
class Dashboard:
    """A running `ptynb dashboard`, and where it was started."""

    address: str
    server: subprocess.Popen[bytes]
    folder: Path
    log: Path

    @property
    def root(self) -> str:
        """The address without the token."""
        return self.address.partition("?")[0]

    @property
    def port(self) -> int:
        return urlsplit(self.address).port or 0

    @property
    def token(self) -> str:
        return self.address.partition("token=")[2]


@pytest.fixture(scope="module", autouse=True)
def _own_runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Without clusters of other tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        yield


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def stop_clusters() -> None:
    """A run goes on without its page."""
    if left := [folder.name for folder in runtime_dir.all_folders()]:
        subprocess.run([sys.executable, "-m", "ptynb.cli.main", "stop", *left], check=True)


@contextmanager
def started_dashboard(folder: Path, *options: str, port: int = 0) -> Iterator[Dashboard]:
    """A dashboard in this folder, and what it leaves behind is ended."""
    command = [sys.executable, "-m", "ptynb.cli.main", "dashboard", f"--port={port or free_port()}", "--no-open"]
    log = folder.parent / "dashboard.log"
    with log.open("wb") as written:
        server = subprocess.Popen(
            [*command, *options], cwd=folder, stdout=written, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield Dashboard(printed_address(log, server), server, folder, log)
    finally:
        server.kill()
        server.wait(SLOW / 1000)
        stop_clusters()


def printed_address(log: Path, server: subprocess.Popen[bytes] | None = None) -> str:
    """The address that a command has printed, which is waited for."""
    until = time.monotonic() + SLOW / 1000
    while not (found := re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", log.read_text())):
        if time.monotonic() > until or (server is not None and server.poll() is not None):
            pytest.fail(f"the dashboard did not start:\n{log.read_text()}")
        time.sleep(0.1)
    return found[0]


def folder_with_scan(place: Path) -> Path:
    (folder := place / "work").mkdir()
    pt.save_scan(pt.simulate(patterns=36, window=32, seed=5), folder / "scan.h5")
    return folder


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """The one that most tests share, for it takes seconds to start."""
    with started_dashboard(folder_with_scan(tmp_path_factory.mktemp("shared")), "scan.h5", "--dark") as running:
        yield running


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Dashboard]:
    """One that a test may end."""
    with started_dashboard(folder_with_scan(tmp_path), "scan.h5") as running:
        yield running


def status_of(address: str) -> int:
    try:
        with urllib.request.urlopen(address, timeout=SLOW / 1000) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_only_a_browser_with_the_token_gets_the_page(dashboard: Dashboard, page: Page) -> None:
    assert status_of(dashboard.root) == status_of(f"{dashboard.root}?token=wrong") == 403
    page.goto(dashboard.address, timeout=SLOW)
    assert page.url == dashboard.root  # the token is not in the address of a page that is shared or shown on a screen
    (cookie,) = page.context.cookies()
    assert (cookie["value"], cookie["httpOnly"], cookie["sameSite"]) == (dashboard.token, True, "Lax")
    page.goto(dashboard.root, timeout=SLOW)
    page.locator(".ptynb-workbench").wait_for(timeout=SLOW)


@pytest.mark.parametrize(
    ("knows", "origin", "status"),
    [(True, "", 101), (False, "", 403), (True, "http://elsewhere.example", 403), (True, "http://127.0.0.1:1", 403)],
    ids=["own page", "no cookie", "another site", "another port"],
)
def test_messages_are_for_pages_of_the_dashboard(dashboard: Dashboard, knows: bool, origin: str, status: int) -> None:
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Origin": origin or dashboard.root.rstrip("/"),
    }
    if knows:
        headers["Cookie"] = f"ptynb-dashboard-{dashboard.port}={dashboard.token}"
    with closing(HTTPConnection("127.0.0.1", dashboard.port, timeout=SLOW / 1000)) as connection:
        connection.request("GET", "/messages", headers=headers)
        with closing(connection.getresponse()) as answer:
            assert answer.status == status


def test_the_workbench_is_a_page_without_code(dashboard: Dashboard, page: Page) -> None:
    requests, refused = list[str](), list[str]()
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda said: refused.append(said.text) if said.type == "error" else None)
    live = begin(page, dashboard, engines=0, epochs=200)
    answer = page.request.get(dashboard.root)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'self' 'nonce-" in policy
    assert policy != page.request.get(dashboard.root).headers["content-security-policy"]  # each answer has its nonce
    page.evaluate("fetch('http://localhost:9/').catch(() => 0)")  # what the policy refuses is noticed by this test
    page.wait_for_timeout(100)
    assert any("Content Security Policy" in text for text in refused)
    assert not [text for text in refused if "Content Security Policy" in text and "localhost:9" not in text]
    requests = [url for url in requests if "localhost:9" not in url]
    assert {urlsplit(url).netloc for url in requests if not url.startswith(("data:", "blob:"))} == {
        f"127.0.0.1:{dashboard.port}"
    }
    bench = page.locator(".ptynb-workbench")
    assert page.locator("[class*='jp-'], [class*='cm-'], .widget-html").count() == 0  # nothing of a notebook
    assert page.title() == "simulated - ptynb"
    expect(bench).to_contain_text("36 patterns of 32 × 32", timeout=SLOW)
    expect(live.locator("b").first).to_have_text("ready", timeout=SLOW)
    expect(live).to_contain_text("epoch 200")
    screenshot(page, "dashboard")
    for width, height in ((1280, 720), (1920, 1080)):  # the page is as high as the window, without a scroll bar
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(500)
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
    live = begin(first, dashboard, engines=1, epochs=1_000_000)
    expect(live.locator("b").first).to_have_text("running", timeout=SLOW)
    clusters = runtime_dir.known_clusters()
    assert len(clusters) == 1
    seen = _epoch(live, above=1)

    began = time.monotonic()
    first.reload(timeout=SLOW)
    expect(live.locator("b").first).to_have_text("running", timeout=SLOW)  # the tab is the same one too
    live.locator("[data-frame]").first.wait_for(timeout=SLOW)
    took = time.monotonic() - began
    print(f"loaded again in mid-run: state and picture after {took:.2f} s")
    assert took < SOON
    seen = _epoch(live, above=seen)
    first.close()  # nobody looks for a while
    page.goto(dashboard.address, timeout=SLOW)
    live = page.locator(".ptynb-live")
    seen = _epoch(live, above=seen)
    live.locator("[data-frame]").first.wait_for(timeout=SLOW)
    screenshot(page, "dashboard-again")
    assert runtime_dir.known_clusters() == clusters

    live.locator("button").filter(has_text="Stop").click()
    expect(live.locator("b").first).to_have_text("ready", timeout=SLOW)
    stopped = _epoch(live, above=seen - 1)
    page.reload(timeout=SLOW)  # what has been reconstructed stays, too
    assert _epoch(live, above=0) == stopped


def test_two_browsers_show_the_same_and_the_edits_of_each_other(
    dashboard: Dashboard, page: Page, browser: Browser
) -> None:
    context = browser.new_context()
    try:
        other = context.new_page()
        for shown in (page, other):
            shown.goto(dashboard.address, timeout=SLOW)
        page.get_by_role("tab", name="Settings", exact=True).click()
        expect(other.get_by_role("tab", name="Settings", exact=True)).to_have_attribute("aria-selected", "true")
        for edits, follows, value in ((page, other, "12"), (other, page, "9")):
            field = _field(edits, "Batch")
            field.fill(value)
            field.press("Enter")
            expect(_field(follows, "Batch")).to_have_value(value)
        expect(_field(other, "Batch")).to_have_value("9")
    finally:
        context.close()


def test_a_process_that_hangs_is_told_on_the_page_until_it_goes_on(dashboard: Dashboard, page: Page) -> None:
    page.goto(dashboard.address, timeout=SLOW)
    lost = page.get_by_text("The connection to ptynb is lost")
    page.get_by_role("tab", name="Settings", exact=True).click()
    batch = _field(page, "Batch")
    expect(lost).to_be_hidden()
    dashboard.server.send_signal(signal.SIGSTOP)
    try:
        expect(lost).to_be_visible(timeout=SLOW)
        batch.fill("7")
        batch.press("Enter")
        screenshot(page, "dashboard-lost")
    finally:
        dashboard.server.send_signal(signal.SIGCONT)
    expect(lost).to_be_hidden(timeout=SLOW)
    page.reload(timeout=SLOW)
    expect(_field(page, "Batch")).to_have_value("7", timeout=SLOW)  # what was done meanwhile has arrived


def test_a_command_that_was_killed_is_told_and_the_page_shows_the_next_one(own: Dashboard, page: Page) -> None:
    page.goto(own.address, timeout=SLOW)
    page.get_by_role("tab", name="Settings", exact=True).click()
    lost = page.get_by_text("The connection to ptynb is lost")
    expect(_field(page, "Batch")).to_be_visible()
    own.server.kill()
    expect(lost).to_be_visible(timeout=SLOW)
    expect(_field(page, "Batch")).to_be_visible()  # the page is not emptied
    own.server.wait()
    with started_dashboard(own.folder, port=own.port) as following:
        page.context.new_page().goto(following.address, timeout=SLOW)  # as the command would; its token is another one
        expect(page.get_by_text("no scan", exact=False).or_(page.get_by_label("File", exact=True)).first).to_be_visible(
            timeout=SLOW
        )
        expect(lost).to_be_hidden()


def test_ctrl_c_ends_the_command_and_not_the_run_of_a_cluster(own: Dashboard, page: Page) -> None:
    live = begin(page, own, engines=1, epochs=1_000_000)
    expect(live.locator("b").first).to_have_text("running", timeout=SLOW)
    seen = _epoch(live, above=1)
    (cluster,) = runtime_dir.known_clusters()
    os.killpg(own.server.pid, signal.SIGINT)  # as a terminal does
    assert own.server.wait(SLOW / 1000) == 0
    assert "Traceback" not in own.log.read_text()
    recon = pt.attach(cluster.name)
    try:
        assert recon.state == "running"
        until = time.monotonic() + SLOW / 1000
        while recon.epoch <= seen:
            assert time.monotonic() < until
            time.sleep(0.1)
    finally:
        recon.close()
        recon.cluster.stop()


def test_a_port_that_is_taken_is_told_in_one_sentence(dashboard: Dashboard) -> None:
    command = [sys.executable, "-m", "ptynb.cli.main", "dashboard", f"--port={dashboard.port}", "--no-open"]
    environment = {**os.environ, "COLUMNS": "200"}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SLOW / 1000, env=environment)
    assert (ended.returncode, ended.stdout) == (64, "")
    assert ended.stderr == (
        f"ptynb: Port {dashboard.port} cannot be used (Address already in use); choose another one with --port.\n"
    )


def begin(page: Page, dashboard: Dashboard, engines: int, epochs: int) -> Locator:
    """Opens the page and starts a run there; its live view."""
    page.goto(dashboard.address, timeout=SLOW)
    bench = page.locator(".ptynb-workbench")
    bench.wait_for(timeout=SLOW)
    bench.get_by_role("tab", name="Run", exact=True).click()
    for label, value in (("Engines", engines), ("Epochs", epochs)):
        field = _field(page, label)
        field.fill(str(value))
        field.press("Enter")
    bench.locator("button").filter(has_text="New run").locator("visible=true").first.click()
    return bench.locator(".ptynb-live")


def _field(page: Page, label: str) -> Locator:
    return page.get_by_label(label, exact=True).locator("visible=true").first


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
