"""The benchmark of packages: its score against closed forms, its page, and two of its scripts on a small problem."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings

import numpy as np
import pytest

import benchmarks.problems
from benchmarks import page
from benchmarks.__main__ import HERE, _judged
from benchmarks.scoring import error_of, fitted, resolved


def test_shift_phase_and_factor_do_not_count_and_noise_does(problem):
    truth = problem["object"]
    rng = np.random.default_rng(1)
    y, x = (np.arange(side) for side in truth.shape)
    ky, kx = (2j * np.pi * np.fft.fftfreq(side) for side in truth.shape)
    moved = np.fft.ifft2(np.fft.fft2(truth) * np.exp(-3.3 * ky[:, None] + 2.6 * kx))
    moved *= (2 - 1j) * np.exp(1j * (0.013 * y[:, None] - 0.02 * x))
    noise = rng.standard_normal((2, *truth.shape)) / np.sqrt(2)
    strength = 0.05 * np.sqrt((np.abs(moved) ** 2).mean())
    for added in (0.0, strength):
        error = error_of(*fitted(np.pad(moved + added * (noise[0] + 1j * noise[1]), 9), problem))
        assert error == pytest.approx(0.05, rel=0.05) if added else error < 4e-3  # of the shift by the spectrum
    huge = 30 * np.exp(2j * np.pi * rng.random((truth.shape[0] + 80, truth.shape[1] + 80)))
    huge[40:-40, 40:-40] = moved  # where there is no light
    assert error_of(*fitted(huge, problem)) < 0.02
    assert fitted(np.ones((400, 400)), problem) is None


def test_resolution_is_where_the_frequencies_end(problem):
    truth = problem["object"].astype(complex)
    radius = np.hypot(*np.meshgrid(*(2 * np.fft.fftfreq(side) for side in truth.shape), indexing="ij"))
    noise = np.random.default_rng(2).standard_normal(truth.shape)
    blurred = np.fft.ifft2(np.fft.fft2(truth) * (radius < 0.4)) + 1e-6 * noise
    assert resolved(blurred, truth) == pytest.approx(0.4, abs=0.05)
    assert resolved(truth, truth) == 1.0


@pytest.mark.parametrize("package", ["ptynb", "cdtools"])
def test_packages_have_the_same_problem(package, problem, tmp_path):
    np.savez(tmp_path / "problem.npz", **problem)
    script = HERE / "packages" / f"run_{package}.py"
    options = ["--batch", "8", "--seconds", "1000", "--epochs", "30", "--rate", "0.01", "--algorithm", "adam"]
    subprocess.run([sys.executable, script, tmp_path / "problem.npz", tmp_path / "run", *options], check=True)
    found = _judged(tmp_path, benchmarks.problems.PROBLEMS["x-rays"], tmp_path / "problem.npz")
    assert found["error"] < 0.2  # a flat object has 0.36: positions, orientation and units are right
    assert found["epochs"] == len(json.loads((tmp_path / "run" / "run.json").read_text())["epochs"])
    assert [one["seconds"] for one in found["curve"]] == sorted(one["seconds"] for one in found["curve"])


def test_the_page_says_where_ptynb_loses():
    def run(package: str, seconds: float, **more: object) -> dict[str, object]:
        common = {"problem": "x-rays", "algorithm": "adam", "batch": 16, "rate": 0.01, "seconds": 60.0}
        measured = {"epoch_seconds": 1.0, "error": 0.02, "time_to_error": seconds, "time_to_frequency": 1.0}
        return {"package": package, "versions": {}, "peak_bytes": 10**8, **common, **measured, **more}

    machine = {
        "device": "cpu",
        "processor": "P",
        "threads": 2,
        "memory_bytes": 2**34,
        "system": "S",
        "python": "3",
        "load": 0,
    }
    exact = run("cdtools", 8.0, rate=0.1, error=0.01)  # the best step size for one quantity, not for the other
    runs = [run("ptynb", 3.0), run("ptynb", 9.0, rate=0.1), run("cdtools", 2.0), exact, run("ptyrad", None, error=None)]
    text = page.written([{"machine": machine, "runs": runs}])
    assert "x-rays, batch 16, seconds to an error of 0.05: 1.50 times that of cdtools adam." in text
    assert "x-rays, batch 16, smallest error: 2.00 times that of cdtools adam." in text
    assert text.count("times that of") == 2
    assert "| ptyrad adam | – |" in text


@pytest.fixture(scope="module")
def problem(monkeypatch_module) -> dict[str, np.ndarray]:
    monkeypatch_module.setattr(benchmarks.problems, "SIDE", 8)
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of matplotlib, as CDTools is imported
        return benchmarks.problems.PROBLEMS["x-rays"].make()


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch
