"""The tab Run of the workbench with a real Slurm: the news of the queue, Cancel, and engines on a node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ptynb as pt
from ptynb.app.cluster_choice import SLURM
from ptynb.app.workbench_app import Workbench
from ptynb.cluster.launchers import slurm_commands
from ptynb.widgets import elements
from ptynb.widgets.elements import below
from tests.slurm.daemons import Slurm
from tests.slurm.runs import until


@pytest.fixture
def bench(nodes: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    monkeypatch.chdir(tmp_path)
    bench = pt.workbench(pt.simulate(patterns=36, window=32, seed=2))
    bench._run_tab._clusters.launcher.value = SLURM
    bench._run_tab._epochs.value = 2
    yield bench
    if bench.cluster is not None:
        bench.cluster.stop()
    bench.close()


def enter(bench: Workbench, **texts: str) -> None:
    for name, text in texts.items():
        bench._run_tab._clusters.fields[SLURM][name].value = text
    bench._actions.settle()


def press(bench: Workbench, text: str) -> None:
    places = below(bench._run_tab)
    next(one for one in places if isinstance(one, elements.Button) and one.description == text).click()


def queued() -> list[str]:
    return slurm_commands.ask("squeue", "--noheader", "--partition=long,short", "--format=%i").split()


def test_a_job_that_waits_is_followed_and_cancel_leaves_none_behind(bench: Workbench) -> None:
    enter(bench, nodes="1", device="cpu", extra="--hold")
    row = bench._run_tab._starting
    press(bench, "New run")
    until(lambda: "waits in the queue" in row.text.value)
    [job] = queued()
    assert f"job {job} waits in the queue (held; &#x27;scontrol release&#x27; releases it)" in row.text.value
    press(bench, "Cancel")
    bench._actions.settle(60)
    assert "was cancelled, and no job is left" in row.text.value
    assert (queued(), slurm_commands.state(job).over) == ([], True)
    assert (bench._message.value, bench.cluster, bench.recon) == ("", None, None)


def test_engines_on_a_node_run_and_the_line_is_that_of_the_fields(bench: Workbench) -> None:
    enter(bench, nodes="1", device="cpu", cpus_per_engine="1", time="00:10:00", partition="long", extra="--hold")
    row, seen = bench._run_tab._starting, list[str]()
    row.text.observe(lambda change: seen.append(re.sub("<.*?>", "", change["new"])), "value")
    press(bench, "New run")
    until(lambda: "waits in the queue" in row.text.value)
    [job] = queued()
    slurm_commands.ask("scontrol", "release", job)
    bench._actions.settle(60)
    assert bench._message.value == ""
    assert bench.recon is not None
    bench.recon.wait()
    assert bench.recon.epoch == 2
    assert f"job {job} runs on n1" in seen
    line = (
        "cluster = pt.Cluster.slurm(nodes=1, device='cpu', cpus_per_engine=1, time='00:10:00', partition='long', "
        "extra=('--hold',))"
    )
    assert line in bench.code.splitlines()
    press(bench, "Stop engines")
    bench._actions.settle(60)
    assert bench.cluster is None
    assert slurm_commands.state(job).over


def test_a_partition_that_is_not_there_is_said_at_its_field_and_nothing_is_submitted(bench: Workbench) -> None:
    enter(bench, nodes="1", device="cpu", partition="nowhere")
    press(bench, "New run")
    bench._actions.settle()
    problems = bench._run_tab._clusters.problems
    assert [*problems] == ["partition"]
    assert "sinfo lists no node --partition=nowhere" in problems["partition"]
    assert (queued(), bench._message.value) == ([], "")
