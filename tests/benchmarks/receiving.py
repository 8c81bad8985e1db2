"""How fast a scan is received: patterns per second into memory and onto the disk, memory, and the lag of files.

usage: python -m tests.benchmarks.receiving [--patterns 20000] [--window 256] [--rate 200] [--seconds 20]
                                            [--folder FOLDER] [--only ingest lag]

Ingest: a process sends compressed patterns (bitshuffle and LZ4, 16 bits) as fast as they are taken, and the receiver
writes them to a folder in memory (/dev/shm), then to one on the disk. Lag: a process writes patterns to a file in SWMR
mode at a rate; the lag of one is the time from the end of its flush until it can be used. The receiver is the real one,
started by `ptynb.listen`; its memory is the largest resident size that is seen.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

import ptynb as pt
from ptynb.acquisition.emulators.file_players import SwmrPlayer
from ptynb.acquisition.emulators.playback import Player, Recording, Sending
from ptynb.acquisition.emulators.simplon_players import SimplonPlayer, Stream2Player
from ptynb.data.arrivals import ArrivalIndex
from ptynb.data.patterns import SelectedFrames

DISTINCT = 100
"""Patterns that are sent over and over, each under its own number."""
GOALS = {"memory": 3000.0, "disk": 700.0}
"""[patterns per second]"""
MOST_MEMORY = 300e6
MOST_LAG = 0.050
PHOTONS = 2.0
"""Mean count of a pixel."""


class Repeated(Recording):
    """A few patterns, compressed once, that stand for many."""

    def __init__(self, patterns: int, window: int) -> None:
        counts = np.random.default_rng(0).poisson(PHOTONS, (DISTINCT, window, window)).astype(np.uint16)
        side = int(np.ceil(np.sqrt(patterns)))
        rows, columns = np.divmod(np.arange(patterns), side)
        few = pt.Scan.from_arrays(counts, np.zeros((DISTINCT, 2)))
        scan = pt.Scan(
            frames=SelectedFrames.of(few.frames, np.arange(patterns) % DISTINCT),
            positions=np.column_stack([rows, columns]) * 4.0,
            geometry=pt.Geometry(wavelength=1e-10, distance=2.0, detector_pixel=(75e-6, 75e-6)),
        )
        super().__init__(scan)
        ready = [self._packed(number) for number in range(DISTINCT)]
        self.packed = lambda number, changed=False: ready[number % DISTINCT]


def main() -> None:
    """Prints each figure with its goal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("patterns", 20_000), ("window", 256), ("rate", 200), ("seconds", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", type=Path, help="on the disk; by default a temporary one")
    parser.add_argument("--only", nargs="+", default=["ingest", "lag"], choices=["ingest", "lag"])
    parser.add_argument("--send", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    if chosen.send:
        send(chosen)
        return
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(dir=chosen.folder) as disk, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        if "ingest" in chosen.only:
            for source in ("stream2", "simplon"):
                for place, folder in (("memory", memory), ("disk", disk)):
                    name = f"{source} to {place}"
                    found[name] = ingest(chosen, source, Path(folder) / source)
                    print(told(name, found[name], GOALS[place], chosen.patterns), flush=True)
        if "lag" in chosen.only:
            found["lag"] = lag(chosen, Path(disk))
            figures = found["lag"]
            print(
                f"SWMR at {figures['rate']:.0f} patterns/s: lag median {1e3 * figures['median']:.1f} ms, p95 "
                f"{1e3 * figures['p95']:.1f} ms (goal {1e3 * MOST_LAG:.0f}), largest {1e3 * figures['largest']:.1f} ms"
            )
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found))


def told(name: str, figures: dict[str, float], goal: float, patterns: int) -> str:
    """A line about an ingest."""
    return (
        f"{name}: {figures['rate']:.0f} patterns/s (goal {goal:.0f}), {figures['arrived']:.0f} of {patterns}, receiver "
        f"{figures['memory'] / 1e6:.0f} MB (goal {MOST_MEMORY / 1e6:.0f}), its processor "
        f"{1e3 * figures['cpu'] / figures['arrived']:.2f} ms a pattern"
    )


def ingest(chosen: argparse.Namespace, source: str, folder: Path) -> dict[str, float]:
    """Receive all patterns; the folder is emptied afterwards."""
    sender, address = sending(chosen, source)
    try:
        recording = Repeated(chosen.patterns, chosen.window)
        scan = pt.listen(address, plan=pt.Plan(positions=recording.positions), folder=folder, timeout=60)
        assert scan.acquisition is not None
        index = scan.acquisition.index()
        memory, cpu = watched(index)
        arrivals = index.summary()
        check(scan, recording)
    finally:
        sender.kill()
        sender.communicate()
        for file in folder.glob("*"):
            file.unlink()
    return {"rate": arrivals.rate, "arrived": arrivals.arrived, "memory": memory, "cpu": cpu}


def watched(index: ArrivalIndex) -> tuple[float, float]:
    """The largest resident size of the receiver until the scan has ended, and the processor's time that it took."""
    receiver, largest, cpu = psutil.Process(index.receiver), 0.0, 0.0
    while index.ended is None:
        largest = max(largest, receiver.memory_info().rss)
        cpu = sum(receiver.cpu_times()[:2])
        time.sleep(0.02)
    return largest, cpu


def check(scan: pt.Scan, recording: Recording) -> None:
    """Some of the patterns are what was sent."""
    for number in range(0, len(scan), 997):
        assert (scan.frames.read(number, number + 1)[0] == recording.counts(number)).all(), number


def lag(chosen: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Follow a file in writing."""
    sender, address = sending(chosen, f"swmr:{folder / 'written.h5'}")
    count = chosen.rate * chosen.seconds
    try:
        plan = pt.Plan(positions=Repeated(count, chosen.window).positions)
        scan = pt.listen(address, plan=plan, folder=folder / "lag", timeout=60)
        assert scan.acquisition is not None
        index = scan.acquisition.index()
        while index.ended is None:
            time.sleep(0.1)
        assert sender.stdout is not None
        written = np.array(json.loads(sender.stdout.readline()))
    finally:
        sender.kill()
        sender.communicate()
    assert index.summary().arrived == count, index.summary()
    times = index.usable_times() - written
    return {
        "rate": (count - 1) / float(np.ptp(written)),
        "median": float(np.median(times)),
        "p95": float(np.percentile(times, 95)),
        "largest": float(times.max()),
    }


def sending(chosen: argparse.Namespace, what: str) -> tuple[subprocess.Popen[str], str]:
    """A process that sends; and its address."""
    words = [f"--{name}={getattr(chosen, name)}" for name in ("patterns", "window", "rate", "seconds")]
    command = [sys.executable, "-m", "tests.benchmarks.receiving", "--send", what, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def send(chosen: argparse.Namespace) -> None:
    """Send as fast as patterns are taken, or write a file at the rate and print the times."""
    if not chosen.send.startswith("swmr:"):
        recording = Repeated(chosen.patterns, chosen.window)
        player: Player = (Stream2Player if chosen.send == "stream2" else SimplonPlayer)(recording)
        print(player.address, flush=True)
        player.start()
        for number in range(chosen.patterns):
            player.frame(Sending(number))
        player.end()
        player.close()
        return
    path, count = Path(chosen.send.removeprefix("swmr:")), chosen.rate * chosen.seconds
    player, times = SwmrPlayer(Repeated(count, chosen.window), path), []
    print(path, flush=True)
    player.start()
    time.sleep(3)  # the receiver has to be there
    begin = time.perf_counter()
    for number in range(count):
        time.sleep(max(0.0, begin + number / chosen.rate - time.perf_counter()))
        player.frame(Sending(number))
        times.append(time.time())
    player.end()
    print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
