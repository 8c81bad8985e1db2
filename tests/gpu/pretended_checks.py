"""What the pretended GPU finds, as JSON: `python -m tests.gpu.pretended_checks GROUP`, a process for each group."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import pathlib
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

import ptynb as pt
from ptynb.data.admissions import RecordedArrivals
from ptynb.data.engine_records import RenderRequest
from ptynb.data.scan import Scan
from ptynb.distributed.group import SingleGroup
from ptynb.engine import diagnostics, rendering
from ptynb.engine.loop import Loop
from ptynb.loading import engine_patterns
from ptynb.optimize.lbfgs import LBFGS
from ptynb.session.recorded_arrivals import with_recorded_arrivals
from ptynb.settings import PatternIntensities, Positions, Settings
from tests.cases import MODES, a_scan
from tests.gpu import update_cases
from tests.gpu.pretended import GPU, LOG, Mode, Pretended
from tests.gpu.problems import Problem, difference, problems, record, run
from tests.live_source import log_of

Found = dict[str, Any]


class Transfer:
    """Copies to the device, which are complete at once; with the interface of `loading.transfer.StreamTransfer`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def pinned(self, count: int) -> Tensor:
        """Memory of the host."""
        return torch.empty(count, dtype=torch.uint8)

    def send(self, counts: Tensor) -> tuple[Tensor, Transfer]:
        """The counts on the device, and the end of their copy."""
        return counts.to(self._device, non_blocking=True), self

    def synchronize(self) -> None:
        """Return at once."""

    def join(self, counts: Tensor, copied: Transfer) -> None:
        """Return at once."""


SHOWN = (
    *("case plain", "case polar", "case slices", "case shared object", "case near field", "adam, everything"),
    "streamed, adam",
)
"""Problems of which pictures and patterns are rendered, too."""


def of_problem(problem: Problem) -> Found:
    """Compare a problem on the device with the CPU, and its restored state with what was stored."""
    on_cpu = run(problem, "cpu")
    expected = record(on_cpu)
    shown = views(on_cpu) if problem.name in SHOWN else {}
    on_cpu.disconnect()
    with Mode():
        LOG.reset()
        loop = run(problem, GPU)
        found = record(loop)
        unordered = sorted(set(LOG.unordered))
        of_views = difference(shown, views(loop)) if shown else (0.0, "")
        again = Loop(problem.scan, problem.settings, SingleGroup(GPU))
        again.restore(loop.state(loop.loss_sums()))
        restored = difference(found, record(again))
        loop.disconnect()
        again.disconnect()
    return {
        "difference": difference(expected, found),
        "restored": restored,
        "views": of_views,
        "unordered": unordered,
    }


def views(loop: Loop) -> dict[str, Any]:
    """Return what is shown of a loop: rendered object and probe, a pattern, positions, a thumbnail."""
    shown = dict[str, Any]()
    for modes_as in ("complex", "amplitude"):
        request = RenderRequest(modes_as=modes_as)
        room = rendering.allocate_area(loop.model, loop.area)
        taken = rendering.take(loop.model, request, loop.area, room, 1, 1)
        pictures = rendering.make_pictures(taken, request)
        shown |= {f"{modes_as}, {one.name}": np.array(one.limits or (0.0, 0.0)) for one in pictures.pictures}
        shown["powers"] = np.array(pictures.powers)
    pair = diagnostics.pattern(loop, 3)
    assert pair is not None
    shown |= {"measured": pair.measured, "modelled": pair.modelled, "position": np.array(pair.position)}
    shown["positions"] = diagnostics.positions(loop)[1]
    shown["thumbnail"] = loop.history[-1].object if loop.history else np.zeros(1)
    return shown


def of_storages() -> dict[str, Found]:
    """Compare the places where patterns can be stored with the CPU."""
    found = dict[str, Found]()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "scan.h5"
        pt.save_scan(a_scan(kind="masked"), path)
        settings = Settings(batch=8, precision="double", optimiser="sgd", loss="intensity")
        scan = pt.load(path)
        expected = record(run(Problem("", scan, settings, 7), "cpu"))
        for place in ("device", "host", "disk"):
            with Mode():
                loop = run(Problem("", scan, settings.replace(pattern_storage=place), 7), GPU)
                found[place] = {"difference": difference(expected, record(loop)), "place": loop.shard.place}
                loop.disconnect()
    return found


LIVE = {
    "adam": Settings(
        batch=8,
        precision="double",
        probe=MODES,
        positions=Positions(learning_rate=0.1),
        pattern_intensities=PatternIntensities(learning_rate=0.01),
    ),
    "lsqml": Settings(batch=8, precision="double", optimiser="lsqml", positions=Positions(learning_rate=1.0)),
}


def of_live() -> dict[str, Found]:
    """Compare a scan whose patterns come during the run, some of them never, with the CPU."""
    scan, found = a_scan(kind="masked"), dict[str, Found]()
    moved = scan.positions + np.random.default_rng(1).uniform(-1.5, 1.5, scan.positions.shape)
    log = log_of(dataclasses.replace(scan, positions=moved), np.random.default_rng(0).permutation(37)[:35], 9, 2, 2)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "scan.h5"
        pt.save_scan(scan, path)
        live = with_recorded_arrivals(pt.load(path), dataclasses.replace(log, planned=scan.positions))
        for name, settings in LIVE.items():
            expected = record(_repeated(live, settings, torch.device("cpu")))
            for place in ("device", "host", "disk"):
                with Mode():
                    loop = _repeated(live, settings.replace(pattern_storage=place), GPU)
                    found[f"{name}, {place}"] = {"difference": difference(expected, record(loop))}
                    loop.disconnect()
    return found


def _repeated(scan: Scan, settings: Settings, device: torch.device) -> Loop:
    assert isinstance(scan.acquisition, RecordedArrivals)
    log = scan.acquisition.admissions
    events = [*zip(log.updates.tolist(), log.all(), strict=True)]
    loop = Loop(scan, settings, SingleGroup(device), first=events.pop(0)[1])
    while loop.updates_done < 45:
        while events and events[0][0] <= loop.updates_done:
            loop.admit(events.pop(0)[1])
        loop.step()
    return loop


def of_updates(scan: Scan, settings: Settings) -> Found:
    """Count what an update does, after some epochs."""
    torch.manual_seed(0)
    with Mode():
        loop = Loop(scan, settings, SingleGroup(GPU))
        for _ in range(update_cases.EPOCHS * loop.updates):
            loop.step()
        updates = list[Found]()
        for update in range(loop.updates):
            LOG.reset()
            passes = loop.algorithm.passes if isinstance(loop.algorithm, LBFGS) else 0
            loop.algorithm.update(loop._table, update)
            loop.after_update(False)
            evaluations = loop.algorithm.passes - passes if isinstance(loop.algorithm, LBFGS) else 0
            updates.append({name: copy.copy(value) for name, value in vars(LOG).items()})
        values = {name: one.numpy() for name, one in (loop.arrays() | loop.parameters()).items()}
        loop.disconnect()
        inner = updates[1:-1] or updates
        height, width = scan.pattern_shape
        waves = settings.probe.modes * settings.slices.count * settings.object.modes
    return {
        "waits": sorted({wait for one in updates for wait in one["waits"]}),
        "most_waits": max(len(one["waits"]) for one in updates),
        "copies": max(len(one["copies"]) for one in updates),
        "same": all(one["operations"] == inner[0]["operations"] for one in inner),
        "launches": inner[0]["launches"],
        "bytes": inner[0]["bytes"] / (settings.batch * height * width * waves),
        "unordered": sorted({one for update in updates for one in update["unordered"]}),
        "evaluations": evaluations,
        "values": values,
    }


def of_updates_twice(scan: Scan, settings: Settings) -> Found:
    """Do the same as `of_updates`, twice, and compare the results to the bit."""
    first, second = of_updates(scan, settings), of_updates(scan, settings)
    one, other = first.pop("values"), second.pop("values")
    return {**first, "differing": [name for name in one if not np.array_equal(one[name], other[name])]}


def of_epoch_end() -> Found:
    """Count the waits at the end of an epoch."""
    scan, settings = update_cases.UPDATES["one mode"]
    with Mode():
        loop = Loop(scan(), settings, SingleGroup(GPU))
        for _ in range(4 * loop.updates - 1):
            loop.step()
        LOG.reset()
        loop.step()
        waits = list(LOG.waits)
        LOG.reset()
        loop.r_factor()
        rounds, batches = list(LOG.waits), len(LOG.copies)
        loop.disconnect()
    return {"waits": waits, "r_factor": rounds, "batches": batches}


def refused() -> Found:
    """Return what the device says to things that CUDA refuses, and what it notes of a few operations."""
    found = Found()

    def said(action: Callable[[], Any]) -> str:
        try:
            action()
        except (RuntimeError, TypeError) as error:
            return f"{type(error).__name__}: {error}"
        return "nothing"

    with Mode():
        here = torch.arange(4.0, device=GPU)
        found["type"] = type(here) is Pretended
        found["mixed"] = said(lambda: here + torch.ones(4))
        found["numpy"] = said(lambda: here.numpy())
        found["weights"] = said(lambda: torch.bincount(torch.zeros(2, dtype=torch.int64, device=GPU), here[:2]))
        for name, action in {
            "item": lambda: float(here.sum()),
            "mask": lambda: here[here > 1],
            "index": lambda: here[torch.tensor([1, 2])],
            "to": lambda: torch.ones(3).to(GPU),
            "cpu": lambda: here.cpu(),
            "without": lambda: (here + 1).to(torch.float64),
            "not waited for": lambda: torch.ones(3).to(GPU, non_blocking=True),
        }.items():
            LOG.reset()
            action()
            found[name] = len(LOG.waits)
        big = torch.randn(50, device=GPU)
        places = torch.zeros(50, dtype=torch.int64, device=GPU)
        sums = {float(torch.zeros(1, device=GPU).index_add_(0, places, big)) for _ in range(20)}
        found["orders"] = len(sums)
        found["noted"] = len(LOG.unordered)
        LOG.reset()
        product = torch.randn(4, 4, dtype=torch.complex64, device=GPU).conj() * 1j
        found["conjugate"] = bool(torch.isfinite(product.cpu().abs()).all())
        before = LOG.peak
        del product
        torch.empty(1000, device=GPU)
        found["peak"] = LOG.peak - before
    return found


def part(items: list[Any], number: int) -> list[Any]:
    """Return every second one."""
    return items[number::2]


def main(group: str) -> None:
    """Print the findings of a group."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    with mock.patch.object(engine_patterns, "StreamTransfer", Transfer, create=True):
        print(json.dumps(all_of(int(group)), default=_plain), flush=True)
    # The device's threads of automatic differentiation abort a process that ends in the usual way.
    os._exit(0)


def all_of(number: int) -> Found:
    """Return the findings of a group."""
    found: dict[str, Any] = {"problems": {one.name: of_problem(one) for one in part([*problems()], number)}}
    cases = part([*update_cases.UPDATES.items()], number)
    found["updates"] = {name: of_updates_twice(scan(), settings) for name, (scan, settings) in cases}
    counted = part([*update_cases.COUNTED.items()], number)
    found["counted"] = {}
    for name, (scan, settings, *_) in counted:
        found["counted"][name] = {**of_updates(scan(), settings), "values": None}
    if number == 0:
        found |= {"storages": of_storages(), "live": of_live(), "refused": refused()}
    else:
        found["epoch end"] = of_epoch_end()
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else str(value)


if __name__ == "__main__":
    main(sys.argv[1])
