"""What exchanging costs: each choice in turn with 2 and 4 CPU engines, where the object is large or thick.

usage: python -m tests.benchmarks.exchange [--engines 2 4] [--problems wide thick] [--rounds 3]
       [--seconds 20] [--json FILE]

wide: an object of 4096 x 4096, 1024 patterns of 256 x 256, batches of 16. thick: 30 slices of 1024 x 1024, 256 patterns
of 128 x 128, batches of 8. Batches of neighbours (compact), or from all over the scan (spread).

Pace: in one run, choices take turns of a few updates; bytes that an engine sends in an update (an all-reduce over P
engines moves 2 (P - 1) / P times the message), and the time of an update, medians over the rounds.
Progress: each choice starts anew and runs for the same time; the R-factor Σ|√I - √M| / Σ√I then.

Each engine is a process with one thread; where there are fewer cores than engines, times say little about more cores.

Tried: bounding boxes are 0.84 of 4096 x 4096 pixels for 16 windows of 256 x 256 that are spread, where tiles of 32 are
0.08 (tiles of 16: 0.07, 64: 0.10, 128: 0.14), and no smaller for neighbours (0.03). Packing and unpacking takes 2.3 ms
with tiles of 32, 2.2 with 16, 3.2 with 64.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ptynb as pt
from ptynb.data.scan import Scan
from ptynb.distributed import group as groups
from ptynb.distributed.group import Group, Membership
from ptynb.engine.loop import Loop
from ptynb.optimize.gradient_descent import Gradient
from ptynb.settings import Probe, Settings, Slices
from tests.engine import ranks
from tests.engine.ranks import Ranks

WARMING = 4
"""Updates before the clock starts: DistributedDataParallel orders its messages after the first."""
TURN = 6
"""Updates of a turn."""
CHOICES: dict[str, dict[str, Any]] = {
    "whole": {"gradient_sync": "dense"},
    "touched": {"gradient_sync": "sparse"},
    "touched, one message": {"gradient_sync": "sparse"},
}
ONE_MESSAGE = "touched, one message"


def a_problem(name: str, folder: Path) -> tuple[Scan, Settings]:
    """The scan, with its patterns in a file, and the settings that all choices share."""
    if name == "wide":
        scan = pt.simulate(patterns=1024, window=256, step=123, seed=0, path=folder / "wide.h5")
        settings = Settings(batch=16, batch_sampling="compact")
    else:
        scan = pt.simulate(patterns=256, window=128, step=59, seed=0, path=folder / "thick.h5")
        settings = Settings(batch=8, batch_sampling="compact", probe=Probe(), slices=Slices(count=30, thickness=1e-7))
    return dataclasses.replace(scan, ground_truth=None), settings


def started(membership: Membership, scan: Scan, settings: Settings) -> tuple[Group, Loop, Gradient]:
    """A loop that has made its first updates."""
    group = groups.join(membership)
    loop = Loop(scan, settings, group)
    assert isinstance(loop.algorithm, Gradient)
    for _ in range(WARMING):
        loop.step()
    return group, loop, loop.algorithm


def pace(membership: Membership, scan: Scan, settings: Settings, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Seconds and bytes of an update, for each choice and round; choices take turns."""
    group, loop, algorithm = started(membership, scan, settings)
    found: dict[str, list[dict[str, float]]] = {choice: [] for choice in CHOICES}
    try:
        for _ in range(rounds):
            for choice, changes in CHOICES.items():
                # Wraps the model again, with other messages.
                groups.BUCKET_MEBIBYTES = 2**20 if choice == ONE_MESSAGE else 1
                algorithm._prepared = None
                loop.change(settings.replace(**changes))
                for _ in range(2):
                    loop.step()
                group.sum(torch.zeros(1))
                sent = algorithm.exchange.sent_bytes
                before = time.perf_counter()
                for _ in range(TURN):
                    loop.step()
                group.sum(torch.zeros(1))
                seconds = time.perf_counter() - before
                sent = algorithm.exchange.sent_bytes - sent
                found[choice].append({"seconds": seconds / TURN, "message_bytes": sent / TURN})
        return found
    finally:
        loop.disconnect()
        group.close()


def progress(membership: Membership, scan: Scan, settings: Settings, seconds: float) -> dict[str, float]:
    """The R-factor after so many seconds, and updates made in them."""
    group, loop, _ = started(membership, scan, settings)
    try:
        before, ended, updates = time.perf_counter(), 0, 0
        while not ended:
            agreed = group.agree(int(time.perf_counter() - before > seconds))
            loop.step()
            ended, updates = agreed(), updates + 1
        return {"updates": updates, "r_factor": loop.r_factor()[0]}
    finally:
        loop.disconnect()
        group.close()


def compare(name: str, world: int, rounds: int, seconds: float, folder: Path) -> dict[str, Any]:
    """All choices of a problem and a number of engines: medians over the rounds, and all raw numbers."""
    scan, settings = a_problem(name, folder)
    record: dict[str, Any] = {"problem": name, "engines": world}
    engines = Ranks(world)
    try:
        for order in ("compact", "spread"):
            chosen = settings.replace(batch_sampling=order)
            record[order] = engines.run(world, pace, scan, chosen, rounds, timeout=300.0)[0]
            show_pace(f"{name}, {world} engines, {order} batches, {rounds} rounds", world, record[order])
        record["progress"] = {}
        for choice, changes in CHOICES.items():
            if seconds > 0 and choice != ONE_MESSAGE:
                chosen = settings.replace(**changes)
                found = engines.run(world, progress, scan, chosen, seconds, timeout=300.0)[0]
                record["progress"][choice] = found
                print(f"{choice:22}{found['updates']:6.0f} updates in {seconds:g} s, R-factor {found['r_factor']:.4f}")
    finally:
        engines.close()
    return record


def show_pace(title: str, world: int, runs: dict[str, list[dict[str, float]]]) -> None:
    """A row for each choice; ratios to "whole" within the same round."""
    print(f"\n{title}\n{'':22}{'sent MB':>10}{'an update, s':>14}{'of whole':>10}{'(least, most)':>16}")
    for choice, found in runs.items():
        wire = 2 * (world - 1) / world * statistics.median(run["message_bytes"] for run in found)
        ratios = [run["seconds"] / whole["seconds"] for run, whole in zip(found, runs["whole"], strict=True)]
        print(
            f"{choice:22}{wire / 1e6:10.2f}{statistics.median(run['seconds'] for run in found):14.4f}"
            f"{statistics.median(ratios):10.2f}{f'({min(ratios):.2f}, {max(ratios):.2f})':>16}",
            flush=True,
        )


def main() -> None:
    """Prints a table for each problem and number of engines, and writes JSON where asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--problems", nargs="+", choices=["wide", "thick"], default=["wide", "thick"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of progress; 0 leaves it out")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    ranks.ANSWER_SECONDS = 600
    record: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
        "seconds": chosen.seconds,
        "rounds": chosen.rounds,
        "results": [],
    }
    print(f"{os.cpu_count()} cores, one thread an engine, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen.problems:
            for world in chosen.engines:
                record["results"].append(compare(name, world, chosen.rounds, chosen.seconds, Path(folder)))
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
