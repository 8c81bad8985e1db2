"""What it costs to read frames from the file batch by batch: epochs from "disk" over held ones, in turn.

usage: python -m tests.benchmarks.streaming [--problems 484x128x1 484x128x4 200x256x1] [--batch 16] [--rounds 12]
                                            [--frames disk host] [--type uint16] [--device cpu] [--json FILE]

A problem: patterns, pixels of a side, modes. Both reconstructions live in this process, with all of its threads, and
take one epoch each by turns. The file is in the page cache after the first pass, as it is where memory is just too
small to hold the frames and the model; where it is not, the disk's own speed comes on top as soon as it is slower than
the computation.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import tempfile
from pathlib import Path

import h5py
import torch

import ptynb as pt
from ptynb.data.patterns import HDF5Frames
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop


def main() -> None:
    """Prints the ratio of the medians, and both, and the spread of ratios of neighbouring epochs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="+", default=["484x128x1", "484x128x4", "200x256x1"])
    for name, default in (("batch", 16), ("rounds", 12)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument(
        "--frames", nargs=2, default=["disk", "host"], help="two places of Settings.pattern_storage, in turn"
    )
    parser.add_argument("--type", default="uint16", help="of the counts in the file, numpy's name")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    one, other = chosen.frames
    found = {}
    for problem in chosen.problems:
        patterns, window, modes = (int(number) for number in problem.split("x"))
        found[problem] = seconds = measured(patterns, window, modes, chosen)
        medians = {frames: statistics.median(seconds[frames]) for frames in chosen.frames}
        ratios = sorted(each / beside for each, beside in zip(*seconds.values(), strict=True))
        print(f"{patterns} patterns of {window} x {window}, modes: {modes}")
        print(f"  {medians[one]:.4f} s an epoch with frames '{one}', {medians[other]:.4f} '{other}'")
        print(
            f"  ratio {medians[one] / medians[other]:.3f} (goal 1.10), neighbours {ratios[0]:.3f} to {ratios[-1]:.3f}"
        )
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({"seconds": found, "chosen": vars(chosen)}, default=str))


def measured(patterns: int, window: int, modes: int, chosen: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of each epoch but the first, by where the frames are."""
    scan = pt.simulate(patterns=patterns, window=window, step=window / 16, seed=0)
    counts = scan.frames.read(0, len(scan)).astype(chosen.type)
    with tempfile.TemporaryDirectory() as folder:
        with h5py.File(Path(folder) / "scan.h5", "w") as file:
            scan = dataclasses.replace(scan, frames=HDF5Frames.of(file.create_dataset("counts", data=counts)))
        return in_turn(scan, modes, chosen)


def in_turn(scan: pt.Scan, modes: int, chosen: argparse.Namespace) -> dict[str, list[float]]:
    """One epoch each."""
    loops = {
        frames: Loop(
            scan,
            pt.Settings(pattern_storage=frames, probe=pt.Probe(modes=modes), batch=chosen.batch),
            SingleGroup(torch.device(chosen.device)),
        )
        for frames in chosen.frames
    }
    for turn in range(chosen.rounds + 1):
        # The one that comes second finds the other's traces in the caches: each does as often.
        for frames in [*loops][:: 1 if turn % 2 else -1]:
            loops[frames].hold()
            while loops[frames].epoch <= turn:
                loops[frames].step()
    assert loops[chosen.frames[0]].epochs[-1].loss == loops[chosen.frames[1]].epochs[-1].loss
    for loop in loops.values():
        loop.disconnect()
    return {frames: [epoch.seconds for epoch in loop.epochs[1:]] for frames, loop in loops.items()}


if __name__ == "__main__":
    main()
