"""The README's picture of the workbench: `python -m tests.workbench_picture [FILE]` takes it during a real run."""

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


def main(path: Path) -> None:
    """Take the picture and write it."""
    with tempfile.TemporaryDirectory() as folder, started_lab(Path(folder)) as lab, started_browser() as browser:
        page = browser.new_context(viewport=WINDOW, device_scale_factor=SCALE).new_page()
        picture = take(lab, page)
    Image.open(io.BytesIO(picture)).convert("RGB").save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
