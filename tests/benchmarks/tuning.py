"""How tuning scales: the time of a study on several engines over that on one, by turns, in one run.

usage: python -m tests.benchmarks.tuning [--engines 2] [--trials 8] [--epochs 30] [--rounds 3]

Problem: 484 patterns of 128 x 128, one mode, batch 16. Engines have one thread each, so that N of them do N times as
much where there are N cores to be had; the load before each turn is printed with it. Trials differ in the probe's rate
only, none is pruned, and all take the same number of epochs. With N engines 1/N of the time is the best there is.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import ptynb as pt
from ptynb.data.scan import Scan


def main() -> None:
    """Prints each turn, the medians, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    scan = pt.simulate(patterns=484, window=128, step=8, seed=0)
    seconds: dict[int, list[float]] = {1: [], chosen.engines: []}
    with pt.Cluster(1, device="cpu", threads=1) as one, pt.Cluster(chosen.engines, device="cpu", threads=1) as all_:
        for cluster in (one, all_):
            study_seconds(scan, cluster, len(cluster), 2)  # code is compiled, files are read
        for turn in range(2 * chosen.rounds):
            cluster = all_ if turn % 2 else one
            load = os.getloadavg()[0]
            took = study_seconds(scan, cluster, chosen.trials, chosen.epochs)
            seconds[len(cluster)].append(took)
            print(f"turn {turn}: {chosen.trials} trials on {len(cluster)} engines in {took:.2f} s (load {load:.1f})")
    alone, together = statistics.median(seconds[1]), statistics.median(seconds[chosen.engines])
    print(f"1 engine: {alone:.2f} s, {chosen.engines} engines: {together:.2f} s; {os.cpu_count()} cores")
    print(f"ratio {together / alone:.3f}, at best {1 / chosen.engines:.3f}")


def study_seconds(scan: Scan, cluster: pt.Cluster, trials: int, epochs: int) -> float:
    """The wall time of a study [s], from `tune` to the end of its last trial."""
    ranges = {"probe.learning_rate": pt.between(1e-3, 1e-2, log=True)}
    with tempfile.TemporaryDirectory() as folder:
        path, started = Path(folder) / "study.journal", time.perf_counter()
        study = pt.tune(scan, pt.Settings(), ranges, cluster, trials=trials, epochs=epochs, study=path, pruner="none")
        study.wait()
        took = time.perf_counter() - started
    assert [trial.state for trial in study.trials] == ["complete"] * trials
    return took


if __name__ == "__main__":
    main()
