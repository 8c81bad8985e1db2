"""Processor cores that this process may use, and the memory that they share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil

from ptynb.text import natural_order

NODES = Path("/sys/devices/system/node")
"""Where Linux lists the cores of each NUMA node: the cores that share a memory controller."""


def usable_cores() -> int:
    """Processor cores that this process may use."""
    return len(psutil.Process().cpu_affinity()) if sys.platform != "darwin" else os.cpu_count() or 1


def numa_nodes(folder: Path = NODES) -> tuple[tuple[int, ...], ...]:
    """Return the cores of each NUMA node that this process may use; () where the system does not list them.

    folder: with node0/cpulist, node1/cpulist, …
    """
    if not hasattr(os, "sched_getaffinity"):
        return ()
    usable = os.sched_getaffinity(0)
    nodes = sorted(folder.glob("node[0-9]*/cpulist"), key=lambda file: natural_order(file.parent.name))
    listed = [numbers(file.read_text(encoding="ascii")) for file in nodes]
    return tuple(tuple(sorted(found)) for cores in listed if (found := usable.intersection(cores)))


def numbers(text: str) -> set[int]:
    """Return the numbers in a list such as "0-3,8"."""
    found = set[int]()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return found
