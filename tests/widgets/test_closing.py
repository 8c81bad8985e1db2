"""Views that were shown and closed leave no model of the notebook, and no element that is still held."""

from __future__ import annotations

import gc
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ipywidgets
import pytest

import ptynb as pt
from ptynb.data.scan import Scan
from ptynb.polling import wait_until
from ptynb.widgets.element_tree import Element
from ptynb.widgets.form import SettingsForm
from ptynb.widgets.viewer.viewer import Viewer
from tests.live_source import Source

TIMES = 1
Opened = Callable[[pt.Reconstruction, Path], Any]


@pytest.fixture(scope="module")
def scan() -> Scan:
    return pt.simulate(patterns=36, window=32, seed=5)


@pytest.fixture(scope="module")
def recon(scan: Scan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pt.Reconstruction]:
    """After an epoch, with a kept state and a folder that can be watched."""
    folder: Path = tmp_path_factory.mktemp("kept")
    keep = pt.Checkpointing(folder=folder, seconds=None, pictures=0.01)
    with pt.Reconstruction(scan, pt.Settings(batch=12), device="cpu", checkpointing=keep) as made:
        made.step()
        made.save_checkpoint()
        made.save(folder / "one.h5")
        yield made


def form_opened(recon: pt.Reconstruction, _: Path) -> SettingsForm:
    """With a range and an entry of a list."""
    form = SettingsForm(ticks=True, scan=recon.scan)
    form.tune("probe.learning_rate")
    form.add("constraints", "fixed_probe_power")
    form.settle()
    return form


def workbench_used(recon: pt.Reconstruction, _: Path) -> Any:
    """With a run whose views were replaced by those of another one."""
    bench = pt.workbench(recon=recon)
    bench.session.recon = None
    bench.session.recon = recon
    return bench


def workbench_of_live_scan(recon: pt.Reconstruction, folder: Path) -> Any:
    """With fields of a live source, and the scan of one."""
    source = Source(recon.scan, Path(tempfile.mkdtemp(dir=folder)))
    source.give([3, 4])
    bench = pt.workbench(source.live)
    bench.scan_tab.live = True
    source.close()
    return bench


WIDGETS: dict[str, Opened] = {
    "viewer": lambda recon, folder: Viewer(),
    "inspect": lambda recon, folder: pt.inspect(recon.scan),
    "set up": lambda recon, folder: pt.settings_form(recon.scan),
    "form": form_opened,
    "live form": lambda recon, folder: SettingsForm(recon.settings, live=True, recon=recon),
    "live": lambda recon, folder: pt.live(recon),
    "history": lambda recon, folder: pt.history(recon),
    "watch": lambda recon, folder: pt.watch(folder),
    "compare": lambda recon, folder: pt.compare(folder / "one.h5", recon.result),
    "tuner": lambda recon, folder: pt.tuner(recon.scan),
    "workbench": workbench_used,
    "live scan": workbench_of_live_scan,
}


@pytest.mark.parametrize("opened", WIDGETS.values(), ids=WIDGETS.keys())
def test_views_that_are_shown_and_closed_leave_nothing(opened: Opened, recon: pt.Reconstruction) -> None:
    folder = recon.latest_checkpoint.parent  # type: ignore[union-attr]
    before: Counter[str] = Counter()
    for time in range(TIMES + 1):
        if time == 1:  # the first may leave what all of a kind share
            before = kinds()
        shown_and_closed(opened(recon, folder))
    wait_until(lambda: kinds() <= before, 5)  # threads that end
    assert kinds() - before == Counter()


def shown_and_closed(view: Element) -> None:
    page = view.widget
    assert page.comm is not None
    view.close()
    assert page.comm is None


def kinds() -> Counter[str]:
    """Of all elements and models that something holds."""
    gc.collect()
    return Counter(
        kind.__name__ for kind in map(type, gc.get_objects()) if issubclass(kind, Element | ipywidgets.Widget)
    )
