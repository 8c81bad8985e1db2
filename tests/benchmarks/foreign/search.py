"""The default and the recommended settings beside the best of a random search, on scans that other packages simulated.

usage: python -m tests.benchmarks.foreign.search FILE ... [--settings 200] [--epochs 100] [--device cuda]
                                                 [--processes 12] [--budget SECONDS] [--json FILE]

The files are those of `simulate.py`, of X-rays or light. All runs of a scan begin without a probe. Prints for each scan
the object error with the defaults (median of three seeds), with what `pt.recommend` gives, and the least of the search,
with its settings. When the budget is spent no other run is begun; the table says how many there were.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import multiprocessing
import statistics
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ptynb as pt
from ptynb.data.scan import Scan
from ptynb.exceptions import PtynbError
from ptynb.settings.cluster_options import Device
from tests.benchmarks.foreign.judge import Array, judge, plain_scan

SEEDS = (0, 1, 2)
RECOMMEND_SECONDS = 120.0
Job = tuple[Path, str, dict[str, Any]]
"""Scan, kind of a run ("defaults", "recommended", "search") and its settings."""


def random_settings(random: np.random.Generator) -> dict[str, Any]:
    """Draw settings of a coherent reconstruction with exact positions."""
    optimiser = str(random.choice(["adam", "lsqml", "rpie", "raar", "dm"], p=[0.55, 0.2, 0.1, 0.1, 0.05]))
    low = 0.01 if optimiser == "adam" else 0.1
    end = 0.3 if optimiser == "adam" else 1.0
    rates = [float(np.exp(random.uniform(math.log(low), math.log(end)))) for _ in range(2)]
    values: dict[str, Any] = {
        "optimiser": optimiser,
        "batch": int(random.choice([4, 8, 16, 32])),
        "batch_sampling": str(random.choice(["spread", "random", "compact"])),
        "seed": int(random.integers(1000)),
    }
    if optimiser in ("raar", "dm"):
        return values | {"beta": float(random.uniform(0.5, 1))}
    values |= {"object": {"learning_rate": rates[0]}, "probe": {"learning_rate": rates[1]}}
    values["schedule"] = {
        "kind": str(random.choice(["constant", "cosine", "exponential"])),
        "end_factor": float(np.exp(random.uniform(math.log(0.005), math.log(0.3)))),
    }
    if optimiser == "rpie":
        values["rpie_alpha"] = float(random.uniform(0.02, 1))
    if optimiser == "lsqml":
        values["momentum"] = float(random.choice([0, 0.5, 0.9]))
    if optimiser == "adam":
        values["loss"] = str(random.choice(["amplitude", "poisson"]))
    return values


def jobs(files: list[Path], number: int) -> list[Job]:
    """Return all runs; those of the search in turn over the scans, so that a budget that ends is one for all."""
    first: list[Job] = [(path, "recommended", {}) for path in files]
    first += [(path, "defaults", {"seed": seed}) for path in files for seed in SEEDS]
    drawn = np.random.default_rng(0)
    return first + [(path, "search", random_settings(drawn)) for _ in range(number) for path in files]


@functools.cache
def loaded(path: Path) -> tuple[Scan, dict[str, Array]]:
    """Return the scan and the content of its file, once in each process."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", pt.PtynbWarning)
    with np.load(path) as stored:
        content = dict(stored)
    return plain_scan(content, path.stem), content


def reconstructed(job: Job, epochs: int, device: Device, until: float) -> dict[str, Any] | None:
    """Reconstruct, and return the object error; None: it is later than `until`."""
    if time.time() > until:
        return None
    path, kind, values = job
    scan, content = loaded(path)
    row: dict[str, Any] = {"scan": path.stem, "kind": kind, "settings": values}
    seconds = RECOMMEND_SECONDS if kind == "recommended" else None
    try:
        return row | judge(scan, content, epochs, pt.Settings(**values), seconds, device)
    except (PtynbError, RuntimeError) as error:
        return row | {"error": math.nan, "failure": f"{type(error).__name__}: {error}"}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the figures of each scan as a Markdown table."""
    lines = ["| scan | defaults | recommended | best of the search | trials | defaults / best | recommended / best |"]
    lines.append("| --- " * 7 + "|")
    for name in dict.fromkeys(row["scan"] for row in rows):
        own = [row for row in rows if row["scan"] == name]
        errors = {
            kind: [row["error"] for row in own if row["kind"] == kind] for kind in ("defaults", "recommended", "search")
        }
        default = statistics.median(errors["defaults"] or [math.nan])
        recommended = (errors["recommended"] or [math.nan])[0]
        best = min((error for error in errors["search"] if not math.isnan(error)), default=math.nan)
        lines.append(
            f"| {name} | {default:.4f} | {recommended:.4f} | {best:.4f} | {len(errors['search'])} "
            f"| {default / best:.2f} | {recommended / best:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Prints the table and the settings of the best runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--settings", type=int, default=200, help="number of random settings for each scan")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds after which no run is begun")
    parser.add_argument("--json", type=Path, help="write all rows there")
    chosen = parser.parse_args()
    until, rows = time.time() + chosen.budget, list[dict[str, Any]]()
    with ProcessPoolExecutor(chosen.processes, multiprocessing.get_context("spawn")) as pool:
        running = [
            pool.submit(reconstructed, job, chosen.epochs, chosen.device, until)
            for job in jobs(chosen.files, chosen.settings)
        ]
        for ended in as_completed(running):
            if (row := ended.result()) is not None:
                rows.append(row)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(rows, indent=1))
    print(table(rows))
    for name in dict.fromkeys(row["scan"] for row in rows):
        own = [row for row in rows if row["scan"] == name]
        known = [row for row in own if not math.isnan(row["error"])]
        for row in sorted(known, key=lambda row: row["error"])[:3]:
            print(f"{name}: {row['error']:.4f} {row['kind']} {json.dumps(row['settings'])}")
        print(name, [row.get("failure", row.get("found")) for row in own if row["kind"] == "recommended"])
    print(f"{sum('failure' in row for row in rows)} failed")


if __name__ == "__main__":
    main()
