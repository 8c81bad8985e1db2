"""Pictures of views: `python -m tests.workbench_picture [FILE]` takes the README's, of the workbench during a real run.

With `--views` it takes those of single views, which stand in the site where a notebook shows one (`docs/pictures`).
"""

from __future__ import annotations

import dataclasses
import io
import re
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect

import ptynb as pt
from tests.system_parts import ROOT
from tests.widgets.conftest import Lab, started_browser, started_lab
from tests.widgets.test_lab import wait_until

PICTURE = ROOT / "notebooks" / "workbench.png"
WINDOW = {"width": 1280, "height": 720}
SCALE = 2
NOTEBOOK = "siemens_star.ipynb"
SCAN = "siemens_star.h5"
CELL = """\
import ptynb as pt

scan = pt.load("siemens_star.h5")
settings = pt.preset("thin X-ray", scan)
bench = pt.workbench(scan, settings, pt.Cluster(2, device="cpu"))
bench"""
EPOCHS, EPOCH = 100, 12
"""Epochs of the run, and the one at which the picture is taken."""


def take(lab: Lab, page: Page) -> bytes:
    """Return the picture (PNG) of a run in a tab of JupyterLab."""
    scan = pt.simulate(patterns=784, window=96, modes=3, step=5, seed=1)
    pt.save_scan(dataclasses.replace(scan, name="Siemens star"), lab.folder / SCAN)
    kernel = lab.run(page, NOTEBOOK, CELL)
    try:
        page.locator(".ptynb-workbench").first.wait_for(timeout=120_000)
        page.locator(".jp-SideBar [data-id=filebrowser]").first.click()  # folds the list of files away
        page.locator(".ptynb-workbench-head").get_by_role("button", name="Open in a tab of its own").click()
        tab = page.locator(".ptynb-own-tab")
        tab.get_by_role("tab", name="Run", exact=True).click()
        epochs = tab.get_by_label("Epochs", exact=True).locator("visible=true").first
        epochs.fill(str(EPOCHS))
        epochs.press("Enter")
        tab.locator("button").filter(has_text=re.compile(r"New run\s*$")).locator("visible=true").first.click()
        tab.locator(".ptynb-live [data-frame]").first.wait_for(timeout=120_000)
        wait_until(kernel, f"bench.recon.epoch >= {EPOCH}", 600)
        expect(tab.locator(".ptynb-live-head")).to_contain_text(re.compile(rf"epoch {EPOCH}|epoch {EPOCH + 1}"))
        page.mouse.move(0, 0)
        page.wait_for_timeout(1500)
        return page.screenshot()
    finally:
        kernel.execute("bench.recon and bench.recon.close(); bench.cluster.stop()", reply=True, timeout=120)
        kernel.stop_channels()


VIEWS = Path(__file__).parent.parent / "docs" / "pictures"
VIEW_CELL = """\
import ptynb as pt

scan = pt.load("siemens_star.h5")
recon = pt.Reconstruction(scan, pt.Settings(probe=pt.Probe(modes=2)), device="cpu")
recon.start(20)
recon.wait()
before = recon.result
recon.start(20)
recon.wait()
made = {
    "live": pt.live(recon),
    "inspect": pt.inspect(scan),
    "compare": pt.compare({"after 20 epochs": before, "after 40 epochs": recon.result}),
    "form": pt.settings_form(scan, pt.preset("thin X-ray", scan)),
    "tuner": pt.tuner(scan, recon.settings),
}
display(*made.values())"""


def take_views() -> None:
    """Take a picture of each single view and write it (JPEG)."""
    with tempfile.TemporaryDirectory() as folder, started_lab(Path(folder)) as lab, started_browser() as browser:
        page = browser.new_context(viewport={"width": 1280, "height": 4000}).new_page()
        pt.simulate(patterns=256, window=64, modes=2, seed=1, path=lab.folder / SCAN)
        kernel = lab.run(page, NOTEBOOK, VIEW_CELL)
        try:
            outputs = page.locator(".jp-OutputArea-output.jupyter-widgets, .jp-OutputArea-output .jupyter-widgets")
            expect(outputs.nth(4)).to_be_attached(timeout=600_000)
            page.locator(".jp-SideBar [data-id=filebrowser]").first.click()
            page.wait_for_timeout(5000)
            for number, name in enumerate(("live", "inspect", "compare", "form", "tuner")):
                outputs.nth(number).scroll_into_view_if_needed()
                page.wait_for_timeout(3000)
                outputs.nth(number).screenshot(path=VIEWS / f"{name}.jpg", type="jpeg", quality=85)
        finally:
            kernel.execute("made['live'].close(); recon.close()", reply=True, timeout=120)
            kernel.stop_channels()


def main(path: Path) -> None:
    """Take the picture of the workbench and write it."""
    with tempfile.TemporaryDirectory() as folder, started_lab(Path(folder)) as lab, started_browser() as browser:
        page = browser.new_context(viewport=WINDOW, device_scale_factor=SCALE).new_page()
        picture = take(lab, page)
    Image.open(io.BytesIO(picture)).convert("RGB").save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    if "--views" in sys.argv:
        take_views()
    else:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
