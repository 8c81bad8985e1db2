"""A whole session at the workbench in a real JupyterLab, checked on the screen and on the engines."""

from __future__ import annotations

import re
import time
from typing import Any

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, TimeoutError, expect

import ptynb as pt
from tests.io import layouts
from tests.io.test_near_field import FOCUS, shadows
from tests.widgets.conftest import Lab, screenshot
from tests.widgets.test_lab import ask, wait_until

NOTEBOOK = "bench.ipynb"
CLEAN = "bench.recon and bench.recon.close(); cluster = bench.cluster; bench.close(); cluster and cluster.stop()"
OPEN = "import ptynb as pt\nbench = pt.workbench()\nbench"
SIZES = {"newest": (1280, 720), "7.2": (1920, 1080)}
NO_LAB = ".ptynb-workbench"
OUT_OF_SIGHT = """
() => {
  const box = document.querySelector(".jp-WindowedPanel-outer").getBoundingClientRect();
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


class Session:
    """A notebook with a workbench in a browser, and its kernel."""

    def __init__(self, lab: Lab, page: Page, kernel: str, dark: bool) -> None:
        self.lab, self.page, self.name = lab, page, f"workbench-{kernel}"
        if dark:
            themes = lab.runtime.parent / "settings" / "@jupyterlab" / "apputils-extension"
            (themes / "themes.jupyterlab-settings").write_text('{"theme": "JupyterLab Dark"}')
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in (OPEN,)])
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, lab.folder / NOTEBOOK)
        pt.save_scan(pt.simulate(patterns=100, window=48, seed=3), lab.folder / "scan.h5")
        layouts.cxidb(lab.folder / "shadows.cxi", shadows(FOCUS))
        self.open()
        self.kernel = lab.client(NOTEBOOK)
        self.bench = page.locator(NO_LAB).first

    def begin(self) -> None:
        self.page.locator(".jp-Notebook .jp-Cell").first.click()
        self.page.keyboard.press("Shift+Enter")
        self.bench.wait_for(timeout=60_000)

    def open(self) -> None:
        self.page.goto(f"{self.lab.address}/lab/tree/{NOTEBOOK}?reset&token={self.lab.token}")
        self.page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=60_000)

    def tab(self, name: str) -> None:
        self.bench.get_by_role("tab", name=name, exact=True).click()

    def click(self, name: str) -> None:
        self.button(name).click()

    def button(self, name: str) -> Locator:
        """By its text alone: its icon is a letter too, of a private alphabet."""
        buttons = self.bench.locator("button").filter(has_text=re.compile(rf"^\s*{re.escape(name)}\s*$"))
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
        self.page.wait_for_timeout(500)
        return list(self.page.evaluate(OUT_OF_SIGHT))

    def look(self, part: str) -> None:
        """A picture for a person's eye, and what a screen reader would miss."""
        screenshot(self.page, f"{self.name}-{part}")
        found = Axe().run(self.page, context=NO_LAB)
        wrong = [(one["id"], [node["html"][:200] for node in one["nodes"]][:3]) for one in found.response["violations"]]
        assert not wrong, f"{part}: {wrong}"
        wide = self.page.evaluate(
            f"(() => {{ const b = document.querySelector('{NO_LAB}'); return b.scrollWidth - b.clientWidth; }})()"
        )
        assert wide <= 1, f"{part} is {wide} pixels wider than its place"


@pytest.mark.timeout(600)  # half an hour of a physicist's work, and a cluster
@pytest.mark.parametrize("lab", ["newest", "7.2"], indirect=True)
def test_a_session_from_file_to_result(lab: Lab, browser: Browser, request: pytest.FixtureRequest) -> None:
    kernel = request.node.callspec.params["lab"]
    width, height = SIZES[kernel]
    context = browser.new_context(viewport={"width": width, "height": height})
    session = Session(lab, context.new_page(), kernel, dark=kernel == "7.2")
    expected = "7.2" if kernel == "7.2" else ""
    try:
        session.begin()
        assert session.ask("__import__('ipykernel').__version__").startswith(expected)
        for part in (
            look_at_the_scan,
            set_up,
            reconstruct,
            leave_and_come_back,
            compare_two,
            compare_epochs,
            tune,
            keep,
        ):
            part(session)
    finally:
        screenshot(session.page, f"{session.name}-last")
        session.kernel.execute(CLEAN, reply=True, timeout=60)
        session.kernel.stop_channels()
        context.close()


def look_at_the_scan(session: Session) -> None:
    """A file that is not there, one that is; a click on the map; a disc masked; the pattern by number."""
    session.field("File").fill("nowhere.h5")
    session.click("Load")
    expect(session.bench.get_by_role("alert").first).to_contain_text("nowhere.h5")
    open_near_field(session)
    session.click("Choose file")
    session.bench.get_by_role("button", name="scan.h5").click()
    expect(session.bench.get_by_role("cell", name="100 of 48 x 48")).to_be_visible()
    session.click("Load")
    session.wait("len(bench.scan) == 100")
    expect(session.bench.locator(".ptynb-inspect")).to_contain_text("100 patterns of 48 × 48")
    expect(session.bench.get_by_role("alert").locator("visible=true")).to_have_count(0)
    pattern = session.field("Pattern")
    expect(pattern).to_have_value("0")
    stage = session.bench.locator(".ptynb-inspect .ptynb-pane-stage").locator("visible=true").first
    box = stage.bounding_box()
    assert box is not None
    stage.click(position={"x": 0.7 * box["width"], "y": 0.7 * box["height"]})
    expect(pattern).not_to_have_value("0")
    session.enter("Pattern", "17")
    session.look("scan")
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
    session.field("File").fill("")
    session.look("files")
    session.bench.get_by_role("button", name="shadows.cxi").click()
    near = session.bench.locator("button").filter(has_text="Use near field, focus to sample about 10")
    near.wait_for()
    session.look("shadows")
    near.click()
    expect(session.field("Geometry")).to_have_value("near field")
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
    session.enter("Batch", "20")
    session.wait("bench.settings == pt.Settings(batch=20)")
    session.click("Preview")
    expect(session.bench.locator("canvas").locator("visible=true").first).to_be_visible(timeout=20_000)
    session.look("settings")


def reconstruct(session: Session) -> None:
    """Two engines; a rate changed, the probe frozen, a click while the kernel is busy, the way back."""
    session.tab("Run")
    session.enter("Engines", "2")
    session.field("Device").select_option("cpu")
    session.enter("Epochs", "100000")
    session.click("New run")
    session.wait("bench.recon is not None and bench.recon.epoch > 3", 120)
    assert session.ask("len(bench.cluster), bench.recon.scan.mask is not None") == (2, True)
    view = session.bench.locator(".ptynb-live")
    expect(view.locator("b").first).to_have_text("running", timeout=20_000)
    view.locator("[data-frame] .ptynb-pane-stage").first.wait_for(timeout=20_000)
    session.look("running")
    assert session.in_sight() == [], "not in sight without scrolling"
    session.enter("Probe learning rate", "0.004")
    session.wait("[s.rates['probe'] for s in bench.recon.status()] == [0.004, 0.004]")
    session.bench.get_by_label("Freeze probe", exact=True).locator("visible=true").first.check()
    session.wait("not any('probe' in s.rates for s in bench.recon.status())")
    expect(view).to_contain_text("0.004 → 0")
    stage = view.locator(".ptynb-pane-stage").locator("visible=true").first
    stage.scroll_into_view_if_needed()
    stage.click()
    expect(view).to_contain_text("counts measured", timeout=20_000)
    session.look("run")
    block(session)
    session.click("Checkpoints")
    session.click("Save now")
    session.wait("len(bench.recon.checkpoints) >= 1")
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
    session.wait(f"list(bench._desk.results) == ['epoch {kept}']")


def block(session: Session) -> None:
    """A long cell does not hold the engines, and a click meanwhile comes through after it."""
    session.page.evaluate("window.scrollTo(0, 0)")
    before = session.ask("bench.recon.epoch")
    message = session.kernel.execute("import time; time.sleep(4); reached = bench.recon.epoch")
    session.click("Pause")
    session.kernel.get_shell_msg(timeout=60)
    assert message
    assert session.ask("reached") > before
    session.wait("bench.recon.state == 'paused'", 20)


def come_back(session: Session, times: int = 3) -> None:
    """As a user does: JupyterLab gives a kernel 4 s to tell of all widgets, and on a busy machine wants a reload."""
    for last in (*[False] * (times - 1), True):
        session.open()
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
    live = session.bench.locator(".ptynb-live")
    live.locator("button").filter(has_text=re.compile(r"^\s*Start\s*$")).click()
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
    session.click("Stop")
    session.wait("bench.recon.state == 'ready'")
    session.click("Add to comparison")
    session.wait("len(bench._desk.results) == 2")


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
    expect(selected).to_contain_text(
        re.compile(r"Selected: current state, epoch [\d +]+ \(main\)\. Restore and Branch")
    )
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
    session.click("Result")
    session.field("of").select_option("thumbnails")
    session.enter("Film file", "run.gif")
    session.click("Film")
    expect(session.bench.get_by_text(re.compile("written: .*run.gif"))).to_be_visible(timeout=60_000)
    session.look("film")
    session.click("Result")


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
    session.wait("bench._tuning.study is not None and bench._tuning.study.done == 8", 180)
    expect(session.bench.locator(".ptynb-tuner table tr")).to_have_count(9, timeout=20_000)
    session.look("tune")
    session.click("Use")
    session.wait("bench.settings == bench._tuning.study.best_settings")


def keep(session: Session) -> None:
    """The file, and the lines of Python: each of them can be read by Python."""
    session.tab("Run")
    if not session.field("Result file").count():
        session.click("Result")
    session.enter("Result file", "night.h5")
    session.click("Save result")
    expect(session.bench.get_by_text("saved: night.h5")).to_be_visible(timeout=30_000)
    result = pt.load_result(session.lab.folder / "night.h5")
    assert result.r_factor < 0.2
    assert {"probe.learning_rate"} <= {change.name for change in result.changes}
    session.click("Report")
    expect(session.bench.get_by_text("written: night.html")).to_be_visible(timeout=30_000)
    assert "<h1>simulated" in (session.lab.folder / "night.html").read_text(encoding="utf-8")
    session.tab("Python")
    code = session.bench.locator(".ptynb-code code").inner_text()
    compile(code, "session", "exec")
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
