"""Stages that hold a device against the CPU of the same machine, or against itself."""

from __future__ import annotations

import dataclasses
import functools
import gc
import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

import ptynb as pt
from ptynb.data.engine_records import RenderRequest
from ptynb.data.patterns import ArrayFrames
from ptynb.data.scan import Scan
from ptynb.distributed import group as distributed_group
from ptynb.distributed.group import Membership, SingleGroup, TorchGroup
from ptynb.distributed.sockets import Connections
from ptynb.engine import diagnostics, rendering
from ptynb.engine.loop import Loop
from ptynb.loading.engine_patterns import StorageOption
from ptynb.optimize import update_graphs
from ptynb.settings import Positions, Schedule, Settings
from ptynb.settings.cluster_options import Device
from tests.cases import a_scan
from tests.gpu import recorded_cases
from tests.gpu.problems import TOLERANCE, Problem, difference, problems, record, relative_difference, run
from tests.gpu.report import Report
from tests.kernels import triton_checks

COUNT_TYPES: tuple[type[np.generic], ...] = (np.uint8, np.uint16, np.int16, np.int32, np.uint32, np.float32, np.float64)
PLACES: tuple[StorageOption, ...] = ("device", "host", "disk")
REPEATED: dict[str, dict[str, Any]] = {
    "adam": {},
    "positions": {"positions": {"learning_rate": 0.1}},
    "gaussian_blur": {"constraints": [{"kind": "gaussian_blur", "sigma": 1.0}]},
    "lsqml": {"optimiser": "lsqml"},
    "rpie": {"optimiser": "rpie"},
    "double precision": {"precision": "double"},
}
REPETITIONS, REPEATED_UPDATES = 3, 40
LOOKS_SECONDS = 3.0
LOSSES = "amplitude", "poisson", "intensity"


def same(report: Report, pick: Callable[[Problem], bool] = lambda problem: True) -> None:
    """Hold every problem in double precision against the CPU, also restored from its state, and look at it.

    pick: which problems.
    """
    for problem in filter(pick, problems()):
        if report.out_of_time:
            report.left_out("same", problem.name, "the budget is spent")
            continue
        with report.attempt("same", problem.name):
            _same(report, problem)


def _same(report: Report, problem: Problem) -> None:
    expected = _record_of(problem, "cpu")
    loop = run(problem, report.device)
    found = record(loop)
    other = Loop(problem.scan, problem.settings, SingleGroup(report.device))
    other.restore(loop.state(loop.loss_sums()))
    worst, name = difference(expected, found)
    restored, _ = difference(found, record(other))
    request = RenderRequest()
    buffer = rendering.allocate_area(loop.model, loop.area)
    pictures = rendering.make_pictures(rendering.take(loop.model, request, loop.area, buffer, 1, 1), request)
    pattern = diagnostics.pattern(loop, 3)
    seen = len(pictures.pictures) > 0 and pattern is not None and bool(np.isfinite(pattern.modelled).all())
    good = worst < TOLERANCE and restored < TOLERANCE and seen
    report.check("same", problem.name, good, f"differs by {worst:.1e} ({name}), restored by {restored:.1e}")
    loop.disconnect()
    other.disconnect()


def _record_of(problem: Problem, device: str | torch.device) -> dict[str, NDArray[Any]]:
    loop = run(problem, device)
    try:
        return record(loop)
    finally:
        loop.disconnect()


def frames(report: Report) -> None:
    """Hold patterns of every type on the device, in the host's memory and in a file against those of the CPU."""
    base = a_scan()
    counts = base.frames.read(0, len(base))
    settings = Settings(
        batch=8,
        precision="double",
        optimiser="sgd",
        loss="amplitude",  # of the counts that 8 bits leave, too
    )
    for kind in COUNT_TYPES:
        name = np.dtype(kind).name
        with report.attempt("frames", name), tempfile.TemporaryDirectory() as folder:
            most = np.iinfo(np.dtype(kind)).max if np.issubdtype(kind, np.integer) else np.inf
            stored = ArrayFrames.of(np.minimum(counts, most).astype(kind))
            scan = pt.save_scan(dataclasses.replace(base, frames=stored), Path(folder) / "scan.h5")
            expected = _record_of(Problem(name, scan, settings, 9), "cpu")
            off = {place: _off_in(place, report, scan, settings, expected) for place in PLACES}
            text = ", ".join(f"{place} {value:.1e}" for place, value in off.items())
            report.check("frames", name, max(off.values()) < TOLERANCE, f"differ by: {text}")


def _off_in(
    place: StorageOption, report: Report, scan: Scan, settings: Settings, expected: dict[str, NDArray[Any]]
) -> float:
    stored_there = Problem(place, scan, settings.replace(pattern_storage=place), 9)
    return difference(expected, _record_of(stored_there, report.device))[0]


def operations(report: Report) -> None:
    """Hold every operation with a kernel in Triton against torch's operations on the same device."""
    if not report.on_gpu:
        report.left_out("operations", "kernels in Triton", f"{report.device} is no GPU of NVIDIA")
        return
    checks: list[tuple[str, Callable[[], None]]] = [
        *((name, functools.partial(triton_checks.check_all, name)) for name in triton_checks.CHECKS),
        ("comparisons", triton_checks.check_comparisons),
        ("perfect fit", triton_checks.check_perfect_fit),
        ("batches", triton_checks.check_batches),
        ("large shifts", triton_checks.check_large_shifts),
        ("rows", triton_checks.check_rows),
        *((f"descent, {loss}", functools.partial(triton_checks.check_descent, loss)) for loss in LOSSES),
    ]
    for name, check in checks:
        with report.attempt("operations", name), torch.device(report.device):
            check()
            report.check("operations", name, True)


def graphs(report: Report) -> None:
    """Hold runs whose updates are recorded as CUDA graphs against those without: they have to be equal bit by bit."""
    if not report.on_gpu:
        report.left_out("graphs", "recorded updates", f"{report.device} is no GPU of NVIDIA")
        return
    cases = [(name, *case, False) for name, case in recorded_cases.CASES.items()]
    cases += [(f"{name}, live", *recorded_cases.CASES[name], True) for name in recorded_cases.LIVE]
    for name, settings, changes, live in cases:
        single = settings.replace(precision="single")
        with report.attempt("graphs", name):
            with mock.patch.dict(update_graphs.RECORDERS, clear=True):
                expected = recorded_cases.run_epochs(single, changes, report.device, live=live)
            with mock.patch.object(torch.cuda, "CUDAGraph", wraps=torch.cuda.CUDAGraph) as made:
                found = recorded_cases.run_epochs(single, changes, report.device, live=live)
            equal = all(np.array_equal(expected[key], found[key]) for key in expected)
            text = "" if equal else "differs by {:.1e} ({})".format(*difference(expected, found))
            report.check("graphs", name, equal and made.called, f"{made.call_count} graphs {text}")


def repeat(report: Report) -> None:
    """Run the same settings several times: the parameters have to be equal bit by bit, as `reproduce` promises."""
    scan = a_scan(patterns=64)
    for name, values in REPEATED.items():
        with report.attempt("repeat", name):
            problem = Problem(name, scan, Settings(**{"batch": 16, **values}), REPEATED_UPDATES)
            first, *others = (_record_of(problem, report.device) for _ in range(REPETITIONS))
            worst = max(difference(first, other) for other in others)
            equal = all(np.array_equal(first[key], other[key]) for other in others for key in first)
            report.check("repeat", name, equal, "" if equal else f"differs by {worst[0]:.1e} ({worst[1]})")


def group(report: Report) -> None:
    """Form a process group of one rank, which engines never do by themselves: hooks, sums and closing."""
    if report.device.type == "xpu":
        report.left_out("group", "ranks", "engines on GPUs of Intel form no group")
        return
    backend = "nccl" if report.on_gpu else "gloo"
    settings = Settings(batch=8, precision="double")
    # One rank has no other to share memory with, so gloo does as between machines.
    apart = mock.patch.object(distributed_group, "place_of_process", return_value="")
    with report.attempt("group", backend), tempfile.TemporaryDirectory() as folder, apart:
        expected = _record_of(Problem("alone", a_scan(), settings, 9), report.device)
        store = f"file://{folder}/store"
        member = Membership(
            rank=0, world=1, store=store, backend=backend, device=str(report.device), identity="the only one"
        )
        joined = TorchGroup(member, Connections())
        try:
            for exchange in ("sparse", "dense"):
                loop = Loop(a_scan(), settings.replace(gradient_sync=exchange), joined)
                for _ in range(9):
                    loop.step()
                worst, name = difference(expected, record(loop))
                loop.disconnect()
                del loop
                gc.collect()
                report.check("group", f"{backend}, {exchange}", worst < TOLERANCE, f"differs by {worst:.1e} ({name})")
        finally:
            began = time.perf_counter()
            joined.close()
        report.check("group", "closed", not dist.is_initialized(), f"{time.perf_counter() - began:.2f} s")


def cluster(report: Report) -> None:
    """Start real engines, also two on one GPU, and drive a run as a notebook does."""
    if importlib.util.find_spec("ipyparallel") is None:
        report.left_out("cluster", "engines", "ipyparallel is not installed here")
        return
    constant = Schedule(kind="constant")
    settings = Settings(
        batch=8,
        batch_sampling="cells",
        precision="double",
        positions=Positions(learning_rate=0.1),
        schedule=constant,
    )
    expected = _record_of(Problem("alone", a_scan(), settings, 10), report.device)["object"]
    for engines, layout in ((1, "whole"), (2, "whole"), (2, "tiles"))[: 1 if report.device.type == "xpu" else 3]:
        name = f"{engines} engines, {layout}"
        with report.attempt("cluster", name):
            _drive_cluster(report, name, engines, settings.replace(object={"layout": layout}), expected)


def _drive_cluster(report: Report, name: str, engines: int, settings: Settings, expected: NDArray[Any]) -> None:
    kind: Device = report.device.type  # type: ignore[assignment]
    began = time.perf_counter()
    with pt.Cluster(engines, device=kind, engines_per_gpu=engines if report.on_gpu else 1) as started:
        seconds = time.perf_counter() - began
        with pt.Reconstruction(a_scan(), settings, started) as recon:
            recon.start(2)
            recon.wait()
            off = relative_difference(expected, recon.result.object)
            recon.start(100_000)
            looks = 0
            until = time.monotonic() + LOOKS_SECONDS
            while time.monotonic() < until:
                recon.snapshot(256)
                looks += 1
            recon.pause()
            recon.settings = recon.settings.replace(object={"learning_rate": 0.001})
            recon.resume()
            recon.stop()
            held = ", ".join(f"{one.device} {one.memory or 0:.3g} B" for one in recon.health())
        text = f"started in {seconds:.1f} s, differs by {off:.1e}, {looks / LOOKS_SECONDS:.0f} looks a second, {held}"
        report.check("cluster", name, off < TOLERANCE and looks > 0, text)
