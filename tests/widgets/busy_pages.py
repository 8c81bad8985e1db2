"""`python -m tests.widgets.busy_pages [dashboard | lab]`: how soon does a page show a run on a busy machine?

The dashboard is loaded 100 times and reloaded 100 times in mid-run, a notebook in JupyterLab is reloaded 100 times,
beside 4 busy processes; the exit status is 1 if one takes over 3 s. In JupyterLab the time is that from the cell on.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Browser, Page, expect

from tests.widgets.conftest import started_browser, started_lab
from tests.widgets.test_dashboard import SLOW, begin, folder_with_scan, started_dashboard
from tests.widgets.test_lab import open_notebook

TIMES, BUSY, MOST = 100, 4, 3.0
NOTEBOOK = "run.ipynb"
CELL = """
import ptynb as pt
recon = pt.Reconstruction(pt.simulate(patterns=100, window=48, seed=3))
recon.start(1_000_000)
pt.workbench(recon=recon)
"""


def main() -> int:
    """Return the exit status."""
    found: dict[str, list[float]] = {}
    places = sys.argv[1:] or ["dashboard", "lab"]
    with tempfile.TemporaryDirectory() as folder, started_browser() as browser:
        for place in places:
            found |= {"dashboard": of_the_dashboard, "lab": of_jupyterlab}[place](Path(folder), browser)
    for name, took in found.items():
        print(f"{len(took)} {name}: median {statistics.median(took):.2f} s, slowest {max(took):.2f} s")
    return 1 if max(max(took) for took in found.values()) > MOST else 0


def of_the_dashboard(place: Path, browser: Browser) -> dict[str, list[float]]:
    """Return the seconds of loads and reloads of the dashboard."""
    folder = folder_with_scan(place)
    with started_dashboard(folder, "scan.h5") as dashboard:
        page = browser.new_page()
        expect(begin(page, dashboard, engines=1, epochs=1_000_000).locator("b").first).to_have_text("running")
        with busy():
            loads = [seconds(page, lambda: page.goto(dashboard.address, timeout=SLOW)) for _ in range(TIMES)]
            reloads = [seconds(page, lambda: page.reload(timeout=SLOW)) for _ in range(TIMES)]
    return {"loads of the dashboard": loads, "reloads of the dashboard": reloads}


def of_jupyterlab(place: Path, browser: Browser) -> dict[str, list[float]]:
    """Return the seconds of reloads of a notebook."""
    (place / "work").mkdir()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, place / "work" / NOTEBOOK)
    with started_lab(place) as lab:
        page = browser.new_page()
        open_notebook(page, lab, NOTEBOOK)
        lab.kernel_of(NOTEBOOK)
        page.locator(".jp-Notebook .jp-Cell").first.click()
        page.keyboard.press("Shift+Enter")
        wait_for_run(page)
        page.keyboard.press("Control+s")
        page.wait_for_timeout(1000)

        def reload() -> None:
            page.reload(timeout=SLOW)
            page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=SLOW)

        with busy():
            return {"reloads in JupyterLab": [seconds(page, lambda: None, reload) for _ in range(TIMES)]}


@contextmanager
def busy() -> Iterator[None]:
    """Processes that compute all the time."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def seconds(page: Page, load: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> float:
    """Time from the load, or from what is done before it, until the page shows the run and a picture of it."""
    before()
    began = time.monotonic()
    load()
    wait_for_run(page)
    return time.monotonic() - began


def wait_for_run(page: Page) -> None:
    """Wait until the page shows the run and a picture of it."""
    live = page.locator(".ptynb-live")
    expect(live.locator("b").first).to_have_text("running", timeout=SLOW)
    live.locator("[data-frame]").first.wait_for(timeout=SLOW)


if __name__ == "__main__":
    sys.exit(main())
