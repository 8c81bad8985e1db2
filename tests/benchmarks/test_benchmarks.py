"""What the benchmark makes of measurements; nothing is timed here."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import ptynb as pt
from tests.benchmarks import cpu, problems, run, tiles
from tests.benchmarks.harness import FOLDER, Bench, Missing, compared, table


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """With a peer that says what it was told."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "peer.py").write_text(
        "import json, os, sys\n"
        "print('a line of its own')\n"
        "print(json.dumps({'s_per_epoch': 2.0, 'told': sys.argv[1:], 'threads': os.environ['OMP_NUM_THREADS'],\n"
        "                  'path': os.environ['PYTHONPATH']}))\n"
    )
    (scripts / "broken.py").write_text("raise SystemExit('no such engine')\n")
    monkeypatch.setenv(FOLDER, str(scripts))
    # Another name for the same interpreter: a peer's is never ptynb's own.
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return Bench(peers=python, threads=1, turns=2, epochs=2, folder=tmp_path, said=lambda line: None, options={})


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    """A small file like those of the common problem."""
    scan = pt.simulate(patterns=25, window=32)
    assert scan.probe is not None
    assert scan.ground_truth is not None
    path = tmp_path / "small.npz"
    patterns = scan.frames.read(0, len(scan))
    places = scan.positions.astype(np.float32)
    np.savez(
        path,
        patterns=patterns,
        positions_px=places,
        start_probe=scan.probe[0],
        object=scan.ground_truth.object,
        probe=scan.ground_truth.probe,
        wavelength=1e-10,
        det_pixel=75e-6,
        det_distance=2.0,
    )
    return path


def test_the_table_shows_figures_goal_and_what_is_missing() -> None:
    given = {"ptynb": [{"seconds": 0.5}], "Peer": [{"seconds": 4.0}]}
    lines = table([compared("cpu", "A", given, limit=1 / 6), Missing("gpu", "GPU", "no GPU here")]).splitlines()
    assert lines[2] == "| A | 0.5 s | 4 s, Peer | 0.125 (0.125 to 0.125) | at most 0.167 | yes |"
    assert lines[3] == "| GPU | not measured: no GPU here | | | | |"


def test_the_peer_gets_as_many_threads_and_none_of_our_packages(bench: Bench) -> None:
    answer = bench.peer("peer.py", Path("A.npz"), 7, "--modes", "4")
    assert answer["seconds"] == 2.0
    assert answer["told"] == ["A.npz", "--epochs", "7", "--modes", "4"]
    assert (answer["threads"], answer["path"]) == ("1", "")


def test_a_side_that_fails_is_a_row_that_says_so(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="ended with 1 and said: no such engine"):
        bench.peer("broken.py", Path("A.npz"), 1)
    monkeypatch.setitem(run.SUBJECTS, "cpu", lambda bench: [bench.peer("broken.py", Path("A.npz"), 1)])
    [row] = run.rows_of(bench, "cpu")
    assert isinstance(row, Missing)
    assert "no such engine" in row.why


def test_ptynb_runs_a_problem_in_a_process_of_its_own(bench: Bench, problem: Path, tmp_path: Path) -> None:
    answer = bench.ours(problem, {"batch": 5}, 3)
    assert len(answer["all"]) == 3
    assert answer["seconds"] == np.median(answer["all"][1:])
    assert answer["threads"] == 1
    bench.ours(problem, {"batch": 5}, 2, "--save", str(tmp_path / "kept"))
    first, second = (np.load(tmp_path / "kept" / f"{number}.npz")["object"] for number in (1, 2))
    assert first.shape == second.shape
    assert np.abs(first - second).max() > 1e-3


def test_a_thick_problem_has_the_counts_of_its_slices(bench: Bench, problem: Path) -> None:
    """Rates of ptynb's own simulation and Poisson's noise, at whole pixels: a remainder may be in the next window."""
    with np.load(problem) as data:
        np.savez(problem, **{**data, "positions_px": np.rint(data["positions_px"])})
    with np.load(problems.thick(bench, problem.stem, 2, 1e-4)) as data, np.load(problem) as thin:
        assert data["object"].shape == (2, *thin["object"].shape)
        expected = pt.simulate_diffraction(
            data["object"],
            thin["probe"],
            thin["positions_px"].astype(float),
            geometry=pt.Geometry(wavelength=1e-10, distance=2.0, detector_pixel=(75e-6, 75e-6)),
            thickness=1e-4,
            noise=False,
        )
        counts, rates = data["patterns"], expected.frames.read(0, 25)
    bright = rates > 20
    deviations = (counts - rates)[bright] / np.sqrt(rates[bright])
    assert bright.sum() > 1000
    assert deviations.std() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("name", cpu.LSQML_CASES)
def test_a_case_of_lsqml_has_settings_that_ptynb_takes(name: str) -> None:
    case = cpu.LSQML_CASES[name]
    assert pt.Settings(**{"optimiser": "lsqml", "batch": case.batch, **case.settings}).batch == case.batch


def test_memory_of_a_run_counts_what_it_holds(bench: Bench) -> None:
    """Frames of 16 MB in the file take at least that; the libraries, far more, are left out."""
    scan = problems.large(bench.folder, patterns=2000, window=64)
    answer = bench.answer([sys.executable, "-m", "tests.benchmarks.memory", bench.folder / "2000x64.h5", "{}"])
    assert scan.frames.shape == (2000, 64, 64)
    assert 16 < answer["megabytes"] < answer["before"]


def test_the_report_goes_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text(f"before\n{run.BEGIN}\n\nold\n\n{run.END}\nafter\n")
    run.fill_in(page, "new")
    assert page.read_text() == f"before\n{run.BEGIN}\n\nnew\n\n{run.END}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="the report goes between them"):
        run.fill_in(page, "new")


def test_costs_of_an_update_in_tiles_are_found_again_in_the_times_that_they_make(tmp_path: Path) -> None:
    costs = tiles.Costs(2e-3, 1e-2, 3e-9, (4e-4, 0.0), (5e-10, 0.0), 6e-4, 7e-10)
    side, (short, long) = 3000.0, tiles.SIZES

    def alone(patterns: int, size: float) -> list[float]:
        return [1e-3 + costs.update + costs.pattern * patterns + costs.number * 2 * size**2] * 3

    found = {
        "nothing": [1e-3] * 3,
        "few": alone(tiles.FEW, 2 * tiles.WINDOW),
        "many": alone(tiles.MANY, 2 * tiles.WINDOW),
        "large": alone(tiles.FEW, side),
        "side": [side],
    }
    for name, size in (("small", short), ("long", long)):
        found[f"{name} message"] = [1e-3 + 2 * costs.message[0] + 2 * costs.byte[0] * size] * 3
        found[f"{name} sum"] = [1e-3 + costs.reduction + costs.reduced_byte * size] * 3
    measured = tiles.costs_of(found)
    scan = tiles.grid_scan(tmp_path, 1200, 64)
    load, facts = tiles.load_of(scan, pt.Settings(batch=16, **tiles.TILES), 4, 4)
    assert load.patterns == 4
    assert load.messages[1] == load.sent[1] == 0, "all on one host"
    assert facts["patterns, max / mean"] == 1
    for name, seconds in load.seconds(costs).items():
        assert load.seconds(measured)[name] == pytest.approx(seconds, rel=1e-6), name
    apart, _ = tiles.load_of(scan, pt.Settings(batch=16, **tiles.TILES), 4, 1)
    assert apart.sent == (0, load.sent[0])
