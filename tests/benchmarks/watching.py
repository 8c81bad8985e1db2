"""What watching costs: epoch times with the live view's pictures pulled, over those without, in turn, in one run.

usage: python -m tests.benchmarks.watching [--engines 2] [--rate 10] [--rounds 6] [--epochs 8] [--step 42] [--threads N]

Problem: 484 patterns of 128 x 128, one mode, batch 16, as large as the packages' common problem A; with 42 pixels from
one position to the next the object has about 1024 x 1024 pixels, with 8 it is that of problem A (300 x 300). No browser
runs; what a view asks of engines and kernel (the record, and pictures encoded on rank 0) is asked the same way.

Each round has a third turn, unwatched beside a stranger: a process that has nothing to do with ptynb and is as busy, at
the same pace, as watching made kernel and engines in the turn before. What the stranger costs is what cores, caches and
memory that are shared cost on this machine, whatever watches.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
from collections.abc import Iterator

import psutil

import ptynb as pt
from ptynb.widgets.live import Live

TURNS = ("plain", "watched", "stranger")
STRANGER = """
import sys, time
import numpy as np
busy, pace = float(sys.argv[1]), float(sys.argv[2])
a, b = np.random.default_rng(0).random((2, 1024, 1024), np.float32)
print("at work", flush=True)
while True:
    started, used = time.monotonic(), time.process_time()
    while time.process_time() - used < busy * pace:
        np.multiply(a, b, out=b)
    time.sleep(max(0.0, pace - (time.monotonic() - started)))
"""
"""Busy for a share of each `pace` seconds, in memory and computation as the making of pictures is."""


def main() -> None:
    """Prints the medians, the ratio of each to the plain one, and how busy watching made the machine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--step", type=float, default=42.0)
    parser.add_argument("--threads", type=int, default=None, help="of an engine; leave a core to the one who looks")
    chosen = parser.parse_args()
    scan = pt.simulate(patterns=484, window=128, step=chosen.step, seed=0)
    seconds: dict[str, list[float]] = {turn: [] for turn in TURNS}
    used: dict[str, list[float]] = {turn: [] for turn in TURNS}
    with pt.Cluster(chosen.engines, device="cpu", threads=chosen.threads) as cluster:
        recon = pt.Reconstruction(scan, pt.Settings(), cluster)
        recon.start(3)
        recon.wait()
        for _ in range(chosen.rounds):
            for turn in TURNS:
                busy = 0.0 if turn != "stranger" else max(0.0, used["watched"][-1] - used["plain"][-1])
                beside = _watched(recon, chosen.rate) if turn == "watched" else _beside(busy, 1 / chosen.rate)
                before, cpu = len(recon.epochs), _seconds_of_processors()
                with beside:
                    recon.start(chosen.epochs)
                    recon.wait()
                took = sum(epoch.seconds for epoch in recon.epochs[before:])
                used[turn].append((_seconds_of_processors() - cpu) / took)
                # The first epoch of a turn still meets what the other turn left behind.
                seconds[turn] += [epoch.seconds for epoch in recon.epochs[before + 1 :]]
    plain = statistics.median(seconds["plain"])
    extra = statistics.median(a - b for a, b in zip(used["watched"], used["plain"], strict=True))
    for turn in TURNS:
        median = statistics.median(seconds[turn])
        print(f"{turn}: {median:.4f} s an epoch, ratio {median / plain:.3f}")
    print(f"{chosen.engines} engines, {chosen.rate:g} looks a second: {extra:.2f} of a core more than unwatched")


@contextlib.contextmanager
def _watched(recon: pt.Reconstruction, rate: float) -> Iterator[None]:
    view = Live(recon, rate=rate)
    confirm(view)
    first, before = view.object_pictures.frame["number"], len(recon.epochs)
    yield
    frames, took = view.object_pictures.frame["number"] - first, sum(e.seconds for e in recon.epochs[before:])
    height, width = view.object_pictures.frame["pictures"][0]["shape"]
    print(f"{frames} frames of {height} x {width} in {took:.1f} s, {frames / took:.1f} a second")
    view.close()


@contextlib.contextmanager
def _beside(busy: float, pace: float) -> Iterator[None]:
    """With a process beside that is busy for this share of a core; without one for 0."""
    if not busy:
        yield
        return
    command = [sys.executable, "-c", STRANGER, str(busy), str(pace)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stranger:
        assert stranger.stdout is not None
        stranger.stdout.readline()
        yield
        stranger.kill()


def _seconds_of_processors() -> float:
    """CPU time of this process and of those that it started (cluster and engines)."""
    own = psutil.Process()
    total = 0.0
    for process in [own, *own.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def confirm(view: Live) -> None:
    """Confirms each frame at once, as a browser that keeps up does."""
    for viewer in (view.object_pictures, view.probe_pictures):
        viewer.observe(lambda change: setattr(change["owner"], "shown", change["new"]["number"]), "frame")


if __name__ == "__main__":
    main()
