"""The tab Run with clusters of every launcher: what is chosen is used and told, what is wrong is said at its field."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ptynb as pt
from ptynb.app.cluster_choice import EXISTING, LOCAL, SLURM, SSH
from ptynb.app.cluster_fields import ClusterFields
from ptynb.app.workbench_app import Workbench
from ptynb.polling import wait_until
from ptynb.settings.cluster_options import ClusterSection
from ptynb.widgets import elements
from ptynb.widgets.elements import below


@pytest.fixture
def bench(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workbench]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))  # without clusters of others
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    bench = pt.workbench(pt.simulate(patterns=36, window=32, seed=2))
    yield bench
    if bench.recon is not None:
        bench.recon.close()
    if bench._run_tab._cluster._own is not None:
        bench._run_tab._cluster._own.stop()
    bench.close()


def fields(bench: Workbench) -> ClusterFields:
    return bench._run_tab._clusters


def choose(bench: Workbench, launcher: str, **texts: str) -> None:
    fields(bench).launcher.value = launcher
    for name, text in texts.items():
        fields(bench).fields[launcher][name].value = text
    bench._actions.settle()


def button(bench: Workbench, text: str) -> elements.Button:
    places = below(bench._run_tab)
    return next(one for one in places if isinstance(one, elements.Button) and one.description == text)


def click(bench: Workbench, text: str) -> None:
    button(bench, text).click()
    bench._actions.settle(60)


def test_options_of_this_machine_are_used_and_told_and_the_cluster_is_kept(bench: Workbench) -> None:
    fields(bench).engines.value, fields(bench).device.value = 1, "cpu"
    choose(bench, LOCAL, threads="1")
    bench._run_tab._epochs.value = 1
    click(bench, "New run")
    assert bench._message.value == ""
    assert bench.cluster is not None
    assert "cluster = pt.Cluster(1, device='cpu', threads=1)" in bench.code.splitlines()
    assert [engine.threads for engine in bench.cluster.plan.engines] == [1]
    first = bench.cluster
    assert bench.recon is not None
    bench.recon.wait()
    click(bench, "New run")
    assert bench.cluster is first
    click(bench, "Stop engines")
    assert (bench.cluster, first.running) == (None, False)


def test_a_cluster_of_another_cell_is_chosen_by_its_name_and_not_stopped(bench: Workbench) -> None:
    choose(bench, EXISTING)
    click(bench, "New run")
    assert "No cluster runs that this notebook could use" in fields(bench).problems[EXISTING]
    assert bench.recon is None
    assert bench._run_tab._bar.shown == "Cluster"
    with pt.Cluster(1, device="cpu", threads=1) as mine:
        bench._run_tab._bar.shown = None  # opened again, the list is that of now
        bench._run_tab._bar.shown = "Cluster"
        bench._actions.settle()
        assert fields(bench).existing == mine.name
        assert fields(bench).problems == {}
        bench._run_tab._epochs.value = 1
        click(bench, "New run")
        assert bench.recon is not None
        bench.recon.wait()
        assert bench.cluster is mine
        assert f"cluster = pt.Cluster.joined({mine.name!r})" in bench.code.splitlines()
        click(bench, "Stop engines")
        assert "has not started engines" in bench._message.value
        bench.recon.close()


def test_only_the_options_of_the_launcher_are_shown_and_the_line_follows(bench: Workbench) -> None:
    def shown() -> set[str]:
        return {one.description for one in below(fields(bench)) if getattr(one, "description", "")}

    assert shown() == {"Launcher", "Threads", "Detached timeout [s]", "Longest start [s]"}
    choose(bench, SLURM, nodes="2", gpus_per_node="4", partition="gpu")
    assert {"Nodes", "GPUs per node", "Partition", "Account", "Time limit", "Options of sbatch"} < shown()
    assert "Threads" not in shown()
    line = fields(bench)._line.value
    assert "cluster = pt.Cluster.slurm(nodes=2, gpus_per_node=4, partition=&#x27;gpu&#x27;)" in line
    assert [one.layout.display for one in fields(bench).beside] == ["none", "none", None]
    assert "Slurm" in fields(bench).beside[2].value
    choose(bench, SSH)
    assert {"Hosts", "Python", "ssh command"} < shown()
    choose(bench, LOCAL)
    assert [one.layout.display for one in fields(bench).beside] == [None, None, "none"]
    choose(bench, SLURM)
    assert fields(bench).fields[SLURM]["nodes"].value == "2"  # as it was left


def test_what_is_wrong_is_said_at_its_field_before_anything_is_ended(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields(bench).engines.value = 0
    bench._run_tab._epochs.value = 1
    click(bench, "New run")
    recon = bench.recon
    assert recon is not None
    recon.wait()
    monkeypatch.setattr("ptynb.cluster.cluster_start.slurm_commands.require", lambda name: name)
    for launcher, texts, field, told in (
        (SLURM, {"nodes": "two"}, "nodes", "Nodes is &#x27;two&#x27;"),
        (SLURM, {"nodes": "1"}, "gpus_per_node", "No GPUs were requested"),
        (SLURM, {"gpus_per_node": "1", "nodes": ""}, "nodes", "There is no present Slurm job"),
        (SSH, {}, "hosts", "Hosts is required"),
        (SSH, {"hosts": "-oX"}, "hosts", "expected a name for ssh"),
        (SSH, {"hosts": "no.such.host.invalid"}, "hosts", "no.such.host.invalid cannot be used"),
    ):
        choose(bench, launcher, **texts)
        bench._run_tab._bar.shown = None
        click(bench, "New run")
        assert bench._run_tab._bar.shown == "Cluster"
        assert [*fields(bench).problems] == [field]
        assert told in fields(bench).problems[field]
        assert bench._message.value == ""
        assert bench.recon is recon
        assert not recon.closed
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "/nowhere")
    choose(bench, SLURM, nodes="1", device="cpu")
    click(bench, "New run")
    assert "sbatch was not found on this machine" in fields(bench).problems["launcher"]


def test_the_news_of_a_queue_is_shown_and_cancel_or_closing_ends_the_wait(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancels: list[threading.Event] = []

    def wait(chosen: ClusterSection, report: Any, cancel: threading.Event) -> None:
        cancels.append(cancel)
        report("job 12 waits in the queue (waiting for resources; may start at 14:05)")
        assert cancel.wait(30)
        raise pt.ClusterError("The start of the cluster was cancelled.", code="cluster.start-cancelled")

    monkeypatch.setattr("ptynb.app.cluster_choice.start_cluster", wait)
    monkeypatch.setattr("ptynb.app.cluster_choice.check", lambda chosen: None)
    choose(bench, SLURM, nodes="1", device="cpu")
    row, cancel = bench._run_tab._starting, button(bench, "Cancel")
    assert cancel.layout.display == "none"
    button(bench, "New run").click()
    assert wait_until(lambda: "job 12 waits in the queue" in row.text.value, 10)
    assert "may start at 14:05" in row.text.value
    assert cancel.layout.display is None
    click(bench, "Cancel")
    assert "was cancelled, and no job is left" in row.text.value
    assert cancel.layout.display == "none"
    assert (bench._message.value, bench.recon, bench.cluster) == ("", None, None)
    assert not [line for line in bench.code.splitlines() if line.startswith("cluster")]
    button(bench, "New run").click()
    assert wait_until(lambda: len(cancels) == 2, 10)
    bench.close()
    assert cancels[1].is_set()
