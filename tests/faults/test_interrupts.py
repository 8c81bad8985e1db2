"""Ctrl-C and the stop button, in a real kernel: the prompt is back at once, and nothing was lost by it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import ptynb as pt
from ptynb.cluster.lifetime.watchdog import MARK
from tests.faults.kernels import Kernel

PROMPT_SECONDS = 1.0
"""What the project promises."""
EPOCHS = 24

OPENING = """
import json, hashlib, os, signal, threading, time
import psutil
import ptynb as pt

def opened(on_failure="pause", keep=None):
    scan, settings = pt.load({scan!r}), pt.Settings(batch=10, schedule={{"kind": "constant"}})  # for runs of any length
    return pt.Reconstruction(scan, settings, cluster, checkpointing=keep, on_failure=on_failure)

def told(recon):
    result = recon.result
    return [result.losses.tolist(), hashlib.sha256(result.object.tobytes()).hexdigest()]

def continued(recon, epochs):
    while recon.epoch < epochs:
        recon.step()
    return told(recon)

def standing(recon):
    sent = recon.status()[0].applied
    while any(one.applied < sent for one in recon.status()):
        time.sleep(0.01)
    return [[one.state, one.epoch, one.update] for one in recon.status()]
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """One with a cluster of two engines."""
    folder: Path = tmp_path_factory.mktemp("interrupts")
    pt.save_scan(pt.simulate(patterns=200, window=64, seed=5), folder / "scan.h5")
    kernel = Kernel(folder)
    try:
        kernel.run(OPENING.format(scan=str(folder / "scan.h5")))
        kernel.run("cluster = pt.Cluster(2, device='cpu', threads=1)")
        yield kernel
        kernel.run("cluster.stop()")
    finally:
        kernel.close()


@pytest.fixture(scope="module")
def undisturbed(kernel: Kernel) -> Any:
    """Losses and object of a run that nobody interrupts."""
    return kernel.run(f"with opened() as recon: print(json.dumps(continued(recon, {EPOCHS})))")


def equals(kernel: Kernel, undisturbed: Any) -> None:
    """The present reconstruction goes on to the same losses and object, bit for bit."""
    assert kernel.run(f"print(json.dumps(continued(recon, {EPOCHS}))); recon.close()") == undisturbed


def assert_stopped(kernel: Kernel) -> None:
    """All ranks have stopped before the same update."""
    first, second = kernel.run(
        "until = time.monotonic() + 30\n"
        "while recon.state != 'ready' and time.monotonic() < until: time.sleep(0.01)\n"
        "first = standing(recon); time.sleep(0.2); print(json.dumps([first, standing(recon)]))"
    )
    assert first == second
    assert first[0] == first[1]
    assert first[0][0] == "ready"


def test_an_interrupted_loop_stops_all_ranks_before_the_same_update(kernel: Kernel, undisturbed: Any) -> None:
    kernel.run("recon = opened()")
    stopped_within_an_epoch = 0
    for after, again in [(0.1, None), (0.13, 0.0), (0.05, 0.003), (0.11, 0.02), (0.0, None), (0.0, 0.001)]:
        back = kernel.interrupted("for epoch in recon.run(100_000):\n    mark()", after, again)
        assert back < PROMPT_SECONDS
        assert_stopped(kernel)
        stopped_within_an_epoch += kernel.run("print(recon.last_status().update)") > 0
        assert kernel.run("print(recon.epoch)") < EPOCHS - 1
    assert stopped_within_an_epoch
    equals(kernel, undisturbed)


def test_an_interrupted_wait_leaves_the_run_alone(kernel: Kernel, undisturbed: Any) -> None:
    kernel.run("recon = opened(); recon.start(100_000)")
    assert kernel.interrupted("mark(); recon.wait()", 0.1) < PROMPT_SECONDS
    assert kernel.interrupted("mark(); recon.wait()", 0.05, 0.002) < PROMPT_SECONDS
    assert kernel.run("first = recon.epoch; time.sleep(0.3); recon.stop(); print(recon.epoch - first)") > 0
    assert_stopped(kernel)
    assert kernel.run("print(recon.epoch)") < EPOCHS
    equals(kernel, undisturbed)


def test_interrupted_results_and_files_harm_nothing(kernel: Kernel, undisturbed: Any, tmp_path: Path) -> None:
    path = tmp_path / "result.h5"
    kernel.run("recon = opened(); recon.step()")
    taking = "while True:\n    mark(); recon._result_at = None; recon.result"
    saving = f"while True:\n    mark(); recon.save({str(path)!r})"
    for after, again in [(0.0, None), (0.02, 0.002), (0.07, None), (0.001, 0.01)]:
        assert kernel.interrupted(taking, after, again) < PROMPT_SECONDS
        assert kernel.interrupted(saving, after, again) < PROMPT_SECONDS
    assert [one.name for one in tmp_path.iterdir() if one.name != path.name] == []
    assert kernel.run("print(json.dumps(recon.result.losses.tolist()))") == undisturbed[0][:1]
    equals(kernel, undisturbed)


def test_settings_that_are_interrupted_are_taken_over_everywhere_or_nowhere(kernel: Kernel, undisturbed: Any) -> None:
    kernel.run("recon = opened(); rate = recon.settings.object.learning_rate; recon.step()")
    changing = (
        "while True:\n    mark()\n    for factor in (0.5, 2.0, 1.0):\n"
        "        recon.settings = recon.settings.replace(object={'learning_rate': factor * rate})"
    )
    for after, again in [(0.0, None), (0.013, None), (0.031, None), (0.0, 0.002), (0.02, 0.001), (0.04, 0.01)]:
        assert kernel.interrupted(changing, after, again) < PROMPT_SECONDS
        here, there = kernel.run(
            "time.sleep(0.2); recon.state; newest = recon.changes[-1].new if recon.changes else rate\n"
            "print(json.dumps([recon.settings.object.learning_rate, newest]))"
        )
        assert here == there
    kernel.run("recon.settings = recon.settings.replace(object={'learning_rate': rate})")
    equals(kernel, undisturbed)


def test_an_interrupt_while_an_engine_is_replaced(kernel: Kernel, undisturbed: Any, tmp_path: Path) -> None:
    kernel.run(
        f"recon = opened('continue', pt.Checkpointing(folder={str(tmp_path / 'states')!r}, epochs=1, seconds=None))"
    )
    kernel.run("recon.step(); recon.save_checkpoint()")
    losing = (
        "def watch():\n    while not recon._client.recovering: time.sleep(0.005)\n    mark()\n"
        "threading.Thread(target=watch).start()\n"
        "os.kill(cluster.status()[1]['pid'], signal.SIGKILL)\n"
        "for epoch in recon.run(100_000): pass"
    )
    assert kernel.interrupted(losing, 0.3, 0.05) < PROMPT_SECONDS
    assert kernel.run("print(json.dumps(recon.state))") == "recovering"
    kernel.run("while recon.state == 'recovering': time.sleep(0.02)")
    assert_stopped(kernel)
    assert kernel.run("print(len(recon.changes))") == 1
    equals(kernel, undisturbed)


def marked() -> set[int]:
    """Every process that carries a cluster's mark and this machine's tests' own folder."""
    found = set()
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except psutil.Error:
            continue
        own = environment.get("JUPYTER_RUNTIME_DIR") == os.environ["JUPYTER_RUNTIME_DIR"]
        if own and MARK in environment and process.status() != psutil.STATUS_ZOMBIE:
            found.add(process.pid)
    return found


@pytest.mark.parametrize(("after", "again"), [(0.0, None), (0.02, 0.001), (2.0, 0.0)])
def test_an_interrupted_start_leaves_nothing_behind(kernel: Kernel, after: float, again: float | None) -> None:
    runtime = Path(os.environ["JUPYTER_RUNTIME_DIR"])
    before, folders = marked(), set(runtime.glob("ptynb-*"))
    held = (
        "print(json.dumps([sorted(thread.name for thread in threading.enumerate()),"
        " [os.readlink(f'/proc/self/fd/{name}') for name in os.listdir('/proc/self/fd')"
        " if os.path.exists(f'/proc/self/fd/{name}')]]))"
    )
    threads, files = kernel.run(held)
    back = kernel.interrupted("mark(); other = pt.Cluster(2, device='cpu', threads=1)", after, again)
    assert back < PROMPT_SECONDS
    until = time.monotonic() + 10
    while (marked() != before or set(runtime.glob("ptynb-*")) != folders) and time.monotonic() < until:
        time.sleep(0.05)
    assert marked() == before
    assert set(runtime.glob("ptynb-*")) == folders
    while any(len(now) > len(then) for now, then in zip(kernel.run(held), (threads, files), strict=True)):
        assert time.monotonic() < until + 10, [threads, files, *kernel.run(held)]
        time.sleep(0.1)
    assert kernel.run("print(len(cluster.status()))") == 2


def test_an_interrupted_stop_ends_all_the_same(kernel: Kernel) -> None:
    before = marked()
    kernel.run("other = pt.Cluster(1, device='cpu', threads=1)")
    assert marked() > before
    assert kernel.interrupted("mark(); other.stop(); time.sleep(10)", 0.05, 0.01) < PROMPT_SECONDS
    until = time.monotonic() + 10
    while marked() != before and time.monotonic() < until:
        time.sleep(0.05)
    assert marked() == before
    assert kernel.run("print(json.dumps(other.running))") is False
