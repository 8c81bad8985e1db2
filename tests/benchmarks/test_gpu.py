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
from tests.benchmarks.rows import Missing, Row
from tests.benchmarks.sides import FOLDER, ROOT, Bench

CPU = torch.device("cpu")
UPDATE = "GPU, 16 patterns of 32 x 32, 1 mode, batch 4, an update"
WHOLE = "GPU, 16 patterns of 32 x 32, 1 mode, batch 4, at whole pixels, an update"
LOOPS = [
    f"GPU, 16 patterns of 32 x 32, 1 mode, batch 4, {optimiser}, at whole pixels, an epoch of the loop against {peer}"
    for optimiser, peer in (("adam", "ptyrad"), ("adam", "ptychi --engine AD"), ("lsqml", "ptychi --engine LSQML"))
]
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


def test_the_problem_can_be_reconstructed_and_its_guess_is_not_the_truth() -> None:
    problem = simulated(6, 32, 1, CPU)
    assert problem.scan.probe is not None
    overlap = abs(np.vdot(problem.scan.probe[0], problem.probe[0]))
    overlap /= np.linalg.norm(problem.scan.probe[0]) * np.linalg.norm(problem.probe[0])
    assert 0.5 < overlap < 0.99
    with pt.Reconstruction(problem.scan, pt.Settings(batch=6), device="cpu", checkpointing=None) as recon:
        recon.start(10)
        recon.wait()
        assert recon.epochs[-1].loss < 0.5 * recon.epochs[0].loss


def test_without_peers_an_update_is_held_against_the_bandwidth(bench: Bench) -> None:
    update, *others = gpu.rows(dataclasses.replace(bench, peers=None))
    assert isinstance(update, Row)
    assert (update.name, update.against) == (UPDATE, "the bandwidth limit")
    assert update.ours > update.other > 0
    assert "ms of the host" in update.note
    assert [(one.name, one.why) for one in others if isinstance(one, Missing)] == [
        (name, "no --peers") for name in (gpu.LSQML, *LOOPS, WHOLE)
    ]


def test_a_peer_that_is_not_installed_is_said_in_a_line(bench: Bench) -> None:
    found = gpu.rows(bench)
    assert [one.why for one in found if isinstance(one, Missing)] == [
        f"{name} is not installed for {bench.peers}" for name in ("ptychi", "ptyrad", "ptychi", "ptychi", "ptyrad")
    ]


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


def test_an_epoch_of_the_loop_is_timed_by_wall_clock_and_held_against_that_of_a_peer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "_missing_peers", lambda bench: {"ptychi": "not here"})
    (row,) = gpu.rows(dataclasses.replace(bench, options={**bench.options, "rows": LOOPS[:1]}))
    assert isinstance(row, Row), row.why
    (ours,), (peers,) = row.raw["ptynb"], row.raw["the peer"]
    assert (row.name, row.other) == (LOOPS[0], 4.0)
    assert ours["seconds"] >= ours["engine"] > 0
    assert peers["whole"]
    assert peers["told"][1:] == ["--epochs", "2", "--batch", "4", "--device", "cpu"]


def test_what_does_not_fit_in_the_budget_says_how_to_measure_it(bench: Bench) -> None:
    found = gpu.rows(dataclasses.replace(bench, peers=None, options={**bench.options, "budget": 1e-9}))
    assert isinstance(found[0], Missing)
    assert found[0].why == f"no time left; --rows '{UPDATE}' measures it"


def test_a_peer_that_takes_too_long_is_ended_and_said(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_missing_peers", lambda bench: {})
    (bench.scripts / "peer_ptyrad.py").write_text("import time; time.sleep(60)")
    options = {**bench.options, "rows": [WHOLE]}
    (row,) = gpu.rows(dataclasses.replace(bench, options=options, timeout=1.0))
    assert isinstance(row, Missing)
    assert "timed out" in row.why


def test_without_a_gpu_there_is_one_line(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (row,) = gpu.rows(dataclasses.replace(bench, options={}))
    assert isinstance(row, Missing)
    assert row.why == "no GPU here"


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
