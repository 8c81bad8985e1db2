"""Measure the duration of updates and messages on this engine, in a few seconds, without a reconstruction."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from ptynb.data.patterns import ArrayFrames
from ptynb.data.scan import Scan
from ptynb.distributed.group import Group, Membership, SingleGroup, join
from ptynb.engine import run_registry
from ptynb.engine.loop import Loop
from ptynb.exceptions import EnginesBusyError
from ptynb.loading.device_memory import free_on_device, release_unused
from ptynb.settings import WHOLE_PASSES, Settings

WARM_UPS, GPU_WARM_UPS = 2, 8
"""Updates before the clock starts; on a GPU the first ones load libraries, plan transforms and fill its allocator."""
LEAST_ROUNDS, MOST_ROUNDS = 3, 50
SECONDS = 0.4
"""Approximate duration of the measurement of one size."""
GPU_BLOCK_SECONDS = 0.1
"""Least duration between two synchronisations with a GPU: they make it wait for the host, as no run does."""
FIRST_PATTERNS = 32
"""Patterns of the first update that is compared with the time of its launches."""
LAUNCHES = 4.0
"""An update that takes so many times the time of its launches is limited by what the GPU computes.

So is one with half the patterns, and the line through both has the time of a pattern as its slope."""
FREE_PART = 0.25
"""Part of a GPU's free memory for the updates that are measured: others may share it."""
SMALL_MESSAGE, LARGE_MESSAGE = 2**12, 2**24
"""[bytes]"""
SMALL_ROUNDS, LARGE_ROUNDS = 30, 4

Timed = tuple[int, float]
"""Patterns of an update, and its duration [s]."""


def time_updates(
    scan: Scan,
    shape: tuple[int, int],
    settings: Settings,
    patterns: int,
    pattern_bytes: float,
    device: str,
    threads: int,
) -> tuple[Timed, Timed]:
    """Return the durations of two updates with few and with more patterns, at most `patterns`.

    scan: some patterns, which a GPU takes several times if it needs more. shape: of the object (y, x), in whose pixels
    the positions are. pattern_bytes: memory of an update for each of its patterns. threads: number of computing threads
    on a CPU.
    """
    refuse_where_open()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        place = torch.device(device)
        whole = dataclasses.replace(scan, object=np.ones(shape, np.complex64))

        def seconds(size: int) -> float:
            return _time_update(whole, settings, size, place)

        if place.type == "cpu":
            most = max(1, min(patterns, len(scan)))
            few = max(1, most // 2)
            return (few, seconds(few)), (most, seconds(most))
        room = FREE_PART * free_on_device(place)
        return beyond_launches(seconds, max(1, min(patterns, int(room / pattern_bytes))))
    finally:
        torch.set_num_threads(before)
        release_unused()


def beyond_launches(seconds: Callable[[int], float], most: int) -> tuple[Timed, Timed]:
    """Return two updates of a GPU from which the time of larger ones follows.

    The launches of an update take the same time with one pattern as with a hundred. As long as they take longer than
    what is computed, the time does not depend on the patterns. So their number is doubled until an update takes
    `LAUNCHES` times as long as one with a single pattern.

    Parameters
    ----------
    seconds
        Measures the duration of an update with so many patterns [s].
    most
        Largest number of patterns: that of the updates of a run, which then need no extrapolation, or what fits in the
        memory.

    Returns
    -------
    tuple
        The last two of them, or an update with one pattern twice.
    """
    launches = seconds(1)
    fewer = more = (1, launches)
    size = min(most, FIRST_PATTERNS)
    while more[0] < most:
        fewer, more = more, (size, seconds(size))
        if more[1] >= LAUNCHES * launches and fewer[0] > 1:
            break
        size = min(2 * size, most)
    return fewer, more


def _time_update(scan: Scan, settings: Settings, size: int, device: torch.device) -> float:
    chosen = np.arange(size) % len(scan)
    frames = scan.frames.read(0, min(size, len(scan)))
    part = dataclasses.replace(
        scan,
        frames=ArrayFrames.of(frames if size <= len(scan) else frames[chosen]),
        positions=scan.positions[chosen],
        motion=None if scan.motion is None else scan.motion[chosen],
    )
    batch = min(settings.batch, size) if settings.optimiser in WHOLE_PASSES else size
    own = settings.replace(
        batch=batch,
        batch_per="group",
        gradient_accumulation=min(settings.gradient_accumulation, batch),
        pattern_storage="auto",
        object={"layout": "whole"},
    )
    loop = Loop(part, own, SingleGroup(device), find_probe=False)
    table = np.arange(size)[:, None]

    def update() -> None:
        loop.algorithm.update(table, 0)
        loop.after_update(False)

    try:
        if device.type == "cpu":
            return median_seconds(update, WARM_UPS)
        return median_seconds(update, GPU_WARM_UPS, lambda: synchronize(device), GPU_BLOCK_SECONDS)
    finally:
        loop.disconnect()


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that it was given; a CPU always has."""
    if device.type != "cpu":
        torch.get_device_module(device).synchronize(device)


def median_seconds(
    action: Callable[[], None],
    warm_ups: int,
    finished: Callable[[], None] = lambda: None,
    block_seconds: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the median duration of an action [s], measured in blocks of several, between two calls of `finished`.

    finished: waits for the device. block_seconds: least duration of a block; 0: each action is one.
    """
    for _ in range(warm_ups):
        action()
    finished()

    def block(count: int) -> float:
        started = clock()
        for _ in range(count):
            action()
        finished()
        return (clock() - started) / count

    count = max(1, math.ceil(block_seconds / max(block(1), 1e-9))) if block_seconds else 1
    rounds = list[float]()
    until = clock() + SECONDS
    while len(rounds) < LEAST_ROUNDS or (len(rounds) < MOST_ROUNDS and clock() < until):
        rounds.append(block(count))
    return statistics.median(rounds)


def time_messages(membership: Membership) -> list[tuple[int, float]]:
    """Return (bytes, median seconds) of all-reduces of a small and of a large message. Collective."""
    refuse_where_open()
    group = join(membership)
    try:
        kinds = ((SMALL_MESSAGE, SMALL_ROUNDS), (LARGE_MESSAGE, LARGE_ROUNDS))
        return [(size, statistics.median(time_sums(group, size, rounds, WARM_UPS))) for size, rounds in kinds]
    finally:
        group.close()


def time_sums(group: Group, size: int, rounds: int, warm_ups: int) -> list[float]:
    """Return the durations [s] of `rounds` all-reduces of a message of `size` bytes, after warm-up. Collective."""
    message = torch.zeros(size // 4, device=group.device)
    seconds = []
    for _ in range(warm_ups + rounds):
        started = time.perf_counter()
        group.sum(message)
        synchronize(group.device)
        seconds.append(time.perf_counter() - started)
    return seconds[warm_ups:]


def refuse_where_open() -> None:
    """Raise EnginesBusyError if this engine has a reconstruction open."""
    if run_registry.open_names():
        raise EnginesBusyError(
            "A reconstruction is open on this engine, and would disturb the measurement; close() it first.",
            code="engine.busy",
        )
