"""What is typed about a cluster: the options, the call that they make, what is wrong with them, and their fields."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ptynb as pt
from ptynb.app.cluster_choice import (
    EXISTING,
    LOCAL,
    SLURM,
    SSH,
    lines_of,
    section_of,
)
from ptynb.app.run_fields import options_of
from ptynb.app.workbench_app import Workbench
from ptynb.cluster import cluster_start
from ptynb.polling import wait_until
from ptynb.settings.cluster_options import ClusterSection, NoCluster
from ptynb.widgets.option_fields import OptionFields
from tests.raising import raises


@pytest.mark.parametrize(
    ("launcher", "texts", "call"),
    [
        (LOCAL, {"engines": "2", "device": "auto", "threads": " "}, "pt.Cluster(2)"),
        (LOCAL, {"engines": "1", "device": "cpu", "timeout": "120.0"}, "pt.Cluster(1, device='cpu')"),
        (SLURM, {"nodes": "2", "gpus_per_node": "4", "time": "01:00:00"},
         "pt.Cluster.slurm(nodes=2, gpus_per_node=4, time='01:00:00')"),
        (SLURM, {"nodes": "1", "device": "cpu", "extra": "--qos=high '--comment=two words'", "timeout": "60"},
         "pt.Cluster.slurm(nodes=1, device='cpu', extra=('--qos=high', '--comment=two words'), timeout=60.0)"),
        (SSH, {"hosts": "gpu1, gpu2 me@gpu3"}, "pt.Cluster.ssh(['gpu1', 'gpu2', 'me@gpu3'])"),
        (SSH, {"hosts": "gpu1 = 4, gpu2", "ssh": "ssh -J gate", "python": "/opt/python"},
         "pt.Cluster.ssh({'gpu1': 4, 'gpu2': None}, python='/opt/python', ssh=('ssh', '-J', 'gate'))"),
    ],
)  # fmt: skip
def test_what_was_typed_is_the_call_that_is_told_and_made(
    launcher: str, texts: dict[str, str], call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = section_of(launcher, texts)
    assert lines_of(section) == [f"cluster = {call}"]
    made: list[tuple[str, Any, Any]] = []

    class Recorder:
        def __init__(self, *given: Any, **options: Any) -> None:
            made.append((LOCAL, given, options))

        @staticmethod
        def slurm(*given: Any, **options: Any) -> None:
            made.append(
                (SLURM, given, {name: one for name, one in options.items() if name not in ("report", "cancel")})
            )

        @staticmethod
        def ssh(*given: Any, **options: Any) -> None:
            made.append((SSH, given, options))

    monkeypatch.setattr(cluster_start, "Cluster", Recorder)
    cluster_start.start_cluster(section, print)
    eval(call, {"pt": SimpleNamespace(Cluster=Recorder)})
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("launcher", "texts", "field", "told"),
    [
        (SLURM, {"nodes": "two"}, "nodes", "Nodes is 'two': "),
        (SLURM, {"nodes": "1", "time": "an hour"}, "time", "Time limit is 'an hour': expected hours:minutes:seconds"),
        (SLURM, {"gpus_per_node": "4", "engines_per_node": "2"}, "engines_per_node", "engines_per_node is 2 and"),
        (SLURM, {"extra": "qos=high"}, "extra", "Options of sbatch is 'qos=high': expected options of sbatch"),
        (SSH, {"hosts": " "}, "hosts", "Hosts is required, and empty."),
        (SSH, {"hosts": "one=two"}, "hosts", "Hosts is 'two': "),
        (SSH, {"hosts": "one=1, one=2"}, "hosts", "expected each name once"),
    ],
)
def test_what_is_wrong_is_one_sentence_about_a_field(
    launcher: str, texts: dict[str, str], field: str, told: str
) -> None:
    with pytest.raises(pt.exceptions.SettingsError) as caught:
        section_of(launcher, texts)
    fields = OptionFields(options_of(launcher))
    assert fields.mark(caught.value)
    ((name, sentence),) = fields.problems.items()
    assert name == field
    assert told in sentence
    assert "\n" not in sentence


def test_a_quote_that_is_not_closed_is_wrong_at_its_field() -> None:
    with raises("argument.invalid-value", "quote") as caught:
        section_of(SSH, {"hosts": "one", "ssh": "ssh -o 'User=me"})
    assert caught.value.fields == ("ssh",)


@pytest.fixture
def bench(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workbench]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))  # without clusters of others
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    bench = pt.workbench(pt.simulate(patterns=36, window=32, seed=2))
    bench.run_tab.epochs = 1
    yield bench
    if bench.recon is not None:
        bench.recon.close()
    if bench.cluster is not None:
        bench.cluster.stop()
    bench.close()


def choose(bench: Workbench, launcher: str, **texts: str) -> OptionFields:
    clusters = bench.run_tab.clusters
    clusters.launcher = launcher
    for name, text in texts.items():
        clusters.fields.enter(name, text)
    bench.actions.settle()
    fields = clusters.fields
    assert isinstance(fields, OptionFields)
    return fields


def done(bench: Workbench, command: Callable[[], None]) -> str:
    command()
    bench.actions.settle(60)
    return str(bench.message)


def test_options_of_this_machine_are_those_of_the_run_until_its_engines_are_stopped(bench: Workbench) -> None:
    choose(bench, LOCAL, engines="1", device="cpu", threads="1")
    line = "cluster = pt.Cluster(1, device='cpu', threads=1)"
    assert bench.run_tab.clusters.line == line
    assert done(bench, bench.run_tab.new_run) == ""
    assert bench.cluster is not None
    assert [engine.threads for engine in bench.cluster.plan.engines] == [1]
    assert line in bench.lines
    assert bench.facts["about"][-1].startswith("1 engine on ")
    first = bench.cluster
    assert done(bench, bench.run_tab.stop_engines) == ""
    assert (bench.cluster, first.running, bench.facts["about"][1:]) == (None, False, [])


def test_a_cluster_of_another_cell_is_chosen_by_its_name(bench: Workbench) -> None:
    tab, fields = bench.run_tab, choose(bench, EXISTING)
    assert done(bench, tab.new_run) == ""
    assert "No cluster runs that this notebook could use" in fields.problems[EXISTING]
    assert (bench.recon, tab.page) == (None, "Cluster")
    with pt.Cluster(1, device="cpu", threads=1) as mine:
        tab.receive_values({"page": ""})  # opened again, the list is that of now
        tab.receive_values({"page": "Cluster"})
        bench.actions.settle()
        assert (fields.text(EXISTING), fields.problems) == (mine.name, {})
        assert done(bench, tab.new_run) == ""
        assert bench.cluster is mine
        assert "has not started engines" in done(bench, tab.stop_engines)
        assert bench.recon is not None
        bench.recon.close()
        bench.session.use_cluster(NoCluster())


def test_a_given_cluster_is_shown_and_not_exchanged(cluster: pt.Cluster) -> None:
    bench = pt.workbench(cluster=cluster)
    clusters = bench.run_tab.clusters
    assert (clusters.launcher, clusters.fields.text("engines")) == ("given", "2")
    assert {"engines", "device"} <= {*clusters.fields.disabled}
    bench.close()


def test_what_is_wrong_is_said_at_its_field_before_anything_is_ended(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(bench, LOCAL, engines="0")
    tab = bench.run_tab
    assert done(bench, tab.new_run) == ""
    recon = bench.recon
    assert recon is not None
    recon.wait()
    monkeypatch.setattr("ptynb.cluster.cluster_start.scheduler_commands.require", lambda title, name: name)
    for launcher, texts, field, told in (
        (SLURM, {"nodes": "two"}, "nodes", "Nodes is 'two'"),
        (SLURM, {"nodes": "1"}, "gpus_per_node", "No GPUs were requested"),
        (SLURM, {"gpus_per_node": "1", "nodes": ""}, "nodes", "There is no present Slurm job"),
        (SSH, {}, "hosts", "Hosts is required"),
        (SSH, {"hosts": "-oX"}, "hosts", "expected a name for ssh"),
        (SSH, {"hosts": "no.such.host.invalid"}, "hosts", "no.such.host.invalid cannot be used"),
    ):
        fields, tab.page = choose(bench, launcher, **texts), ""
        assert done(bench, tab.new_run) == ""
        assert (tab.page, [*fields.problems]) == ("Cluster", [field])
        assert told in fields.problems[field]
        assert (bench.recon, recon.closed, tab.clusters.problem) == (recon, False, "")
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "/nowhere")
    fields = choose(bench, SLURM, nodes="1", device="cpu")
    assert (fields.text("gpus_per_node"), done(bench, tab.new_run)) == ("1", "")  # as it was left
    assert "sbatch was not found on this machine" in tab.clusters.problem


def test_the_news_of_a_queue_is_shown_and_cancel_or_closing_ends_the_wait(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancels: list[threading.Event] = []

    def wait(chosen: ClusterSection, report: Any, cancel: threading.Event) -> None:
        cancels.append(cancel)
        report("job 12 waits in the queue (waiting for resources; may start at 14:05)")
        assert cancel.wait(30)
        raise pt.ClusterError("The start of the cluster was cancelled.", code="cluster.start-cancelled")

    monkeypatch.setattr("ptynb.app.session_state.start_cluster", wait)
    monkeypatch.setattr("ptynb.app.cluster_choice.check", lambda chosen: None)
    choose(bench, SLURM, nodes="1", device="cpu")
    tab = bench.run_tab
    assert not tab.can_cancel
    tab.new_run()
    assert wait_until(lambda: "may start at 14:05" in tab.starting, 10)
    assert tab.can_cancel
    assert done(bench, tab.cancel_start) == ""
    assert (tab.starting, tab.can_cancel) == ("The start was cancelled, and no job is left.", False)
    assert (bench.recon, bench.cluster) == (None, None)
    assert not [line for line in bench.lines if line.startswith("cluster")]
    tab.new_run()
    assert wait_until(lambda: len(cancels) == 2, 10)
    bench.close()
    assert cancels[1].is_set()
