"""What a whole reconstruction reaches: on the packages' common problem, and on real data."""

from __future__ import annotations

import bz2
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

import ptynb as pt
from ptynb.data import images
from ptynb.data.scan import Scan


@pytest.fixture(scope="module")
def problem(bench: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(bench, tmp_path_factory.mktemp("problem") / "A.npz")


def made(bench: Path, path: Path, *choices: str) -> Path:
    subprocess.run([sys.executable, bench / "make_problem.py", path, *choices], check=True, stdout=subprocess.DEVNULL)
    return path


def score(bench: Path, problem: Path, result: pt.Result) -> float:
    """The independent score of a result's object."""
    found = problem.with_name("result.npz")
    np.savez(found, object=result.object)
    said = subprocess.run(
        [sys.executable, bench / "score.py", problem, found], check=True, capture_output=True, text=True
    ).stdout
    print(said)
    return float(said.split("error")[1].split()[0])


@pytest.mark.parametrize("engines", [1, 2, 3])
def test_the_common_problem_is_solved_with_default_settings(problem: Path, bench: Path, engines: int) -> None:
    """Error of the independent score at most 0.025 after 40 epochs."""
    data = np.load(problem)
    scan = Scan.from_arrays(data["patterns"], data["positions_px"], probe=data["start_probe"])
    with pt.Cluster(engines, device="cpu") as cluster:
        recon = pt.Reconstruction(scan, pt.Settings(), cluster)
        recon.start(40)
        recon.wait(240)
        result = recon.result
    assert score(bench, problem, result) <= 0.025


def test_a_partly_coherent_beam_of_four_modes_is_solved(bench: Path, tmp_path: Path) -> None:
    """Error of the independent score at most 0.04 after 60 epochs."""
    problem = made(bench, tmp_path / "B.npz", "--modes", "4")
    data = np.load(problem)
    scan = Scan.from_arrays(data["patterns"], data["positions_px"], probe=data["start_probe"])
    with pt.Reconstruction(scan, pt.Settings(probe=pt.Probe(modes=4)), device="cpu") as recon:
        recon.start(60)
        recon.wait(280)
        assert score(bench, problem, recon.result) <= 0.04


@pytest.mark.parametrize(
    ("positions", "most"),
    [(pt.Positions(), 0.140), (pt.Positions(learning_rate=0.02, start_epoch=10), 0.1335)],
    ids=["positions as given", "positions found"],
)
def test_the_siemens_star_is_reconstructed_from_real_data(
    real_data: Path, positions: pt.Positions, most: float
) -> None:
    """Three modes, 60 epochs: amplitude R-factor, and spokes in the phase; with positions as given it is 0.1342."""
    data = np.load(io.BytesIO(bz2.decompress((real_data / "siemens-star-small.npz.bz2").read_bytes())))
    scan = Scan.from_arrays(
        data["data"][0], data["scan"][0], probe=data["probe"].reshape(128, 128), order="fft", name="Siemens star"
    )
    with pt.Cluster(2, device="cpu") as cluster:
        settings = pt.Settings(probe=pt.Probe(modes=3), positions=positions)
        recon = pt.Reconstruction(scan, settings, cluster)
        recon.start(60)
        recon.wait(280)
        result = recon.result
    folder = Path(os.environ.get("PTYNB_TEST_ARTIFACTS", "test-artifacts"))
    folder.mkdir(parents=True, exist_ok=True)
    phase = images.flat_phase(result.object[64:-64, 64:-64])
    name = "siemens-star-positions-found" if positions.learning_rate else "siemens-star"
    Image.fromarray(images.coloured(phase, images.limits_of(phase))).save(folder / f"{name}-phase.png")
    pt.figure(result).savefig(folder / f"{name}.png", dpi=100)
    print(result)
    assert result.r_factor <= most
    # The star's centre in this scan's coordinates, found by eye; its hub ends 33 pixels from there.
    whole = images.flat_phase(result.object)
    centre = (61.0 - result.origin[0], 41.0 - result.origin[1])
    assert {spokes(whole, centre, radius) for radius in (40, 50, 60, 80)} == {30}


def spokes(phase: NDArray[np.float64], centre: tuple[float, float], radius: float) -> int:
    """The strongest harmonic of the phase around a circle: how many spokes it crosses."""
    angle = np.linspace(0, 2 * np.pi, 720, endpoint=False)
    circle = [centre[0] + radius * np.sin(angle), centre[1] + radius * np.cos(angle)]
    values = ndimage.map_coordinates(phase, circle, order=1)
    return int(np.abs(np.fft.rfft(values - values.mean())).argmax())
