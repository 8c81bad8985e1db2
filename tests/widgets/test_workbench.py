"""Whole sessions at the workbench, in JupyterLab and on the dashboard, checked on the screen and on the engines.

Light and dark, in a small and a large window. `PTYNB_TEST_ARTIFACTS` names a folder that keeps a picture of each stage.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from jupyter_client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel
from playwright.sync_api import Browser, Locator, TimeoutError, expect

import ptynb as pt
from ptynb.acquisition.emulators.playback import Recording
from tests.acquisition.emulated import emulator, recorded
from tests.io import layouts
from tests.io.test_near_field import FOCUS, shadows
from tests.widgets.conftest import Lab, screenshot
from tests.widgets.test_dashboard import SLOW, free_port, printed_address
from tests.widgets.test_lab import ask, wait_until
from tests.widgets.test_report_page import Opened
from tests.widgets.user import User

NOTEBOOK = "bench.ipynb"
CLEAN = "bench.recon and bench.recon.close(); cluster = bench.cluster; bench.close(); cluster and cluster.stop()"
OPEN = "import ptynb as pt\nbench = pt.workbench()\nbench"
SERVE = """
import sys, threading
import ptynb as pt
from ptynb.app import workbench_app
from ptynb.cli.main import main

class Workbench(workbench_app.Workbench):
    def __init__(self, *given, **options):
        global bench
        super().__init__(*given, **options)
        bench = self

workbench_app.Workbench = Workbench
sys.stdout = sys.stderr = open({log!r}, "w", buffering=1)
threading.Thread(target=main, args=(["dashboard", *{options!r}],), daemon=True).start()
"""
"""The command, in a thread of a kernel that can be asked for its workbench."""
SMALL, LARGE = (1280, 720), (1920, 1080)
NO_LAB = ".ptynb-workbench"
TOO_WIDE = """
() => [document.querySelector(".ptynb-workbench"), document.scrollingElement].map(
  ({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)
"""
OUT_OF_SIGHT = """
() => {
  const window = { top: 0, left: 0, bottom: innerHeight, right: innerWidth };
  const box = document.querySelector(".jp-WindowedPanel-outer")?.getBoundingClientRect() ?? window;
  const parts = {
    "state": [".ptynb-live-head b", 1, 10], "object": [".ptynb-main .ptynb-pane-stage", 2, 140],
    "probe": [".ptynb-aside .ptynb-pane-stage", 1, 90], "loss curve": [".ptynb-curve svg", 1, 120],
    "buttons": [".ptynb-split-controls button", 2, 20], "drawer": [".ptynb-live > .ptynb-drawer button", 6, 20],
  };
  return Object.entries(parts).flatMap(([name, [selector, least, size]]) => {
    const seen = [...document.querySelectorAll(selector)].map((part) => part.getBoundingClientRect()).filter(
      ({ top, left, bottom, right, height }) =>
        height >= size && top >= box.top - 1 && left >= box.left && bottom <= box.bottom + 1 && right <= box.right);
    return seen.length >= least ? [] : [`${name}: ${seen.length}`];
  });
}
"""


CUT_NUMBERS = """
() => [...document.querySelectorAll(".ptynb-workbench input[type=number]")].filter(
  (field) => field.clientWidth && field.scrollWidth > field.clientWidth).map((field) => field.value)
"""
SLOW_PAGE = """
(() => {
  const later = window.setTimeout;
  const looks = () => new Error().stack.includes("get_model");
  window.setTimeout = (act, ms, ...rest) => later(act, ms === 100 && looks() ? 2200 : ms, ...rest);
  const timeout = AbortSignal.timeout.bind(AbortSignal);
  AbortSignal.timeout = (ms) => timeout(ms === 2000 ? 0 : ms);
})();
"""
"""The 2 s that JupyterLab (looking for a model) and anywidget (loading a module) give a page are always over."""
LEAST_SHARE = 0.55
"""Of the window's height for the pictures of the inspector."""


class Session:
    """A page with a workbench, and the kernel behind it. wrong: what was found at its stages."""

    def __init__(self, name: str, browser: Browser, size: tuple[int, int], folder: Path) -> None:
        width, height = size
        self.name, self.size, self.folder, self.browser = f"workbench-{name}", size, folder, browser
        self.page = browser.new_context(viewport={"width": width, "height": height}).new_page()
        self.bench = self.page.locator(NO_LAB).first
        self.kernel: BlockingKernelClient
        self.wrong: list[str] = []
        self.reopen: Any = None
        pt.save_scan(pt.simulate(patterns=100, window=48, seed=3), folder / "scan.h5")
        layouts.cxidb(folder / "shadows.cxi", shadows(FOCUS))

    def tab(self, name: str) -> None:
        self.bench.get_by_role("tab", name=name, exact=True).click()

    def click(self, name: str) -> None:
        self.button(name).click()

    def button(self, name: str) -> Locator:
        """By its text alone, with an icon before it; a tab can have the same text."""
        buttons = self.bench.locator("button:not([role=tab])").filter(
            has_text=re.compile(rf"^\s*{re.escape(name)}\s*$")
        )
        return buttons.locator("visible=true").first

    def field(self, label: str) -> Locator:
        return self.bench.get_by_label(label, exact=True).locator("visible=true").first

    def enter(self, label: str, value: str) -> None:
        field = self.field(label)
        field.fill(value)
        field.press("Enter")

    def ask(self, expression: str) -> Any:
        return ask(self.kernel, expression)

    def wait(self, expression: str, seconds: float = 60) -> None:
        wait_until(self.kernel, f"bool({expression})", seconds)

    def in_sight(self) -> list[str]:
        """What of a run is not wholly in the window when the workbench is scrolled to, or is too small to be read."""
        self.bench.evaluate("bench => bench.scrollIntoView({block: 'start'})")
        until = time.monotonic() + 5  # the layout follows the pictures that arrive
        while (out := list(self.page.evaluate(OUT_OF_SIGHT))) and time.monotonic() < until:
            self.page.wait_for_timeout(500)
        return out

    def look(self, part: str) -> None:
        """A picture for a person's eye, and what a screen reader would miss."""
        screenshot(self.page, f"{self.name}-{part}")
        found = Axe().run(self.page, context=NO_LAB)
        for one in found.response["violations"]:
            self.wrong.append(f"{part}: {one['id']} {[node['html'][:200] for node in one['nodes']][:3]}")
        if max(self.page.evaluate(TOO_WIDE)) > 1:
            self.wrong.append(f"{part} is wider than its place")
        for number in self.page.evaluate(CUT_NUMBERS):
            self.wrong.append(f"{part}: the number {number} is cut off by its field")

    def drag(self, stage: Locator, start: tuple[float, float], stop: tuple[float, float]) -> None:
        User(self.page, (0, 0)).drag(stage, start, stop)


@contextmanager
def served(session: Session, *options: str) -> Iterator[None]:
    """A dashboard in the session's folder, and the page of the session on it."""
    log = session.folder.parent / "dashboard.log"
    log.touch()
    manager, session.kernel = start_new_kernel(cwd=str(session.folder))
    try:
        given = [f"--port={free_port()}", "--no-open", *options]
        session.kernel.execute(SERVE.format(log=str(log), options=given), reply=True, timeout=60)
        session.page.goto(printed_address(log), timeout=SLOW)
        session.bench.wait_for(timeout=SLOW)
        with ended(session):
            yield
    finally:
        manager.shutdown_kernel()


@contextmanager
def ended(session: Session) -> Iterator[None]:
    """A last look, and the end of kernel and page."""
    try:
        yield
    finally:
        screenshot(session.page, f"{session.name}-last")
        print(*session.wrong, sep="\n")  # also of a session that failed
        session.kernel.execute(CLEAN, reply=True, timeout=60)
        session.kernel.stop_channels()
        session.page.context.close()


@pytest.mark.timeout(600)  # half an hour of a physicist's work, and a cluster
@pytest.mark.parametrize("lab", ["newest", "7.2"], indirect=True)
def test_a_session_in_jupyterlab(lab: Lab, browser: Browser, request: pytest.FixtureRequest) -> None:
    """In a small light window with the newest kernel on a slow page; in a large dark one with the oldest."""
    kernel = request.node.callspec.params["lab"]
    session = Session(kernel, browser, SMALL if kernel == "newest" else LARGE, lab.folder)
    if kernel == "newest":
        session.page.add_init_script(SLOW_PAGE)
    if kernel == "7.2":
        themes = lab.runtime.parent / "settings" / "@jupyterlab" / "apputils-extension"
        (themes / "themes.jupyterlab-settings").write_text('{"theme": "JupyterLab Dark"}')
    session.reopen = lambda: lab.open(session.page, NOTEBOOK)
    session.kernel = lab.run(session.page, NOTEBOOK, OPEN)
    with ended(session):
        session.bench.wait_for(timeout=60_000)
        assert session.ask("__import__('ipykernel').__version__").startswith("7.2" if kernel == "7.2" else "")
        refuse(session)
        open_near_field(session)
        for stage in (choose_a_file, mask, set_up, reconstruct, measure, diagnose, busy, go_back):
            stage(session)
        leave_and_come_back(session)
        for stage in (compare_two, compare_epochs, tune, keep, read_the_lines):
            stage(session)
        assert session.wrong == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_a_session_on_the_dashboard(theme: str, browser: Browser, tmp_path: Path) -> None:
    """In a small dark window, and in a large light one."""
    (folder := tmp_path / "work").mkdir()
    session = Session(f"dashboard-{theme}", browser, SMALL if theme == "dark" else LARGE, folder)
    with served(session, *(["--dark"] if theme == "dark" else [])):
        first = (choose_a_file, take_a_preset, reconstruct, measure, diagnose)
        for stage in (*first, go_back, run_again, compare_two, keep):
            stage(session)
        assert session.wrong == []


@pytest.mark.timeout(300)
def test_a_live_source_on_the_dashboard(browser: Browser, tmp_path: Path) -> None:
    """Listened to in a small light window: errors at their fields, a wait that is cancelled, a scan that comes."""
    (folder := tmp_path / "work").mkdir()
    session = Session("live", browser, SMALL, folder)
    path = recorded(folder, patterns=400, window=48)
    np.save(folder / "planned.npy", Recording(pt.load(path)).positions)
    with served(session):
        session.bench.get_by_role("radio", name="File").press("ArrowRight")
        expect(session.bench.get_by_role("radio", name="Live source")).to_be_focused()
        expect(session.field("Source")).to_be_visible()
        expect(session.button("Stop listening")).to_have_count(0)
        session.field("Positions").select_option("from an address")
        session.enter("Address", "stream2://here")
        session.enter("Source", "stream2://127.0.0.1:9")
        session.click("Listen")
        alert = session.bench.get_by_role("alert").locator("visible=true")
        expect(alert).to_contain_text("panda://")
        session.look("error")
        session.field("Positions").select_option("planned")
        session.enter("Planned positions", "planned.npy")
        session.enter("Folder", "night")
        expect(session.bench.locator("code").filter(has_text="scan = pt.listen(")).to_be_visible()
        session.click("Listen")
        expect(session.bench.get_by_text("waiting for the scan to begin, 0:0")).to_be_visible()
        session.look("waiting")
        session.click("Cancel")
        expect(session.bench.get_by_text("Cancelled; nothing was received.")).to_be_visible()
        assert not (folder / "night").exists()
        with emulator(path, "--as", "stream2", "--rate", 4) as emulated:
            session.enter("Source", emulated.source)
            session.click("Listen")
            expect(session.bench.locator(".ptynb-inspect").get_by_role("progressbar")).to_be_visible()
            expect(session.bench.locator(".ptynb-inspect")).to_contain_text("need all patterns")
            expect(session.button("Open received scan")).to_be_disabled()
            stage = session.bench.locator(".ptynb-inspect .ptynb-pane-stage").locator("visible=true").first
            expect(stage).to_be_in_viewport(ratio=1)
            session.look("receiving")
            session.click("Stop listening")
            expect(session.bench.get_by_text("patterns came; those that come later")).to_be_visible()
            session.look("asked")
            session.click("End the scan")
            expect(session.button("Open received scan")).to_be_enabled()
        session.look("stopped")
        session.click("Open received scan")
        session.wait("bench.scan.acquisition is None")
        session.look("opened")
        assert session.wrong == []


def refuse(session: Session) -> None:
    session.field("File").fill("nowhere.h5")
    session.click("Load")
    expect(session.bench.get_by_role("alert").first).to_contain_text("nowhere.h5")


def choose_a_file(session: Session) -> None:
    """From the list; what it contains is shown; a click on the map, and the pattern by number."""
    if not session.bench.get_by_role("button", name="scan.h5").is_visible():
        session.click("Choose file")
    session.look("files")
    session.bench.get_by_role("button", name="scan.h5").click()
    expect(session.bench.get_by_role("cell", name="100 of 48 × 48")).to_be_visible(timeout=20_000)
    session.look("file")
    session.click("Load")
    session.wait("bench.scan is not None and len(bench.scan) == 100")
    expect(session.bench.locator(".ptynb-inspect")).to_contain_text("100 patterns of 48 × 48")
    expect(session.bench.get_by_role("alert").locator("visible=true")).to_have_count(0)
    pattern = session.field("Pattern")
    expect(pattern).to_have_value("0")
    stage = session.bench.locator(".ptynb-inspect [data-frame] .ptynb-pane-stage").locator("visible=true").first
    box = stage.bounding_box()
    assert box is not None
    stage.click(position={"x": 0.55 * box["width"], "y": 0.7 * box["height"]})  # the map is in its middle
    expect(pattern).not_to_have_value("0")
    session.enter("Pattern", "17")
    session.look("scan")
    if session.name.startswith("workbench-dashboard"):
        session.page.evaluate("window.scrollTo(0, 0)")
        height = session.size[1]
        for stage in session.bench.locator(".ptynb-inspect .ptynb-pane-stage").locator("visible=true").all()[:2]:
            box = stage.bounding_box()
            assert box is not None
            assert box["height"] > LEAST_SHARE * height
            assert box["y"] + box["height"] < height


def mask(session: Session) -> None:
    session.tab("Mask")
    session.enter("y", "1")
    session.enter("x", "1")
    session.enter("Disc radius [pixels]", "2")
    session.click("Mask disc")
    session.click("Use mask")
    session.wait("bench.scan.mask is not None and 0 < (~bench.scan.mask).sum() < 30")
    session.look("mask")


def open_near_field(session: Session) -> None:
    """A file whose shadows look like those of the near field: three clicks, and the distance is there to be edited."""
    session.enter("File", "")
    session.wait("bench.scan_tab.path == ''")  # a busy page sends it after the click that follows
    session.bench.get_by_role("button", name="shadows.cxi").click()
    near = session.bench.locator("button").filter(has_text="Use near field, focus to sample about 10")
    near.wait_for()
    session.look("shadows")
    near.click()
    expect(session.field("Geometry").locator("option:checked")).to_have_text("near field")
    expect(session.field("Focus to sample")).not_to_have_value("")  # the kernel sends the fields one after the other
    session.enter("Focus to sample", "10")
    expect(session.bench.get_by_text("100, beam from a focus")).to_be_visible()
    session.look("near-field")
    session.click("Load")
    session.wait("bench.scan is not None and bench.scan.geometry.magnification > 99")
    expect(session.bench.locator(".ptynb-files")).to_be_hidden()


def set_up(session: Session) -> None:
    """A value that can't be, told at its field; then others, the memory they take, and a preview of the start."""
    session.tab("Settings")
    batch = session.field("Batch")
    session.enter("Batch", "0")
    expect(session.bench.locator(".ptynb-problem, [role=alert]").locator("visible=true").first).to_be_visible()
    assert session.ask("bench.settings.batch") != 0
    session.enter("Batch", "20")
    session.wait("bench.settings.batch == 20")
    expect(batch).to_have_value("20")
    preset = session.field("Preset")
    expect(preset.locator("option:checked")).to_have_text("defaults, changed")
    preset.select_option(label="thin X-ray")
    session.wait("bench.settings == pt.preset('thin X-ray', bench.scan)")
    expect(session.bench.get_by_text("three contain nearly all power").locator("visible=true").first).to_be_visible()
    session.enter("Probe modes", "4")
    expect(preset.locator("option:checked")).to_have_text("thin X-ray, changed")
    positions = session.field("Positions")
    positions.press("Space")
    session.wait("bench.settings.positions.learning_rate == 0.1")
    session.bench.locator("button[title='Object: all settings']").locator("visible=true").first.press("Enter")
    expect(session.field("Object margin")).to_be_visible()
    session.look("groups")
    positions.press("Space")
    session.wait("bench.settings.positions.learning_rate == 0")
    expect(session.bench.get_by_label("Position learning rate").locator("visible=true")).to_have_count(0)
    preset.select_option(label="defaults")
    session.wait("bench.settings == pt.Settings()")
    session.enter("Batch", "20")
    session.wait("bench.settings == pt.Settings(batch=20)")
    session.click("Preview")
    expect(session.bench.locator("canvas").locator("visible=true").first).to_be_visible(timeout=20_000)
    session.look("settings")


def take_a_preset(session: Session) -> None:
    session.tab("Settings")
    session.field("Preset").select_option(label="thin X-ray")
    session.wait("bench.settings == pt.preset('thin X-ray', bench.scan)")
    session.look("preset")


def reconstruct(session: Session) -> None:
    """Two engines; pictures, curve and state in sight; a rate changed, the probe frozen, a pattern looked at."""
    session.tab("Run")
    session.enter("Engines", "2")
    session.field("Device").select_option("cpu")
    session.enter("Epochs", "100000")
    session.click("New run")
    session.wait("bench.recon is not None and bench.recon.epoch > 3", 120)
    assert session.ask("len(bench.cluster)") == 2
    assert session.ask("(bench.recon.scan.mask is None) == (bench.scan.mask is None)")
    view = session.bench.locator(".ptynb-live")
    expect(view.locator("b").first).to_have_text("running", timeout=20_000)
    view.locator("[data-frame] .ptynb-pane-stage").first.wait_for(timeout=20_000)
    session.look("running")
    assert session.in_sight() == [], "not in sight without scrolling"
    session.enter("Probe learning rate", "0.004")
    session.wait("[0 < s.rates['probe'] <= 0.004 for s in bench.recon.status()] == [True, True]")
    freeze = session.field("Freeze probe")
    freeze.click()  # the answer about the rate before may come at the same time
    expect(freeze).to_be_checked()
    session.wait("not any('probe' in s.rates for s in bench.recon.status())")
    stage = view.locator(".ptynb-pane-stage").locator("visible=true").first
    stage.scroll_into_view_if_needed()
    stage.click()
    expect(view).to_contain_text("counts measured", timeout=20_000)
    session.look("pattern")
    session.click("Errors")
    expect(view.get_by_text("R-factor of each pattern")).to_be_visible()
    expect(session.button("Map the standard error")).to_be_in_viewport()  # beside the map, not below it
    session.look("errors")
    session.click("Changes")
    expect(view).to_contain_text("0.004 → 0")
    session.click("Changes")


def measure(session: Session) -> None:
    """A length, and the values along a line, while it runs."""
    pictures = session.bench.locator(".ptynb-main")
    for tool, said in (("Ruler", "Length"), ("Line profile", "Profile, length")):
        pictures.get_by_role("button", name=tool).click()
        session.drag(pictures.locator(".ptynb-pane-stage").first, (0.35, 0.4), (0.65, 0.55))
        expect(pictures.locator(".ptynb-measure-text").first).to_contain_text(said)
        expect(pictures.locator(".ptynb-measure-text").first).to_contain_text(re.compile(r"\d (nm|µm)"))
        session.look(tool.lower().replace(" ", "-"))
    pictures.get_by_role("button", name="Line profile").click()
    pictures.get_by_role("button", name="Remove the measurement").click()


def diagnose(session: Session) -> None:
    """Known faults are looked for while it runs, and what was found is said."""
    session.click("Diagnosis")
    session.click("Diagnose")
    said = re.compile(r"Epoch \d+: \S+ of \d+ known faults (was|were) found")
    expect(session.bench.locator(".ptynb-live")).to_contain_text(said, timeout=SLOW)
    session.look("diagnosis")
    session.click("Diagnosis")


def busy(session: Session) -> None:
    """A long cell does not hold the engines, and a click meanwhile comes through after it."""
    session.page.evaluate("window.scrollTo(0, 0)")
    before = session.ask("bench.recon.epoch")
    message = session.kernel.execute("import time; time.sleep(4); reached = bench.recon.epoch")
    session.click("Pause")
    session.kernel.get_shell_msg(timeout=60)
    assert message
    assert session.ask("reached") > before
    session.wait("bench.recon.state == 'paused'", 20)
    session.click("Resume")


def go_back(session: Session) -> None:
    """Paused; a checkpoint; some epochs later back to it, and a branch from there."""
    session.click("Pause")
    expect(session.bench.locator(".ptynb-live b").first).to_have_text("paused", timeout=20_000)
    session.click("Checkpoints")
    latest = session.ask("str(bench.recon.latest_checkpoint)")  # a slow run has written some of its own
    session.click("Save now")
    session.wait(f"str(bench.recon.latest_checkpoint) != {latest!r}")
    session.click("Resume")
    kept = session.ask("bench.recon.checkpoints[-1].epoch")
    session.wait(f"bench.recon.epoch > {kept + 5}")
    states = session.bench.locator(".ptynb-history select").locator("visible=true").first
    states.locator("option").nth(1).wait_for(state="attached")
    states.select_option(index=states.locator("option").count() - 1)
    session.click("Restore")
    session.wait(f"bench.recon.state == 'ready' and bench.recon.epoch == {kept}")
    session.look("went-back")
    session.click("Result")
    session.click("Add to comparison")
    session.wait(f"list(bench.session.results) == ['epoch {kept}']")
    session.enter("Branch name", "slow")
    session.click("Branch")
    session.wait("bench.recon.branch_name == 'slow'")
    session.look("branch")


def run_again(session: Session) -> None:
    """Some epochs on the branch."""
    reached = session.ask("bench.recon.epoch")
    session.enter("More epochs", "1000000")
    session.look("epochs")
    session.enter("More epochs", "5")
    start(session)
    session.wait(f"bench.recon.state == 'ready' and bench.recon.epoch == {reached + 5}")
    expect(session.bench.locator(".ptynb-live b").first).to_have_text("ready", timeout=20_000)
    session.click("Add to comparison")
    session.wait("len(bench.session.results) == 2")


def start(session: Session) -> None:
    live = session.bench.locator(".ptynb-live")
    live.locator("button").filter(has_text=re.compile(r"^\s*Start\s*$")).click()


def come_back(session: Session, times: int = 3) -> None:
    """As a user does: JupyterLab gives a kernel 4 s to tell of all widgets, and on a busy machine wants a reload."""
    for last in (*[False] * (times - 1), True):
        session.reopen()
        session.bench = session.page.locator(NO_LAB).first
        try:
            session.bench.wait_for(timeout=30_000)
        except TimeoutError:
            if last:
                raise
        else:
            return


def leave_and_come_back(session: Session) -> None:
    """The page is closed while it runs, and opened again."""
    session.enter("More epochs", "100000")
    start(session)
    session.wait("bench.recon.state == 'running'")
    session.page.keyboard.press("Control+s")
    time.sleep(1.0)
    session.page.goto("about:blank")
    before = session.ask("bench.recon.epoch")
    session.wait(f"bench.recon.epoch > {before + 5}")
    come_back(session)
    session.tab("Run")
    expect(session.bench.locator(".ptynb-live b").first).to_have_text("running", timeout=30_000)
    session.page.wait_for_function(
        "() => [...document.querySelectorAll('.ptynb-live canvas')].some((canvas) => canvas.offsetWidth > 50)"
    )
    session.look("came-back")
    session.click("Stop")
    session.wait("bench.recon.state == 'ready'")
    session.click("Add to comparison")
    session.wait("len(bench.session.results) == 2")


def compare_two(session: Session) -> None:
    session.tab("Compare")
    session.field("Results").select_option(index=[0, 1])
    session.click("Compare")
    view = session.bench.locator(".ptynb-compare")
    expect(view).to_contain_text("FRC", timeout=60_000)
    session.field("Slider").select_option(index=1)
    expect(view.locator("input[type=range]").locator("visible=true").first).to_be_visible()
    session.look("compare")


def compare_epochs(session: Session) -> None:
    """A checkpoint and the current state, selected by mouse and by keys, in the tab Compare."""
    session.tab("Run")
    states = session.bench.locator(".ptynb-history select").locator("visible=true").first
    selected = session.bench.locator(".ptynb-history-selected")
    states.locator("option").nth(1).click()
    expect(session.button("Compare")).to_be_disabled()
    expect(session.button("Restore")).to_be_enabled()
    states.locator("option").nth(0).click(modifiers=["Control"])
    expect(selected).to_contain_text(re.compile(r"Selected: current state, epoch [\d +]+ \(\S+\)\. Restore and Branch"))
    expect(session.button("Restore")).to_be_disabled()
    expect(session.button("Compare")).to_be_enabled()
    states.locator("option").nth(1).click()
    expect(session.button("Compare")).to_be_disabled()
    states.press("Home")
    states.press("Shift+ArrowDown")
    expect(selected).to_contain_text("Selected: current state, epoch")
    session.look("history")
    session.click("Compare")
    view = session.bench.locator(".ptynb-compare").locator("visible=true")
    expect(view).to_contain_text("FRC", timeout=60_000)
    session.field("Flicker").select_option(index=1)
    view.get_by_label("Colour maps and contrast").click()
    view.get_by_label("Figure for a paper (PDF").click()
    view.get_by_label("Colour map of", exact=False).locator("visible=true").first.select_option("cividis")
    view.get_by_role("button", name="Make a figure").click()
    expect(view.locator(".ptynb-figure-said")).to_contain_text("written: ", timeout=60_000)
    expect(view.locator("input[type=range]")).not_to_be_visible()
    session.look("epochs")
    session.tab("Run")
    if not session.field("Film file").count():
        session.click("Result")
    session.field("of").select_option("thumbnails")
    session.enter("Film file", "run.gif")
    session.click("Film")
    expect(session.bench.get_by_text(re.compile("written: .*run.gif"))).to_be_visible(timeout=60_000)
    session.look("film")


def tune(session: Session) -> None:
    session.tab("Tune")
    session.bench.get_by_text("Settings and ranges").click()
    tick = session.field("Tune Batch")
    tick.press("Space")
    expect(session.bench.get_by_label("highest").locator("visible=true")).to_have_count(1)
    expect(session.bench.get_by_label("highest").locator("visible=true")).to_have_value("40")
    session.look("ranges")
    tick.press("Space")
    session.bench.get_by_text("Settings and ranges").click()
    session.enter("Trials", "8")
    session.enter("Epochs", "5")
    session.click("Start")
    session.wait("bench.tuning.study is not None and bench.tuning.study.done == 8", 180)
    expect(session.bench.locator(".ptynb-tuner table tr")).to_have_count(9, timeout=20_000)
    session.look("tune")
    session.click("Use")
    session.wait("bench.settings == bench.tuning.study.best_settings")


def keep(session: Session) -> None:
    """The result and the report; the report is opened, too."""
    session.tab("Run")
    if not session.field("Result file").count():
        session.click("Result")
    session.enter("Result file", "night.h5")
    session.click("Save result")
    expect(session.bench.get_by_text("saved: night.h5")).to_be_visible(timeout=30_000)
    result = pt.load_result(session.folder / "night.h5")
    assert result.r_factor < 0.2
    assert {"probe.learning_rate"} <= {change.name for change in result.changes}
    session.click("Report")
    expect(session.bench.get_by_text("written: night.html")).to_be_visible(timeout=30_000)
    session.look("saved")
    scheme = "dark" if session.size == SMALL else "light"
    opened = Opened(session.browser, session.folder / "night.html", *session.size, scheme)
    expect(opened.page.get_by_role("heading", level=1)).to_contain_text("simulated")
    screenshot(opened.page, f"{session.name}-report")
    assert [one["id"] for one in Axe().run(opened.page).response["violations"]] == []
    opened.check()
    opened.context.close()


def read_the_lines(session: Session) -> None:
    """Each of the lines of Python can be read by Python."""
    session.tab("Python")
    code = session.bench.locator(".ptynb-code code").inner_text()
    compile(code, "session", "exec")
    assert "NaN" not in code
    for line in (
        "scan = pt.load('scan.h5')",
        "cluster = pt.Cluster(2, device='cpu')",
        "recon.save('night.h5')",
        "pt.report(recon, 'night.html')",
    ):
        assert line in code.splitlines(), line
    for word in (
        "settings = settings.replace(batch=20)",
        'probe={"learning_rate": 0.004}',
        "recon.restore(",
        "pt.compare(",
        "pt.tune(",
    ):
        assert word in code, word
    session.look("python")


@pytest.mark.timeout(300)
def test_launchers_on_the_dashboard(browser: Browser, tmp_path: Path) -> None:
    """In a small light window: the options of each launcher, and what is wrong with them."""
    (folder := tmp_path / "work").mkdir()
    session = Session("launchers", browser, SMALL, folder)
    with served(session):
        choose_a_file(session)
        session.tab("Run")
        session.click("Cluster")
        session.look("here")
        for launcher, label, value, line in (
            ("Slurm", "Nodes", "2", "cluster = pt.Cluster.slurm(nodes=2)"),
            ("ssh hosts", "Hosts", "gpu1=4, gpu2=4", "cluster = pt.Cluster.ssh({'gpu1': 4, 'gpu2': 4})"),
        ):
            session.field("Launcher").select_option(label=launcher)
            session.enter(label, value)
            expect(session.bench.locator("code").filter(has_text=line)).to_be_visible()
            expect(session.bench.get_by_label("Engines", exact=True).locator("visible=true")).to_have_count(0)
            session.look(launcher.split()[0])
        session.enter("Threads", "many")
        alert = session.bench.get_by_role("alert").locator("visible=true")
        expect(alert).to_contain_text("Threads is 'many'")
        session.click("New run")
        expect(alert).to_have_count(1)
        session.look("wrong")
        session.field("Launcher").select_option(label="existing cluster")
        expect(alert).to_contain_text("No cluster runs that this notebook could use")
        assert session.ask("bench.recon is None")
        assert session.wrong == []
