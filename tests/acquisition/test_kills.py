"""Processes that are killed (SIGKILL) while a scan is measured and reconstructed: no pattern in the spool is lost."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import psutil
import pytest

import ptynb as pt
from ptynb.cluster.launchers.launcher import is_alive
from tests.acquisition.emulated import PATTERNS, check_saved, emulator, planned, recorded, until_ended
from tests.faults.test_notebook import processes_of
from tests.waiting import until

SETTINGS = pt.Settings(batch=8)
LIMIT = 10.0
"""Time from a fault until the run says what has happened [s]."""
EPOCHS = 3
FILES = ["arrivals.index", "arrivals.log", "scan.h5"]

NOTEBOOK = """
import sys, time
import ptynb as pt
from tests.acquisition.emulated import planned
source, path, folder, keep = sys.argv[1:]
scan = pt.listen(source, plan=planned(path, silence=60.0), folder=folder, timeout=60)
print("listening", flush=True)
cluster = pt.Cluster(2, device="cpu", detached_timeout=300.0)
keep = pt.Checkpointing(folder=keep, epochs=5, seconds=None)
recon = pt.Reconstruction(scan, pt.Settings(batch=8), cluster, checkpointing=keep)
recon.start(3)
while not recon.epochs:
    time.sleep(0.02)
print(cluster.name, *(engine["pid"] for engine in cluster.status()), flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("recorded"))


def arrivals_of(recon):
    return recon.status()[0].arrivals


def held(emulated, index, after=48):
    """The detector waits after so many patterns, however long engines take to start."""
    until(lambda: index.summary().arrived >= after, 30, "patterns come")
    emulated.process.send_signal(signal.SIGSTOP)
    assert index.summary().arrived < PATTERNS - 20


def goes_on(emulated, index):
    before = index.summary().arrived
    emulated.process.send_signal(signal.SIGCONT)
    until(lambda: index.summary().arrived > before, 10, "more patterns come")
    assert index.ended is None


def check_all_used(recon, numbers):
    """The run used these patterns, and has all its epochs after the end of the scan."""
    result = recon.result
    assert sorted(result.admissions.patterns.tolist()) == list(numbers)
    assert recon.epoch == len(result.epochs) == result.admissions.epochs + EPOCHS
    assert result.losses[-1] < result.losses[0]


@contextmanager
def another_notebook(path, tmp_path):
    """A notebook whose detector waits in the middle of the scan; yields its process, its cluster's name and engines."""
    with emulator(path, "--as", "stream2", "--rate", 50) as emulated:
        words = [emulated.source, str(path), str(tmp_path / "live"), str(tmp_path / "kept")]
        notebook = subprocess.Popen([sys.executable, "-c", NOTEBOOK, *words], stdout=subprocess.PIPE, text=True)
        try:
            assert notebook.stdout.readline() == "listening\n"
            scan = pt.listen(tmp_path / "live")
            held(emulated, scan.acquisition.index())
            name, *engines = notebook.stdout.readline().split()
            yield emulated, notebook, scan, name, [int(one) for one in engines]
        finally:
            notebook.kill()
            notebook.wait()
            notebook.stdout.close()


def check_all_came(scan, receiver, tmp_path, path):
    """The scan is complete, and its receiver has ended."""
    assert until_ended(scan).ended == f"complete: {PATTERNS} of {PATTERNS}"
    assert not psutil.wait_procs([receiver], 5)[1]
    assert sorted(one.name for one in (tmp_path / "live").iterdir()) == FILES
    check_saved(tmp_path / "live", path, list(range(PATTERNS)))


def test_a_killed_kernel_ends_neither_scan_nor_run(tmp_path, path):
    """Another notebook takes the run over, while patterns come."""
    with another_notebook(path, tmp_path) as (emulated, notebook, scan, name, _):
        index = scan.acquisition.index()
        receiver = psutil.Process(index.receiver)
        notebook.kill()
        notebook.wait()
        goes_on(emulated, index)
        held(emulated, index, after=0)
        recon = pt.attach(name)
        try:
            assert recon.state == "running"
            goes_on(emulated, index)
            until_ended(scan)
            recon.wait(60)
            assert arrivals_of(recon).admitted == PATTERNS
            check_all_used(recon, range(PATTERNS))
        finally:
            recon.cluster.stop()
    check_all_came(scan, receiver, tmp_path, path)


def test_a_kernel_and_an_engine_that_die_together_cost_no_pattern(tmp_path, path):
    """The receiver belongs to neither; another notebook replaces the engine, and has what came meanwhile."""
    with another_notebook(path, tmp_path) as (emulated, notebook, scan, name, engines):
        index = scan.acquisition.index()
        receiver = psutil.Process(index.receiver)
        until(lambda: list((tmp_path / "kept").rglob("*.h5")), 60, "a checkpoint")
        os.kill(engines[0], signal.SIGKILL)
        notebook.kill()
        notebook.wait()
        goes_on(emulated, index)
        recon = pt.attach(name)
        left = processes_of(name)
        try:
            until(lambda: recon.failure is not None, LIMIT, "it is noticed")
            recon.recover()
            recon.start(EPOCHS)
            until_ended(scan)
            recon.wait(90)
            check_all_used(recon, range(PATTERNS))
            assert [change.name for change in recon.changes] == ["engines"]
        finally:
            recon.cluster.stop()
        until(lambda: not any(is_alive(one) for one in left), LIMIT, "nothing of the cluster is left")
    check_all_came(scan, receiver, tmp_path, path)


@pytest.mark.parametrize("on_failure", ["pause", "continue"])
def test_a_killed_engine_is_replaced_and_nothing_of_the_spool_is_lost(tmp_path, path, on_failure):
    keep = pt.Checkpointing(folder=tmp_path / "kept", epochs=5, seconds=None)
    with (
        pt.Cluster(2, device="cpu") as cluster,
        emulator(path, "--as", "stream2", "--rate", 50) as emulated,
    ):
        plan = planned(path, silence=60.0)
        scan = pt.listen(emulated.source, plan=plan, folder=tmp_path / "live", timeout=60)
        index = scan.acquisition.index()
        held(emulated, index)
        recon = pt.Reconstruction(scan, SETTINGS, cluster, checkpointing=keep, on_failure=on_failure)
        recon.start(EPOCHS)
        until(lambda: recon.epoch > 6, 60, "a checkpoint with patterns")
        assert arrivals_of(recon).admitted == index.summary().arrived
        os.kill(cluster.status()[0]["pid"], signal.SIGKILL)
        until(lambda: recon.failure is not None or recon.recovering, LIMIT, "it is noticed")
        goes_on(emulated, index)
        if on_failure == "pause":
            recon.recover()
            recon.start(EPOCHS)
        assert until_ended(scan).ended == f"complete: {PATTERNS} of {PATTERNS}"
        recon.wait(90)
        check_all_used(recon, range(PATTERNS))
        assert [change.name for change in recon.changes] == ["engines"]
        recon.close()


@pytest.mark.parametrize("killed", ["receiver", "writer"])
def test_a_run_goes_on_with_what_came_of_a_file(tmp_path, path, killed):
    written = tmp_path / "written.h5"
    with emulator(path, "--as", "swmr", "--rate", 12, "--file", written) as emulated:
        scan = pt.listen(emulated.source, plan=planned(path), folder=tmp_path / "live", timeout=30)
        index = scan.acquisition.index()
        with pt.Reconstruction(scan, SETTINGS, device="cpu", checkpointing=None) as recon:
            recon.start(EPOCHS)
            until(lambda: (now := arrivals_of(recon)) is not None and now.admitted > 40, 60, "patterns are in use")
            os.kill(index.receiver if killed == "receiver" else emulated.process.pid, signal.SIGKILL)
            taken = until(lambda: arrivals_of(recon).ended is not None, LIMIT, "it is said")
            with pytest.warns(pt.PtynbWarning, match=f"of {PATTERNS} patterns in use"):
                recon.wait(60)
            ended = arrivals_of(recon).ended
            came = np.flatnonzero(index.placed())
            assert 40 < len(came) < PATTERNS
            check_all_used(recon, came)
        print(f"{killed}: said after {taken:.1f} s: {ended}")
        if killed == "receiver":
            assert ended.startswith(f"the receiver (process {index.receiver}) has given no sign of life for ")
            assert ended.endswith(f"after {len(came)} of {PATTERNS} patterns")
            assert emulated.process.wait(30) == 0  # who writes the file is not disturbed
            again = pt.listen(written, plan=planned(path), folder=tmp_path / "again", timeout=30)
            assert until_ended(again).ended == f"complete: {PATTERNS} of {PATTERNS}"
        else:
            assert ended.startswith(f"ended early: {len(came)} of {PATTERNS} (no pattern for 5.")
    check_saved(tmp_path / "live", path, came.tolist())
