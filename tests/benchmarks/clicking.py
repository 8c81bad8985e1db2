"""What somebody at the screen feels: frames drawn a second, and milliseconds from a click to what it does.

usage: python -m tests.benchmarks.clicking [--rate 10] [--seconds 20] [--clicks 10] [--step 42]

A real JupyterLab and a real Chromium on this machine, beside an engine of one thread that trains: 484 patterns of
128 x 128, one mode, batch 16, whose object has about 1024 x 1024 pixels. Kernel and engine have one half of the cores,
server and browser the other, as where the browser is on another machine. A frame counts once the viewer has drawn it. A
click counts until the page shows the new state: by then all engines have obeyed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import nbformat
import psutil
from playwright.sync_api import Locator, Page

from tests.widgets.conftest import started_browser, started_lab
from tests.widgets.test_lab import COUNT_PICTURES, TIME_THE_CLICK, ask, wait_until

NOTEBOOK = "clicking.ipynb"
KERNEL = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
CELL = """
import psutil
psutil.Process().cpu_affinity({cores})
import ptynb as pt
scan = pt.simulate(patterns=484, window=128, step={step}, seed=0)
cluster = pt.Cluster(1, device="cpu", threads=1)
recon = pt.Reconstruction(scan, pt.Settings(), cluster)
recon.start(10**5)
pt.live(recon, rate={rate})
"""
TIME_THE_RATE = """
([value, shown]) => new Promise((done) => {
  const record = () => [...document.querySelectorAll(".ptynb-live table")].map((table) => table.textContent).join(" ");
  const field = document.activeElement;
  const started = performance.now();
  const timer = setInterval(() => {
    if (record().includes(shown)) { clearInterval(timer); done(performance.now() - started); }
  }, 5);
  field.value = value;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  field.dispatchEvent(new Event("change", { bubbles: true }));
})
"""
MORE_ROOM = {"width": 1280, "height": 1000}


def main() -> None:
    """Prints the pace, and the median and the slowest of each kind of click."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--clicks", type=int, default=10)
    parser.add_argument("--step", type=float, default=42.0)
    chosen = parser.parse_args()
    cores = psutil.Process().cpu_affinity()
    half = max(1, len(cores) // 2)
    psutil.Process().cpu_affinity(cores[half:] or cores)
    with tempfile.TemporaryDirectory() as folder, started_lab(Path(folder)) as lab, started_browser() as browser:
        cell = nbformat.v4.new_code_cell(CELL.format(cores=cores[:half], step=chosen.step, rate=chosen.rate).strip())
        notebook = nbformat.v4.new_notebook(cells=[cell], metadata={"kernelspec": KERNEL})
        nbformat.write(notebook, lab.folder / NOTEBOOK)
        page = browser.new_page(viewport=MORE_ROOM)
        page.goto(f"{lab.address}/lab/tree/{NOTEBOOK}?reset&token={lab.token}")
        page.locator(".jp-Notebook .jp-Cell").first.click()
        kernel = lab.client(NOTEBOOK)
        page.keyboard.press("Shift+Enter")
        try:
            wait_until(kernel, "'recon' in globals() and recon.epoch >= 3")
            view = page.locator(".ptynb-live")
            view.locator("[data-frame]").first.wait_for(timeout=60_000)
            pace = frames_drawn(page, chosen.seconds) / chosen.seconds
            shape = ask(kernel, "recon.pictures().pictures[0].shape")
            took = clicks(page, view, chosen.clicks)
        finally:
            kernel.execute("recon.close(); cluster.stop()", reply=True, timeout=60)
            kernel.stop_channels()
    print(f"{len(cores)} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{pace:.1f} frames of {shape[0]} x {shape[1]} drawn a second ({chosen.rate:g} wanted)")
    for name, milliseconds in took.items():
        print(f"{name}: {statistics.median(milliseconds):.0f} ms, the slowest of {len(milliseconds)}: ", end="")
        print(f"{max(milliseconds):.0f} ms")


def frames_drawn(page: Page, seconds: float) -> int:
    """How many new frames the object's viewer draws in so many seconds."""
    page.evaluate(COUNT_PICTURES)
    time.sleep(seconds)
    count: int = page.evaluate("window.pictures")
    return count


def clicks(page: Page, view: Locator, count: int) -> dict[str, list[float]]:
    """Milliseconds of so many clicks of each kind."""
    took: dict[str, list[float]] = {"pause": [], "resume": [], "a rate": []}
    for number in range(count):
        took["pause"].append(page.evaluate(TIME_THE_CLICK, ["Pause", "paused"]))
        took["resume"].append(page.evaluate(TIME_THE_CLICK, ["Resume", "running"]))
        view.get_by_label("Probe learning rate", exact=True).focus()
        rate = f"{0.004 + 1e-5 * (number + 1):.5f}"
        took["a rate"].append(page.evaluate(TIME_THE_RATE, [rate, rate.rstrip("0")]))
        time.sleep(0.5)
    return took


if __name__ == "__main__":
    main()
