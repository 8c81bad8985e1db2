"""The GPU benchmark on a CPU, on a tiny problem: what it measures, what it leaves out and says, what it removes."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import ptynb as pt
from tests.benchmarks import gpu
from tests.benchmarks.gpu_problem import simulated
from tests.benchmarks.harness import FOLDER, ROOT, Bench, Missing, Row

CPU = torch.device("cpu")
UPDATE = "GPU, 16 patterns of 32 x 32, 1 mode, batch 4, an update"
WHOLE = "GPU, 16 patterns of 32 x 32, 1 mode, batch 4, at whole pixels, an update"
BATCH_OF_4 = ["--batch", "4", "--modes", "1", "--slices", "1", "--device", "cpu"]
SCRIPT = """
import json, sys
import numpy as np
with np.load(sys.argv[1]) as data:
    positions, patterns = data["positions_px"], data["patterns"]
print(json.dumps({"s_per_epoch": 4.0, "whole": bool((positions == np.rint(positions)).all()), "told": sys.argv[1:],
                  "type": str(patterns.dtype), "square": len(patterns) == round(len(patterns) ** 0.5) ** 2}))
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """With an interpreter of its own that has no peer, and a script in the place of PtyRAD's."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    scripts, folder = tmp_path / "scripts", tmp_path / "folder"
    scripts.mkdir()
    folder.mkdir()
    (scripts / "peer_ptyrad.py").write_text(SCRIPT)
    monkeypatch.setenv(FOLDER, str(scripts))
    options = {"device": "cpu"}
    return Bench(
        peers=python, threads=1, turns=1, epochs=2, folder=folder, said=lambda line: None, options=options, timeout=60
    )


@pytest.mark.parametrize("modes", [1, 3])
def test_the_simulated_counts_are_those_of_the_package(modes: int) -> None:
    problem = simulated(3, 128, modes, CPU, noise=False)
    expected = pt.simulate_diffraction(problem.object, problem.probe, problem.scan.positions, noise=False)
    rates = expected.frames.read(0, 9)
    np.testing.assert_allclose(problem.scan.frames.read(0, 9), rates, rtol=1e-3, atol=1e-4 * rates.max())
    counts = simulated(3, 128, modes, CPU).scan.frames.read(0, 9)
    assert counts.dtype == np.uint16
    bright = rates > 20
    deviations = (counts - rates)[bright] / np.sqrt(rates[bright])
    assert deviations.std() == pytest.approx(1, abs=0.1)


def test_ptyrad_gets_whole_pixels_and_a_file_that_goes_afterwards(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "_missing_peers", lambda bench: {"ptychi": "not here"})
    chosen = dataclasses.replace(bench, options={**bench.options, "rows": [WHOLE]})
    (row,) = gpu.rows(chosen)
    assert isinstance(row, Row), row.why
    assert row.other == 4.0 / 4, "an epoch has four updates"
    (told,) = row.raw["PtyRAD, torch.compile"]
    assert (told["whole"], told["type"], told["square"]) == (True, "float32", True)
    assert told["told"][1:] == ["--epochs", "2", *BATCH_OF_4]
    assert list(bench.folder.iterdir()) == []
    (bench.scripts / "peer_ptyrad.py").write_text("raise SystemExit('out of memory')")
    (failed,) = gpu.rows(chosen)
    assert isinstance(failed, Missing)
    assert "out of memory" in failed.why
    assert list(bench.folder.iterdir()) == []


def test_the_command_prints_a_table_and_leaves_no_file(tmp_path: Path) -> None:
    record, temporary = tmp_path / "record.json", tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "tests.benchmarks.gpu", "--device", "cpu", "--turns", "1", "--json", str(record)]
    environment = os.environ | {"TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    assert f"| {UPDATE} " in ran.stdout
    assert json.loads(record.read_text())["rows"][0]["name"] == UPDATE
    assert [path.name for path in temporary.iterdir() if path.name.startswith("ptynb-benchmarks")] == []
