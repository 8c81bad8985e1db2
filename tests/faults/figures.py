"""What processes hold that could grow: memory, file handles, threads, processes below them."""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import psutil

import ptynb as pt

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Figures:
    """Of some processes together. memory: what no other process shares [bytes]."""

    memory: int
    files: int
    threads: int
    processes: int

    @classmethod
    def of(cls, processes: list[psutil.Process]) -> Figures:
        """Of these, and the number of all below them."""
        return cls(
            sum(process.memory_full_info().uss for process in processes),
            sum(process.num_fds() for process in processes),
            sum(process.num_threads() for process in processes),
            sum(len(process.children(recursive=True)) for process in processes),
        )

    def grown(self, before: Figures) -> Figures:
        """What was added since then."""
        return Figures(
            self.memory - before.memory,
            self.files - before.files,
            self.threads - before.threads,
            self.processes - before.processes,
        )

    def __str__(self) -> str:
        return (
            f"{self.memory / MEGABYTE:.1f} MB, {self.files} files, {self.threads} threads, {self.processes} processes"
        )


def kernel() -> Figures:
    """Of this process, which drives the cluster."""
    gc.collect()
    return Figures.of([psutil.Process()])


def taken(cluster: pt.Cluster) -> dict[str, Figures]:
    """Of this process, of the cluster's engines, and of the controller with its schedulers."""
    assert cluster.folder is not None
    listed = json.loads((cluster.folder / "processes.json").read_text())
    engines, others = ([psutil.Process(pid) for pid, _ in listed[kind]] for kind in ("engines", "others"))
    return {"kernel": kernel(), "engines": Figures.of(engines), "controller": Figures.of(others)}


def trend(values: Sequence[float]) -> float:
    """Growth from one value to the next: from third to third by their medians, where it was the least.

    What leaks grows in each of them; an allocator takes a few megabytes once, or gives them back.
    """
    thirds = [float(np.median(third)) for third in np.array_split(np.asarray(values), 3)]
    return float(np.diff(thirds).min()) / (len(values) / 3)
