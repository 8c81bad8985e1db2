"""Emulators as real processes, and what of a recording has to arrive."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import ptynb as pt
from ptynb.acquisition.emulators.faults import Faults
from ptynb.acquisition.emulators.playback import Recording, order
from ptynb.data.arrivals import Arrivals
from ptynb.data.scan import Scan

PATTERNS, WINDOW = 144, 32
POSITIONS_OF_FILE = "entry/positions/y,entry/positions/x"


@dataclasses.dataclass(frozen=True)
class Emulated:
    """An emulator that runs. source and positions: for `ptynb.listen`."""

    source: str
    positions: str
    process: subprocess.Popen[str]


def recorded(folder: Path, patterns: int = PATTERNS, window: int = WINDOW, dtype: str = "u2") -> Path:
    """A scan in a file, of counts as detectors have them."""
    scan = pt.simulate(patterns=patterns, window=window, seed=5)
    mask = np.ones((window, window), bool)
    mask[3, 4] = False
    counts = scan.counts(0, len(scan)).astype(dtype)
    same = pt.Scan.from_arrays(counts, scan.positions, geometry=scan.geometry, mask=mask)
    pt.save_scan(same, folder / "recorded.h5")
    return folder / "recorded.h5"


@contextlib.contextmanager
def emulator(path: Path, *words: object) -> Iterator[Emulated]:
    """`ptynb emulate` in a process of its own, which is killed at the end."""
    command = [sys.executable, "-m", "ptynb.cli.main", "emulate", str(path), *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 60)[0]
        line = process.stdout.readline()
        source = re.search(r'listen\("(.*?)"', line)
        positions = re.search(r'positions="(.*?)"', line)
        assert source is not None, line
        yield Emulated(source.group(1), positions.group(1) if positions else "planned", process)
    finally:
        process.kill()
        process.communicate()


def expected(path: Path, faults: Faults) -> list[int]:
    """Numbers of the patterns that are sent at least once."""
    return sorted({step.number for step in order(len(pt.load(path)), faults) if step.number >= 0})


def planned(path: Path, **more: object) -> pt.Plan:
    """A plan that knows the positions."""
    return pt.Plan(positions=Recording(pt.load(path)).positions, **more)


def unplanned(path: Path, **more: object) -> pt.Plan:
    """A plan that knows the number of patterns, and the area in which positions will be."""
    positions = Recording(pt.load(path)).positions
    (y0, x0), (y1, x1) = positions.min(0).tolist(), positions.max(0).tolist()
    return pt.Plan(count=len(positions), extent=((y0, y1), (x0, x1)), **more)


def until_ended(scan: Scan, seconds: float = 30.0) -> Arrivals:
    """What came, once the scan has ended."""
    assert scan.acquisition is not None
    index, until = scan.acquisition.index(), time.monotonic() + seconds
    while index.ended is None:
        assert time.monotonic() < until, f"not ended: {index.summary()}"
        time.sleep(0.02)
    return index.summary()


def check_saved(folder: Path, path: Path, numbers: list[int]) -> None:
    """The scan's file, opened as any other, has these patterns of the recording, each with its own position."""
    whole, scan = pt.load(path), pt.load(folder / "scan.h5")
    assert len(scan) == len(numbers)
    np.testing.assert_array_equal(scan.frames.read(0, len(scan)), whole.frames.read(0, len(whole))[numbers])
    np.testing.assert_allclose(scan.positions, whole.positions[numbers], rtol=0, atol=1e-6)


def log_of(folder: Path) -> str:
    return (folder / "arrivals.log").read_text()
