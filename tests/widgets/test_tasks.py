"""What five frequent tasks cost a user of the workbench: clicks, characters and turns of the wheel, at most so many."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.io import layouts
from tests.io.test_near_field import FOCUS, shadows
from tests.widgets.conftest import Lab
from tests.widgets.test_lab import ask, wait_until
from tests.widgets.user import Effort, User

NOTEBOOK = "bench.ipynb"
OPEN = "import ptynb as pt\nbench = pt.workbench()\nbench"
CLEAN = "bench.recon and bench.recon.close(); cluster = bench.cluster; bench.close(); cluster and cluster.stop()"
MOST = {
    "open a near-field file and start": (7, 2, 0),
    "change the rate of a running reconstruction": (3, 6, 0),
    "measure a width in the object": (2, 0, 0),
    "compare two runs": (6, 0, 0),
    "go back ten epochs and branch": (4, 0, 0),
}
"""Of each task: clicks, characters, turns of the wheel."""


class Bench:
    """A workbench in a JupyterLab of 1280 x 720 pixels, its user, and its kernel."""

    def __init__(self, lab: Lab, page: Page) -> None:
        layouts.cxidb(lab.folder / "shadows.cxi", shadows(FOCUS))
        self.kernel = lab.run(page, NOTEBOOK, OPEN)
        self.page, self.view = page, page.locator(".ptynb-workbench").first
        self.view.wait_for(timeout=60_000)
        self.user = User(page, (340, 500))
        self.efforts: dict[str, Effort] = {}

    @contextmanager
    def task(self, name: str) -> Iterator[User]:
        with self.user.task() as effort:
            yield self.user
        self.efforts[name] = effort

    def button(self, name: str) -> Locator:
        """By its text alone, with an icon before it; a tab can have the same text."""
        buttons = self.view.locator("button:not([role=tab])").filter(has_text=re.compile(rf"^\s*{re.escape(name)}\s*$"))
        return buttons.locator("visible=true").first

    def tab(self, name: str) -> Locator:
        return self.view.get_by_role("tab", name=name, exact=True)

    def field(self, label: str) -> Locator:
        return self.view.get_by_label(label, exact=True).locator("visible=true").first

    @property
    def badge(self) -> Locator:
        return self.view.locator(".ptynb-live b").first

    def ask(self, expression: str) -> Any:
        return ask(self.kernel, expression)

    def until(self, expression: str, seconds: float = 60) -> Callable[[], None]:
        return lambda: wait_until(self.kernel, f"bool({expression})", seconds)

    def does(self, code: str) -> None:
        """Runs code that is no part of a task."""
        reply = self.kernel.execute(code, reply=True, timeout=60)
        assert reply["content"]["status"] == "ok", reply["content"]


@pytest.fixture
def bench(lab: Lab, browser: Browser) -> Iterator[Bench]:
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    made = Bench(lab, context.new_page())
    try:
        yield made
    finally:
        made.kernel.execute(CLEAN, reply=True, timeout=60)
        made.kernel.stop_channels()
        context.close()


@pytest.mark.timeout(300)  # a JupyterLab and a cluster
def test_frequent_tasks_take_few_clicks(bench: Bench) -> None:
    for task in (open_near_field, change_rate, measure_width, compare_runs, go_back):
        task(bench)
    for name, effort in bench.efforts.items():
        print(f"{name}: {effort}")
    dear = {
        name: str(effort)
        for name, effort in bench.efforts.items()
        if any(np.array([effort.clicks, effort.characters, effort.turns]) > MOST[name])
    }
    assert not dear
    assert bench.efforts.keys() == MOST.keys()


def open_near_field(bench: Bench) -> None:
    """A file without its geometry; the distance from the focus is known as 10 mm."""
    with bench.task("open a near-field file and start") as user:
        user.click(bench.view.get_by_role("button", name="shadows.cxi"))
        suggestion = bench.view.locator("button").filter(has_text="Use near field, focus to sample")
        user.click(suggestion)
        focus = bench.field("Focus to sample")
        user.wait(lambda: expect(focus).not_to_have_value(""))  # what the file suggests, from the kernel
        user.wait(lambda: expect(suggestion).to_be_hidden())  # the file is described anew, and fields have their place
        user.click(focus, times=2)
        user.type("10")
        user.click(bench.button("Load"))
        user.wait(lambda: expect(bench.view.locator(".ptynb-inspect")).to_contain_text("16 patterns", timeout=30_000))
        user.click(bench.tab("Run"))
        user.click(bench.button("New run"))
        user.wait(bench.until("bench.recon is not None and bench.recon.epoch > 0"), run=True)
        user.wait(bench.view.locator(".ptynb-live [data-frame]").first.wait_for)
    assert bench.ask("bench.recon.scan.geometry.focus_to_sample") == FOCUS


def change_rate(bench: Bench) -> None:
    bench.does("bench.recon.wait(); bench.recon.start(1_000_000)")
    expect(bench.badge).to_have_text("running", timeout=20_000)
    with bench.task("change the rate of a running reconstruction") as user:
        user.click(bench.field("Probe learning rate"), times=3)
        user.type("0.004", "Enter")
        user.wait(bench.until("[0 < s.rates['probe'] <= 0.004 for s in bench.recon.status()] == [True]"))


def measure_width(bench: Bench) -> None:
    """While it runs; what the screen says is what its line of Python computes, in metres."""
    with bench.task("measure a width in the object") as user:
        user.click(bench.view.locator(".ptynb-main").get_by_role("button", name="Ruler"))
        user.drag(bench.view.locator(".ptynb-main .ptynb-pane-stage").first, (0.4, 0.5), (0.6, 0.45))
        said = bench.view.locator(".ptynb-main .ptynb-measure-text").first
        user.wait(lambda: expect(said).to_contain_text("Length"))
    bench.until("bench.code.splitlines()[-1].startswith('np.hypot')", 20)()  # at the end of the drag
    line = bench.ask("bench.code.splitlines()[-1]")
    metres, until = eval(line, {"np": np}), time.monotonic() + 10
    while True:
        shown = re.search(r"Length ([\d.]+) (nm|µm)", said.inner_text())
        assert shown is not None
        if float(shown[1]) * {"nm": 1e-9, "µm": 1e-6}[shown[2]] == pytest.approx(metres, rel=0.01):
            break
        assert time.monotonic() < until, (shown[0], line)
        bench.user.page.wait_for_timeout(100)


def compare_runs(bench: Bench) -> None:
    """From a first run that has ended; the second one is its repetition."""
    bench.user.click(bench.button("Stop"))
    bench.until("bench.recon.state == 'ready'")()
    with bench.task("compare two runs") as user:
        user.click(bench.button("Result"))
        user.click(bench.button("Add to comparison"))
        user.wait(bench.until("len(bench.session.results) == 1"))
        user.click(bench.button("New run"))
        # The first run ended at another epoch, and is closed before there is a second one.
        ended = "bench.recon is not None and bench.recon.epoch == 100 and bench.recon.state == 'ready'"
        user.wait(bench.until(ended), run=True)
        user.wait(lambda: expect(bench.badge).to_have_text("ready", timeout=20_000))
        user.click(bench.button("Add to comparison"))
        user.wait(bench.until("len(bench.session.results) == 2"))
        user.click(bench.tab("Compare"))
        user.click(bench.button("Compare"))
        user.wait(lambda: expect(bench.view.locator(".ptynb-compare")).to_contain_text("FRC", timeout=60_000))


def go_back(bench: Bench) -> None:
    """To a checkpoint of ten epochs ago, and on from there."""
    bench.user.click(bench.tab("Run"))
    bench.does("bench.recon.save_checkpoint(); bench.recon.start(10); bench.recon.wait()")
    expect(bench.badge).to_have_text("ready", timeout=20_000)
    expect(bench.view.locator(".ptynb-live")).to_contain_text("epoch 110", timeout=20_000)
    with bench.task("go back ten epochs and branch") as user:
        user.click(bench.button("Checkpoints"))
        states = bench.view.locator(".ptynb-history select").locator("visible=true").first
        user.wait(lambda: expect(states.locator("option")).to_have_count(2))
        user.click(states.locator("option").filter(has_text=re.compile(r"^\s*100\b")))
        user.click(bench.button("Branch"))
        user.wait(bench.until("bench.recon.epoch == 100 and bench.recon.branch_name != 'main'"))
        user.click(bench.button("Start"))
        user.wait(bench.until("bench.recon.epoch > 100"), run=True)
