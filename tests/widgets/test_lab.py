"""The starter notebook in a real JupyterLab, driven by mouse and keyboard in a real browser."""

from __future__ import annotations

import ast
import re
import time
from typing import Any

import nbformat
import pytest
from jupyter_client import BlockingKernelClient
from playwright.sync_api import Page, expect

from tests.widgets.conftest import Lab, screenshot

NOTEBOOK, LIVE = "01_first_reconstruction.ipynb", "07_live.ipynb"
COUNT_PICTURES = """
() => {
  window.pictures = 0;
  const viewer = document.querySelector(".ptynb-live [data-frame]");
  const seen = {attributes: true, attributeFilter: ["data-frame"]};
  new MutationObserver(() => { window.pictures += 1; }).observe(viewer, seen);
}
"""
EDGES = """
() => {
  const canvas = document.querySelector('.ptynb-live [data-name="amplitude"] .ptynb-pane-picture');
  const { data } = canvas.getContext("2d").getImageData(0, canvas.height >> 1, canvas.width, 1);
  const columns = [...Array(canvas.width - 1).keys()];
  return columns.filter((x) => data[4 * x] !== data[4 * x + 4]).length;
}
"""
"""Number of neighbouring pixels with different levels in a row of the amplitude's picture."""
TIME_THE_CLICK = """
([button, state]) => new Promise((done) => {
  const badge = () => document.querySelector(".ptynb-live b").textContent;
  const started = performance.now();
  const timer = setInterval(() => {
    if (badge() === state) { clearInterval(timer); done(performance.now() - started); }
  }, 5);
  [...document.querySelectorAll(".ptynb-live button")].find((b) => b.textContent.trim() === button).click();
})
"""


def ask(kernel: BlockingKernelClient, expression: str, timeout: float = 60) -> Any:
    """The value of an expression in the notebook's kernel, once all cells before have run."""
    reply = kernel.execute("", silent=True, user_expressions={"value": expression}, reply=True, timeout=timeout)
    value = reply["content"]["user_expressions"]["value"]
    assert value["status"] == "ok", value
    return ast.literal_eval(value["data"]["text/plain"])


def wait_until(kernel: BlockingKernelClient, expression: str, seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while not ask(kernel, expression):
        assert time.monotonic() < until, f"{expression} did not come true in {seconds} s"
        time.sleep(0.1)


def run_cells(page: Page, lab: Lab, upto: str, notebook: str = NOTEBOOK) -> None:
    """Shift+Enter from the first cell to the one that holds this text (Lab renders only cells near the screen)."""
    cells = nbformat.read(lab.folder / notebook, as_version=4).cells
    last = next(index for index, cell in enumerate(cells) if upto in cell.source)
    page.locator(".jp-Notebook .jp-Cell").first.click()
    page.keyboard.press("Escape")
    for _ in range(last + 1):
        page.keyboard.press("Shift+Enter")


def look_at_it_in_a_tab_of_its_own(page: Page) -> None:
    """One click shows the same view, as high as the window, in a tab beside the notebook's, which is closed again."""
    page.get_by_role("button", name="Open in a tab of its own").click()
    tab = page.locator(".ptynb-own-tab")
    tab.locator(".ptynb-main canvas").first.wait_for(timeout=20_000)
    expect(tab.locator("b").first).to_have_text("paused")
    screenshot(page, "live-own-tab")
    room, shown = tab.bounding_box(), tab.locator(".ptynb-live").bounding_box()
    assert room is not None
    assert shown is not None
    assert 0 <= room["height"] - shown["height"] < 60
    page.locator(".lm-TabBar-tab.lm-mod-current .lm-TabBar-tabCloseIcon").locator("visible=true").first.click()
    expect(tab).to_have_count(0)
    page.locator(".ptynb-live").first.wait_for()


def test_the_starter_notebook_is_watched_and_steered_in_a_browser(lab: Lab, page: Page) -> None:
    outside: list[str] = []
    page.on(
        "request",
        lambda r: outside.append(r.url) if not r.url.startswith((lab.address, "blob:", "data:", "ws:")) else None,
    )
    notebook = lab.folder / NOTEBOOK
    text = notebook.read_text()
    assert "cluster = pt.Cluster()" in text
    # As on two GPUs: the default without a GPU is one engine.
    notebook.write_text(text.replace("cluster = pt.Cluster()", "cluster = pt.Cluster(2)"))
    lab.open(page, NOTEBOOK)
    kernel = lab.client(NOTEBOOK)
    run_cells(page, lab, "recon.start(epochs=100)")
    try:
        wait_until(kernel, "'recon' in globals() and recon.target == 100")
        assert ask(kernel, "len(cluster)") == 2
        view = page.locator(".ptynb-live")
        view.wait_for(timeout=60_000)
        view.scroll_into_view_if_needed()
        view.locator("[data-frame]").first.wait_for(timeout=60_000)
        page.evaluate(COUNT_PICTURES)
        badge = view.locator("b").first
        expect(badge).to_have_text("running", timeout=20_000)

        page.wait_for_function("window.pictures >= 10", timeout=60_000)
        wait_until(kernel, "recon.epoch >= 3")
        losses = ask(kernel, "[epoch.loss for epoch in recon.epochs]")
        assert losses[-1] < 0.9 * losses[0]
        screenshot(page, "live-running")

        latencies = {"pause": page.evaluate(TIME_THE_CLICK, ["Pause", "paused"])}
        held = ask(kernel, "[(s.epoch, s.update) for s in recon.status()]")
        time.sleep(1.0)
        assert ask(kernel, "[(s.epoch, s.update) for s in recon.status()]") == held
        assert held[0] == held[1]

        view.get_by_role("button", name="Changes", exact=True).click()
        field = view.get_by_label("Probe learning rate", exact=True)
        field.fill("0.004")
        field.press("Enter")
        changes = view.locator("table", has_text="Changes")
        expect(changes).to_contain_text("Probe learning rate", timeout=5_000)
        of_schedule = "recon.settings.schedule.factor(s.epoch + 1, (0, recon.target))"
        rates = ask(kernel, f"[s.rates['probe'] / {of_schedule} for s in recon.status()]")
        assert rates == pytest.approx([0.004, 0.004])
        records = ask(
            kernel, "[[(c.epoch, c.update, c.name, c.old, c.new) for c in s.changes] for s in recon.status()]"
        )
        assert records[0] == records[1] == [(*held[0], "probe.learning_rate", 0.1, 0.004)]

        freeze = view.get_by_label("Freeze probe", exact=True)
        freeze.check()
        expect(changes).to_contain_text("0.004 → 0", timeout=5_000)
        wait_until(kernel, "[s.rates.get('probe', 0.0) for s in recon.status()] == [0.0, 0.0]")
        freeze.uncheck()
        wait_until(kernel, "recon.settings.probe.learning_rate == 0.004")
        view.locator('figure[data-name="phase"] .ptynb-pane-stage').click()
        view.locator('figure[data-name="modelled"]').wait_for(timeout=20_000)
        expect(view.get_by_text("counts measured")).to_be_visible()
        drawer = view.locator(".ptynb-drawer-buttons button")
        drawer.filter(has_text="Engines").click()
        expect(view.locator("table", has_text="Engines")).to_contain_text("paused", timeout=20_000)
        screenshot(page, "live-pattern")

        look_at_it_in_a_tab_of_its_own(page)
        latencies["resume"] = page.evaluate(TIME_THE_CLICK, ["Resume", "running"])
        before = page.evaluate("window.pictures")
        page.wait_for_function(f"window.pictures > {before}", timeout=20_000)
        latencies["stop"] = page.evaluate(TIME_THE_CLICK, ["Stop", "ready"])
        assert ask(kernel, "recon.state") == "ready"
        screenshot(page, "live-stopped")
        assert sorted(latencies.values())[1] < 500, f"milliseconds from click to screen: {latencies}"
        assert not outside, f"requests beyond this machine: {outside}"
    finally:
        kernel.execute("recon.close(); cluster.stop()", reply=True, timeout=60)
        kernel.stop_channels()


def test_a_scan_is_watched_in_a_browser_while_it_is_measured(lab: Lab, page: Page) -> None:
    """The bar follows what comes, and ends with the counts that the notebook's kernel has."""
    page.set_viewport_size({"width": 1280, "height": 720})
    notebook = lab.folder / LIVE
    text = notebook.read_text()
    assert "--rate 20 " in text
    notebook.write_text(text.replace("--rate 20 ", "--rate 10 "))  # on a busy machine the view needs seconds to appear
    lab.open(page, LIVE)
    kernel = lab.client(LIVE)
    run_cells(page, lab, "pt.live(recon)", LIVE)
    try:
        view = page.locator(".ptynb-live")
        view.wait_for(timeout=120_000)
        view.scroll_into_view_if_needed()
        bar = view.get_by_role("progressbar", name="Patterns that have come")
        view.locator("canvas").first.wait_for(timeout=60_000)
        expect(bar).to_be_visible(timeout=60_000)
        first = int(bar.get_attribute("aria-valuenow") or 0)
        assert first < 200
        expect(view.get_by_text(re.compile(r"^\d+ late$"))).to_be_visible()  # positions come a second later
        page.wait_for_function(
            f"+document.querySelector('.ptynb-live [role=progressbar]').ariaValueNow > {first + 30}", timeout=60_000
        )
        screenshot(page, "live-arrivals")
        wait_until(kernel, "recon.state == 'ready' and recon.epoch > 40", 120)
        arrivals = ask(kernel, "vars(recon.arrivals)")
        assert arrivals["arrived"] == arrivals["admitted"] == 256 - arrivals["missing"]
        expect(bar).to_have_attribute("aria-valuenow", str(arrivals["arrived"]))
        for counted in (
            "{arrived} of 256 patterns came",
            "{admitted} used",
            "{missing} missing",
            "{duplicates} duplicates",
        ):
            expect(view).to_contain_text(counted.format(**arrivals))
        expect(view).to_contain_text(arrivals["ended"])
        screenshot(page, "live-arrivals-ended")
    finally:
        kernel.execute("recon.close(); cluster.stop(); detector.kill(); detector.wait()", reply=True, timeout=60)
        kernel.stop_channels()


def test_a_zoom_shows_more_pixels_of_a_run_than_its_picture_has(lab: Lab, page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 720})
    cell = """
    import ptynb as pt
    scan = pt.simulate(patterns=64, window=64, seed=1)
    recon = pt.Reconstruction(scan, pt.Settings(), device="cpu", checkpointing=None)
    recon.start(10**5)
    view = pt.live(recon, size=24)
    viewer = view.object_pictures
    view
    """
    kernel = lab.run(page, "zoom.ipynb", "\n".join(line.strip() for line in cell.strip().splitlines()))
    try:
        stage = page.locator('.ptynb-live [data-name="amplitude"] .ptynb-pane-stage')
        stage.wait_for(timeout=120_000)
        stage.scroll_into_view_if_needed()
        wait_until(kernel, "viewer.frame['number'] > 2")
        stage.focus()
        box = stage.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        for _ in range(4):
            page.mouse.wheel(0, -250)
        wait_until(kernel, "[one['reduction'] for one in viewer.region_frame['pictures']] == [1, 1]")
        shown = ask(kernel, "viewer.region_frame['number']")
        wait_until(kernel, f"viewer.region_frame['number'] > {shown} + 2")  # as the run goes on
        ask(kernel, "recon.stop()")
        wait_until(kernel, "recon.state == 'ready' and viewer.frame_facts['epoch'] == recon.epoch")
        whole = ask(kernel, "{key: viewer.frame['pictures'][0][key] for key in ('shape', 'reduction')}")
        scale, step = ask(kernel, "viewer.view['scale']"), whole["reduction"]
        blocks = whole["shape"][1] / step / scale  # of the whole picture, in the width that is seen
        assert step > 2
        drawn = '.ptynb-live .ptynb-viewer[data-part="{}"]'
        page.locator(drawn.format(ask(kernel, "viewer.region_frame['number']"))).wait_for(timeout=20_000)
        assert page.evaluate(EDGES) > 1.5 * blocks
        screenshot(page, "lab-zoom")
        page.keyboard.press("0")
        wait_until(kernel, "viewer.region_frame['pictures'] == []")
        page.locator(drawn.format(ask(kernel, "viewer.region_frame['number']"))).wait_for(timeout=20_000)
        assert page.evaluate(EDGES) <= whole["shape"][1] / step + 2
    finally:
        kernel.execute("recon.close()", reply=True, timeout=60)
        kernel.stop_channels()


def test_a_tab_of_its_own_is_there_again_after_the_page_is_loaded_again_until_it_is_closed(
    lab: Lab, page: Page
) -> None:
    lab.run(page, NOTEBOOK, "import ptynb as pt\nbench = pt.workbench()\nbench").stop_channels()
    button = page.locator(".jp-Notebook").get_by_role("button", name="Open in a tab of its own")
    button.click(timeout=60_000)
    tab = page.locator(".ptynb-own-tab .ptynb-workbench")
    tab.wait_for(timeout=30_000)
    # JupyterLab puts a tab that is added in front after it is on the page.
    expect(page.locator(".lm-TabBar-tab.lm-mod-current", has_text="Workbench")).to_be_visible()
    button_tab = page.locator(".lm-TabBar-tab", has_text=NOTEBOOK)
    until = time.monotonic() + 20
    while not button.is_visible():  # JupyterLab puts the added tab in front once more, a moment after it is there
        assert time.monotonic() < until, "the notebook does not come to the front"
        button_tab.click()
        page.wait_for_timeout(500)
    button.click()  # of a view that is open: its tab comes to the front, and no second one
    expect(tab).to_be_visible()
    expect(tab).to_have_count(1)
    button_tab.click()
    page.keyboard.press("Control+s")
    page.wait_for_timeout(1000)
    page.reload()
    tab.wait_for(state="attached", timeout=60_000)
    restored = page.locator(".lm-TabBar-tab", has_text="Workbench")
    restored.click()  # JupyterLab, which restores its tabs at the same time, may have put another one in front
    expect(tab.get_by_role("tab", name="Settings", exact=True)).to_be_visible(timeout=20_000)
    screenshot(page, "own-tab-restored")
    restored.locator(".lm-TabBar-tabCloseIcon").click()
    expect(tab).to_have_count(0)
    page.reload()
    button.wait_for(timeout=60_000)
    page.wait_for_timeout(1500)
    expect(tab).to_have_count(0)
