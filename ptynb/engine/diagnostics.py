"""Diagnostics of an engine while it trains: single patterns, R-factors of each, positions, load and memory."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import shutil
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import psutil
import torch

from ptynb.data.engine_records import Array, Health, PatternPair
from ptynb.data.pattern_r_factors import MeasuredRFactors
from ptynb.engine.gpu import gpu_uuid
from ptynb.kernels.runtime import buffers
from ptynb.kernels.runtime.thread_count import torch_alone
from ptynb.supervised_thread import SupervisedThread, problems

if TYPE_CHECKING:
    from ptynb.engine.loop import Loop

FRESH_SECONDS = 2.0
"""Age [s] after which load and temperature of a GPU are queried again."""


@torch.no_grad()
def pattern(loop: Loop, index: int) -> PatternPair | None:
    """Return a measured and the modelled pattern; None if another engine holds it.

    Uses the model's forward pass, so all active components take part. Call it in the training thread of this rank.
    """
    indices = np.array([index], dtype=np.int64)
    if index not in loop.shard.present:
        return None
    next(loop.by_band(indices))
    with torch_alone(loop.model.compiled):
        # Only this engine evaluates the model: a sum over all engines would wait for ever.
        batch = dataclasses.replace(loop.shard.batch(indices, 1), total=lambda own: own)  # not summed over engines
        modelled, measured = loop.model.intensities(batch)[0].double(), batch.counts[0].double()
        position = loop.model.positions_of(batch)[0]
    buffers.forget()  # the buffers of updates have another size
    mask = torch.ones_like(measured) if loop.model.mask is None else loop.model.mask
    arrays = [values.cpu().numpy() for values in (measured, modelled, mask)]
    if loop.model.propagation.fourier:
        arrays = [np.fft.fftshift(values) for values in arrays]
    y, x = position.tolist()
    return PatternPair(index, loop.epoch, loop.update, arrays[0], arrays[1], arrays[2] > 0, (y, x))


@torch.no_grad()
def pattern_r_factors(loop: Loop, seconds: float, source: str, total: int) -> MeasuredRFactors:
    """Measure R-factors of patterns for so many seconds at most, and return all after `total` of `source`.

    At least one portion is measured, if a pattern has no value of the present state, so that every request brings the
    record forward. No other engine takes part. Call it in the training thread of this rank.
    """
    started = time.perf_counter()
    record, size = loop.pattern_r_factors, loop.evaluation_batch()
    record.begin(loop.moment)
    measured = False
    while len(rows := record.due(size)):
        values = np.empty(len(rows))
        for places in loop.by_band(loop.shard.present[rows]):
            patterns = loop.shard.present[rows[places]]
            batch = dataclasses.replace(loop.shard.batch(patterns, size), total=lambda own: own)
            residuals, totals = loop.residuals(batch)
            values[places] = (residuals / totals).cpu().numpy()
        record.store(rows, values)
        measured = True
        if time.perf_counter() - started >= seconds:
            break
    if measured:
        buffers.forget()  # the buffers of updates have another size
    return record.since(source, total, time.perf_counter() - started)


def positions(loop: Loop) -> tuple[Array, Array]:
    """Return initial and present positions of the probe windows, both (pattern, yx) float64 [object pixels]."""
    return loop.model.start_positions().numpy(), loop.model.all_positions().numpy()


def patterns_per_second(loop: Loop) -> float | None:
    """Return this engine's own patterns per second in the last epoch; None before the first one."""
    if not loop.epochs:
        return None
    last = loop.epochs[-1]
    if loop.live_epochs:  # an epoch of a scan that is being measured has any number of patterns
        return last.patterns_per_second * len(loop.shard.present) / loop.order.count
    return len(loop.shard) / last.seconds


class Vitals:
    """Memory, load and temperature of an engine's device. Never blocks: slow queries run in a thread."""

    def __init__(self, device: str, threads: int) -> None:
        self._device, self._threads = torch.device(device), max(threads, 1)
        self._process: psutil.Process | None = None
        self._lock = threading.Lock()
        self._asked_at = float("-inf")
        self._known: tuple[float | None, float | None] = (None, None)

    def memory(self) -> tuple[int | None, int | None]:
        """Return memory in use and total memory [bytes]."""
        if self._device.type != "cpu":
            with contextlib.suppress(RuntimeError):  # the GPU is lost
                free, total = torch.get_device_module(self._device).mem_get_info(self._device)
                return total - free, total
            return None, None
        return psutil.Process().memory_info().rss, psutil.virtual_memory().total

    def load_and_temperature(self) -> tuple[float | None, float | None]:
        """Return load (0 to 1) and temperature [°C]; None the first time. Of a GPU, they are some seconds old."""
        if self._device.type == "cuda":
            self._ask_again()
            return self._known
        if self._device.type != "cpu":  # torch needs another package for these of Intel's
            return None, None
        if self._process is None:
            self._process = psutil.Process()
            self._process.cpu_percent()  # measures since the last call, so the first value means nothing
            return None, None
        cores = min(self._threads, os.cpu_count() or 1)
        return min(self._process.cpu_percent() / 100 / cores, 1.0), None

    def _ask_again(self) -> None:
        with self._lock:
            if time.monotonic() - self._asked_at < FRESH_SECONDS:
                return
            self._asked_at = time.monotonic()
        SupervisedThread("ptynb vitals", self._ask).start()

    def _ask(self) -> None:
        tool = shutil.which("nvidia-smi")
        if tool is None:
            return
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            answer = subprocess.run(
                [
                    tool,
                    f"--id={gpu_uuid()}",
                    "--query-gpu=utilization.gpu,temperature.gpu",
                    "--format=csv,noheader,nounits",
                ],
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            self._known = read_vitals(answer.stdout)


def read_vitals(line: str) -> tuple[float | None, float | None]:
    """Parse load (0 to 1) and temperature [°C] from a line of nvidia-smi's CSV.

    None for values that nvidia-smi does not report, as for a MIG slice.
    """
    load, _, temperature = (cell.strip() for cell in line.partition(","))
    return (float(load) / 100 if load.isdecimal() else None), (float(temperature) if temperature.isdecimal() else None)


def health(rank: int, device: str, state: str, loop: Loop | None, vitals: Vitals) -> Health:
    """Return speed, memory, load and temperature of this engine, without waiting for the training thread."""
    memory, total = vitals.memory()
    load, temperature = vitals.load_and_temperature()
    return Health(
        rank=rank,
        host=platform.node(),
        device=device,
        state=state,
        patterns=len(loop.shard.present) if loop else 0,
        patterns_per_second=patterns_per_second(loop) if loop else None,
        memory=memory,
        memory_total=total,
        load=load,
        temperature=temperature,
        agreed=loop.agreed if loop else 0,
        problems=problems(),
    )
