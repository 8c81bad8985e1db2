"""What it costs to read frames from the file batch by batch: epochs with frames="disk" over held ones, in turn.

usage: python tests/benchmarks/streaming.py [--patterns 484] [--window 128] [--modes 1] [--batch 16] [--rounds 8]
                                            [--frames disk host] [--device cpu] [--json FILE]

Both reconstructions live in this process, with all of its threads, and take one epoch each by turns. The file is in the
page cache after the first pass, as it is where memory is just too small to hold the frames and the model; where it is
not, the disk's own speed comes on top as soon as it is slower than the computation. The processors' time says what
reading costs where no core is idle, and hardly changes when others use the machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import tempfile
import time
from pathlib import Path

import h5py
import torch

import ptynb as pt
from ptynb.engine.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.frames import HDF5Frames


def main() -> None:
    """Prints the ratio of the medians, and both, and the spread of ratios of neighbouring epochs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("patterns", 484), ("window", 128), ("modes", 1), ("batch", 16), ("rounds", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--frames", nargs=2, default=["disk", "host"], help="two places of Settings.frames, in turn")
    parser.add_argument("--type", default="uint16", help="of the counts in the file, numpy's name")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scan = pt.simulate(patterns=chosen.patterns, window=chosen.window, step=chosen.window / 16, seed=0)
        counts = scan.frames.read(0, len(scan)).astype(chosen.type)
        with h5py.File(Path(folder) / "scan.h5", "w") as file:
            scan = dataclasses.replace(scan, frames=HDF5Frames.of(file.create_dataset("counts", data=counts)))
        seconds, processor = measured(scan, chosen)
    one, other = chosen.frames
    for name, values in (("seconds", seconds), ("processor seconds, all threads", processor)):
        medians = {frames: statistics.median(values[frames]) for frames in chosen.frames}
        ratios = sorted(each / beside for each, beside in zip(*values.values(), strict=True))
        print(f"{name}: {medians[one]:.4f} an epoch with frames '{one}', {medians[other]:.4f} '{other}'")
        print(f"ratio {medians[one] / medians[other]:.3f} (goal 1.10), neighbours {ratios[0]:.3f} to {ratios[-1]:.3f}")
    if chosen.json is not None:
        found = {"seconds": seconds, "processor_seconds": processor, "problem": vars(chosen)}
        chosen.json.write_text(json.dumps(found, default=str))


def measured(scan: pt.Scan, chosen: argparse.Namespace) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds, and seconds of processors, of each epoch but the first, by where the frames are."""
    loops = {
        frames: Loop(
            scan,
            pt.Settings(frames=frames, probe=pt.Probe(modes=chosen.modes), batch=chosen.batch),
            SingleGroup(torch.device(chosen.device)),
        )
        for frames in chosen.frames
    }
    processor: dict[str, list[float]] = {frames: [] for frames in chosen.frames}
    for turn in range(chosen.rounds + 1):
        # The one that comes second finds the other's traces in the caches: each does as often.
        for frames in [*loops][:: 1 if turn % 2 else -1]:
            loops[frames].hold()
            before = time.process_time()
            while loops[frames].epoch <= turn:
                loops[frames].step()
            processor[frames].append(time.process_time() - before)
    assert loops[chosen.frames[0]].epochs[-1].loss == loops[chosen.frames[1]].epochs[-1].loss
    for loop in loops.values():
        loop.disconnect()
    seconds = {frames: [epoch.seconds for epoch in loop.epochs[1:]] for frames, loop in loops.items()}
    return seconds, {frames: values[1:] for frames, values in processor.items()}


if __name__ == "__main__":
    main()
