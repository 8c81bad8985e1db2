"""The start of a run: from the file to engines that are ready, against plain reads of the same bytes.

Engines keep what they read, so the goal's plain read keeps it too, as `file["patterns"][:]` does: memory that is used
for the first time may take longer than the disk. A read through one small buffer stands beside it.

Where the system lets us, the file leaves the page cache before each turn (posix_fadvise, no rights needed), so both
sides read from the disk; the host of a virtual machine may still hold it, which the speed in the table then shows.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import h5py

import ptynb as pt
from tests.benchmarks.harness import Bench, Measured, Row, compared, in_turn
from tests.benchmarks.problems import large

SUBJECT = "loading"
WINDOW = 256
READ_BYTES = 2**26


def rows(bench: Bench) -> list[Measured]:
    """From the disk, which has the goal, and from the page cache, for comparison."""
    patterns = int(bench.options["patterns"])
    path = bench.folder / f"{large(bench.folder, patterns, WINDOW).name}.h5"
    with pt.Cluster(2, device="cpu") as cluster:
        return [start(bench, path, cluster, cold, kept) for cold in (True, False) for kept in (True, False)]


def start(bench: Bench, path: Path, cluster: pt.Cluster, cold: bool, kept: bool) -> Row:
    """Seconds until two engines hold their patterns and are ready for the first update."""
    megabytes = path.stat().st_size / 1e6
    place = "from disk" if cold else "from the page cache"
    name = f"start of a run, 2 engines, {megabytes:.0f} MB {place}"
    bench.said(name)
    other = "a plain h5py read, kept" if kept else "an h5py read of 64 MiB at a time, thrown away"
    given = in_turn(
        {
            "ptynb": lambda: {"seconds": _seconds_to_ready(path, cluster, cold)},
            other: lambda: {"seconds": _seconds_to_read(path, cold, kept)},
        },
        bench.turns,
        bench.said,
    )
    fastest = megabytes / min(turn["seconds"] for turn in given[other])
    note = f"h5py reads up to {fastest:.0f} MB/s"
    return compared(SUBJECT, name, given, limit=1.3 if cold and kept else None, note=note)


def forget(path: Path) -> None:
    """Asks the system to drop the file's pages; written ones have to be on the disk first."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def _seconds_to_ready(path: Path, cluster: pt.Cluster, cold: bool) -> float:
    if cold:
        forget(path)
    began = time.perf_counter()
    with pt.Reconstruction(pt.load(path), pt.Settings(), cluster) as recon:
        while recon.state == "loading":
            time.sleep(0.01)
        return time.perf_counter() - began


def _seconds_to_read(path: Path, cold: bool, kept: bool) -> float:
    if cold:
        forget(path)
    began = time.perf_counter()
    with h5py.File(path, "r") as file:
        patterns = file["patterns"]
        if kept:
            held = patterns[:]
            seconds = time.perf_counter() - began
            del held
            return seconds
        step = max(1, READ_BYTES // (patterns.dtype.itemsize * WINDOW * WINDOW))
        for first in range(0, len(patterns), step):
            patterns[first : first + step]
    return time.perf_counter() - began
