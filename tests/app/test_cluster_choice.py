"""What is typed about a cluster, without widgets: the options, the call that they make, and what is wrong with them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import ptynb as pt
from ptynb.app import cluster_choice
from ptynb.app.cluster_choice import (
    EXISTING,
    LAUNCHER,
    LOCAL,
    SECTIONS,
    SLURM,
    SSH,
    Existing,
    RunCluster,
    existing_clusters,
    lines_of,
    options_of,
    section_of,
)
from ptynb.app.session_state import Desk
from ptynb.cluster import cluster_start
from ptynb.settings.base_models import told_by_field
from ptynb.settings.cluster_options import LocalCluster, NoCluster
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
    titles = {name: option.title for name, option in options_of(launcher).items()}
    ((name, sentence),) = told_by_field(caught.value, titles).items()
    assert name == field
    assert told in sentence
    assert "\n" not in sentence


def test_a_quote_that_is_not_closed_is_wrong_at_its_field() -> None:
    with raises("argument.invalid-value", "quote") as caught:
        section_of(SSH, {"hosts": "one", "ssh": "ssh -o 'User=me"})
    assert caught.value.fields == ("ssh",)


def test_options_are_those_of_the_models_with_titles_and_what_an_empty_field_means() -> None:
    for launcher, section in SECTIONS.items():
        options = options_of(launcher)
        assert [*options] == [name for name in section.model_fields if name != "kind"]
        assert len({option.title for option in options.values()}) == len(options)
        assert all(option.description for option in options.values())
    slurm = options_of(SLURM)
    assert (slurm["nodes"].usual, slurm["extra"].usual) == ("those of the present job", "such as --qos=high")
    assert (slurm["gpus_per_node"].title, slurm["timeout"].initial) == ("GPUs per node", "300")
    assert "xpu" in options_of(LOCAL)["device"].choices
    assert "xpu" not in slurm["device"].choices


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk(None, None, None)
    yield made
    if made.cluster is not None:
        made.cluster.stop()


def test_engines_are_kept_while_the_choice_is_the_same_and_ended_when_it_changes(desk: Desk) -> None:
    engines, told = RunCluster(desk), list[str]()
    one = LocalCluster(engines=1, device="cpu", threads=1)
    with raises("workbench.no-cluster"):
        engines.stop()
    engines.use(one, told.append, threading.Event())
    first = desk.cluster
    assert first is not None
    engines.use(one, told.append, threading.Event())
    assert desk.cluster is first
    assert told == ["starting 1 engine …"]
    engines.use(NoCluster(), told.append, threading.Event())
    assert desk.cluster is None
    assert not first.running
    assert desk.lines[-2:] == ["cluster = pt.Cluster(1, device='cpu', threads=1)", "cluster.stop()"]


def test_an_existing_cluster_is_joined_and_left_running(desk: Desk) -> None:
    engines = RunCluster(desk)
    with pt.Cluster(1, device="cpu", threads=1) as mine:
        assert existing_clusters()[mine.name] == f"{mine.name}: local, 1 engine"
        engines.use(Existing(mine.name), print, threading.Event())
        assert desk.cluster is mine
        assert desk.lines[-1] == f"cluster = pt.Cluster.joined({mine.name!r})"
        assert pt.Cluster.joined(mine.name) is mine
        with raises("workbench.no-cluster"):
            engines.stop()
        engines.use(NoCluster(), print, threading.Event())
        assert mine.running
        name = mine.name
    assert name not in existing_clusters()
    with raises("cluster.not-reachable", name) as caught:
        engines.use(Existing(name), print, threading.Event())
    assert caught.value.fields == (EXISTING,)


def test_nothing_is_ended_for_what_can_not_be_started(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    engines = RunCluster(desk)
    engines.use(LocalCluster(engines=1, device="cpu", threads=1), print, threading.Event())
    running = desk.cluster
    monkeypatch.setattr(cluster_start.slurm_commands, "require", lambda name: name)
    for launcher, texts, field in (
        (SLURM, {"nodes": "1"}, "gpus_per_node"),
        (SLURM, {"device": "cpu"}, "nodes"),
        (SSH, {"hosts": "-oX"}, "hosts"),
    ):
        with pytest.raises(pt.ClusterError) as caught:
            engines.use(section_of(launcher, texts), print, threading.Event())
        assert caught.value.fields[0] == field
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "/nowhere")
    with raises("slurm.not-installed") as missing:
        engines.use(section_of(SLURM, {"nodes": "1", "device": "cpu"}), print, threading.Event())
    assert missing.value.fields == (LAUNCHER,)
    assert desk.cluster is running
    assert running is not None
    assert running.running


def test_a_cluster_that_another_process_holds_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    with pt.Cluster(1, device="cpu", threads=1) as mine:
        monkeypatch.setattr(cluster_choice.os, "getpid", lambda: os.getppid())
        assert mine.name not in existing_clusters()
