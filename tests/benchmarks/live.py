"""Reconstruction while the scan is measured: quality after its end, delays, and what looking for patterns costs.

usage: python -m tests.benchmarks.live [--rates 100 1000] [--epochs 30] [--turns 3] [--only quality delays cost]

Problem: the packages' common problem A, written to a spool by a process of its own, as a receiver writes it; one engine
in this process.

quality: object error (of the independent score) and R-factor after 30 epochs from the end of the scan, over those of 30
epochs of the complete scan, and the epochs until the error is at most 1.05 times that, from the end and of the complete
scan.
delays: from the arrival of a pattern to the end of the first update with it, and to the first picture requested after
that, with pictures requested ten times a second.
cost: time of an update while the scan is open and nothing comes, over that of a complete scan in the same order with an
object of the same size; in turn, in one run.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np

import ptynb as pt
from ptynb.data.engine_records import RenderRequest
from ptynb.engine.loop import Loop
from ptynb.physics.model_builder import object_frame
from tests.benchmarks.problems import made, scan_of, score
from tests.benchmarks.sides import Bench
from tests.live_source import Source

LOOKED_AT = (2, 3, 5, 7, 10, 20, 25)
"""Epochs, after the end of the scan or of the complete one, whose object error is determined."""
WAITING_SECONDS = 8.0
"""How long engines wait for the first pattern, in which they rehearse."""
SOON = 1.05
"""Factor of the final object error that counts as reached."""


def main() -> None:
    """Prints a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", type=float, nargs="+", default=[100.0, 1000.0], help="patterns per second")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the problem is kept for another run")
    parser.add_argument("--only", nargs="+", default=["quality", "delays", "cost"])
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ptynb-live-") as temporary:
        folder = chosen.folder or Path(temporary)
        bench = Bench(
            peers=None,
            threads=2,
            turns=chosen.turns,
            epochs=chosen.epochs,
            folder=folder,
            said=lambda line: print(line, file=sys.stderr, flush=True),
            options={},
        )
        problem = made(bench, "A")
        spools = Path(temporary) / "spools"
        if "quality" in chosen.only:
            quality(bench, problem, spools, chosen.rates)
        if "delays" in chosen.only:
            delays(problem, spools, chosen.rates[0])
        if "cost" in chosen.only:
            cost(problem, spools, chosen.turns)


def provide(problem: Path, folder: Path, rate: float, ready: Event) -> None:
    """A receiver's process: all patterns in their order."""
    source = Source(scan_of(problem), folder)
    ready.set()
    source.start(rate, before_call=0)
    source.join()
    source.close()


def live_scan(problem: Path, folder: Path, rate: float) -> tuple[pt.Scan, Any]:
    """The scan as `listen` returns it, and the process that writes it from the call on."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=provide, args=(problem, folder, rate, ready), daemon=True)
    process.start()
    assert ready.wait(120)
    from ptynb.io.scan_file import as_planned

    return as_planned(folder / "scan.h5"), process


def quality(bench: Bench, problem: Path, spools: Path, rates: list[float]) -> None:
    """The figures after the end of the scan."""
    scan = scan_of(problem)
    with pt.Reconstruction(scan, pt.Settings(), device="cpu", checkpointing=None) as recon:
        course = _errors_of_epochs(bench, problem, recon, bench.epochs, 1)
        offline = recon.result
    wanted = error_of(bench, problem, offline.object)
    print(
        f"complete scan, {bench.epochs} epochs: object error {wanted:.4f}, R-factor {offline.r_factor:.4f}, "
        f"{SOON:g} times that after {_reached(course, wanted)} epochs"
    )
    for rate in rates:
        live, process = live_scan(problem, spools / f"{rate:g}", rate)
        with pt.Reconstruction(live, pt.Settings(), device="cpu", checkpointing=None) as recon:
            recon.start(1)
            (spools / f"{rate:g}" / "go").touch()
            recon.wait(600)
            before = recon.last_status().live_epochs  # type: ignore[union-attr]
            errors = _errors_of_epochs(bench, problem, recon, bench.epochs - 1, 2)
            found = recon.result
        process.join()
        last = error_of(bench, problem, found.object)
        print(
            f"{rate:g} Hz, {before} epochs during the scan and {bench.epochs} after it: object error {last:.4f} "
            f"({last / wanted:.3f} times), R-factor {found.r_factor:.4f} "
            f"({found.r_factor / offline.r_factor:.3f} times), "
            f"{SOON:g} times the error after {_reached(errors, wanted)} epochs"
        )


def _errors_of_epochs(
    bench: Bench, problem: Path, recon: pt.Reconstruction, epochs: int, first: int
) -> dict[int, float]:
    """Run epochs, and return the errors at the ends of those that are looked at. first: number of the first of them."""
    errors = {}
    for number, _ in enumerate(recon.run(epochs), first):
        if number in LOOKED_AT:
            errors[number] = error_of(bench, problem, recon.result.object)
    return errors


def _reached(errors: dict[int, float], wanted: float) -> str:
    """The first of these epochs whose error counts as reached."""
    return str(next((number for number, error in errors.items() if error <= SOON * wanted), f"more than {max(errors)}"))


def error_of(bench: Bench, problem: Path, found: np.ndarray[Any, Any]) -> float:
    """The independent score of an object."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.npz"
        np.savez(path, object=found)
        return score(bench, problem, path)


def delays(problem: Path, spools: Path, rate: float) -> None:
    """The delays from the arrival of a pattern."""
    ends: list[tuple[int, float]] = []
    looks: list[tuple[float, float]] = []
    plain = Loop.step

    def step(loop: Loop) -> None:
        plain(loop)
        ends.append((loop.updates_done, time.time()))

    Loop.step = step  # type: ignore[method-assign]
    over = threading.Event()
    try:
        live, process = live_scan(problem, spools / "delays", rate)
        with pt.Reconstruction(live, pt.Settings(), device="cpu", checkpointing=None) as recon:
            recon.start(5)
            time.sleep(WAITING_SECONDS)
            watcher = threading.Thread(target=_look, args=(recon, looks, over))
            watcher.start()
            (spools / "delays" / "go").touch()
            recon.wait(600)
            over.set()
            watcher.join()
            record = recon.result.admissions
        process.join()
    finally:
        Loop.step = plain  # type: ignore[method-assign]
    assert record is not None
    done = dict(ends)
    used, seen = list[float](), list[float]()
    for update, admission in list(zip(record.updates.tolist(), record.all(), strict=True))[1:]:
        for arrival in admission.times.tolist():
            first = done[update + 1]
            used.append(first - arrival)
            seen += [next(end for began, end in looks if began >= first) - arrival]
    for name, delay in (("first update", used), ("picture", seen)):
        print(
            f"{rate:g} Hz, from arrival to {name}: median {statistics.median(delay):.3f} s, "
            f"95% within {np.quantile(delay, 0.95):.3f} s, most {max(delay):.3f} s ({len(delay)} patterns)"
        )


def _look(recon: pt.Reconstruction, looks: list[tuple[float, float]], over: threading.Event) -> None:
    while not over.wait(0.1):
        began = time.time()
        if recon.pictures(RenderRequest()) is not None:
            looks.append((began, time.time()))
    looks.append((time.time(), time.time()))


def cost(problem: Path, spools: Path, turns: int) -> None:
    """The cost of a scan that is open."""
    scan, updates = scan_of(problem), 31
    open_source = Source(scan, spools / "open")
    open_source.give(range(len(scan) - 1))
    settings = pt.Settings()
    complete = dataclasses.replace(pt.load(spools / "open" / "scan.h5"), acquisition=None, ground_truth=None)
    complete = pt.preparation.select(complete, slice(0, len(scan) - 1))
    # The object of a plan has room for positions that are measured elsewhere: more pixels to step.
    sides_of = [object_frame(one, settings).shape[0] for one in (open_source.live, complete)]
    ordered = settings.replace(
        batch_sampling="interleaved", object={"padding": settings.object.padding + (sides_of[0] - sides_of[1]) // 2}
    )
    assert object_frame(complete, ordered).shape == object_frame(open_source.live, settings).shape
    with (
        pt.Reconstruction(open_source.live, settings, device="cpu", checkpointing=None) as live,
        pt.Reconstruction(complete, ordered, device="cpu", checkpointing=None) as ordinary,
    ):
        sides = {"open": live, "complete": ordinary}
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(8 * turns + 1):
            for name, recon in sides.items():
                before = len(recon.epochs)
                recon.run_until(before + 2)
                recon.wait(600)
                if turn:
                    seconds[name] += [one.seconds / updates for one in recon.epochs[before:]]
    open_source.close()
    found = {name: np.quantile(values, (0.1, 0.25, 0.5)) for name, values in seconds.items()}
    ratios = found["open"] / found["complete"]
    print(
        f"an update with nothing coming: {1e3 * found['open'][1]:.3f} ms, of a complete scan "
        f"{1e3 * found['complete'][1]:.3f} ms (lower quartiles of {len(seconds['open'])} epochs each), ratio "
        f"{ratios[1]:.3f}; of the fastest tenth {ratios[0]:.3f}, of the medians {ratios[2]:.3f}"
    )


if __name__ == "__main__":
    main()
