"""Real engines on two nodes of a real Slurm."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import ptynb as pt
from ptynb.cluster.devices import plan_cluster
from ptynb.cluster.launchers import slurm_commands
from tests.raising import raises
from tests.slurm.daemons import Slurm


def test_engines_on_two_nodes_give_one_engines_answer(nodes: Slurm) -> None:
    scan, settings = pt.simulate(patterns=61, window=32, seed=5), pt.Settings(batch=16, seed=1)
    with pt.Reconstruction(scan, settings) as alone:
        list(alone.run(5))
        expected = alone.result
    told: list[str] = []
    with pt.Cluster.slurm(
        nodes=2, engines_per_node=1, device="cpu", cpus_per_engine=1, time="00:10:00", address="127.0.0.2",
        report=told.append,
    ) as cluster:  # fmt: skip
        assert cluster.folder is not None
        [job] = slurm_commands.ask("squeue", "--noheader", "--partition=long", "--format=%i").split()
        engines = cluster.status()
        assert [engine["rank"] for engine in engines] == [0, 1]
        environments = [psutil.Process(engine["pid"]).environ() for engine in engines]
        assert [one["SLURMD_NODENAME"] for one in environments] == ["n1", "n2"]
        assert (cluster.plan.backend, [engine.threads for engine in cluster.plan.engines]) == ("gloo", [1, 1])
        with pt.Reconstruction(scan, settings, cluster) as recon:
            list(recon.run(5))
            found = recon.result
        assert len(found.losses) == 5
        assert found.losses == pytest.approx(expected.losses, rel=1e-4)
        assert np.abs(found.object - expected.object).max() < 1e-4 * np.abs(expected.object).max()
        keys = secrets_of(cluster.folder)
        shown = slurm_commands.ask("scontrol", "show", "job", "--details", job)
        shown += slurm_commands.ask("scontrol", "write", "batch_script", job, "-")
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):  # it has just ended
                shown += " ".join(process.cmdline())
        for environment in environments:
            shown += " ".join(environment.values())
        for log in cluster.folder.glob("log/*"):
            shown += log.read_text(errors="replace")
        assert str(cluster.folder) in shown
        assert not [key for key in keys if key in shown]
        folder = cluster.folder
    assert f"job {job} runs on n1, n2" in told
    assert slurm_commands.state(job).over
    assert not folder.exists()


def test_waiting_in_the_queue_takes_as_long_as_it_takes(nodes: Slurm) -> None:
    told: list[str] = []

    def let_go() -> None:
        time.sleep(5)
        slurm_commands.ask(
            "scancel", "--name", slurm_commands.ask("squeue", "--noheader", "--partition=long", "--format=%j").strip()
        )

    letting_go = threading.Thread(target=let_go)
    letting_go.start()
    began = time.monotonic()
    with pytest.raises(pt.ClusterError, match=r"Job \d+ was cancelled"):
        pt.Cluster.slurm(nodes=1, device="cpu", extra=("--hold",), timeout=3, report=told.append)
    assert time.monotonic() - began > 5
    letting_go.join()
    assert len(told) == 1
    assert "waits in the queue (held; 'scontrol release' releases it)" in told[0]


def secrets_of(folder: Path) -> list[str]:
    connections = [json.loads(file.read_text()) for file in folder.glob("security/*.json")]
    keys = [one[name] for one in connections for name in ("key", "curve_serverkey") if one.get(name)]
    assert keys
    return keys


@pytest.mark.parametrize(
    ("arguments", "code", "fact"),
    [
        ({}, "slurm.no-job", ""),
        ({"nodes": 2}, "argument.missing", "gpus_per_node="),
        ({"nodes": 2, "device": "cuda"}, "argument.missing", "gpus_per_node="),
        ({"nodes": 2, "device": "cpu", "gpus_per_node": 1}, "argument.conflict", "gpus_per_node is 1"),
        ({"device": "cpu"}, "slurm.no-job", "nodes="),
        ({"nodes": 1, "device": "tpu"}, "argument.invalid-value", "device is 'tpu'"),
        ({"nodes": 1, "device": "cpu", "partition": "nowhere"}, "cluster.no-address", "--partition=nowhere"),
    ],
)
def test_what_can_not_be_asked_for_is_refused(nodes: Slurm, arguments: dict[str, object], code: str, fact: str) -> None:
    with raises(code, fact):
        pt.Cluster.slurm(**arguments)  # type: ignore[arg-type]


def test_gpus_that_engines_do_not_find_are_an_error(nodes: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pt.Cluster, "start", lambda self: setattr(self, "_plan", plan_cluster(1, "cpu", (), 1)))
    with raises("gpu.not-found", "1 GPU of each node, and engines there found none"):
        pt.Cluster.slurm(nodes=1, gpus_per_node=1, report=None)
    assert not pt.Cluster.slurm(nodes=1, device="cpu").plan.on_gpu
