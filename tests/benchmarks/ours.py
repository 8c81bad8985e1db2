"""ptynb's side of a comparison: a problem file reconstructed through the public interface; prints a line of JSON.

usage: python -m tests.benchmarks.ours PROBLEM.npz SETTINGS_AS_JSON [--epochs 5] [--device cpu] [--save FOLDER]
                                      [--whole-pixels] [--near-field] [--engines 1]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ptynb as pt
from tests.benchmarks.problems import scan_of


def main() -> None:
    """Prints the median of the epochs after the first, by the wall clock of the loop and by the engine; the loss."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", type=Path)
    parser.add_argument("settings")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--save", type=Path, help="folder for the object after every epoch")
    parser.add_argument("--whole-pixels", action="store_true", help="positions rounded")
    parser.add_argument("--near-field", action="store_true", help="patterns taken for shadows")
    parser.add_argument("--engines", type=int, help="on engines of a cluster")
    chosen = parser.parse_args()
    settings = pt.Settings(**json.loads(chosen.settings))
    cluster = pt.Cluster(chosen.engines, device=chosen.device) if chosen.engines else None
    where = {"device": chosen.device} if cluster is None else {"cluster": cluster}
    recon = pt.Reconstruction(scan_of(chosen.problem, chosen.whole_pixels, chosen.near_field), settings, **where)
    waits, wall = 0, list[float]()
    if chosen.save is not None:
        saved(recon, chosen.epochs, chosen.save)
    else:
        began = time.perf_counter()
        for _ in recon.run(chosen.epochs):
            wall.append(time.perf_counter() - began)
            began = time.perf_counter()
        if chosen.device != "cpu":
            waits = host_waits(recon)
    seconds = [epoch.seconds for epoch in recon.epochs[: chosen.epochs]]
    wall = wall or seconds
    answer: dict[str, Any] = {
        "seconds": statistics.median(wall[1:] or wall),
        "engine": statistics.median(seconds[1:] or seconds),
        "all": wall,
        "loss": recon.epochs[-1].loss,
        "threads": torch.get_num_threads(),
        "host_waits": waits,
    }
    recon.close()
    if cluster is not None:
        cluster.stop()
    print(json.dumps(answer))


def saved(recon: pt.Reconstruction, epochs: int, folder: Path) -> None:
    """Runs, and keeps the object after every epoch as the scoring wants it; saving is not in the epochs' time."""
    folder.mkdir(parents=True, exist_ok=True)
    for epoch in recon.run(epochs):
        np.savez(folder / f"{epoch.number}.npz", object=recon.result.object)


def host_waits(recon: pt.Reconstruction) -> int:
    """How often the host waits for the GPU in one more epoch, as torch counts it."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            recon.start(1)
            recon.wait()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing CUDA operation" in str(warning.message) for warning in seen)


if __name__ == "__main__":
    main()
