"""What a drag of the contrast costs: redraws a second, and processor time of the page for each, of one picture and two.

usage: python -m tests.benchmarks.dragging [--size 970 968] [--seconds 5] [--turns 3]

A real Chromium with the viewer on a page without Jupyter. The mouse moves the lower limit 60 times a second; the
pictures are linked, so that both are coloured again for each change. The turns of one and of two pictures alternate.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import numpy as np
from playwright.sync_api import CDPSession, Page

from ptynb.data.images import picture
from ptynb.widgets.viewer.viewer import Viewer
from tests.widgets.browser_model import BrowserModel
from tests.widgets.conftest import started_browser

WANTED = 30.0
COUNT_REDRAWS = """
() => {
  window.redraws = 0;
  const moves = { attributes: true, attributeFilter: ["aria-valuenow"] };
  new MutationObserver(() => { window.redraws += 1; }).observe(document.querySelector(".ptynb-handle"), moves);
}
"""


def main() -> None:
    """Prints redraws a second and milliseconds of the page's main thread for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, nargs=2, default=(970, 968))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--turns", type=int, default=3)
    chosen = parser.parse_args()
    found: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    with started_browser() as browser:
        for _ in range(chosen.turns):
            for count, turns in found.items():
                page = browser.new_page(viewport={"width": 1280, "height": 720})
                turns.append(dragged(page, count, tuple(chosen.size), chosen.seconds))
                page.close()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {WANTED:g} redraws a second wanted")
    for count, turns in found.items():
        rates, costs = ([turn[index] for turn in turns] for index in (0, 1))
        print(
            f"{count} of {chosen.size[0]} x {chosen.size[1]}: {statistics.median(rates):.0f} redraws a second, "
            f"{statistics.median(costs):.1f} ms of the page each"
        )


def dragged(page: Page, count: int, shape: tuple[int, int], seconds: float) -> tuple[float, float]:
    """Redraws a second during a drag with so many pictures, and milliseconds of the main thread for each."""
    rng = np.random.default_rng(0)
    waves = np.sin(np.arange(shape[0]) / 30)[:, None] * np.cos(np.arange(shape[1]) / 17)
    viewer = Viewer(height=330)
    model = BrowserModel(page, viewer)
    viewer.show(
        [
            picture(waves + rng.normal(0, 0.1, shape), f"picture {number}", lossless=False, limits=(-1.3, 1.3))
            for number in range(count)
        ]
    )
    page.get_by_role("button", name="Colour maps and contrast").click()
    page.locator(".ptynb-histogram").first.wait_for()
    box = page.locator(".ptynb-histogram").first.bounding_box()
    assert box is not None
    page.evaluate(COUNT_REDRAWS)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    page.mouse.move(box["x"] + 2, box["y"] + 10)
    page.mouse.down()
    before, began, moves = _busy(session), time.monotonic(), 0
    while (now := time.monotonic()) - began < seconds:
        moves += 1
        page.mouse.move(box["x"] + 2 + 0.4 * box["width"] * (0.5 - 0.5 * np.cos(4 * (now - began))), box["y"] + 10)
        time.sleep(max(0.0, began + moves / 60 - time.monotonic()))
    took, busy = time.monotonic() - began, _busy(session) - before
    redraws = int(page.evaluate("window.redraws"))
    page.mouse.up()
    model.close()
    viewer.close()
    return redraws / took, 1000 * busy / max(redraws, 1)


def _busy(session: CDPSession) -> float:
    """Seconds that tasks of the page's main thread took so far."""
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"])


if __name__ == "__main__":
    main()
