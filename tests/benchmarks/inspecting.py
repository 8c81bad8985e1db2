"""How long a look at a scan far larger than memory takes: to open, to show a pattern, to click on the map.

usage: python -m tests.benchmarks.inspecting [--patterns 200000] [--window 256] [--clicks 60]

The file has chunks of one pattern, of which only those that are looked at are written, so it takes little room; the
others are read as zeros. Patterns are asked for one after the other, at random places, while the survey goes on. A
pattern's time is that from the click until the picture has been handed to the browser's connection; no browser runs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

import ptynb as pt
from ptynb.data.patterns import HDF5Frames
from ptynb.widgets.inspect import Inspect
from ptynb.widgets.viewer.viewer import Viewer

GOAL = 0.2
"""[s]"""


def main() -> None:
    """Prints the times and the memory that was used."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--patterns", type=int, default=200_000)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--clicks", type=int, default=60)
    chosen = parser.parse_args()
    random = np.random.default_rng(0)
    wanted = np.sort(random.choice(chosen.patterns, chosen.clicks, replace=False))
    with tempfile.TemporaryDirectory(prefix="ptynb-inspecting-") as folder:
        scan = large(Path(folder) / "scan.h5", chosen.patterns, chosen.window, wanted)
        began = time.perf_counter()
        look = pt.inspect(scan)
        opened = time.perf_counter() - began
        try:
            for view in (look.view, look.map_view):
                confirm(view)
            seconds = [seconds_to(look, int(index)) for index in random.permutation(wanted)]
            while look.state.survey is None:
                time.sleep(0.01)
            first = time.perf_counter() - began
            seconds += [seconds_to(look, int(index)) for index in random.permutation(wanted)]
            surveyed = look.state.survey.patterns
        finally:
            look.close()
    print(f"{chosen.patterns} patterns of {chosen.window} x {chosen.window}: opened in {opened:.2f} s")
    print(f"first statistics after {first:.1f} s, {surveyed} patterns surveyed when the clicks ended")
    slowest = max(seconds)
    print(f"a pattern in {statistics.median(seconds):.3f} s (median), {slowest:.3f} s (slowest of {len(seconds)})")
    print(f"goal: below {GOAL} s: {'met' if slowest < GOAL else 'not met'}")


def large(path: Path, patterns: int, window: int, written: np.ndarray) -> pt.Scan:
    """A scan in a file of which only these patterns are written."""
    random = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        stored = file.create_dataset("patterns", (patterns, window, window), np.uint16, chunks=(1, window, window))
        for index in written:
            stored[index] = random.poisson(3, (window, window))
        frames = HDF5Frames.of(stored)
    side = int(np.ceil(np.sqrt(patterns)))
    positions = np.stack(np.divmod(np.arange(float(patterns)), side), axis=1) * 4
    return pt.Scan(frames=frames, positions=positions)


def confirm(view: Viewer) -> None:
    """Confirms each frame at once, as a browser that keeps up does."""
    view.observe(lambda change: setattr(view, "shown", change["new"]["number"]), "frame")


def seconds_to(look: Inspect, index: int) -> float:
    """From the choice of a pattern until its picture is on its way."""
    began = time.perf_counter()
    look.choose(index)
    title = f"pattern {index}"
    while [one["title"] for one in look.view.frame["pictures"]] != [title]:
        time.sleep(0.001)
    seconds = time.perf_counter() - began
    time.sleep(0.05)
    return seconds


if __name__ == "__main__":
    main()
