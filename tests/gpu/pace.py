"""Stages of speed, and how an update is measured: time, launches, how busy the GPU is, waits, share of the limit.

The limit counts the fewest bytes of an update, for one pixel of one mode of one pattern and slice, complex numbers of 8
bytes, with object, probe and their gradients in the cache, and all products done where a transform reads or writes:

    P_jm = F⁻¹[exp(-2πi k·s_j) F[P_m]]     one spectrum for all patterns        write             8
    Ψ = F[P O]                                                                  read, write      16
    g = F⁻¹[(dL/dM) Ψ]                     the slope while reading              read, write      16
    Σ P* g added to the object's           P and g                              read, read       16
    F[O* g], Σ over patterns               g, and the transform once more       read, write, read 24
                                                                                                 80

and the count itself in its own type. Each further slice adds two transforms forwards, two backwards (64) and its own
gradient (16): 80 again. A transform counts as one pass; cuFFT makes two of 256 x 256. Small batches stay in the L2
cache, so that the limit is below their time for another reason: launches and the busy share say which.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import ptynb as pt
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.engine.update_timing import synchronize
from ptynb.settings import Settings
from tests.gpu.report import Report

BYTES = 80
"""Of a pixel, mode and slice; see above."""
COPIED, COPIED_ON_CPU = 2**30, 2**26
"""Size of the array that is copied [bytes]."""
EPOCH = 512
"""Fewest patterns: what is done once an epoch counts by its share."""
WARM_UPS, PROFILED = 8, 4
"""Updates before the clock starts, and of those that the profiler sees."""
BLOCKS, BLOCK_SECONDS = 5, 0.1
"""Measurements, whose median counts, and about how long one takes [s]."""


@dataclass(frozen=True)
class UpdateProfile:
    """An update of a loop. Without CUDA, `launches`, `busy` and `waits` are None.

    seconds: until the device has done it; host_seconds: until the host has given it all its work. launches: kernels
    and copies. busy: share of the time in which the device computes. waits: how often the host waits for the device.
    """

    seconds: float
    host_seconds: float
    launches: float | None
    busy: float | None
    waits: int | None


def profile_update(loop: Loop) -> UpdateProfile:
    """Measure an update of a loop that is not needed afterwards: warm-up, then blocks between two synchronisations."""
    device, number = loop.group.device, 0

    def update() -> None:
        nonlocal number
        loop.algorithm.update(loop._table, number % loop.updates)
        loop.after_update(False)
        number += 1

    for _ in range(WARM_UPS):
        update()
    synchronize(device)
    began = time.perf_counter()
    update()
    synchronize(device)
    rounds = max(1, round(BLOCK_SECONDS / (time.perf_counter() - began)))
    blocks = [_timed(update, rounds, device) for _ in range(BLOCKS)]
    seconds = statistics.median(whole for whole, _ in blocks)
    host = statistics.median(host for _, host in blocks)
    if device.type != "cuda":
        return UpdateProfile(seconds, host, None, None, None)
    kernels = _kernels(update, device)
    busy = sum(event.device_time for event in kernels) / PROFILED / 1e6
    return UpdateProfile(seconds, host, len(kernels) / PROFILED, busy / seconds, count_waits(update))


def _timed(action: Callable[[], None], rounds: int, device: torch.device) -> tuple[float, float]:
    """Return the time of an action until the device has done it, and that of the host alone."""
    synchronize(device)
    began = time.perf_counter()
    for _ in range(rounds):
        action()
    host = time.perf_counter() - began
    synchronize(device)
    return (time.perf_counter() - began) / rounds, host / rounds


def _kernels(action: Callable[[], None], device: torch.device) -> list[Any]:
    """Return torch's events of the kernels and copies of `PROFILED` actions."""
    return [event for event in _profiled(action, device).events() if event.device_type.name == "CUDA"]


def _profiled(action: Callable[[], None], device: torch.device) -> torch.profiler.profile:
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(PROFILED):
            action()
        synchronize(device)
    return profile


def count_waits(action: Callable[[], None]) -> int:
    """Return how often the host waits for the GPU in an action, as torch counts it."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            action()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing CUDA operation" in str(warning.message) for warning in seen)


def copy_bandwidth(device: torch.device) -> float:
    """Return the bytes read and written in a second by a copy on the device, the best of ten."""
    source = torch.ones(COPIED_ON_CPU if device.type == "cpu" else COPIED, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)

    copy()
    return 2 * len(source) / min(_timed(copy, 1, device)[0] for _ in range(10))


def least_bytes(settings: Settings, window: tuple[int, int], patterns: float, count_bytes: int) -> float:
    """Return the fewest bytes that updates with so many patterns move. count_bytes: of a stored count."""
    pixels = patterns * window[0] * window[1]
    waves = settings.probe.modes * settings.object.modes * settings.slices.count
    return float(pixels * (BYTES * waves + count_bytes))


@dataclass(frozen=True)
class PaceCase:
    """A window and a batch, with settings besides."""

    name: str
    window: int
    batch: int
    values: dict[str, Any]


PACES = (
    PaceCase("A: 128, batch 16", 128, 16, {}),
    PaceCase("B: 128, batch 16, 4 modes", 128, 16, {"probe": {"modes": 4}}),
    PaceCase("128, batch 16, 8 slices", 128, 16, {"slices": {"count": 8, "thickness": 2e-6}}),
    PaceCase("128, batch 16, positions", 128, 16, {"positions": {"learning_rate": 0.1}}),
    PaceCase("128, batch 16, lsqml", 128, 16, {"optimiser": "lsqml"}),
    PaceCase("128, batch 16, rpie", 128, 16, {"optimiser": "rpie"}),
    PaceCase("128, batch 128", 128, 128, {}),
    PaceCase("256, batch 32", 256, 32, {}),
    PaceCase("256, batch 256", 256, 256, {}),
    PaceCase("256, batch 256, 8 modes", 256, 256, {"probe": {"modes": 8}}),
    PaceCase("256, batch 32, 20 slices", 256, 32, {"slices": {"count": 20, "thickness": 2e-6}}),
)
SMALL = (PaceCase("32, batch 4", 32, 4, {}),)
"""What a CPU can do in a second."""


def pace(report: Report) -> None:
    """Print how fast updates are, and what holds them up; only an exception is a failure."""
    bandwidth = copy_bandwidth(report.device)
    print(f"copy bandwidth {bandwidth / 1e9:.0f} GB/s")
    for case in SMALL if report.device.type == "cpu" else PACES:
        if report.out_of_time:
            report.left_out("pace", case.name, "the budget is spent")
            continue
        with report.attempt("pace", case.name):
            loop = _loop(case, report.device)
            found = profile_update(loop)
            itemsize = loop.shard.kind.itemsize
            limit = least_bytes(loop.settings, (case.window, case.window), case.batch, itemsize) / bandwidth
            loop.disconnect()
            report.check("pace", case.name, found.seconds > 0, described(found, limit))


def described(found: UpdateProfile, limit: float) -> str:
    """Return a profile as text. limit: the shortest time of such an update [s]."""
    text = f"{found.seconds * 1e3:.3f} ms, host {found.host_seconds * 1e3:.3f} ms"
    if found.launches is not None and found.busy is not None:
        text += f", {found.launches:.0f} launches, busy {found.busy:.0%}, {found.waits} waits"
    return f"{text}, limit {limit * 1e3:.4f} ms ({limit / found.seconds:.1%})"


def kernels(report: Report) -> None:
    """Print the operations that take most of the time of an update, of a small and of a large batch."""
    for case in SMALL if report.device.type == "cpu" else (PACES[0], PACES[8]):
        with report.attempt("kernels", case.name):
            loop = _loop(case, report.device)

            def update(loop: Loop = loop) -> None:
                loop.algorithm.update(loop._table, 0)

            for _ in range(WARM_UPS):
                update()
            averages = _profiled(update, report.device).key_averages()
            order = "self_device_time_total" if report.on_gpu else "self_cpu_time_total"
            print(averages.table(sort_by=order, row_limit=30, max_name_column_width=70))
            loop.disconnect()
            report.check("kernels", case.name, len(averages) > 0, f"{len(averages)} kinds of operations")


def _loop(case: PaceCase, device: torch.device) -> Loop:
    """Return a loop whose patterns repeat a few simulated ones: what is in them matters not for the time."""
    some = pt.simulate(patterns=64, window=case.window, seed=0)
    chosen = np.arange(max(2 * case.batch, EPOCH)) % len(some)
    scan = pt.preparation.select(some, chosen)
    return Loop(scan, Settings(**{"batch": case.batch, **case.values}), SingleGroup(device))
