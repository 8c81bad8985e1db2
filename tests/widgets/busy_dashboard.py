"""`python -m tests.widgets.busy_dashboard`: is the page of the dashboard complete on a busy machine?

Loads it 20 times, each with a new kernel, beside 4 busy processes; its exit status is 1 if one page stays empty.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from playwright.sync_api import TimeoutError

import ptynb as pt
from tests.widgets.conftest import started_browser
from tests.widgets.test_dashboard import SLOW, started_dashboard

LOADS, BUSY = 20, 4


def main() -> int:
    """Return the exit status."""
    complete = 0
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        with tempfile.TemporaryDirectory() as place, started_browser() as browser:
            folder = Path(place, "work")
            folder.mkdir()
            pt.save_scan(pt.simulate(patterns=36, window=32, seed=5), folder / "scan.h5")
            with started_dashboard(folder, "scan.h5") as dashboard:
                for number in range(1, LOADS + 1):
                    began, page = time.monotonic(), browser.new_page()
                    page.goto(dashboard.address, timeout=SLOW)
                    try:
                        page.locator(".ptynb-workbench").wait_for(timeout=SLOW)
                        complete += 1
                    except TimeoutError:
                        print(f"load {number}: empty")
                    else:
                        print(f"load {number}: complete after {time.monotonic() - began:.1f} s", flush=True)
                    page.close()
                    for kernel in dashboard.kernels():  # the next page is made anew
                        psutil.Process(kernel).kill()
    finally:
        for process in busy:
            process.kill()
            process.wait()
    print(f"{complete} of {LOADS} pages were complete.")
    return 0 if complete == LOADS else 1


if __name__ == "__main__":
    sys.exit(main())
