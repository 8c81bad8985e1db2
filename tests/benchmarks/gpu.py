"""A GPU: an update against the bandwidth limit and PtyRAD (torch.compile), time to an error against Pty-Chi, the loop.

The loop is an epoch of `for epoch in recon.run()` by wall clock, against PtyRAD and Pty-Chi.

usage: python -m tests.benchmarks.gpu [--rows TEXT ...] [--budget 540] [--device cuda] [--peers PYTHON] [--json FILE]

--rows: only those whose name has one of these texts. --budget: seconds after which no other row is begun; the others
say so, and another call with their names measures them. --peers: the Python interpreter that has ptyrad and ptychi,
whose scripts lie in the folder that PTYNB_TEST_BENCH names.

Problems are simulated on the GPU and kept in memory as 16-bit counts; files for the peers go after their row.
`tests/gpu/pace.py` says how the fewest bytes of an update are counted. PtyRAD does not move the probe between pixels,
so it is compared at whole pixels.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import ptynb as pt
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from tests.benchmarks import cpu
from tests.benchmarks.gpu_problem import Problem, simulated
from tests.benchmarks.harness import Bench, Measured, Missing, Row, compared, described, in_turn, machine, table
from tests.gpu.pace import copy_bandwidth, least_bytes, profile_update

SUBJECT = "gpu"
BUDGET = 540.0
"""Less than ten minutes [s]."""
LIMIT_GOAL, PTYRAD_GOAL = 1 / 0.4, 1 / 3
LSQML = f"GPU, A: time to an object error of {cpu.ERROR}, LSQML"
PEERS = {"ptyrad": "PtyRAD, torch.compile", "ptychi": "Pty-Chi LSQML"}
LOOP_SIDE, LOOP_BATCHES, LOOP_EPOCHS = 64, (16, 256, 1024), 40
"""Of the epochs that are timed by wall clock: patterns in a row of the scan, batches, epochs of ptynb."""


@dataclass(frozen=True)
class Case:
    """Patterns of window x window, in a square of `side` x `side` positions."""

    window: int
    side: int
    modes: int
    batch: int
    slices: int = 1

    @property
    def name(self) -> str:
        """As the table shows it."""
        slices = f", {self.slices} slices" if self.slices > 1 else ""
        modes = f"{self.modes} mode{'s' * (self.modes > 1)}"
        return f"GPU, {self.side**2} patterns of {self.window} x {self.window}, {modes}, batch {self.batch}{slices}"

    @property
    def settings(self) -> pt.Settings:
        """Settings of ptynb."""
        values: dict[str, Any] = {"batch": self.batch, "probe": {"modes": self.modes}}
        if self.slices > 1:
            values["slices"] = {"count": self.slices, "thickness": 2e-6}
        return pt.Settings(**values)

    @property
    def updates(self) -> int:
        """Number of updates in an epoch."""
        return -(-(self.side**2) // self.batch)


CASES = (
    Case(128, 22, 1, 16),
    Case(128, 22, 4, 16),
    Case(128, 22, 1, 16, slices=8),
    Case(128, 22, 1, 128),
    *(Case(256, 50, modes, batch) for modes in (1, 8) for batch in (32, 256)),
    Case(256, 50, 1, 32, slices=20),
)
TINY = (Case(32, 4, 1, 4),)
"""What a CPU does in a second, to try the benchmark itself."""
MOST_TRUE_MODES = 4
"""Modes of the simulated beam; a reconstruction may have more."""


@dataclass(frozen=True)
class Task:
    """A row that can be measured. needs: the peer's package; "" for none."""

    name: str
    needs: str
    measure: Callable[[Bench], Measured]


def rows(bench: Bench) -> list[Measured]:
    """All rows that are asked for and fit in the budget; one line where there is no GPU."""
    device = torch.device(bench.options.get("device") or "cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        return [Missing(SUBJECT, "GPU", "no GPU here")]
    until = time.monotonic() + (bench.options.get("budget") or BUDGET)
    wanted = bench.options.get("rows") or [""]
    bandwidth = copy_bandwidth(device)
    bench.said(f"copy bandwidth {bandwidth / 1e9:.0f} GB/s")
    lacking, found = _missing_peers(bench), list[Measured]()
    for task in tasks(device, bandwidth):
        if not any(text in task.name for text in wanted):
            continue
        left = until - time.monotonic()
        if task.needs in lacking:
            found.append(Missing(SUBJECT, task.name, lacking[task.needs]))
        elif left <= 0:
            found.append(Missing(SUBJECT, task.name, f"no time left; --rows '{task.name}' measures it"))
        else:
            bench.said(task.name)
            found.append(_measured(task, dataclasses.replace(bench, timeout=min(bench.timeout, left))))
    return found


def tasks(device: torch.device, bandwidth: float) -> Iterator[Task]:
    """Yield the rows of all cases, those without a peer first."""
    cases = TINY if device.type == "cpu" else CASES
    for case in cases:
        limit = functools.partial(_against_limit, case=case, device=device, bandwidth=bandwidth)
        yield Task(f"{case.name}, an update", "", limit)
    lsqml = functools.partial(cpu.time_to_error, name=LSQML, subject=SUBJECT, device=device.type)
    yield Task(LSQML, "ptychi", lsqml)
    for case in [Case(128, LOOP_SIDE, 1, batch) for batch in LOOP_BATCHES] if device.type == "cuda" else TINY:
        for needs, script, optimiser, words in (
            ("ptyrad", "peer_ptyrad.py", "adam", ["--compile"] if device.type == "cuda" else []),
            ("ptychi", "peer_ptychi.py", "adam", ["--engine", "AD"]),
            ("ptychi", "peer_ptychi.py", "lsqml", ["--engine", "LSQML"]),
        ):
            name = (
                f"{case.name}, {optimiser}, at whole pixels, an epoch of the loop against {' '.join([needs, *words])}"
            )
            loop = functools.partial(_loop_against, case=case, name=name, optimiser=optimiser, device=device)
            yield Task(name, needs, functools.partial(loop, script=script, words=words))
    for case in cases:
        name = f"{case.name}, at whole pixels, an update"
        yield Task(name, "ptyrad", functools.partial(_against_ptyrad, case=case, name=name, device=device))


def _measured(task: Task, bench: Bench) -> Measured:
    """One that fails, or takes too long, does not take the others with it."""
    try:
        return task.measure(bench)
    except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as error:
        return Missing(SUBJECT, task.name, f"failed: {error}")
    finally:
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # for the peers, whose processes share the GPU


def _missing_peers(bench: Bench) -> dict[str, str]:
    """Return why each peer that is missing cannot be measured, by the name of its package."""
    if bench.peers is None:
        return dict.fromkeys(PEERS, "no --peers")
    asked = (
        f"import importlib.util, json; print(json.dumps({{n: bool(importlib.util.find_spec(n)) for n in {[*PEERS]}}}))"
    )
    there = bench.answer([bench.peers, "-c", asked])
    return {name: f"{name} is not installed for {bench.peers}" for name in PEERS if not there[name]}


def _against_limit(bench: Bench, case: Case, device: torch.device, bandwidth: float) -> Row:
    problem = _problem(case, device)
    turns = [_profiled(problem, case, device) for _ in range(bench.turns)]
    # The mean of an epoch's updates, the last of which may be smaller.
    patterns, itemsize = case.side**2 / case.updates, problem.scan.frames.dtype.itemsize
    least = least_bytes(case.settings, (case.window, case.window), patterns, itemsize)
    given = {"ptynb": turns, "the bandwidth limit": [{"seconds": least / bandwidth}] * len(turns)}
    last = turns[-1]
    note = f"{last['host_seconds'] * 1e3:.3g} ms of the host"
    if last["launches"] is not None:
        note = f"{last['launches']:.0f} launches, busy {last['busy']:.0%}, {last['waits']} waits, {note}"
    return compared(SUBJECT, f"{case.name}, an update", given, limit=LIMIT_GOAL, note=note)


def _against_ptyrad(bench: Bench, case: Case, name: str, device: torch.device) -> Row:
    problem = _problem(case, device, whole_pixels=True)
    words = ("--batch", case.batch, "--modes", case.modes, "--slices", case.slices, "--device", device.type)
    compiled = ("--compile",) if device.type == "cuda" else ()
    with problem.file(bench.folder) as path:

        def theirs() -> dict[str, Any]:
            answer = bench.peer("peer_ptyrad.py", path, bench.epochs, *map(str, words), *compiled)
            return {**answer, "seconds": answer["seconds"] / case.updates}

        sides = {"ptynb": lambda: _profiled(problem, case, device), PEERS["ptyrad"]: theirs}
        return compared(SUBJECT, name, in_turn(sides, bench.turns, bench.said), limit=PTYRAD_GOAL)


def _loop_against(
    bench: Bench, case: Case, name: str, optimiser: str, device: torch.device, script: str, words: list[str]
) -> Row:
    problem = _problem(case, device, whole_pixels=True)
    settings = {"batch": case.batch, "optimiser": optimiser}
    where = "--device", device.type
    with problem.file(bench.folder) as path:
        del problem
        sides = {
            "ptynb": lambda: bench.ours(path, settings, LOOP_EPOCHS, "--whole-pixels", *where),
            "the peer": lambda: bench.peer(script, path, bench.epochs, "--batch", str(case.batch), *where, *words),
        }
        given = in_turn(sides, bench.turns, bench.said)
    engine = statistics.median(turn["engine"] for turn in given["ptynb"])
    return compared(SUBJECT, name, given, limit=PTYRAD_GOAL / 2, note=f"{engine * 1e3:.3g} ms by the engine's clock")


def _problem(case: Case, device: torch.device, whole_pixels: bool = False) -> Problem:
    return simulated(case.side, case.window, min(case.modes, MOST_TRUE_MODES), device, whole_pixels=whole_pixels)


def _profiled(problem: Problem, case: Case, device: torch.device) -> dict[str, Any]:
    """Return the profile of an update of ptynb, in this process, whose memory on the device is released."""
    loop = Loop(problem.scan, case.settings, SingleGroup(device))
    try:
        return dataclasses.asdict(profile_update(loop))
    finally:
        loop.disconnect()
        del loop
        gc.collect()


def main(arguments: list[str] | None = None) -> None:
    """Measure the chosen rows and print them as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", metavar="TEXT", help="only rows whose name has one of these texts")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds after which no other row is begun")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--peers", type=lambda text: Path(text).absolute(), help="Python interpreter of the peers")
    parser.add_argument("--turns", type=int, default=2, help="how often each side is measured")
    parser.add_argument("--epochs", type=int, default=3, help="of a peer's turn; the first one is left out")
    parser.add_argument("--json", type=Path, help="write all numbers there")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="ptynb-benchmarks-") as folder:
        # The peers' scripts make files of their own, which go with this folder.
        os.environ["TMPDIR"] = folder
        bench = Bench(
            peers=chosen.peers,
            threads=1,
            turns=chosen.turns,
            epochs=chosen.epochs,
            folder=Path(folder),
            said=lambda line: print(line, file=sys.stderr, flush=True),
            options={"rows": chosen.rows, "budget": chosen.budget, "device": chosen.device},
        )
        found = rows(bench)
    record = machine(1, {})
    print(f"{described(record)}\n\n{table(found)}")
    if chosen.json is not None:
        text = json.dumps({"machine": record, "rows": [row.record() for row in found]}, indent=1)
        chosen.json.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
