"""`ptynb ps` and `ptynb stop` on real clusters: while they run, and after what started them was killed."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

import ptynb as pt
from ptynb.cli import main, ps_command
from ptynb.cluster import runtime_dir
from ptynb.cluster.lifetime import orphans, watchdog
from ptynb.engine import keepalive
from ptynb.io.checkpoint_file import load_state, states
from tests.faults.test_notebook import processes_of
from tests.waiting import until

SCRIPT = """
import json, sys, time
import ptynb as pt
class Slow(pt.CustomConstraint):
    after = "epoch"
    def impose(self, model):
        time.sleep(0.05)
scan, keep = sys.argv[1:]
scan = pt.load(scan)
def start(engines, keep):
    cluster = pt.Cluster(engines, device="cpu", threads=1, detached_timeout=300.0)
    recon = pt.Reconstruction(
        scan, pt.Settings(batch=20), cluster, checkpointing=keep, on_failure="continue", extensions=[Slow()]
    )
    recon.start(100_000)
    if keep is None:
        recon.pause()
    return recon
others = [start(1, None) for _ in range(2)]
running = start(2, pt.Checkpointing(folder=keep, epochs=100_000, seconds=None))
while not running.epochs:
    time.sleep(0.02)
print(json.dumps([recon.cluster.name for recon in (running, *others)]), flush=True)
sys.stdin.readline()
try:
    running.wait(20)
except pt.ReconstructionError as error:
    print(json.dumps(str(error)), flush=True)
sys.stdin.readline()
"""
OTHERS = [
    ("similar name", {"PTYNB_CLUSTER": "{name}0"}, []),
    ("another cluster", {"PTYNB_CLUSTER": "ptynb-00000000", "PTYNB_RANK": "0"}, []),
    ("name in its command", {}, ["{folder}", "--profile-dir={folder}"]),
    ("another user's", {"PTYNB_CLUSTER": "{name}"}, []),
]
"""Processes that `stop` must not touch: what they are, their environment, their arguments."""


@dataclass
class Notebook:
    """What started three clusters, a running one and two that are paused, and holds them."""

    process: subprocess.Popen[str]
    running: str
    paused: list[str]
    states: Path


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    base = tmp_path_factory.mktemp("ghosts")
    scan = base / "scan.h5"
    pt.save_scan(pt.simulate(patterns=100, window=64, seed=5), scan)
    command = [sys.executable, "-c", SCRIPT, str(scan), str(base / "states")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        running, *paused = json.loads(process.stdout.readline())
        yield Notebook(process, running, paused, base / "states")
        process.kill()
    for name in (running, *paused):
        for left in processes_of(name):
            with contextlib.suppress(psutil.Error):
                left.kill()


@pytest.fixture(scope="module")
def crashed(notebook: Notebook) -> Notebook:
    """The same after it was killed, and the guardians with it."""
    for name in notebook.paused:
        for process in processes_of(name):
            if watchdog.__file__ in process.cmdline():
                process.kill()
    notebook.process.kill()
    notebook.process.wait()
    return notebook


@pytest.fixture
def others(notebook: Notebook) -> Iterator[list[psutil.Process]]:
    """Processes that are none of the running cluster's, though they look alike."""
    words = {"name": notebook.running, "folder": str(runtime_dir.folder_of(notebook.running))}
    started = []
    for what, environment, arguments in OTHERS:
        command = ["sh", "-c", "read line", *(word.format(**words) for word in arguments)]
        marks = {name: value.format(**words) for name, value in environment.items()}
        user = "nobody" if what == "another user's" else None
        started.append(subprocess.Popen(command, env=marks, user=user, stdin=subprocess.PIPE))
    yield [psutil.Process(process.pid) for process in started]
    for process in started:
        process.kill()
        process.communicate()


def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as a user runs it."""
    whole = [sys.executable, "-m", "ptynb.cli.main", *arguments]
    return subprocess.run(whole, capture_output=True, text=True, check=False, timeout=120)


def found(name: str) -> orphans.FoundCluster:
    return next(one for one in orphans.find() if one.name == name)


def test_a_running_one_is_listed_with_its_work_and_goes_on_undisturbed(notebook: Notebook) -> None:
    folder = runtime_dir.folder_of(notebook.running)
    holder = (folder / "holder.json").read_bytes()
    before = orphans.look(found(notebook.running)).work
    assert before is not None
    told = json.loads(ask("ps", "--json").stdout)
    (listed,) = [one for one in told if one["name"] == notebook.running]
    after = orphans.look(found(notebook.running)).work
    assert after is not None
    assert 0 < before.epoch <= listed["work"]["epoch"] <= after.epoch
    assert before.epoch < after.epoch
    assert listed["work"]["state"] == "running"
    assert listed["work"]["target"] == 100_000
    assert (listed["holder"], listed["alive"], listed["planned"], listed["orphaned"]) == (
        notebook.process.pid,
        2,
        2,
        False,
    )
    assert listed["note"] == ""
    assert {one["pid"] for one in listed["engines"] + listed["others"]} == {
        one.pid for one in processes_of(notebook.running)
    }
    assert psutil.Process(notebook.process.pid).create_time() < listed["started"] < time.time()
    assert (folder / "holder.json").read_bytes() == holder
    assert next(one for one in told if one["name"] == notebook.paused[0])["work"]["state"] == "paused"


def test_one_whose_folder_is_gone_is_held_by_who_is_connected_to_it(notebook: Notebook) -> None:
    folder = runtime_dir.folder_of(notebook.paused[0])
    away = folder.rename(folder.with_name("away"))
    try:
        one = found(notebook.paused[0])
    finally:
        away.rename(folder)
    assert one.folder is None
    assert one.holder == notebook.process.pid
    assert not one.orphaned


def test_stop_keeps_the_state_ends_all_of_it_and_touches_nothing_else(
    notebook: Notebook, others: list[psutil.Process]
) -> None:
    name = notebook.running
    folder = runtime_dir.folder_of(name)
    reused = others[2]
    records = runtime_dir.read(folder, "processes.json")
    records["engines"].append([reused.pid, reused.create_time() - 1000])
    runtime_dir.write(folder, "processes.json", records)
    before = orphans.look(found(name))
    assert before.work is not None
    assert not {one.pid for one in before.processes} & {one.pid for one in others}
    own = [one for one in processes_of(name) if one not in others]
    ports = {one.laddr.port for process in own for one in process.net_connections("inet")}
    answer = ask("stop", name)
    assert answer.returncode == 0, answer.stderr
    (written,) = states(notebook.states)
    assert load_state(written).epoch > before.work.epoch
    assert f"its checkpoint after epoch {load_state(written).epoch}" in answer.stdout
    assert str(written) in answer.stdout
    assert "(simulated: running, epoch " in answer.stdout
    assert f"held by process {notebook.process.pid}" in answer.stdout
    assert not folder.exists()
    assert not ports & {one.laddr.port for one in psutil.net_connections("inet") if one.status == psutil.CONN_LISTEN}
    assert all(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in others)
    # The notebook, which would have gone on by itself, is told why it can't, and starts nothing again.
    assert notebook.process.stdin is not None
    assert notebook.process.stdout is not None
    notebook.process.stdin.write("\n")
    notebook.process.stdin.flush()
    assert "ended by 'ptynb stop'" in json.loads(notebook.process.stdout.readline())
    assert [one for one in processes_of(name) if one not in others] == []


def listing(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Lines of `ptynb ps` by their first word."""
    assert main.main(["ps"]) == 0
    return {line.split()[0]: line.rstrip() for line in capsys.readouterr().out.splitlines()}


def test_what_a_crash_left_is_listed_and_ended(
    crashed: Notebook, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_controller, without_engines = crashed.paused
    every = orphans.find
    monkeypatch.setattr(orphans, "find", lambda: [one for one in every() if one.name in crashed.paused])
    for one in map(orphans.look, orphans.find()):
        assert one.holder is None
        assert one.work is not None
        assert one.work.state == "paused"
        assert not one.orphaned  # somebody may come back to it
    assert main.main(["stop", "--orphaned"]) == 0
    assert capsys.readouterr().out.count("is not ended: simulated: paused, epoch ") == 2
    own = [process for name in crashed.paused for process in processes_of(name)]
    for one in orphans.find():
        if one.name == without_controller:
            os.kill(one.engines[0].pid, signal.SIGSTOP)  # it would leave in some seconds
            for process in one.others:
                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(process.pid).kill()
        else:
            os.kill(one.engines[0].pid, signal.SIGKILL)
    until(lambda: not found(without_controller).controlled and not found(without_engines).engines, 5, "killed")
    lines = listing(capsys)
    assert lines[without_controller].endswith("its controller is gone")
    assert lines[without_engines].endswith("its engines are gone")
    shutil.rmtree(runtime_dir.folder_of(without_controller))
    lines = listing(capsys)
    assert lines[without_controller].endswith("its folder is gone")
    assert all(" none " in lines[name] for name in crashed.paused)
    assert main.main(["stop", "--orphaned"]) == 0
    assert not [one for one in own if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    assert not any(runtime_dir.folder_of(name).exists() for name in crashed.paused)
    assert orphans.find() == []


def test_folders_without_processes_and_those_of_other_machines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, *rest = keepalive.machine().split(" ")
    rebooted = " ".join([node, "another start", *rest[1:]])
    told = {
        "ptynb-0000000a": ("lab9 boot pid:[1]", time.time()),
        "ptynb-0000000b": (rebooted, psutil.boot_time() - 1000),
        "ptynb-0000000c": (rebooted, psutil.boot_time() + 1000),  # another machine of this name
        "ptynb-0000000d": (keepalive.machine(), time.time()),
    }
    for name, (machine, started) in told.items():
        folder = runtime_dir.make_folder(name)
        described = {"machine": machine, "started": started, "kind": "local", "engines": 2}
        runtime_dir.write(folder, "cluster.json", described)
        runtime_dir.write(folder, "holder.json", {"pid": 2**22 + 1, "start": started, "machine": machine, "lease": 9.0})
    try:
        remarks = {name: (found(name).note, found(name).orphaned) for name in told}
        assert remarks == {
            "ptynb-0000000a": ("on lab9: not looked into from here", False),
            "ptynb-0000000b": ("left from before this machine was restarted", True),
            "ptynb-0000000c": (f"on {platform.node()}: not looked into from here", False),
            "ptynb-0000000d": ("nothing of it runs", True),
        }
        assert main.main(["stop", "ptynb-0000000a"]) == 69
        refused = " ".join(capsys.readouterr().err.split())
        assert "ptynb-0000000a was started on lab9; run 'ptynb stop ptynb-0000000a' there." in refused
        assert main.main(["stop", "ptynb-0000000b", "ptynb-0000000d"]) == 0
        left = [name for name in told if runtime_dir.folder_of(name).exists()]
        assert left == ["ptynb-0000000a", "ptynb-0000000c"]
        assert main.main(["stop", "ptynb-000000a"]) == 69
        assert "(similar: ptynb-0000000a, ptynb-0000000c" in " ".join(capsys.readouterr().err.split())
        assert main.main(["stop"]) == 64
        assert "Expected names of clusters" in capsys.readouterr().err
        monkeypatch.setattr(keepalive, "machine", lambda: told["ptynb-0000000a"][0])  # there
        assert main.main(refused.split("run 'ptynb ")[1].split("'")[0].split()) == 0
        assert not runtime_dir.folder_of("ptynb-0000000a").exists()
    finally:
        for name in told:
            shutil.rmtree(runtime_dir.folder_of(name), ignore_errors=True)


def test_what_could_not_be_ended_elsewhere_is_named_and_can_be_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = runtime_dir.make_folder("ptynb-0000000e")
    runtime_dir.write(folder, "cluster.json", {"machine": keepalive.machine(), "started": time.time(), "kind": "slurm"})
    runtime_dir.write(folder, "processes.json", {"end": [["ls", str(tmp_path / "later")]]})
    runtime_dir.write(
        folder, "holder.json", {"pid": 2**22 + 1, "start": 0.0, "machine": keepalive.machine(), "lease": 0.0}
    )
    assert main.main(["stop", folder.name]) == 1
    assert f"this command failed: ls {tmp_path / 'later'}" in " ".join(capsys.readouterr().err.split())
    assert folder.exists()
    (tmp_path / "later").touch()
    assert main.main(["stop", folder.name]) == 0
    assert not folder.exists()


def test_the_lease_is_told_while_nobody_holds_it() -> None:
    folder = runtime_dir.make_folder("ptynb-0000000f")
    try:
        runtime_dir.write(
            folder, "holder.json", {"pid": 2**22 + 1, "start": 0.0, "machine": keepalive.machine(), "lease": 3600.0}
        )
        assert ps_command.holder(found(folder.name)) == "none"
        runtime_dir.write(folder, "alone.json", {"since": time.time() - 480})
        assert ps_command.holder(found(folder.name)) == "none, ends in 52 min"
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize(("numbers", "told"), [([], ""), ([7], "7"), ([1, 2, 3, 7, 9, 10], "1-3 7 9-10")])
def test_ranges(numbers: list[int], told: str) -> None:
    assert ps_command.ranges(numbers) == told
