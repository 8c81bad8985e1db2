"""Coarse to fine: time to the same R-factor with a first stage at cropped patterns, against whole patterns throughout.

The R-factor of whole patterns after some epochs is the goal. Epochs until it is reached are counted apart; then runs of
that length, with the change of the stage and the engines' new patterns, are timed in turn.

usage: python -m tests.benchmarks.coarse_to_fine PROBLEM.npz [--coarse WINDOW EPOCHS] --epochs N [--measure]
"""

from __future__ import annotations

import argparse
import bz2
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import ptynb as pt
from tests.benchmarks.problems import made, scan_of
from tests.benchmarks.rows import Measured, Missing, compared, in_turn
from tests.benchmarks.sides import Bench

SUBJECT = "stages"
DATA = "PTYNB_TEST_DATA"
PROBLEMS = {"A": ((64, 5), 12), "Siemens star": ((64, 8), 24)}
"""Problem -> window and epochs of the first stage; epochs with whole patterns, whose R-factor is the goal."""


def rows(bench: Bench) -> list[Measured]:
    """A row for each problem."""
    found: list[Measured] = []
    for name, (coarse, epochs) in PROBLEMS.items():
        path = made(bench, "A") if name == "A" else siemens_star(bench)
        row = f"{name}, time to the R-factor of {epochs} epochs, coarse to fine"
        found.append(
            Missing(SUBJECT, row, f"{DATA} names no folder")
            if path is None
            else measured(bench, path, row, coarse, epochs)
        )
    return found


def measured(bench: Bench, path: Path, name: str, coarse: tuple[int, int], epochs: int) -> Measured:
    """The row of a problem."""
    bench.said(name)
    first = ("--coarse", *coarse)

    def side(length: int, *more: object) -> dict[str, Any]:
        script = (sys.executable, "-m", "tests.benchmarks.coarse_to_fine", path)
        return bench.answer([*script, "--epochs", length, *more])

    goal = side(epochs, "--measure")["r_factors"][-1]
    reached = side(coarse[1] + epochs, *first, "--measure")["r_factors"]
    fine = reached[coarse[1] :]
    needed = next((number for number, r_factor in enumerate(fine, 1) if r_factor <= goal), None)
    if needed is None:
        return Missing(SUBJECT, name, f"{goal:.4f} was not reached, but {min(fine):.4f}")
    given = in_turn(
        {
            "coarse to fine": lambda: side(coarse[1] + needed, *first),
            "whole patterns": lambda: side(epochs),
        },
        bench.turns,
        bench.said,
    )
    note = (
        f"{coarse[1]} epochs of {coarse[0]} x {coarse[0]} and {needed} whole ones against {epochs}; R-factor {goal:.4f}"
    )
    return compared(SUBJECT, name, given, limit=1.0, note=note)


def siemens_star(bench: Bench) -> Path | None:
    """The real scan as a problem file, in pixels."""
    if DATA not in os.environ:
        return None
    path = bench.folder / "star.npz"
    if not path.exists():
        packed = Path(os.environ[DATA]) / "siemens-star-small.npz.bz2"
        with np.load(io.BytesIO(bz2.decompress(packed.read_bytes()))) as data:
            centred = np.fft.fftshift(data["data"][0], axes=(-2, -1))
            guess = data["probe"].reshape(128, 128)
            unknown = {"wavelength": 1.0, "det_pixel": 1.0, "det_distance": 1.0}
            np.savez(path, patterns=centred, positions_px=data["scan"][0], start_probe=guess, **unknown)
    return path


def main() -> None:
    """Prints the wall time of a run [s], or with --measure the R-factor after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", type=Path)
    parser.add_argument("--coarse", type=int, nargs=2, metavar=("WINDOW", "EPOCHS"))
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--measure", action="store_true")
    chosen = parser.parse_args()
    scan, epochs = scan_of(chosen.problem), chosen.epochs
    if chosen.measure:
        with pt.Reconstruction(scan, recipe(chosen.coarse, epochs), device="cpu", checkpointing=None) as recon:
            recon.r_factor_every = 1
            recon.start()
            recon.wait()
            print(json.dumps({"r_factors": [r_factor for _, r_factor in recon.r_factors]}))
        return
    seconds = []
    for length in ((chosen.coarse[1] if chosen.coarse else 0) + 1, epochs):  # the first one compiles
        recon = pt.Reconstruction(scan, recipe(chosen.coarse, length), device="cpu", checkpointing=None)
        recon.wait()
        began = time.perf_counter()
        recon.start()
        recon.wait()
        seconds.append(time.perf_counter() - began)
        recon.close(result=False)
    print(json.dumps({"seconds": seconds[-1]}))


def recipe(coarse: tuple[int, int] | None, epochs: int) -> pt.Recipe:
    """So many epochs in all, the first ones at cropped patterns."""
    if coarse is None:
        return pt.Recipe(stages=[pt.Stage(epochs=epochs)])
    window, first = coarse
    return pt.Recipe(stages=[pt.Stage(epochs=first, pattern_size=window), pt.Stage(epochs=epochs - first)])


if __name__ == "__main__":
    main()
