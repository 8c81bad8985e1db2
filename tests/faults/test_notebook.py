"""The notebook's process ends, in order or not: what goes on, who can come back to it, and that nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import ptynb as pt
from ptynb.cluster import runtime_dir
from ptynb.cluster.launchers.launcher import is_alive
from ptynb.cluster.lifetime import watchdog
from ptynb.data.engine_records import RenderRequest
from ptynb.io.checkpoint_file import load_state, newest_state
from tests.raising import raises
from tests.waiting import until

SCRIPT = """
import sys, time
import ptynb as pt
scan, keep, lease_seconds, epochs, ending = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
cluster = pt.Cluster(2, device="cpu", detached_timeout=lease_seconds)
keep = pt.Checkpointing(folder=keep, epochs=5, seconds=None)
recon = pt.Reconstruction(pt.load(scan), pt.Settings(batch=20), cluster, checkpointing=keep)
recon.start(epochs)
while not recon.epochs:
    time.sleep(0.02)
print(cluster.name, flush=True)
if ending == "exit":
    sys.exit()
time.sleep(600)
"""


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("scan") / "scan.h5"
    pt.save_scan(pt.simulate(patterns=100, window=64, seed=5), path)
    return path


def notebook(scan: Path, keep: Path, lease: float, epochs: int = 100_000, ending: str = "wait") -> tuple[int, str]:
    """A process that stands for a notebook's kernel; its id, and its cluster's name."""
    command = [sys.executable, "-c", SCRIPT, str(scan), str(keep), str(lease), str(epochs), ending]
    kernel = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert kernel.stdout is not None
    name = kernel.stdout.readline().strip()
    assert name
    kernel.stdout.close()
    if ending == "exit":
        assert kernel.wait(30) == 0
    else:
        kernel.kill()
        kernel.wait()
    return kernel.pid, name


def processes_of(name: str) -> list[psutil.Process]:
    """Every process that carries the cluster's mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("PTYNB_CLUSTER") == name:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_a_restarted_kernel_finds_the_run_with_its_whole_record(scan: Path, tmp_path: Path) -> None:
    _, name = notebook(scan, tmp_path / "states", lease=300.0)
    time.sleep(1.0)
    attach = pt.attach  # what it needs is imported now
    started = time.monotonic()
    recon = attach()
    taken = time.monotonic() - started
    print(f"attached after {taken:.2f} s, at epoch {recon.epoch}")
    assert taken < 2
    assert recon.state == "running"
    losses = [epoch.loss for epoch in recon.epochs]
    assert [epoch.number for epoch in recon.epochs] == [*range(1, len(losses) + 1)]
    first = recon.pictures(RenderRequest(size=64))
    reached = recon.epoch
    until(lambda: recon.epoch > reached + 1, 20, "it goes on")
    second = recon.pictures(RenderRequest(size=64))
    assert first is not None
    assert second is not None
    assert (second.epoch, second.update) > (first.epoch, first.update)
    recon.settings = recon.settings.replace(object={"learning_rate": 0.004})
    recon.stop()
    assert recon.changes[-1].name == "object.learning_rate"
    assert recon.scan.name == pt.load(scan).name
    assert recon.result.r_factor < 1
    # It is an ordinary one from now on: a lost engine can be replaced, since the scan is in a file.
    assert recon.cluster is not None
    os.kill(recon.cluster.status()[1]["pid"], signal.SIGKILL)
    until(lambda: recon.failure is not None, 10, "noticed")
    recon.recover()
    recon.start(2)
    recon.wait(30)
    recon.cluster.stop()
    until(lambda: not [one for one in processes_of(name) if is_alive(one)], 10, "nothing is left")


def test_a_kernel_that_ends_in_order_leaves_its_run_alone_too(scan: Path, tmp_path: Path) -> None:
    _, name = notebook(scan, tmp_path / "states", lease=300.0, ending="exit")
    recon = pt.attach(name)
    assert recon.state == "running"
    assert recon.cluster is not None
    recon.settings = recon.settings.replace(probe={"learning_rate": 0.003})
    recon.cluster.detach()
    del recon
    recon = pt.attach(name)
    assert recon.settings.probe.learning_rate == 0.003
    assert recon.state == "running"
    # One that lost an engine while nobody looked can be recovered.
    assert recon.cluster is not None
    lost = recon.cluster.status()[0]["pid"]
    recon.cluster.detach()
    os.kill(lost, signal.SIGKILL)
    time.sleep(0.5)
    recon = pt.attach(name)
    until(lambda: recon.failure is not None, 10, "it is seen")
    recon.recover()
    assert recon.state in ("loading", "running")
    until(lambda: recon.epoch > 5, 20, "it goes on from a state")
    assert recon.settings.probe.learning_rate == 0.003
    until(
        lambda: [change.name for change in recon.changes] == ["probe.learning_rate", "engines"],
        20,
        "the record is whole",
    )
    assert recon.cluster is not None
    recon.cluster.stop()


def test_nobody_returns_and_after_the_lease_the_state_is_kept_and_nothing_left(scan: Path, tmp_path: Path) -> None:
    _, name = notebook(scan, tmp_path / "states", lease=3.0)
    left = processes_of(name)
    assert len(left) >= 5
    folder = runtime_dir.folder_of(name)
    ports = {connection.laddr.port for one in left for connection in one.net_connections("inet")}
    until(lambda: not any(is_alive(one) for one in left), 30, "all have left")
    until(lambda: not folder.exists(), 10, "its folder is gone")
    state = load_state(newest_state(tmp_path / "states"))
    assert state.epoch > 5
    assert not ports & {c.laddr.port for c in psutil.net_connections("inet") if c.status == psutil.CONN_LISTEN}
    with raises("reconstruction.not-found"):
        pt.attach(name)
    with pt.resume(tmp_path / "states", device="cpu") as recon:
        assert recon.epoch == state.epoch
        assert recon.step().number == state.epoch + 1


def test_a_run_that_ends_alone_is_kept_and_the_engines_leave_long_before_the_lease(scan: Path, tmp_path: Path) -> None:
    _, name = notebook(scan, tmp_path / "states", lease=300.0, epochs=40)
    left = processes_of(name)
    until(lambda: not any(is_alive(one) for one in left), 60, "all have left")
    assert load_state(newest_state(tmp_path / "states")).epoch == 40


def test_one_that_somebody_else_holds_is_not_taken_away(scan: Path, tmp_path: Path) -> None:
    with pt.Cluster(1, device="cpu") as cluster:
        recon = pt.Reconstruction(pt.load(scan), pt.Settings(batch=20), cluster, checkpointing=None)
        recon.snapshot()
        program = f"import ptynb as pt; pt.attach({cluster.name!r})"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert done.returncode != 0
        assert f"is held by the process {os.getpid()}, which still runs" in done.stderr
        again = pt.attach(cluster.name)
        assert again.cluster is cluster
        assert again.step().number == 1


def test_without_its_guardian_a_cluster_leaves_too(scan: Path, tmp_path: Path) -> None:
    _, name = notebook(scan, tmp_path / "states", lease=3.0)
    listed = {one: " ".join(one.cmdline()) for one in processes_of(name)}
    guards = [one for one, line in listed.items() if watchdog.__file__ in line]
    engines = [one for one, line in listed.items() if "ptynb.cluster.engine_main" in line]
    assert guards
    assert engines
    for one in guards:
        one.kill()
    until(lambda: not any(is_alive(one) for one in engines), 30, "the engines have left")
    folder = runtime_dir.folder_of(name)
    watchdog.main(folder)  # 'ptynb stop' does the same
    until(lambda: not [one for one in processes_of(name) if is_alive(one)], 10, "nothing is left")


def test_frames_that_were_in_the_notebooks_memory_stay_with_the_engines(tmp_path: Path) -> None:
    program = """
import sys, time
import ptynb as pt
from tests.raising import raises
from tests.waiting import until
cluster = pt.Cluster(2, device="cpu", detached_timeout=100.0)
recon = pt.Reconstruction(pt.simulate(patterns=64, window=32), pt.Settings(batch=16), cluster, checkpointing=None)
recon.start(100000)
while not recon.epochs:
    time.sleep(0.02)
print(cluster.name, flush=True)
"""
    name = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60).stdout.strip()
    recon = pt.attach(name)
    assert recon.state == "running"
    assert len(recon.scan) == 64
    recon.stop()
    assert np.isfinite(recon.result.object).all()
    with pytest.raises(ValueError, match="in the memory of a notebook that has ended"):
        recon.scan.counts(0, 1)
    assert recon.cluster is not None
    recon.cluster.stop()
