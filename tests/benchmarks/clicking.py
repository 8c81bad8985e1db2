"""What somebody at the screen feels: frames drawn a second, and milliseconds from a click to what it does.

usage: python -m tests.benchmarks.clicking [--rate 10] [--seconds 20] [--clicks 10] [--step 42] [--together]

A real JupyterLab and a real Chromium on this machine, beside an engine of one thread that trains: 484 patterns of
128 x 128, one mode, batch 16, whose object has about 1024 x 1024 pixels. Kernel and engine have one half of the cores,
server and browser the other, as where the browser is on another machine; with --together all share all cores. A frame
counts once the viewer has drawn it, and what it took of a core is read from the processes' own clocks, which other work
on the machine does not change much. A click counts until the page shows the new state: by then all engines have obeyed;
that of a page of the drawer until the page is there.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from pathlib import Path

import psutil
from playwright.sync_api import Locator, Page

from tests.widgets.conftest import started_browser, started_lab
from tests.widgets.test_lab import COUNT_PICTURES, TIME_THE_CLICK, ask, wait_until

NOTEBOOK = "clicking.ipynb"
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
TIME_THE_PAGE = """
(name) => new Promise((done) => {
  const view = document.querySelector(".ptynb-live > .ptynb-drawer");
  const button = [...view.querySelectorAll(".ptynb-drawer-button")].find((one) => one.textContent.trim() === name);
  const started = performance.now();
  const look = () => {
    const page = view.querySelector(`:scope > .ptynb-drawer-page[aria-label="${name}"]`);
    const there = page.getClientRects().length && button.getAttribute("aria-expanded") === "true";
    if (there) done(performance.now() - started);
    else requestAnimationFrame(look);
  };
  button.click();
  requestAnimationFrame(look);
})
"""
KINDS = {
    "page": "--type=renderer",
    "browser": "chrom",
    "server": "jupyter-lab",
    "kernel": "ipykernel",
    "engine": "engine_main",
    "controller": "ipyparallel.controller",
}
"""What the processes' command lines contain; the first that fits counts."""
MORE_ROOM = {"width": 1280, "height": 1000}


def main() -> None:
    """Prints the pace, and the median and the slowest of each kind of click."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--clicks", type=int, default=10)
    parser.add_argument("--step", type=float, default=42.0)
    parser.add_argument("--together", action="store_true", help="all processes on all cores")
    chosen = parser.parse_args()
    cores = psutil.Process().cpu_affinity()
    half = max(1, len(cores) // 2)
    its, ours = (cores, cores) if chosen.together else (cores[:half], cores[half:] or cores)
    psutil.Process().cpu_affinity(ours)
    with tempfile.TemporaryDirectory() as folder, started_lab(Path(folder)) as lab, started_browser() as browser:
        page = browser.new_page(viewport=MORE_ROOM)
        cell = CELL.format(cores=its, step=chosen.step, rate=chosen.rate).strip()
        kernel = lab.run(page, NOTEBOOK, cell)
        try:
            wait_until(kernel, "'recon' in globals() and recon.epoch >= 3")
            view = page.locator(".ptynb-live")
            view.locator("[data-frame]").first.wait_for(timeout=60_000)
            before = seconds_of_processes()
            frames = frames_drawn(page, chosen.seconds)
            pace, after = frames / chosen.seconds, seconds_of_processes()
            shape = ask(kernel, "recon.pictures().pictures[0].shape")
            took = clicks(page, view, chosen.clicks)
        finally:
            kernel.execute("recon.close(); cluster.stop()", reply=True, timeout=60)
            kernel.stop_channels()
    print(f"{len(cores)} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{pace:.1f} frames of {shape[0]} x {shape[1]} drawn a second ({chosen.rate:g} wanted)")
    each = {kind: 1000 * (after[kind] - before.get(kind, 0.0)) / max(frames, 1) for kind in after}
    print("of a core for each frame: " + ", ".join(f"{kind} {cost:.0f} ms" for kind, cost in each.items()))
    for name, milliseconds in took.items():
        print(f"{name}: {statistics.median(milliseconds):.0f} ms, the slowest of {len(milliseconds)}: ", end="")
        print(f"{max(milliseconds):.0f} ms")


def frames_drawn(page: Page, seconds: float) -> int:
    """How many new frames the object's viewer draws in so many seconds."""
    page.evaluate(COUNT_PICTURES)
    time.sleep(seconds)
    count: int = page.evaluate("window.pictures")
    return count


def seconds_of_processes() -> dict[str, float]:
    """Processor time so far of the processes that this one started, by kind."""
    total: dict[str, float] = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            command, times = " ".join(process.cmdline()), process.cpu_times()
            kind = next((kind for kind, part in KINDS.items() if part in command), None)
            if kind is not None:
                total[kind] = total.get(kind, 0.0) + times.user + times.system
    return total


def clicks(page: Page, view: Locator, count: int) -> dict[str, list[float]]:
    """Milliseconds of so many clicks of each kind."""
    took: dict[str, list[float]] = {"pause": [], "resume": [], "stop": [], "start": [], "a rate": [], "a page": []}
    for number in range(count):
        took["pause"].append(page.evaluate(TIME_THE_CLICK, ["Pause", "paused"]))
        took["resume"].append(page.evaluate(TIME_THE_CLICK, ["Resume", "running"]))
        took["stop"].append(page.evaluate(TIME_THE_CLICK, ["Stop", "ready"]))
        took["start"].append(page.evaluate(TIME_THE_CLICK, ["Start", "running"]))
        took["a page"].append(page.evaluate(TIME_THE_PAGE, "Engines"))
        took["a page"].append(page.evaluate(TIME_THE_PAGE, "Changes"))
        view.get_by_label("Probe learning rate", exact=True).focus()
        rate = f"{0.004 + 1e-5 * (number + 1):.5f}"
        took["a rate"].append(page.evaluate(TIME_THE_RATE, [rate, rate.rstrip("0")]))
        time.sleep(0.5)
    return took


if __name__ == "__main__":
    main()
