"""The stages for a GPU run on the CPU too, so that they follow the code."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.settings import Settings
from tests.cases import a_scan
from tests.gpu import __main__ as stages
from tests.gpu import agreement, pace
from tests.gpu.pace import BYTES, least_bytes
from tests.gpu.problems import TOLERANCE, difference, problems, record, run
from tests.gpu.report import Report
from tests.system_parts import ROOT

SYNCHRONISING = "called a synchronizing CUDA operation (Triggered internally at CUDAFunctions.cpp:148.)"
SOME = ("case plain", "case everything", "plain lsqml, near field", "constraint smooth_tilts")


def report(budget: float = 60.0) -> Report:
    return Report(torch.device("cpu"), time.monotonic() + budget)


@pytest.mark.timeout(240)
def test_the_quick_stages_pass_on_the_cpu_in_a_process_of_their_own() -> None:
    command = [sys.executable, "-m", "tests.gpu", "facts", "frames", "faults", "group", "pace", "kernels"]
    ran = subprocess.run(
        [*command, "--device", "cpu"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=230,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    last = ran.stdout.strip().splitlines()[-1]
    assert last.startswith("PASS "), last
    assert ", FAIL 0, left out 2" in last
    for stage in ("frames", "group", "pace", "kernels"):
        assert f"| {stage} | " in ran.stdout
        assert f"| {stage} | 0 |" not in ran.stdout


def test_some_problems_agree_and_their_loops_are_restored_and_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    found = report()
    agreement.same(found, lambda problem: problem.name in SOME)
    assert [(one.name, one.verdict) for one in found.outcomes] == [(name, "pass") for name in SOME]
    assert "pass" in capsys.readouterr().out


def test_names_of_problems_occur_once_and_every_one_moves_something() -> None:
    everything = list(problems())
    names = [problem.name for problem in everything]
    assert len(set(names)) == len(names) > 80
    assert all(problem.updates > 1 for problem in everything)
    assert {problem.settings.precision for problem in everything} == {"double"}


def test_a_difference_of_one_pixel_is_a_failure() -> None:
    problem = next(iter(problems()))
    loop = run(problem, "cpu")
    expected = record(loop)
    with torch.no_grad():
        loop.model.object.parts[0, 0, 3, 3, 0] += 1e-3
    worst, name = difference(expected, record(loop))
    loop.disconnect()
    assert worst > TOLERANCE
    assert name == "object"


@pytest.mark.parametrize(
    ("stage", "status", "text"),
    [
        (lambda found: found.check("s", "wrong", False, "off by 1"), 1, "PASS 0, FAIL 1, left out 0"),
        (lambda found: 1 / 0, 1, "PASS 0, FAIL 1, left out 0"),
        (lambda found: __import__("no_such_package"), 0, "no_such_package is not installed here"),
        (lambda found: found.check("s", "right", True), 0, "PASS 1, FAIL 0, left out 0"),
    ],
)
def test_the_exit_status_says_whether_a_check_failed(
    stage: Callable[[Report], None],
    status: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(stages.STAGES, "tried", stage)
    assert stages.main(["tried", "--device", "cpu"]) == status
    assert text in capsys.readouterr().out


def test_without_time_left_nothing_is_begun(capsys: pytest.CaptureFixture[str]) -> None:
    assert stages.main(["same", "cluster", "--device", "cpu", "--budget", "0"]) == 0
    assert "PASS 0, FAIL 0, left out 2" in capsys.readouterr().out


def test_a_wrong_name_and_a_missing_gpu_end_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        stages.main(["sane", "--device", "cpu"])
    assert "there is no stage sane; expected some of facts, same" in capsys.readouterr().err
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        stages.main([])
    assert "torch finds no GPU (cuda); give --device cpu" in capsys.readouterr().err


@pytest.fixture
def sync_debug_modes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modes that torch was put in; as on a GPU, it is torch that warns in the mode "warn"."""
    modes: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    return modes


def test_waits_are_the_warnings_of_torch_about_them(sync_debug_modes: list[str]) -> None:
    def action() -> None:
        warnings.warn("something else", stacklevel=1)
        for _ in range(2):
            warnings.warn(SYNCHRONISING, stacklevel=1)

    assert pace.count_waits(action) == 2
    assert sync_debug_modes == ["warn", "default"]


def test_launches_and_busy_share_are_those_of_the_kernels(
    sync_debug_modes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop computes on the CPU here, and torch's profiler saw 8 kernels of 3 microseconds and the host's work."""
    kernel = SimpleNamespace(device_type=torch.autograd.DeviceType.CUDA, device_time=3.0)
    host = SimpleNamespace(device_type=torch.autograd.DeviceType.CPU, device_time=50.0)
    seen = SimpleNamespace(events=lambda: [host, *[kernel] * 8, host])
    monkeypatch.setattr(pace, "_profiled", lambda action, device: seen)
    monkeypatch.setattr(pace, "synchronize", lambda device: None)
    monkeypatch.setattr(pace, "BLOCK_SECONDS", 0.001)
    loop = Loop(a_scan(), Settings(batch=8), SingleGroup(torch.device("cpu")))
    on_gpu = SimpleNamespace(
        group=SimpleNamespace(device=torch.device("cuda:0")),
        algorithm=loop.algorithm,
        after_update=loop.after_update,
        updates=loop.updates,
        _table=loop._table,
    )
    found = pace.profile_update(on_gpu)  # type: ignore[arg-type]
    loop.disconnect()
    assert found.launches == 8 / pace.PROFILED
    assert found.busy == pytest.approx(8 * 3e-6 / pace.PROFILED / found.seconds)
    assert found.waits == 0
    assert "2 launches, busy " in pace.described(found, 1e-6)


def test_the_fewest_bytes_count_modes_slices_and_the_counts() -> None:
    settings = next(iter(problems())).settings.replace(probe={"modes": 2}, slices={"count": 3, "thickness": 1e-6})
    assert least_bytes(settings, (32, 16), 4, 2) == 4 * 32 * 16 * (BYTES * 6 + 2)
