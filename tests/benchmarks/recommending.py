"""What `pt.recommend` finds against the defaults and against a search of 50 trials, on simulated scans, in one run.

usage: python -m tests.benchmarks.recommending [SCAN ...] [--epochs 100] [--search 50] [--siemens FILE]

For each scan of `tests/tuning/recommend_scans.py`: amplitude R-factor and object error after the same number of epochs
with the default settings, with the recommended recipe, and with the best trial of a search over all rates, the numbers
of modes, the batch and the schedule, as many epochs each; and the times of recommendation and search. --siemens: the
Siemens star (`siemens-star-small.npz.bz2`), of which only the R-factor is known.
"""

from __future__ import annotations

import argparse
import bz2
import io
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import ptynb as pt
from ptynb.data.scan import Scan
from tests.tuning.recommend_scans import SCANS, error

RATE = pt.between(1e-3, 0.3, log=True)
RANGES: dict[str, Any] = {
    "object.learning_rate": RATE,
    "probe.learning_rate": RATE,
    "positions.learning_rate": (0.0, 0.03, 0.1, 0.3),
    "pattern_intensities.learning_rate": (0.0, 0.003, 0.01, 0.03),
    "background.learning_rate": (0.0, 0.001, 0.003, 0.01, 0.03),
    "probe.modes": (1, 2, 3, 4),
    "opr.modes": (0, 1, 2, 3),
    "batch": (4, 8, 16),
    "schedule.kind": ("constant", "cosine"),
}


def siemens_star(path: Path) -> Scan:
    with np.load(io.BytesIO(bz2.decompress(path.read_bytes()))) as data:
        return pt.Scan.from_arrays(data["data"][0], data["scan"][0], probe=data["probe"][0, 0, 0], order="fft")


def run(scan: Scan, chosen: pt.Settings | pt.Recipe, epochs: int) -> tuple[float, float]:
    """R-factor and object error (NaN without ground truth)."""
    with pt.Reconstruction(scan, chosen, device="cpu") as recon:
        recon.start(epochs)
        recon.wait()
        result = recon.result
    return result.r_factor, error(result, scan) if scan.ground_truth is not None else float("nan")


def main() -> None:
    """Prints a row for each scan."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scans", nargs="*", choices=[[], *SCANS])
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--search", type=int, default=0, metavar="TRIALS")
    parser.add_argument("--siemens", type=Path)
    chosen = parser.parse_args()
    scans = {name: SCANS[name] for name in chosen.scans or SCANS} if not chosen.siemens else {}
    made = {name: make() for name, make in scans.items()}
    if chosen.siemens:
        made["Siemens star"] = siemens_star(chosen.siemens)
    print(
        "| scan | R: defaults | recommended | search | error: defaults | recommended | search | "
        "seconds | search | found |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, scan in made.items():
        started = time.perf_counter()
        found = pt.recommend(scan, device="cpu", epochs=chosen.epochs)
        seconds = time.perf_counter() - started
        before, after = run(scan, pt.Settings(), chosen.epochs), run(scan, found.recipe, chosen.epochs)
        searched, searched_error, search_seconds = "", "", ""
        if chosen.search:
            started = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                study = pt.tune(
                    scan, pt.Settings(), RANGES, trials=chosen.search,
                    epochs=chosen.epochs, metric=lambda result: result.r_factor, device="cpu",
                    study=Path(folder) / "study.journal",
                )  # fmt: skip
                study.wait()
                search_seconds = f"{time.perf_counter() - started:.1f}"
                best = run(scan, study.best_settings, chosen.epochs)
            searched, searched_error = (f"{figure:.4f}" for figure in best)
        names = dict.fromkeys(
            choice.name.split(".")[0] for choice in found.choices if choice.name != "batch" and "," not in choice.name
        )
        print(
            f"| {name} | {before[0]:.4f} | {after[0]:.4f} | {searched} | {before[1]:.4f} | {after[1]:.4f} | "
            f"{searched_error} | {seconds:.1f} | {search_seconds} | {', '.join(names)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
