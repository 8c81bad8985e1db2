"""A run that goes on without a notebook is offered by the workbench, or come back to by itself."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ptynb as pt
from ptynb.app import resume_offer as offers
from ptynb.app.resume_offer import Offer
from ptynb.app.session_state import LANES
from ptynb.app.workbench_app import Workbench
from ptynb.cluster import runtime_dir
from ptynb.data.scan import Scan
from ptynb.session.resume import going_on
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions

LEFT = """import os, pathlib, time, ptynb as pt
cluster = pt.Cluster(1, device="cpu", threads=1, detached_timeout=300.0)
keep = pt.Checkpointing(folder={folder!r})
recon = pt.Reconstruction(pt.load({scan!r}), pt.Settings(batch=12), cluster, checkpointing=keep)
recon.start(1_000_000)
while recon.epoch < 2:
    time.sleep(0.05)
pathlib.Path({folder!r}, "name").write_text(cluster.name)
os._exit(0)"""


def until(there: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end
        time.sleep(0.02)


class Taken(list[str]):
    """The names that were come back to."""

    def __call__(self, name: str) -> None:
        self.append(name)

    def complain(self, error: Exception | None) -> None:
        if error is not None:
            raise error


def lines(offer: Offer) -> list[str]:
    return [line.children[1].value for line in offer.children]


def test_one_run_is_come_back_to_by_itself_and_several_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, runs = Taken(), dict[str, str]()
    actions = Actions("test", taken.complain, lanes=LANES)
    monkeypatch.setattr(offers, "going_on", lambda scan: dict(runs))
    monkeypatch.setattr(offers, "any_held_elsewhere", lambda: True)
    offer = Offer(actions, taken)
    offer.look(None, by_itself=True)
    time.sleep(0.2)
    runs["ptynb-one"] = "one <run>"  # let go of by the page before only now
    until(lambda: taken == ["ptynb-one"])
    assert offer.children == ()
    runs["ptynb-two"] = "another one"
    offer.look(None, by_itself=True)
    until(lambda: len(offer.children) == 2)
    assert "one &lt;run&gt;" in lines(offer)[0]
    button = offer.children[1].children[0]
    assert isinstance(button, elements.Button)
    button.click()
    until(lambda: taken == ["ptynb-one", "ptynb-two"])
    offer.end()
    assert offer.children == ()
    actions.close()


@pytest.fixture
def left(tmp_path: Path) -> Iterator[tuple[Scan, str]]:
    """A scan, and the name of the cluster on which a process that has ended left a run of it."""
    scan = pt.save_scan(pt.simulate(patterns=36, window=32, seed=5), tmp_path / "scan.h5")
    text = LEFT.format(scan=str(tmp_path / "scan.h5"), folder=str(tmp_path / "kept"))
    (tmp_path / "kept").mkdir()
    subprocess.run([sys.executable, "-c", text], check=True, timeout=120)
    name = (tmp_path / "kept" / "name").read_text()
    yield scan, name
    if runtime_dir.folder_of(name).exists():
        subprocess.run([sys.executable, "-m", "ptynb.cli.main", "stop", name], check=True, timeout=60)


def test_a_run_without_its_notebook_is_found_by_its_scan_and_come_back_to(left: tuple[Scan, str]) -> None:
    (scan, name), other = left, pt.simulate(patterns=25, window=32, seed=7)
    cut = pt.preparation.crop(scan, (24, 24))
    assert [*going_on(scan)] == [*going_on(cut)] == [name]
    assert "simulated, running" in going_on()[name]
    assert name not in going_on(other)
    offered = pt.workbench(scan)
    until(lambda: len(offered._offer.children) == 1)
    assert name in lines(offered._offer)[0]
    assert offered.recon is None
    bench = Workbench(scan, by_itself=True)
    try:
        until(lambda: bench.recon is not None)
        assert bench.recon is not None
        bench._actions.settle()
        assert bench.recon.epoch >= 2
        assert (bench.settings.batch, bench._tabs.selected_index) == (12, 2)
        assert f"recon = pt.attach({name!r})" in bench.code
        assert going_on(scan) == {}  # it has a notebook now
    finally:
        for shown in (offered, bench):
            shown.close()
        if bench.cluster is not None:
            bench.cluster.stop()
