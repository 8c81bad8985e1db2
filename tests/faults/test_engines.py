"""Engines that die, stall or fail in mid-epoch, on a real cluster: how soon it is noticed, and what goes on."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

import ptynb as pt
from ptynb.cluster import runtime_dir
from ptynb.cluster.error_explanations import FAULT
from ptynb.data.scan import Scan
from ptynb.physics.model import Model
from ptynb.session.engines import ClusterEngines, Engines
from tests.cluster.test_error_messages import file_of
from tests.raising import raises
from tests.waiting import until

NOTICED_SECONDS, STOPPED_SECONDS = 1.0, 5.0
"""What the project promises."""
RECOVERY = 1.5
"""Longest recovery, in units of the time that the cluster and its run took to start; measured: 0.6."""
LONG = 100_000
KEPT_EPOCHS = 5
SETTINGS = pt.Settings(batch=20, schedule={"kind": "constant"})
"""With rates that do not depend on the number of epochs of a run, so that runs of any length can be compared."""


@pytest.fixture
def started() -> float:
    """When the test began to start its cluster."""
    return time.monotonic()


@pytest.fixture
def cluster(started: float) -> Iterator[pt.Cluster]:
    with pt.Cluster(2, device="cpu") as two:
        yield two


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Scan:
    """In a file, so that fresh engines can read it."""
    path: Path = tmp_path_factory.mktemp("scan") / "scan.h5"
    return pt.save_scan(pt.simulate(patterns=100, window=64, seed=5), path)


def pid_of(cluster: pt.Cluster, rank: int) -> int:
    pid: int = cluster.status()[rank]["pid"]
    return pid


def nanny_of(pid: int) -> psutil.Process:
    """The process that tells ipyparallel's controller when an engine ends."""
    return next(child for child in psutil.Process(pid).children() if "nanny" in " ".join(child.cmdline()))


def training(scan: Scan, cluster: pt.Cluster, folder: Path, on_failure: str) -> pt.Reconstruction:
    """A run that has kept a state."""
    keep = pt.Checkpointing(folder=folder / "states", epochs=KEPT_EPOCHS, seconds=None)
    recon = pt.Reconstruction(scan, SETTINGS, cluster, checkpointing=keep, on_failure=on_failure)
    recon.start(LONG)
    until(lambda: recon.latest_checkpoint is not None, 60, "a state")
    return recon


def compile_loops(scan: Scan, cluster: pt.Cluster) -> None:
    """Run an epoch, so that no rank waits in a limit of seconds for another one that compiles on a busy machine."""
    with pt.Reconstruction(scan, pt.Settings(batch=20), cluster, checkpointing=None, timeout=120.0) as recon:
        for _ in recon.run(1):
            pass


@pytest.mark.parametrize("lost", [0, 1])
def test_an_engine_is_killed_and_the_run_goes_on_by_itself(
    started: float, cluster: pt.Cluster, scan: Scan, tmp_path: Path, lost: int
) -> None:
    pid = pid_of(cluster, lost)
    recon = training(scan, cluster, tmp_path, "continue")
    start = time.monotonic() - started
    before = recon.epoch
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    noticed = until(lambda: recon._client.recovering, 5, "recovery begins")
    until(lambda: not recon._client.recovering and recon.epoch > 0 and recon.state == "running", 30, "it runs")
    until(lambda: recon.epoch > before, 30, "it is beyond where it was")
    recovered = time.monotonic() - killed
    print(f"killed rank {lost}: noticed after {noticed:.2f} s, recovered after {recovered:.1f} s; start {start:.1f} s")
    assert recovered < RECOVERY * start
    (change,) = recon.changes
    assert change.name == "engines"
    assert f"engine of rank {lost}" in change.old
    assert change.new == "2 engines continue"
    assert change.epoch > 0
    assert change.epoch % KEPT_EPOCHS == 0
    losses = [epoch.loss for epoch in recon.epochs]
    assert change.epoch <= len(losses)
    assert [epoch.number for epoch in recon.epochs] == [*range(1, len(losses) + 1)]
    recon.stop()
    recon.close()
    # The engines are those of an undisturbed run again: same numbers, one epoch after the other.
    with pt.Reconstruction(scan, SETTINGS, cluster, checkpointing=None) as undisturbed:
        expected = [epoch.loss for epoch in undisturbed.run(min(len(losses), 20))]
    np.testing.assert_array_equal(losses[: len(expected)], expected)


def test_a_recipe_continues_in_its_stage_after_the_loss_of_an_engine(
    cluster: pt.Cluster, scan: Scan, tmp_path: Path
) -> None:
    stages = [
        pt.Stage(epochs=KEPT_EPOCHS, pattern_size=32),
        pt.Stage(epochs=LONG, settings={"probe": {"modes": 2}}),
    ]
    recipe = pt.Recipe(settings=pt.Settings(batch=20), stages=stages)
    keep = pt.Checkpointing(folder=tmp_path / "states", epochs=KEPT_EPOCHS, seconds=None)
    recon = pt.Reconstruction(scan, recipe, cluster, checkpointing=keep, on_failure="continue")
    recon.start()
    until(lambda: recon.epoch > KEPT_EPOCHS, 60, "the second stage")
    os.kill(pid_of(cluster, 1), signal.SIGKILL)
    until(lambda: recon._client.recovering, 5, "recovery begins")
    reached = recon.epoch
    until(lambda: not recon._client.recovering and recon.epoch > reached, 60, "it is beyond where it was")
    assert (recon.stage, recon.settings.probe.modes) == (2, 2)
    recon.stop()
    assert recon.result.probe.shape == (2, *scan.pattern_shape)
    assert "engines" in {change.name for change in recon.changes}
    recon.close()


def test_by_default_it_pauses_and_offers_to_go_on(
    started: float, cluster: pt.Cluster, scan: Scan, tmp_path: Path
) -> None:
    recon = training(scan, cluster, tmp_path, "pause")
    start = time.monotonic() - started
    engine, nanny = psutil.Process(pid_of(cluster, 1)), nanny_of(pid_of(cluster, 1))
    nanny.kill()
    engine.kill()
    killed = time.monotonic()
    with raises("engine.lost", "rank 1 has died", "recover() continues from the checkpoint of epoch"):
        recon.wait(30)
    assert time.monotonic() - killed < 10
    assert recon.state == "failed"
    assert recon.can_recover
    asked = time.monotonic()
    recon.recover()
    until(lambda: recon.state == "running", 30, "it runs")
    assert time.monotonic() - asked < RECOVERY * start
    reached = recon.epoch
    until(lambda: recon.epoch > reached, 30, "it goes on")
    assert recon.changes[0].name == "engines"
    recon.stop()
    assert recon.result.r_factor < 1


def test_a_lost_engine_is_noticed_soon_and_the_others_stop(cluster: pt.Cluster, scan: Scan, tmp_path: Path) -> None:
    recon = training(scan, cluster, tmp_path, "pause")
    os.kill(pid_of(cluster, 1), signal.SIGKILL)
    noticed = until(lambda: bool(recon._client.engines.lost()), 5, "noticed")
    stopped = noticed + until(lambda: recon._client.engines.call(0, "status").failure is not None, 5, "stopped")
    print(f"noticed after {noticed:.2f} s, the other stopped after {stopped:.2f} s")
    assert noticed < NOTICED_SECONDS
    assert stopped < STOPPED_SECONDS


def test_a_stalled_engine_is_given_up_after_the_timeout_and_all_stacks_are_kept(
    cluster: pt.Cluster, scan: Scan, tmp_path: Path
) -> None:
    keep = pt.Checkpointing(folder=tmp_path, epochs=5, seconds=None)
    compile_loops(scan, cluster)
    recon = pt.Reconstruction(scan, pt.Settings(batch=20), cluster, checkpointing=keep, timeout=10.0)
    recon.start(LONG)
    until(lambda: recon.latest_checkpoint is not None, 60, "a state")
    pid = pid_of(cluster, 1)
    os.kill(pid, signal.SIGSTOP)
    stopped = time.monotonic()
    try:
        with pytest.raises(pt.ReconstructionError) as told:
            recon.wait(60)
        assert 9.5 < time.monotonic() - stopped < 30
        assert str(told.value).startswith("The engine of rank 1 does not answer: its process is suspended by a signal")
        assert len(str(told.value).splitlines()) <= 10
        whole = file_of(str(told.value)).read_text()
        assert "Rank 0: " in whole
        assert "in _turn" in whole
        recon.recover()
        until(lambda: recon.state == "running" and recon.epoch > 5, 30, "it runs")
        assert pid_of(cluster, 1) != pid
    finally:
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGCONT)
    recon.stop()


def test_a_stall_shorter_than_the_timeout_is_survived(cluster: pt.Cluster, scan: Scan, tmp_path: Path) -> None:
    recon = training(scan, cluster, tmp_path, "pause")
    pid = pid_of(cluster, 0)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(7)  # more than the five seconds after which rank 0's silence is looked into
    os.kill(pid, signal.SIGCONT)
    reached = recon.epoch
    until(lambda: recon.epoch > reached + 2, 30, "it goes on")
    assert recon.failure is None
    assert recon.changes == ()
    recon.stop()


def processes_of(cluster: pt.Cluster) -> dict[str, list[int]]:
    """The ids of engines, and of the controller with its schedulers."""
    assert cluster.folder is not None
    recorded = runtime_dir.read(cluster.folder, "processes.json")
    return {name: [int(pid) for pid, _ in recorded[name]] for name in ("engines", "others")}


def test_all_processes_stopped_for_longer_than_the_timeout_go_on_by_themselves(
    cluster: pt.Cluster, scan: Scan, tmp_path: Path
) -> None:
    """As on a machine that sleeps. This process is not stopped, but silent for as long."""
    keep = pt.Checkpointing(folder=tmp_path, epochs=5, seconds=None)
    compile_loops(scan, cluster)
    recon = pt.Reconstruction(scan, pt.Settings(batch=20), cluster, checkpointing=keep, timeout=3.0)
    recon.start(LONG)
    until(lambda: recon.latest_checkpoint is not None, 60, "a state")
    found = processes_of(cluster)
    last, first = pid_of(cluster, 1), pid_of(cluster, 0)  # so that rank 0 waits for rank 1 when it is stopped
    stopped = [last, first, *found["others"]]
    assert {*stopped} == {*found["engines"], *found["others"]}
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.2)
    time.sleep(9)
    for pid in [*found["others"], first, last]:
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.2)
    reached = recon.epoch
    until(lambda: recon.epoch > reached + 2, 30, "it goes on")
    assert recon.failure is None
    assert recon.changes == ()
    recon.stop()


def test_a_controller_that_is_stopped_for_long_ends_no_engine(cluster: pt.Cluster, scan: Scan, tmp_path: Path) -> None:
    recon = training(scan, cluster, tmp_path, "pause")
    found, before = processes_of(cluster), recon.epoch
    for pid in found["others"]:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(20)  # ten heartbeats of 1.5 s are missed, after which the engines left
    assert all(psutil.pid_exists(pid) for pid in found["engines"])
    told = (
        r"^The cluster's controller does not answer: its process is suspended by a signal \(SIGSTOP\) or a debugger\.$"
    )
    assert re.match(told, recon._client.engines.suspended(0))
    for pid in found["others"]:
        os.kill(pid, signal.SIGCONT)
    until(lambda: recon.epoch > before + 2, 30, "it goes on")
    assert recon.failure is None
    assert recon.changes == ()
    recon.stop()


def test_engines_leave_when_the_controller_has_died(cluster: pt.Cluster) -> None:
    found = processes_of(cluster)
    for pid in found["others"]:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(alive(pid) for pid in found["engines"]), 60, "they leave")


def alive(pid: int) -> bool:
    """Whether it runs, and is not only a zombie that this process has not asked about yet."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Greedy(pt.CustomConstraint):
    """Asks for too much memory, on rank 1 only, from the third epoch on."""

    after = "epoch"

    def impose(self, model: Model) -> None:
        self.called = getattr(self, "called", 0) + 1
        if self.called == 3 and os.environ.get("PTYNB_RANK") == "1":
            torch.empty(2**60)


def test_an_exception_on_one_rank_ends_all_and_is_not_tried_again(cluster: pt.Cluster, scan: Scan) -> None:
    recon = pt.Reconstruction(scan, pt.Settings(batch=20), cluster, on_failure="continue", extensions=[Greedy()])
    recon.start(LONG)
    started = time.monotonic()
    with pytest.raises(pt.ReconstructionError) as told:
        recon.wait(30)
    assert time.monotonic() - started < 15
    assert str(told.value).startswith("Rank 1: RuntimeError: ")
    assert "in impose" in str(told.value)
    assert len(str(told.value).splitlines()) <= 10
    assert "pattern_storage='disk'" in str(told.value)
    assert not recon.can_recover
    with raises("reconstruction.not-recoverable"):
        recon.recover()
    with pt.Reconstruction(scan, pt.Settings(batch=20), cluster) as another:
        assert another.step().number == 1


CUDA_ERROR = (
    "CUDA error: an illegal memory access was encountered\n"
    "Search for `cudaErrorIllegalAddress' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html "
    "for more information.\nCUDA kernel errors might be asynchronously reported at some other API call, so the "
    "stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
"""What torch says of it (pytorch/helion#867)."""


class LosesGpu(pt.CustomConstraint):
    """Raises what torch does when a kernel has written outside of its memory, once, on one rank."""

    after = "epoch"

    def __init__(self, folder: Path, lost: int) -> None:
        self.done, self.lost = folder / "raised", lost

    def impose(self, model: Model) -> None:
        self.called = getattr(self, "called", 0) + 1
        if self.called == 2 * KEPT_EPOCHS and os.environ["PTYNB_RANK"] == str(self.lost) and not self.done.exists():
            self.done.touch()
            raise torch.AcceleratorError(CUDA_ERROR)


@pytest.mark.parametrize("lost", [0, 1])
def test_an_engine_whose_gpu_is_lost_ends_and_another_takes_its_place(
    cluster: pt.Cluster, scan: Scan, tmp_path: Path, lost: int
) -> None:
    """CUDA returns the same error to each later call of the process, so that it must not be used again."""
    keep = pt.Checkpointing(folder=tmp_path / "states", epochs=KEPT_EPOCHS, seconds=None)
    before = [pid_of(cluster, rank) for rank in (0, 1)]
    extensions = [LosesGpu(tmp_path, lost)]
    recon = pt.Reconstruction(scan, pt.Settings(batch=20), cluster, checkpointing=keep, extensions=extensions)
    recon.start(LONG)
    with raises("engine.lost", "illegal memory access", "recover() continues from") as told:
        recon.wait(30)
    assert f"rank {lost}" in str(told.value).lower()  # it said so itself, or its process was found to be gone
    assert FAULT in str(told.value)
    assert len(str(told.value).splitlines()) <= 10
    until(lambda: not alive(before[lost]), 10, "its process has ended")
    assert recon.can_recover
    recon.recover()
    until(lambda: recon.state == "running" and recon.epoch > 3 * KEPT_EPOCHS, 30, "it goes on")
    after = [pid_of(cluster, rank) for rank in (0, 1)]
    assert after[lost] != before[lost]
    assert after[1 - lost] == before[1 - lost], "the other one is used again"
    assert f"rank {lost}" in recon.changes[0].old.lower()
    recon.stop()
    recon.close()


def test_where_no_fresh_engine_can_be_had_the_others_go_on_alone(
    cluster: pt.Cluster, scan: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recon = training(scan, cluster, tmp_path, "continue")

    def refuse(ranks: object) -> None:
        raise pt.ClusterError("Its machine is gone.")

    assert cluster._launcher is not None
    monkeypatch.setattr(cluster._launcher, "start", refuse)
    pid, reached = pid_of(cluster, 0), recon.epoch
    os.kill(pid, signal.SIGKILL)
    until(lambda: any(change.name == "engines" for change in recon.changes), 30, "it is opened again")
    until(lambda: not recon.recovering and recon.epoch > reached, 30, "it is beyond where it was")
    assert recon.engines == "1 engine on CPU"
    assert recon.changes[0].new == "1 engine continues"
    assert [status.world for status in recon.status()] == [1]
    recon.stop()
    losses = [epoch.loss for epoch in recon.epochs]
    with pt.Reconstruction(scan, SETTINGS, device="cpu", checkpointing=None) as alone:
        expected = [epoch.loss for epoch in alone.run(min(len(losses), 20))]
    np.testing.assert_allclose(losses[: len(expected)], expected, rtol=1e-3)
    with raises("engine.lost", "ranks [0]"):
        pt.Reconstruction(scan, pt.Settings(batch=20), cluster, checkpointing=None)
    # Once one can be had again, a new reconstruction has all engines.
    monkeypatch.undo()
    with pt.Reconstruction(scan, pt.Settings(batch=20), cluster, checkpointing=None) as both:
        assert both.step().number == 1
        assert both.engines.startswith("2 engines")


def killing(cluster: pt.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine of rank 1 dies the next time that a reconstruction is opened again on purpose."""
    plain, pid = ClusterEngines.reopened, pid_of(cluster, 1)

    def kill_first(*arguments: Any) -> Engines:
        monkeypatch.setattr(ClusterEngines, "reopened", plain)
        os.kill(pid, signal.SIGKILL)
        return plain(*arguments)

    monkeypatch.setattr(ClusterEngines, "reopened", kill_first)


def test_an_engine_that_dies_while_one_goes_back_is_replaced_and_the_run_goes_on(
    cluster: pt.Cluster, scan: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recon = training(scan, cluster, tmp_path, "continue")
    target = recon.checkpoints[0]
    killing(cluster, monkeypatch)
    with raises("reconstruction.not-reopened", "continues as before: "):
        recon.restore(target)
    reached = recon.epoch
    until(lambda: recon.state == "running" and recon.epoch > reached, 30, "it goes on")
    assert [one.name for one in recon.changes] == ["engines"]
    assert (recon.failure, recon.branch_name) == (None, "main")
    recon.restore(target)
    assert (recon.state, recon.epoch) == ("ready", target.epoch)


def test_an_engine_that_dies_while_one_goes_back_pauses_it_and_recover_goes_on(
    cluster: pt.Cluster, scan: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recon = training(scan, cluster, tmp_path, "pause")
    killing(cluster, monkeypatch)
    with raises("reconstruction.not-reopened", "rank 1 ", "recover() continues from the checkpoint of epoch"):
        recon.restore(recon.checkpoints[0])
    assert (recon.state, recon.can_recover) == ("failed", True)
    recon.recover()
    reached = recon.epoch
    until(lambda: recon.state == "running" and recon.epoch > reached, 30, "it goes on")
    assert [one.name for one in recon.changes] == ["engines"]
    recon.stop()


def test_one_that_is_lost_again_and_again_without_getting_further_is_given_up(cluster: pt.Cluster, scan: Scan) -> None:
    recon = pt.Reconstruction(scan, pt.Settings(batch=20), cluster, checkpointing=None, on_failure="continue")
    recon._client._recoveries = [None] * 3
    recon.start(LONG)
    os.kill(pid_of(cluster, 1), signal.SIGKILL)
    with raises("engine.lost", "starts from the beginning"):
        recon.wait(30)
