"""The kernel is restarted while it trains, in a real JupyterLab: the run goes on, and one line comes back to it."""

from __future__ import annotations

import time

from playwright.sync_api import Page, expect

from tests.widgets.conftest import Lab, screenshot
from tests.widgets.test_lab import COUNT_PICTURES, ask, wait_until

NOTEBOOK = "restart.ipynb"
START = """import ptynb as pt
cluster = pt.Cluster(2, device="cpu")
recon = pt.Reconstruction(pt.simulate(patterns=225, window=64), pt.Settings(), cluster)
recon.start(100_000)"""
COME_BACK = """import ptynb as pt
recon = pt.attach()
pt.live(recon)"""


def test_after_a_restart_of_the_kernel_the_view_moves_again(lab: Lab, page: Page) -> None:
    kernel = lab.run(page, NOTEBOOK, START, COME_BACK)
    wait_until(kernel, "'recon' in globals() and recon.epoch >= 2", 180)
    name, losses = ask(kernel, "cluster.name"), ask(kernel, "[epoch.loss for epoch in recon.epochs]")
    kernel.stop_channels()
    kernel_id = lab.kernel_of(NOTEBOOK)
    lab.request(f"/api/kernels/{kernel_id}/restart", method="POST")
    time.sleep(2.0)  # nobody holds the engines meanwhile, and they train
    kernel = lab.client(NOTEBOOK)
    try:
        assert ask(kernel, "'recon' in globals()") is False
        page.locator(".jp-Notebook .jp-Cell").nth(1).click()
        page.keyboard.press("Shift+Enter")
        wait_until(kernel, "'recon' in globals()")
        assert ask(kernel, "recon.cluster.name") == name
        assert ask(kernel, f"[epoch.loss for epoch in recon.epochs][:{len(losses)}]") == losses
        assert ask(kernel, "[epoch.number for epoch in recon.epochs] == [*range(1, recon.epoch + 1)]")
        view = page.locator(".ptynb-live")
        view.wait_for(timeout=30_000)
        expect(view.locator("b").first).to_have_text("running", timeout=20_000)
        view.locator("[data-frame]").first.wait_for(timeout=30_000)
        page.evaluate(COUNT_PICTURES)
        page.wait_for_function("window.pictures >= 3", timeout=30_000)
        screenshot(page, "live-after-restart")
        assert view.get_by_role("button", name="Recover").count() == 0
    finally:
        kernel.execute("recon.cluster.stop()", reply=True, timeout=60)
        kernel.stop_channels()
