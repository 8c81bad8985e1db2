"""The stages for a GPU run on the CPU too, so that they follow the code."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest
import torch

from tests.gpu import agreement
from tests.gpu.problems import TOLERANCE, difference, problems, record, run
from tests.gpu.report import Report
from tests.system_parts import ROOT

SOME = ("case plain", "case everything", "plain lsqml, near field", "constraint smooth_tilts")


def test_the_quick_stages_pass_on_the_cpu_in_a_process_of_their_own() -> None:
    command = [sys.executable, "-m", "tests.gpu", "facts", "frames", "faults", "group", "pace", "kernels"]
    ran = subprocess.run(
        [*command, "--device", "cpu"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=290,
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
    found = Report(torch.device("cpu"), deadline=math.inf)
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
