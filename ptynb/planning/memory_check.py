"""Whether a reconstruction fits in the memory that there is, and what to change where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ptynb.cluster.devices import find_gpus
from ptynb.data.scan import Scan
from ptynb.exceptions import SettingsError
from ptynb.loading.engine_patterns import Storage, free_on_host, storage_for
from ptynb.optimize.batching import can_share
from ptynb.planning.memory_model import Where, Workload, memory_of, own_patterns, patterns_bytes, portion, totals
from ptynb.settings import PROJECTIONS

USABLE = 0.95
"""Of a GPU's memory, what there is for one process."""
MOST_ENGINES = 64
"""Engines that are thought of where fewer have too little memory."""


@dataclass(frozen=True)
class Room:
    """Memory to be had [bytes]: of all engines together on the host, and on each engine's GPU, None on a CPU."""

    host: float
    device: float | None = None


def room_for(on_gpu: bool, held: float = 0) -> Room:
    """What is free on the host now, and what the smallest GPU has. held: by engines that run already [bytes].

    From the driver's tool: the kernel does not touch CUDA to ask. Where it does not tell, no GPU is too small.
    """
    sizes = [gpu.memory * 2.0**20 * USABLE for gpu in find_gpus() if gpu.memory] if on_gpu else []
    return Room(free_on_host() + held, min(sizes, default=float("inf")) if on_gpu else None)


def check_room(scan: Scan, asked: Workload, room: Room) -> None:
    """Raises SettingsError where it can't fit, with one sentence that names a remedy."""
    problem = refusal(scan, asked, room)
    if problem is not None:
        raise SettingsError(problem)


def place_of_patterns(scan: Scan, asked: Workload, room: Room) -> Storage:
    """Where engines will keep the patterns."""
    own, everybody = (
        patterns_bytes(scan, asked.settings, count) for count in (own_patterns(scan, asked.engines), len(scan))
    )
    return storage_for(asked.settings.pattern_storage, own, everybody, scan.frames.in_file, room.host, room.device)


def lacks(scan: Scan, asked: Workload, room: Room) -> Where | None:
    """Where the memory does not suffice; None: nowhere."""
    needed = totals(memory_of(scan, asked, place_of_patterns(scan, asked, room), room.device is not None))
    if room.device is not None and needed["device"] > room.device:
        return "device"
    return "host" if asked.engines * needed["host"] > room.host else None


def refusal(scan: Scan, asked: Workload, room: Room) -> str | None:
    """One sentence where it can't fit, with the smallest change that helps; None where it fits."""
    where = lacks(scan, asked, room)
    if where is None:
        return None
    place = place_of_patterns(scan, asked, room)
    items = [item for item in memory_of(scan, asked, place, room.device is not None) if item.where == where]
    largest = max(items, key=lambda item: item.bytes)
    needed = sum(item.bytes for item in items)
    there, times = (room.device, 1) if where == "device" else (room.host, asked.engines)
    assert there is not None, "only a GPU's memory is the device's"
    whose = "on its GPU" if where == "device" else "of memory"
    engines = "the engine needs" if asked.engines == 1 or where == "device" else f"{asked.engines} engines need"
    return (
        f"This can't fit: {engines} about {times * needed / 1e9:.3g} GB {whose}, most of it for "
        f"'{largest.name}' ({times * largest.bytes / 1e9:.3g} GB), and {there / 1e9:.3g} GB are there; "
        f"{_remedy(scan, asked, room)}."
    )


def _remedy(scan: Scan, asked: Workload, room: Room) -> str:
    for count, changes, words in _remedies(scan, asked, room):
        try:
            settings = asked.settings.replace(**changes)
        except SettingsError:  # it goes together with no such change
            continue
        if lacks(scan, Workload(settings, count, asked.cluster or count > 1), room) is None:
            return words
    return "crop or bin the patterns first (ptynb.preparation)"


def _remedies(scan: Scan, asked: Workload, room: Room) -> Iterator[tuple[int, dict[str, Any], str]]:
    """(engines, changes of settings, words for them) by what they cost: first what leaves the result as it is."""
    settings, engines = asked.settings, asked.engines
    for accumulate in (
        settings.gradient_accumulation * 2**power for power in range(1, portion(scan, asked).bit_length())
    ):
        change = {"gradient_accumulation": accumulate}
        yield engines, change, f"compute each batch in parts: gradient_accumulation={accumulate}"
    if settings.pattern_storage == "device" and room.device is not None:
        yield engines, {"pattern_storage": "host"}, "keep the patterns elsewhere: pattern_storage='host'"
    if settings.pattern_storage != "disk" and scan.frames.in_file:
        yield engines, {"pattern_storage": "disk"}, "keep the patterns elsewhere: frames='disk'"
    if room.device is not None:
        for count in range(engines + 1, MOST_ENGINES + 1):
            if can_share(scan, settings, count):
                yield count, {}, f"use {count} engines, each on a GPU of its own"
    else:
        for count in range(engines - 1, 0, -1):
            yield count, {}, f"use fewer engines, which each hold the object: {count}"
    batch = settings.batch // 2
    while batch >= (1 if settings.batch_per == "engine" else engines):
        smaller = {"batch": batch, "gradient_accumulation": min(settings.gradient_accumulation, batch)}
        yield engines, smaller, f"use smaller batches: batch={batch}"
        batch //= 2
    if settings.optimiser in ("lbfgs", *PROJECTIONS):
        adam = {"optimiser": "adam", "object": {"learning_rate": 0.01}, "probe": {"learning_rate": 0.01}}
        yield engines, adam, "use the optimiser 'adam'"
