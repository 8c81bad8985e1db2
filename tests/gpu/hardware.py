"""Stages of the hardware and its limits: what is there, and what happens where memory ends."""

from __future__ import annotations

import gc
import math
import platform
import time
from collections.abc import Callable

import numpy as np
import psutil
import torch

import ptynb as pt
from ptynb.cluster.gpus import find_gpus
from ptynb.data.commands import CloseRun, StartRun
from ptynb.distributed.group import Membership
from ptynb.engine.group_selftest import check_device
from ptynb.engine.run_registry import describe
from ptynb.engine.worker import Worker
from ptynb.loading.device_memory import free_on_device
from ptynb.settings import Probe, Settings
from tests.cases import a_scan
from tests.gpu.report import Report

LITTLE = 2e9
"""Memory of the GPU that this process may use where it has to run short [bytes]."""
PATIENCE_SECONDS = 120.0
PINNED = 2**30 + 2**28
"""Not a power of two [bytes]."""


def facts(report: Report) -> None:
    """Name versions and device, and check that CUDA's device is one of those that nvidia-smi lists."""
    print(
        f"torch {torch.__version__}, CUDA {torch.version.cuda}, numpy {np.__version__}, "
        f"Python {platform.python_version()}, ptynb {pt.__version__}, {psutil.cpu_count()} cores"
    )
    with report.attempt("facts", "Fourier transform"):
        check_device(report.device)
        report.check("facts", "Fourier transform", True)
    if not report.on_gpu:
        report.left_out("facts", "identity", f"{report.device} is no GPU of NVIDIA")
        return
    with report.attempt("facts", "identity"):
        found, own = find_gpus(), describe()
        card = torch.cuda.get_device_properties(report.device)
        print(f"{card.name}, {card.total_memory / 1e9:.1f} GB, {card.multi_processor_count} multiprocessors")
        known = any(gpu.uuid in own["identity"] for gpu in found)
        report.check("facts", "identity", known, f"{own['identity']}; nvidia-smi: {[gpu.uuid for gpu in found]}")


def faults(report: Report) -> None:
    """Let memory run short, on the GPU and pinned on the host, and go on afterwards."""
    if not report.on_gpu:
        report.left_out("faults", "memory of a GPU", f"{report.device} is no GPU of NVIDIA")
        return
    total = torch.cuda.get_device_properties(report.device).total_memory
    for name, action in (
        ("cached memory counts as free", lambda: _cached_memory(report, total)),
        ("out of memory", lambda: _out_of_memory(report, total)),
        ("a run after it", lambda: _run_after(report)),
        ("pinned memory of the host", _pinned_memory),
    ):
        with report.attempt("faults", name):
            good, text = action()
            report.check("faults", name, good, text)


def _cached_memory(report: Report, total: int) -> tuple[bool, str]:
    before = free_on_device(report.device)
    held = torch.empty(total // 4, dtype=torch.uint8, device=report.device)
    del held
    after = free_on_device(report.device)
    return after > 0.95 * before, f"{before / 1e9:.1f} GB, then {after / 1e9:.1f}"


def _out_of_memory(report: Report, total: int) -> tuple[bool, str]:
    torch.cuda.set_per_process_memory_fraction(LITTLE / total)
    try:
        scan = pt.simulate(patterns=256, window=256)
        worker = _worker(report, scan, Settings(batch=256, probe=Probe(modes=8)))
        _wait(lambda: worker.status().state != "loading")
        if worker.status().failure is None:
            worker.command(StartRun(1))
            _wait(lambda: worker.status().state not in ("ready", "running"))
        failure = worker.status().failure
        _end(worker)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        gc.collect()
        torch.cuda.empty_cache()
    if failure is None:
        return False, "it fitted"
    return "gradient_accumulation" in failure.message, failure.message[-160:]


def _run_after(report: Report) -> tuple[bool, str]:
    worker = _worker(report, a_scan(), Settings(batch=8))
    _wait(lambda: worker.status().state != "loading")
    worker.command(StartRun(2))
    _wait(lambda: worker.status().epoch == 2 or worker.status().failure is not None)
    epochs = worker.status().epoch
    _end(worker)
    return epochs == 2, f"{torch.cuda.memory_reserved() / 1e6:.0f} MB reserved"


def _worker(report: Report, scan: pt.Scan, settings: Settings) -> Worker:
    member = Membership(rank=0, world=1, store="", backend="none", device=str(report.device), identity="the only one")
    return Worker(scan, settings, member)


def _wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"nothing happened within {PATIENCE_SECONDS:g} s")
        time.sleep(0.01)


def _end(worker: Worker) -> None:
    if worker.status().failure is None:
        worker.command(CloseRun())
    worker._thread.join(PATIENCE_SECONDS)


def _pinned_memory() -> tuple[bool, str]:
    before = psutil.virtual_memory().available
    held = torch.empty(PINNED, dtype=torch.uint8, pin_memory=True).fill_(1)
    taken = before - psutil.virtual_memory().available
    # torch allocates powers of two of page-locked memory, as `planning.memory` counts it.
    return taken < 1.05 * 2 ** math.ceil(math.log2(held.nbytes)), f"{held.nbytes / 1e9:.2f} GB took {taken / 1e9:.2f}"
