"""What an open workbench takes while nobody does anything, beside a notebook that is empty, in one run.

usage: python -m tests.benchmarks.idling [--engines 2] [--seconds 20]

A real JupyterLab and a real Chromium. In turn: an empty notebook, whose share is JupyterLab's own, and the same with
the cursor in a cell, whose blinking draws the page 60 times a second; a workbench with a scan; one with engines and a
run that has ended, both without that cursor. Of each the share of a core by process, from the processes' clocks, and
how often the page was laid out.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import nbformat
from playwright.sync_api import Page

from tests.benchmarks.clicking import KERNEL, seconds_of_processes
from tests.widgets.conftest import Lab, started_browser, started_lab
from tests.widgets.test_lab import wait_until

EMPTY, BENCH = "empty.ipynb", "bench.ipynb"
CELL = """
import ptynb as pt
bench = pt.workbench(pt.simulate(patterns=100, window=48, seed=3))
bench
"""
START = """
cluster = pt.Cluster({engines}, device="cpu", threads=1)
recon = pt.Reconstruction(bench.scan, pt.Settings(), cluster)
recon.start(30)
recon.wait()
bench.close()
bench = pt.workbench(recon=recon)
bench
"""
REST = 8.0
"""Time before a measurement, in which the page comes to rest [s]."""
WORK = ("LayoutCount", "RecalcStyleCount")


def main() -> None:
    """Prints a line for each state."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0)
    chosen = parser.parse_args()
    cells = {EMPTY: ["1 + 1"], BENCH: [CELL.strip(), START.format(engines=chosen.engines).strip()]}
    with tempfile.TemporaryDirectory() as folder, started_lab(Path(folder)) as lab, started_browser() as browser:
        for name, texts in cells.items():
            notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in texts])
            notebook.metadata.kernelspec = KERNEL
            nbformat.write(notebook, lab.folder / name)
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        opened(lab, page, EMPTY)
        lab.kernel_of(EMPTY)
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        print(f"an empty notebook: {shares(page, chosen.seconds)}")
        page.locator(".jp-Notebook .jp-Cell .cm-content").first.click()
        print(f"the same with the cursor in a cell: {shares(page, chosen.seconds)}")
        opened(lab, page, BENCH)
        kernel = lab.client(BENCH)
        page.locator(".jp-Notebook .jp-Cell").first.click()
        page.keyboard.press("Shift+Enter")
        try:
            page.locator(".ptynb-workbench").first.wait_for(timeout=60_000)
            page.keyboard.press("Escape")
            print(f"a workbench with a scan: {shares(page, chosen.seconds)}")
            page.keyboard.press("Shift+Enter")
            page.keyboard.press("Escape")
            wait_until(kernel, "'recon' in globals() and bench.recon is recon")
            page.locator(".ptynb-workbench").last.get_by_role("tab", name="Run", exact=True).click()
            print(f"a run that has ended: {shares(page, chosen.seconds)}")
        finally:
            kernel.execute("bench.close(); recon.close(); cluster.stop()", reply=True, timeout=60)
            kernel.stop_channels()


def opened(lab: Lab, page: Page, name: str) -> None:
    """Opens a notebook on a new page of JupyterLab."""
    page.goto(f"{lab.address}/lab/tree/{name}?reset&token={lab.token}")
    page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=60_000)


def shares(page: Page, seconds: float) -> str:
    """Shares of a core by kind of process, and what the page did, as text."""
    time.sleep(REST)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def done() -> dict[str, float]:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return {one["name"]: one["value"] for one in metrics if one["name"] in WORK}

    before, began, worked = seconds_of_processes(), time.monotonic(), done()
    time.sleep(seconds)
    work = {name: (count - worked[name]) / seconds for name, count in done().items()}
    after, took = seconds_of_processes(), time.monotonic() - began
    each = {kind: 100 * (after[kind] - before.get(kind, 0.0)) / took for kind in after}
    said = ", ".join(f"{kind} {share:.2f}%" for kind, share in each.items())
    return f"{said} (all of a kind); {work['LayoutCount']:.1f} layouts, {work['RecalcStyleCount']:.1f} styles a second"


if __name__ == "__main__":
    main()
