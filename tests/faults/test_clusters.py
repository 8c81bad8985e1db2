"""Clusters whose engines or kernels end, stall or are killed: nothing is left behind, and a new one works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import ptynb as pt
from ptynb.cluster.engine_groups import joining
from ptynb.cluster.launchers.launcher import is_alive
from ptynb.engine import run_registry
from ptynb.exceptions import ClusterError

SCRIPT = """
import ptynb as pt, sys, time
cluster = pt.Cluster(2, device="cpu", detached_timeout={lease})
recon = pt.Reconstruction(pt.simulate(patterns=64, window=32), pt.Settings(), cluster)
recon.start(1000000)
while not recon.epochs:
    time.sleep(0.05)
print(cluster.folder, flush=True)
time.sleep(600)
"""


def family(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def gone(processes: list[psutil.Process], seconds: float) -> float:
    """Seconds until none of them is left."""
    started = time.monotonic()
    while left := [process for process in processes if is_alive(process)]:
        assert time.monotonic() < started + seconds, f"left after {seconds} s: {left}"
        time.sleep(0.02)
    return time.monotonic() - started


def test_stopped_in_order_nothing_is_left_and_it_can_start_again() -> None:
    before = set(family(os.getpid()))
    cluster = pt.Cluster(1, device="cpu")
    folder, processes = cluster.folder, [process for process in family(os.getpid()) if process not in before]
    assert folder is not None
    assert len(processes) >= 3
    cluster.stop()
    gone(processes, 1)
    assert not folder.exists()
    with pytest.raises(pt.ClusterError, match="stopped"):
        cluster.call(0, run_registry.describe)
    with pytest.raises(pt.ClusterError, match=r"The cluster is stopped; start\(\) it"), joining(cluster):
        pass
    with cluster.start():
        assert cluster.status()[0]["rank"] == 0
        with joining(cluster) as members:
            assert [one.rank for one in members] == [0]
    assert repr(cluster).startswith("<Cluster stopped")


class Stuck(pt.ModelComponent):
    """Holds up one engine of two for ever."""

    name = "stuck"

    def detect(self, intensity: Any, batch: Any) -> Any:
        if os.environ.get("PTYNB_RANK") == "1":
            time.sleep(1e6)
        return intensity


def test_engines_that_do_not_end_are_stopped_with_their_cluster_and_a_new_one_works() -> None:
    scan = pt.simulate(patterns=36, window=32, seed=5)
    with pt.Cluster(2, device="cpu") as own:
        recon = pt.Reconstruction(
            scan, pt.Settings(), own, timeout=3.0, extensions=[Stuck()], checkpointing=None, on_failure="pause"
        )
        recon.start(1)
        with pytest.raises(pt.ReconstructionError):
            recon.wait(60)
        with pytest.raises(Exception, match=r"Rank 1 did not end .*; stop the cluster and start a new one"):
            recon.close()
    with pt.Cluster(1, device="cpu") as new, pt.Reconstruction(scan, pt.Settings(), new, checkpointing=None) as again:
        assert again.step().number == 1


def kill_engines(cluster: pt.Cluster) -> None:
    for status in cluster.status():
        os.kill(status["pid"], signal.SIGKILL)


def test_engines_that_nobody_replaces_are_had_again_by_a_new_start_or_a_new_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scan = pt.simulate(patterns=36, window=32, seed=5)

    def refuse(ranks: object) -> None:
        raise ClusterError("Its machine is gone.")

    with pt.Cluster(2, device="cpu") as cluster:
        recon = pt.Reconstruction(scan, pt.Settings(), cluster)
        assert cluster._launcher is not None
        monkeypatch.setattr(cluster._launcher, "start", refuse)
        kill_engines(cluster)
        with pytest.raises(pt.ReconstructionError):
            recon.wait(60)
        told = r"No engine of the cluster is left; stop\(\) the cluster, and start a new one\."
        with pytest.raises(pt.ReconstructionError, match=told):
            recon.recover()
        told = (
            r"The engines of ranks \[0, 1\] are lost, and no new ones could be started; stop\(\) the cluster and "
            r"start\(\) it, or start one with fewer engines\."
        )
        with pytest.raises(pt.ClusterError, match=told):
            pt.Reconstruction(scan, pt.Settings(), cluster)
        cluster.stop()
        cluster.start()
        with pt.Reconstruction(scan, pt.Settings(), cluster) as again:
            assert again.step().number == 1
    with pt.Cluster(1, device="cpu") as fewer, pt.Reconstruction(scan, pt.Settings(), fewer) as again:
        assert again.step().number == 1


def test_two_engines_of_one_rank_are_told_and_a_new_cluster_has_one() -> None:
    """As where a machine is so slow that engines come after others were started in their place."""
    with pt.Cluster(1, device="cpu") as cluster:
        assert cluster._launcher is not None
        cluster._launcher.start([0])
        caller = cluster._caller
        assert caller is not None
        until = time.monotonic() + 120
        while len(caller._client.ids) < 2:
            assert time.monotonic() < until
            time.sleep(0.05)
        told = r"^Two engines have the rank 0; stop the cluster and start a new one\.$"
        with pytest.raises(pt.ClusterError, match=told):
            caller.find()
    with pt.Cluster(1, device="cpu") as new:
        assert new.status()[0]["rank"] == 0


@pytest.mark.parametrize(
    ("number", "lease"), [(signal.SIGKILL, 0.0), (signal.SIGINT, 0.0), (signal.SIGKILL, 5.0)], ids=str
)
def test_after_the_kernel_has_ended_and_its_lease_is_over_nothing_is_left(number: int, lease: float) -> None:
    command = [sys.executable, "-c", SCRIPT.format(lease=lease)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as kernel:
        assert kernel.stdout is not None
        folder = Path(kernel.stdout.readline().strip())
        processes = family(kernel.pid)
        assert len(processes) >= 4
        kernel.send_signal(number)
        kernel.communicate(timeout=30)
    ended = time.monotonic()
    if lease:
        time.sleep(lease - 2)
        assert [process for process in processes if process.is_running()] == processes, "the run goes on alone"
    gone(processes, 30)
    assert time.monotonic() - ended > lease
    assert not folder.exists()
