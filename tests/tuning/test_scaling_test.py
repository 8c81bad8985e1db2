"""Scaling tests on real clusters, and the command."""

import json
import os
import signal
import threading

import pytest

import ptynb as pt
from ptynb.cli import main
from ptynb.cluster.cluster import Cluster
from ptynb.data.engine_records import Epoch
from ptynb.data.scaling_result import ScalingTrial
from ptynb.tuning import scaling_test
from tests.raising import raises


def test_each_trial_has_a_cluster_of_its_own_and_comes_to_the_same_loss(scan, monkeypatch):
    clusters, seen = [], []

    def start(*arguments, **options):
        clusters.append(Cluster(*arguments, **options))
        assert [one.running for one in clusters].count(True) == 1
        return clusters[-1]

    monkeypatch.setattr(scaling_test, "Cluster", start)
    settings = pt.Settings(batch=10)
    test = pt.scaling_test(scan, settings, [2, 1], trials=1, threads=[1], epochs=3, device="cpu", report=seen.append)
    assert seen == [*test.trials]
    assert [(trial.engines, trial.threads, trial.batch) for trial in test.trials] == [(1, 1, 10), (2, 1, 10)]
    assert [(len(one), one.plan.engines[0].threads, one.running) for one in clusters] == [(1, 1, False), (2, 1, False)]
    assert {len(trial.epochs) for trial in test.trials} == {3}
    alone, two = (trial.epochs[-1].loss for trial in test.trials)
    assert two == pytest.approx(alone, rel=1e-4)
    assert all(row.seconds > 0 for row in test.rows)
    assert (test.patterns, test.device, test.settings["batch"]) == (100, "CPU", 10)


def test_trials_go_by_turns(scan, monkeypatch):
    def run(scan, settings, plan, number, epochs, device):
        seconds = tuple(Epoch(epoch, 1.0, 0.5, 200.0) for epoch in range(1, epochs + 1))
        return ScalingTrial(len(plan.engines), plan.engines[0].threads, number, settings.effective_batch(2), seconds)

    monkeypatch.setattr(scaling_test, "_run", run)
    settings = pt.Settings(batch=10, batch_per="engine")
    test = pt.scaling_test(scan, settings, [2, 1, 2], trials=2, device="cpu")
    assert [(trial.engines, trial.number) for trial in test.trials] == [(1, 1), (2, 1), (1, 2), (2, 2)]
    assert {(len(trial.epochs), trial.batch) for trial in test.trials} == {(6, 20)}


def test_an_engine_that_dies_in_a_trial_is_told_with_the_trial(scan, monkeypatch):
    class Killing(Cluster):
        def __enter__(self):
            threading.Timer(1.0, os.kill, (self.call(1, os.getpid), signal.SIGKILL)).start()
            return super().__enter__()

    monkeypatch.setattr(scaling_test, "Cluster", Killing)
    with raises("engine.lost", "Trial 1 on 2 engines of 1 thread each has failed", "rank 1") as caught:
        pt.scaling_test(scan, pt.Settings(batch=10), [2], trials=1, threads=[1], epochs=100_000, device="cpu")
    assert "recover()" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"engines": []}, "engines is []"),
        ({"engines": [1, 0]}, "engines is [1, 0]"),
        ({"trials": 0}, "trials is 0"),
        ({"epochs": 1}, "epochs is 1"),
        ({"threads": []}, "threads is []"),
    ],
)
def test_invalid_numbers_are_refused(scan, options, fact):
    with raises("argument.invalid-value", fact):
        pt.scaling_test(scan, device="cpu", **options)


@pytest.mark.parametrize(
    ("options", "error", "fact"),
    [
        ({"threads": [10**6]}, pt.ClusterError, "1000000"),
        ({"engines": [1, 10**6]}, pt.ClusterError, "1000000"),
        ({"engines": [1, 2], "settings": pt.Settings(batch=1)}, pt.SettingsError, "2 engines"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(scan, monkeypatch, options, error, fact):
    monkeypatch.setattr(scaling_test, "Cluster", None)
    with pytest.raises(error, match=fact):
        pt.scaling_test(scan, device="cpu", **options)


@pytest.fixture(scope="module")
def path(scan, tmp_path_factory):
    file = tmp_path_factory.mktemp("scan") / "scan.h5"
    pt.save_scan(scan, file)
    return file


def test_the_command_prints_json_and_draws(path, tmp_path, capsys):
    (tmp_path / "settings.yaml").write_text("batch: 20")
    arguments = ["scaling", path, "--engines", 1, "--trials", 1, "--epochs", 2, "--device", "cpu", "--json"]
    arguments += ["--settings", tmp_path / "settings.yaml", "--figure", tmp_path / "figure.png"]
    assert main.main([str(argument) for argument in arguments]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert [(row["engines"], row["batch"]) for row in found["rows"]] == [(1, 20)]
    assert found["settings"]["batch"] == 20
    assert "1 engine, trial 1: " in printed.err
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_the_other_commands_print_a_table_or_json(path, capsys):
    assert main.main(["advise", str(path), "--engines", "1", "--device", "cpu"]) == 0
    assert "Fastest for " in capsys.readouterr().out
    assert main.main(["estimate", str(path), "--engines", "1", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seconds"] > 0


def test_a_command_for_what_cannot_be_had_says_so_in_a_sentence(path, capsys):
    assert main.main(["scaling", str(path), "--engines", "0", "--device", "cpu"]) == 64
    assert "engines is [0]; expected numbers of engines" in " ".join(capsys.readouterr().err.split())
