"""Measure the duration of updates and messages on this engine, in a few seconds, without a reconstruction."""

from __future__ import annotations

import dataclasses
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
from ptynb.loading.device_memory import release_unused
from ptynb.settings import WHOLE_PASSES, Settings

WARM_UPS = 2
LEAST_ROUNDS, MOST_ROUNDS = 3, 50
SECONDS = 0.4
"""Approximate duration of the measurement of one size."""
SMALL_MESSAGE, LARGE_MESSAGE = 2**12, 2**24
"""[bytes]"""
SMALL_ROUNDS, LARGE_ROUNDS = 30, 4


def time_updates(
    scan: Scan, shape: tuple[int, int], settings: Settings, sizes: list[int], device: str, threads: int
) -> list[float]:
    """Return the median duration [s] of an update with the first `size` patterns of `scan`, for each size.

    shape: of the object (y, x), in whose pixels the positions are. threads: number of computing threads on a CPU.
    """
    refuse_where_open()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        whole = dataclasses.replace(scan, object=np.ones(shape, np.complex64))
        return [_time_update(whole, settings, size, torch.device(device)) for size in sizes]
    finally:
        torch.set_num_threads(before)
        release_unused()


def _time_update(scan: Scan, settings: Settings, size: int, device: torch.device) -> float:
    part = dataclasses.replace(
        scan,
        frames=ArrayFrames.of(scan.frames.read(0, size)),
        positions=scan.positions[:size],
        motion=None if scan.motion is None else scan.motion[:size],
    )
    batch = min(settings.batch, size) if settings.optimiser in WHOLE_PASSES else size
    own = settings.replace(
        batch=batch,
        batch_per="group",
        gradient_accumulation=min(settings.gradient_accumulation, batch),
        pattern_storage="auto",
        sync_every=1,
    )
    loop = Loop(part, own, SingleGroup(device))
    table = np.arange(size)[:, None]

    def update() -> None:
        loop.algorithm.update(table, 0)
        loop.after_update(False)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    try:
        return _median(update, WARM_UPS)
    finally:
        loop.disconnect()


def _median(action: Callable[[], None], warm_ups: int) -> float:
    for _ in range(warm_ups):
        action()
    rounds = list[float]()
    until = time.perf_counter() + SECONDS
    while len(rounds) < LEAST_ROUNDS or (len(rounds) < MOST_ROUNDS and time.perf_counter() < until):
        started = time.perf_counter()
        action()
        rounds.append(time.perf_counter() - started)
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
        if group.device.type == "cuda":
            torch.cuda.synchronize(group.device)
        seconds.append(time.perf_counter() - started)
    return seconds[warm_ups:]


def refuse_where_open() -> None:
    """Raise EnginesBusyError if this engine has a reconstruction open."""
    if run_registry.open_names():
        raise EnginesBusyError(
            "A reconstruction is open on this engine, and would disturb the measurement; close() it first.",
            code="engine.busy",
        )
