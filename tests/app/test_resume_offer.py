"""A run that goes on without a notebook is offered by the workbench, or come back to by itself."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ptynb as pt
from ptynb.app import resume_offer
from ptynb.app.cluster_choice import EXISTING, LOCAL
from ptynb.app.workbench_app import Workbench
from ptynb.cluster import runtime_dir
from ptynb.data.scan import Scan
from ptynb.polling import wait_until
from ptynb.session.resume import going_on
from ptynb.widgets.element_tree import command

LEFT = """import os, pathlib, time, ptynb as pt
cluster = pt.Cluster(1, device="cpu", threads=1, detached_timeout=300.0)
keep = pt.Checkpointing(folder={folder!r})
recon = pt.Reconstruction(pt.load({scan!r}), pt.Settings(batch=12), cluster, checkpointing=keep)
recon.start(1_000_000)
while recon.epoch < 2:
    time.sleep(0.05)
pathlib.Path({folder!r}, "name").write_text(cluster.name)
os._exit(0)"""


def test_one_run_is_come_back_to_by_itself_and_several_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    taken, runs = list[str](), dict[str, str]()
    monkeypatch.setattr(resume_offer, "going_on", lambda scan: dict(runs))
    monkeypatch.setattr(resume_offer, "any_held_elsewhere", lambda: True)
    monkeypatch.setattr(Workbench, "attach", command(lambda bench, name: taken.append(name)))
    bench = Workbench(by_itself=True)
    time.sleep(0.2)
    runs["ptynb-one"] = "one run"  # let go of by the page before only now
    assert wait_until(lambda: taken == ["ptynb-one"], 60)
    assert bench.offers == {}
    bench.close()
    runs["ptynb-two"] = "another one"
    bench = Workbench(by_itself=True)
    assert wait_until(lambda: bench.offers == runs, 60)
    bench.receive_command("attach", {"name": "ptynb-two"})
    assert taken == ["ptynb-one", "ptynb-two"]
    bench.close()


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
    assert wait_until(lambda: [*offered.offers] == [name], 60)
    assert offered.recon is None
    bench = Workbench(scan, by_itself=True)
    try:
        assert wait_until(lambda: bench.recon is not None, 60)
        bench.actions.settle()
        assert bench.recon is not None
        assert bench.recon.epoch >= 2
        assert (bench.settings.batch, bench.tab, bench.offers) == (12, "Run", {})
        assert bench.run_tab.clusters.fields.text(EXISTING) == name
        assert f"recon = pt.attach({name!r})" in bench.lines
        assert going_on(scan) == {}  # it has a notebook now
        bench.run_tab.stop_engines()
        bench.actions.settle(60)
        assert (bench.message, bench.cluster, bench.run_tab.clusters.launcher) == ("", None, LOCAL)
    finally:
        for shown in (offered, bench):
            shown.close()
        if bench.cluster is not None:
            bench.cluster.stop()
