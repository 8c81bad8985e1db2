"""A scheduler takes a machine back: a signal to a run at any time, and --resume goes on as if there was none."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import ptynb as pt
from ptynb.batch.signals import SIGNALS
from ptynb.cluster.lifetime.watchdog import MARK
from ptynb.io.result_file import load_result

pytestmark = pytest.mark.timeout(900)
GRACE_SECONDS = 10.0
"""What the project promises, from the signal to the checkpoint."""
EPOCHS = 150
CLUSTERS = {"cluster": "{engines: 2, device: cpu, threads: 1}", "none": "{kind: none, device: cpu, threads: 1}"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a scan, run files, and the result of a run of each that nothing interrupts."""
    folder = tmp_path_factory.mktemp("preemption")
    pt.save_scan(pt.simulate(patterns=100, window=32, seed=5), folder / "scan.h5")
    settings = "{batch: 4, schedule: {kind: constant}}"  # 25 updates an epoch
    for name, cluster in CLUSTERS.items():
        (folder / f"{name}.yaml").write_text(
            f"scan: scan.h5\nepochs: {EPOCHS}\ncluster: {cluster}\nsettings: {settings}\n"
            "checkpointing: {seconds: null, epochs: 1000}\n"
        )
        with Run(folder, name, "whole") as run:
            assert run.ended() == 0
    return folder


class Run:
    """A run in a process group of its own, as a scheduler starts it."""

    def __init__(self, folder: Path, name: str, id: str, *more: str) -> None:
        line = [sys.executable, "-m", "ptynb.cli.main", "run", str(folder / f"{name}.yaml"), "--resume"]
        line += ["--output", str(folder / "out"), "--id", f"{name}-{id}", "--progress", "json", *more]
        self.folder = folder / "out" / f"{name}-{id}"
        with (folder / f"{name}-{id}.log").open("a") as log:
            self.process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The lines of this kind."""
        path = self.folder / "progress.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in map(json.loads, lines) if line["event"] == kind]

    def ended(self) -> int:
        """The exit status, once it has ended."""
        return self.process.wait(300)

    def outcome(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "outcome.json").read_text())
        return found


def begun(run: Run, epochs: int = 2) -> int:
    """Wait until the process has completed some epochs more; their number in total."""
    until, before = time.monotonic() + 200, len(run.events("epoch"))
    while len(run.events("epoch")) < before + epochs:
        assert run.process.poll() is None, "it has ended"
        assert time.monotonic() < until, "no epoch came"
        time.sleep(0.02)
    return len(run.events("epoch"))


def is_whole(folder: Path, run: Run, name: str) -> None:
    """The result is that of the run without interruption."""
    found, whole = load_result(run.folder / "result.h5"), load_result(folder / "out" / f"{name}-whole" / "result.h5")
    np.testing.assert_array_equal(found.losses, whole.losses)
    np.testing.assert_array_equal(found.object, whole.object)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: signal.Signals(number).name)
def test_each_signal_to_the_group_writes_a_checkpoint_in_time(folder: Path, number: int) -> None:
    """Engines are not in the group, and continue until they have written it."""
    id = signal.Signals(number).name
    with Run(folder, "cluster", id) as run:
        begun(run)
        os.killpg(run.process.pid, number)
        sent = time.time()
        assert run.ended() == (130 if number == signal.SIGINT else 75)
        outcome, (kept,) = run.outcome(), (run.folder / "checkpoints").glob("state-*.h5")
        assert kept.stat().st_mtime - sent < GRACE_SECONDS
    assert (outcome["status"], outcome["error"], outcome["result"]) == ("interrupted", None, None)
    assert run.events("interrupted")[0]["command"].endswith("--resume")
    with Run(folder, "cluster", id) as again:
        assert again.ended() == 0
    is_whole(folder, again, "cluster")


def engines_of(run: Run) -> Iterator[psutil.Process]:
    """The processes of its cluster."""
    for process in psutil.process_iter():
        try:
            if (
                MARK in process.environ()
                and process.parent()
                and run.process.pid in (parent.pid for parent in process.parents())
            ):
                yield process
        except psutil.Error:
            continue


def test_a_signal_to_all_processes_of_a_container_leaves_a_checkpoint(folder: Path) -> None:
    """As Slurm does with control groups: also engines and controller, which are in sessions of their own."""
    with Run(folder, "cluster", "container") as run:
        begun(run)
        for process in [*engines_of(run), psutil.Process(run.process.pid)]:
            with contextlib.suppress(psutil.NoSuchProcess):  # ended by the end of another one
                process.send_signal(signal.SIGTERM)
        assert run.ended() == 75
        assert list((run.folder / "checkpoints").glob("state-*.h5"))
    with Run(folder, "cluster", "container") as again:
        assert again.ended() == 0
    is_whole(folder, again, "cluster")


@pytest.mark.parametrize("seed", range(4))
def test_signals_at_any_time_and_the_result_is_that_of_a_run_without(folder: Path, seed: int) -> None:
    """Also while Python starts, the scan is loaded, the cluster starts, and the result is written."""
    chance, statuses = random.Random(seed), list[int]()
    name = [*CLUSTERS][seed % 2]
    pauses: Sequence[float] = [chance.uniform(0, 25) for _ in range(6)]
    for pause in pauses:
        with Run(folder, name, f"random{seed}") as run:
            try:
                statuses.append(run.process.wait(pause))
            except subprocess.TimeoutExpired:
                os.killpg(run.process.pid, signal.SIGTERM)
                sent = time.monotonic()
                statuses.append(run.ended())
                assert time.monotonic() - sent < 2 * GRACE_SECONDS, "the whole end, with that of the cluster"
    with Run(folder, name, f"random{seed}") as run:
        statuses.append(run.ended())
    assert statuses[-1] == 0
    assert set(statuses) <= {0, 75, -signal.SIGTERM}, statuses  # the last while Python itself starts
    is_whole(folder, run, name)
