"""The tab Run of the workbench with a real Slurm: the news of the queue, Cancel, and engines on a node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ptynb as pt
from ptynb.app.cluster_choice import SLURM
from ptynb.app.workbench_app import Workbench
from ptynb.cluster.launchers import slurm_commands
from tests.slurm.daemons import Slurm
from tests.slurm.runs import until


@pytest.fixture
def bench(nodes: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    monkeypatch.chdir(tmp_path)
    bench = pt.workbench(pt.simulate(patterns=36, window=32, seed=2))
    bench.run_tab.clusters.launcher = SLURM
    bench.run_tab.epochs = 2
    yield bench
    if bench.cluster is not None:
        bench.cluster.stop()
    bench.close()


def enter(bench: Workbench, **texts: str) -> None:
    for name, text in texts.items():
        bench.run_tab.clusters.fields.enter(name, text)
    bench.actions.settle()


def queued() -> list[str]:
    return slurm_commands.ask("squeue", "--noheader", "--partition=long,short", "--format=%i").split()


def test_a_job_that_waits_is_followed_and_cancel_leaves_none_behind(bench: Workbench) -> None:
    enter(bench, nodes="1", device="cpu", extra="--hold")
    tab = bench.run_tab
    tab.new_run()
    until(lambda: "waits in the queue" in tab.starting)
    [job] = queued()
    assert f"job {job} waits in the queue (held; 'scontrol release' releases it)" in tab.starting
    tab.cancel_start()
    bench.actions.settle(60)
    assert "was cancelled, and no job is left" in tab.starting
    assert (queued(), slurm_commands.state(job).over) == ([], True)
    assert (bench.message, bench.cluster, bench.recon) == ("", None, None)


def test_engines_on_a_node_run_and_the_line_is_that_of_the_fields(bench: Workbench) -> None:
    enter(bench, nodes="1", device="cpu", cpus_per_engine="1", time="00:10:00", partition="long", extra="--hold")
    tab, seen = bench.run_tab, list[str]()
    tab.observe(lambda change: seen.append(change["new"]), "starting")
    tab.new_run()
    until(lambda: "waits in the queue" in tab.starting)
    [job] = queued()
    slurm_commands.ask("scontrol", "release", job)
    bench.actions.settle(60)
    assert bench.message == ""
    assert bench.recon is not None
    bench.recon.wait()
    assert bench.recon.epoch == 2
    assert f"job {job} runs on n1" in seen
    line = (
        "cluster = pt.Cluster.slurm(nodes=1, device='cpu', cpus_per_engine=1, time='00:10:00', partition='long', "
        "extra=('--hold',))"
    )
    assert line in bench.code.splitlines()
    tab.stop_engines()
    bench.actions.settle(60)
    assert bench.cluster is None
    assert slurm_commands.state(job).over


def test_a_partition_that_is_not_there_is_said_at_its_field_and_nothing_is_submitted(bench: Workbench) -> None:
    enter(bench, nodes="1", device="cpu", partition="nowhere")
    bench.run_tab.new_run()
    bench.actions.settle()
    problems = bench.run_tab.clusters.fields.problems
    assert [*problems] == ["partition"]
    assert "sinfo lists no node --partition=nowhere" in problems["partition"]
    assert (queued(), bench.message) == ([], "")
