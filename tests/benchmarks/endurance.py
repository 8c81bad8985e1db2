"""Twelve hours of watching at speed: 100,000 updates of the view, and what they cost kernel and browser in memory.

usage: python -m tests.benchmarks.endurance [--updates 100000] [--only kernel|browser]

In a real kernel a live view is refreshed without a pause, with new pictures each time, from a reconstruction that is
replayed; its messages go out as they do to a notebook. In a real Chromium the same number of frames is drawn by the
viewer's module. After a tenth of the updates, when everything has been met once, memory is read; and at the end. Exits
with 1 where it grew by more than BOUNDS.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from jupyter_client.manager import start_new_kernel
from playwright.sync_api import Page

import ptynb as pt
from ptynb.data import images
from ptynb.data.engine_records import Epoch, Pictures, RenderRequest, Status
from ptynb.widgets.viewer.viewer import Viewer
from tests.widgets.browser_model import BrowserModel, _plain
from tests.widgets.conftest import started_browser

BOUNDS = {
    "kernel, traced": 100.0,
    "kernel, resident": 400.0,
    "page, heap": 50.0,
    "page, nodes": 0.001,
    "page, listeners": 0.001,
    "renderer, resident": 600.0,
}
"""What each may grow by an update: bytes, or a number of things. 100,000 updates at 400 bytes are 40 MB."""
UPDATES_AN_EPOCH = 100
KEPT_EPOCHS = 200
FAST_FLAGS = ["--disable-frame-rate-limit", "--disable-gpu-vsync"]
ROOT = Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class Growth:
    """Something that was read twice, `updates` updates of the view apart."""

    name: str
    early: float
    late: float
    updates: int

    @property
    def each(self) -> float:
        """What one update cost."""
        return (self.late - self.early) / self.updates

    def __str__(self) -> str:
        return f"{self.name}: {self.early:,.0f} -> {self.late:,.0f}, {self.each:+.3f} an update ({self.updates:,})"


class Replayed:
    """A reconstruction that has ended, told as if it went on: every look finds it one update further."""

    def __init__(self, recon: Any) -> None:
        self._recon = recon
        self._update = 0
        self._pictures: dict[RenderRequest, Pictures] = {}
        self.settings, self.epochs = recon.settings, tuple(recon.epochs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recon, name)

    def last_status(self) -> Status:
        self._update += 1
        epoch, update = divmod(self._update, UPDATES_AN_EPOCH)
        if update == 0:
            # The record grows with the epochs, as it has to; here only so far, for views are measured.
            self.epochs = (*self.epochs, Epoch(epoch, 1 / epoch, 1.0, 100.0))[-KEPT_EPOCHS:]
        status = self._recon.last_status()
        return dataclasses.replace(
            status, state="running", epoch=epoch, update=update, updates_per_epoch=UPDATES_AN_EPOCH, target=10**6
        )

    def pictures(self, request: RenderRequest) -> Pictures:
        key = json.dumps(dataclasses.asdict(request), default=str)
        if key not in self._pictures:
            self._pictures[key] = self._recon.pictures(request)
        epoch, update = divmod(self._update, UPDATES_AN_EPOCH)
        pictures: Pictures = _anew(dataclasses.replace(self._pictures[key], epoch=epoch, update=update))
        return pictures


def _anew(value: Any) -> Any:
    """The same with images of its own, so that whoever keeps one is seen to."""
    if isinstance(value, bytes):
        return bytes(bytearray(value))
    if isinstance(value, tuple):
        return tuple(_anew(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: _anew(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    return value


def refreshed(updates: int, traced: bool = True) -> list[Growth]:
    """A live view of this process refreshed so many times, each time with new pictures, which count as drawn."""
    scan = pt.simulate(patterns=36, window=32, seed=0)
    with pt.Reconstruction(scan, pt.Settings(probe=pt.Probe(modes=2)), device="cpu") as recon:
        list(recon.run(2))
        view = pt.live(Replayed(recon), rate=2.0)
        viewers = [view.object_pictures, view.probe_pictures, view.cut_pictures, view.pattern_pictures]
        for viewer in viewers:
            viewer.observe(_drawn, "frame")
        early: dict[str, float] = {}
        first = max(updates // 10, 1)
        if traced:
            tracemalloc.start()
        for _ in range(2 * updates):  # some meet the view's own thread, and find that nothing is new
            frames = max(viewer.frame.get("number", 0) for viewer in viewers)
            if frames >= first and not early:
                early = _own_memory(traced)
            if frames >= updates:
                break
            view._not_before = 0.0  # a view leaves its reconstruction time between two looks
            view.refresh()
        late = _own_memory(traced)
        tracemalloc.stop()
        view.close()
    if frames < updates:
        raise RuntimeError(f"Of {2 * updates} refreshes only {frames} sent a frame.")
    return [Growth(name, early[name], late[name], updates - first) for name in early]


def _drawn(change: Any) -> None:
    change["owner"].shown = change["new"]["number"]


def _own_memory(traced: bool) -> dict[str, float]:
    gc.collect()
    read = {"kernel, resident": float(psutil.Process().memory_info().rss)}
    return {**read, "kernel, traced": float(tracemalloc.get_traced_memory()[0])} if traced else read


def in_a_kernel(updates: int, traced: bool) -> list[Growth]:
    """`refreshed` in a real kernel, whose messages a client takes."""
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(ROOT))
    said: list[str] = []

    def take(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            said.append(message["content"]["text"])

    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import dataclasses, json\n"
        "from tests.benchmarks.endurance import refreshed\n"
        f"print('GROWTH', json.dumps([dataclasses.asdict(one) for one in refreshed({updates}, {traced})]))"
    )
    try:
        answer = client.execute_interactive(program, output_hook=take, timeout=None, allow_stdin=False)
        if answer["content"]["status"] != "ok":
            raise RuntimeError("\n".join(answer["content"]["traceback"]))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    found = json.loads("".join(said).split("GROWTH", 1)[1])
    return [Growth(**one) for one in found]


FEED = """
async ([first, count]) => {
  const { model, frames } = kernel;
  for (let number = first; number < first + count; number += 1) {
    const drawn = new Promise((done) => {
      const look = () => {
        if (model.get("shown") < number) return;
        model.off("change:shown", look);
        done();
      };
      model.on("change:shown", look);
    });
    kernel.update("frame", { ...frames[number % frames.length], number });
    await drawn;
  }
}
"""


def drawn(page: Page, updates: int, said: Callable[[str], None] = lambda line: None) -> list[Growth]:
    """So many frames of new pictures on a page of a real browser, each sent once the one before is drawn."""
    viewer = Viewer(height=120)
    shown = BrowserModel(page, viewer)
    page.evaluate("given => { kernel.frames = given; }", [_frame(seed) for seed in range(8)])
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    first, step = max(updates // 10, 1), max(updates // 10, 1)
    early: dict[str, float] = {}
    for number in range(0, updates, step):
        if number == first:
            early = _page_memory(session)
        page.evaluate(FEED, [number + 1, min(step, updates - number)])
        said(f"{min(number + step, updates):,} frames drawn, heap {_page_memory(session)['page, heap']:,.0f}")
    late = _page_memory(session)
    shown.close()
    viewer.close()
    return [Growth(name, early[name], late[name], updates - first) for name in early]


def _frame(seed: int) -> dict[str, Any]:
    """A frame with an object's phase and its colours, as the browser gets it."""
    random = np.random.default_rng(seed)
    field = random.standard_normal((128, 128)) + 1j * random.standard_normal((128, 128))
    viewer = Viewer()
    viewer.show([images.picture(np.angle(field), "phase", colours="viridis"), images.picture(field, "complex")])
    frame: dict[str, Any] = _plain(viewer.frame)
    viewer.close()
    return frame


def _page_memory(session: Any) -> dict[str, float]:
    session.send("HeapProfiler.collectGarbage")
    metrics = {entry["name"]: entry["value"] for entry in session.send("Performance.getMetrics")["metrics"]}
    return {
        "page, heap": metrics["JSHeapUsedSize"],
        "page, nodes": metrics["Nodes"],
        "page, listeners": metrics["JSEventListeners"],
        "renderer, resident": float(sum(process.memory_info().rss for process in _renderers())),
    }


def _renderers() -> Iterator[psutil.Process]:
    for process in psutil.Process().children(recursive=True):
        try:
            if "--type=renderer" in process.cmdline():
                yield process
        except psutil.NoSuchProcess:
            continue


def main() -> int:
    """Prints what grew, and says whether it was too much."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=100_000)
    parser.add_argument("--only", choices=["kernel", "browser"])
    chosen = parser.parse_args()
    growths: list[Growth] = []
    if chosen.only != "browser":
        started = time.monotonic()
        growths += in_a_kernel(chosen.updates, traced=False)
        growths += [one for one in in_a_kernel(chosen.updates // 10, traced=True) if "traced" in one.name]
        print(f"kernel: {time.monotonic() - started:.0f} s")
    if chosen.only != "kernel":
        started = time.monotonic()
        with started_browser(*FAST_FLAGS) as browser:
            growths += drawn(browser.new_page(), chosen.updates, print)
        print(f"browser: {time.monotonic() - started:.0f} s")
    for one in growths:
        print(f"{one}; bound {BOUNDS[one.name]:g}", "" if one.each <= BOUNDS[one.name] else "TOO MUCH")
    return int(any(one.each > BOUNDS[one.name] for one in growths))


if __name__ == "__main__":
    sys.exit(main())
