"""Trials of a study whose engines die, and whose cluster is stopped."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import ptynb as pt
from ptynb.cluster import cluster as cluster_module
from ptynb.tuning import trial as trial_module
from tests.raising import raises
from tests.tuning.test_study import tune, until


def test_a_lost_engine_fails_its_trial_only_and_a_stopped_cluster_leaves_trials_for_later(
    cluster: pt.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = pt.simulate(patterns=36, window=32, seed=5)
    monkeypatch.setattr(
        cluster_module, "REPLACE_SECONDS", 120.0
    )  # a machine that does other things too starts engines slowly
    pid = cluster.status()[1]["pid"]
    follow, killed = trial_module._TrialRun.follow, []

    def cut_off(tried: Any, told: Any, stopping: Any) -> Any:
        def at_an_epoch(epoch: int, loss: float) -> bool:
            if [*tried.recon._client.engines._ranks] == [1] and not killed:
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)
            return bool(told(epoch, loss))

        return follow(tried, at_an_epoch, stopping)

    monkeypatch.setattr(trial_module._TrialRun, "follow", cut_off)
    study = tune(small, tmp_path / "one", cluster=cluster, epochs=100)
    study.wait(120)
    failed = [trial for trial in study.trials if trial.state == "failed"]
    assert [trial.ranks for trial in failed] == [(1,)]
    assert "rank 1 has died" in failed[0].reason
    assert [trial.state for trial in study.trials].count("complete") == 3
    assert cluster.status()[1]["pid"] != pid
    study = tune(small, tmp_path / "other", cluster=cluster, epochs=50_000)
    until(lambda: any(trial.losses for trial in study.trials))
    cluster.stop()
    with raises("cluster.stopped", "call its start(), then that of the study"):
        study.wait(60)
    assert {trial.state for trial in study.trials} == {"stopped"}
    tried = len(study.trials)
    cluster.start()
    study.start()
    until(lambda: any(trial.losses for trial in study.trials[tried:]))
    assert study.failure is None

    def refuse(ranks: object) -> None:
        raise pt.ClusterError("Its machine is gone.")

    assert cluster._launcher is not None
    monkeypatch.setattr(cluster._launcher, "start", refuse)
    for status in cluster.status():
        os.kill(status["pid"], signal.SIGKILL)
    with raises("tuning.no-engines-left", "start a new cluster and call tune() again"):
        study.wait(60)
    cluster.stop()
    tried = len(study.trials)
    with pt.Cluster(1, device="cpu") as new:
        study = tune(small, tmp_path / "other", cluster=new, epochs=50_000)
        until(lambda: any(trial.losses for trial in study.trials[tried:]))
        study.stop()
