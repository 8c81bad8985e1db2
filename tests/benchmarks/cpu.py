"""Seconds per epoch and time to an error on the common problems, on the CPU, against the peers."""

from __future__ import annotations

import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import Bench, Measured, Missing, Row, compared, in_turn
from tests.benchmarks.problems import large, made, score, thick, unsteady, varying

SUBJECT = "cpu"
ERROR = 0.026
"""What Pty-Chi's LSQML reaches on problem A after about 40 epochs."""
FASTEST: dict[str, Any] = {
    "optimiser": "sgd",
    "momentum": 0.9,
    "object": {"learning_rate": 0.3},
    "probe": {"learning_rate": 0.3},
    "schedule": {"kind": "cosine", "epochs": 6, "end_factor": 0.05},
}
"""ptynb's settings that reach the error soonest; RESULTS.md has the others that were tried."""
LSQML_EPOCHS = 30
SLICES = {"count": 4, "thickness": 2e-4}
"""Apart by some ten times the depth of focus of what the sample scatters to the detector's edge."""


@dataclass(frozen=True)
class LsqmlCase:
    """LSQML on both sides with the same parts: whole steps of least squares for all of them.

    problem, truth: make the file that is reconstructed and the file that has its object. settings: ptynb's, besides
    the optimiser. options: those of `ptychi_parts.py`.
    """

    problem: Callable[[Bench], Path]
    truth: Callable[[Bench], Path]
    settings: dict[str, Any]
    options: dict[str, Any]
    batch: int = 16


def _problem_a(bench: Bench) -> Path:
    return made(bench, "A")


def _thick(bench: Bench) -> Path:
    return thick(bench, "thick", SLICES["count"], SLICES["thickness"], "--side", "12")


LSQML_CASES = {
    "A with wrong positions and an unsteady beam, LSQML": LsqmlCase(
        lambda bench: unsteady(bench, "A"),
        _problem_a,
        {"positions": {"learning_rate": 1, "momentum": 0}, "pattern_intensities": {"learning_rate": 1}},
        {"positions": True, "intensities": True},
    ),
    "A with a varying probe, LSQML with 3 OPR modes": LsqmlCase(
        lambda bench: varying(bench, "A"), _problem_a, {"opr": {"modes": 3}}, {"opr": 3}
    ),
    "144 patterns of 4 slices, LSQML": LsqmlCase(_thick, _thick, {"slices": SLICES}, {"slices": SLICES}),
    "A, LSQML with momentum": LsqmlCase(_problem_a, _problem_a, {"momentum": 0.5}, {"momentum": 0.5}),
    "A, LSQML with momentum, compact batches of 96": LsqmlCase(
        _problem_a,
        _problem_a,
        {"momentum": 0.5, "batch_sampling": "compact"},
        {"momentum": 0.5, "compact": True},
        batch=96,
    ),
    "A, LSQML, batches of 96": LsqmlCase(_problem_a, _problem_a, {}, {}, batch=96),
}
MOST_EPOCHS = 40
"""After so many epochs the peer is given up."""
NEVER = 10**6
EIGHT_SLICES = {"slices": {"count": 8, "thickness": 2e-6}}
WHOLE = "A with positions at whole pixels"
"""What PtyRAD's script computes: it does not move the probe between pixels, which takes half of the transforms."""
EXTRA_PARTS = {
    "positions": {"learning_rate": 0.01},
    "pattern_intensities": {"learning_rate": 0.001},
    "background": {"learning_rate": 0.001},
}
BUSY_CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "A": ({}, ()),
    "A taken for shadows (near field)": ({}, ("--near-field",)),
    "A with positions, weights and background": (EXTRA_PARTS, ()),
    "A with 4 modes": ({"probe": {"modes": 4}}, ()),
    "A with 8 slices": (EIGHT_SLICES, ()),
}
ODD_SIDES = [(127, 128), (129, 130), (131, 132), (257, 256), (514, 512)]
"""Sides with a large prime factor, and sides without one near them."""
MOST_OF_ODD_SIDES = 1.5
STREAMABLE = [(484, 128, 1), (484, 128, 4), (200, 256, 1)]
"""Patterns, pixels of a side, modes."""


def rows(bench: Bench) -> list[Measured]:
    """All rows of this subject."""
    found: list[Measured] = [
        extra_parts(bench),
        engine_of_cluster(bench),
        *(busy_machine(bench, name, *case) for name, case in BUSY_CASES.items()),
        *(odd_sides(bench, *case) for case in ODD_SIDES),
        *(streamed(bench, *case) for case in STREAMABLE),
    ]
    if bench.peers is None:
        names = ("A", WHOLE, "B", "A with 8 slices", f"A, time to an object error of {ERROR}", *LSQML_CASES)
        return found + [Missing(SUBJECT, name, "no --peers") for name in names]
    return [
        epoch(bench, "A", "A, an epoch", 1 / 6),
        epoch(bench, "A", f"{WHOLE}, an epoch", 1 / 6, more=("--whole-pixels",)),
        epoch(bench, "B", "B (4 modes), an epoch", 1 / 5, ours={"probe": {"modes": 4}}, peer=("--modes", "4")),
        epoch(bench, "A", "A with 8 slices, an epoch", 1 / 4, ours=EIGHT_SLICES, peer=("--slices", "8")),
        time_to_error(bench),
        *(row for name, case in LSQML_CASES.items() for row in by_lsqml(bench, name, case)),
        *found,
    ]


def epoch(
    bench: Bench,
    problem: str,
    name: str,
    limit: float,
    ours: dict[str, Any] | None = None,
    peer: tuple[str, ...] = (),
    more: tuple[str, ...] = (),
) -> Row:
    """Seconds per epoch against PtyRAD's. ours: settings. peer, more: further arguments of its script, and of ours."""
    path = made(bench, problem, *(("--modes", "4") if problem == "B" else ()))
    sides = {
        "ptynb": lambda: bench.ours(path, ours or {}, bench.epochs, *more),
        "PtyRAD": lambda: bench.peer("peer_ptyrad.py", path, bench.epochs, *peer),
    }
    return bench.row(SUBJECT, name, sides, limit=limit)


def extra_parts(bench: Bench) -> Row:
    """Positions, weights and background found too, against the plain epoch of ptynb's own."""
    path = made(bench, "A")
    sides = {
        "with all parts": lambda: bench.ours(path, EXTRA_PARTS, bench.epochs),
        "ptynb, plain": lambda: bench.ours(path, {}, bench.epochs),
    }
    return bench.row(SUBJECT, "A with positions, weights and background, an epoch", sides, limit=1.5)


def engine_of_cluster(bench: Bench) -> Row:
    """One engine of a cluster, against the same in the process of the notebook."""
    path = made(bench, "A")
    sides = {
        "engine of a cluster": lambda: bench.ours(path, {}, 4 * bench.epochs, "--engines", "1"),
        "ptynb in one process": lambda: bench.ours(path, {}, 4 * bench.epochs),
    }
    return bench.row(SUBJECT, "A on one engine of a cluster, an epoch", sides, limit=1.05)


def streamed(bench: Bench, patterns: int, window: int, modes: int) -> Row:
    """Frames that are read from the file batch by batch (it is in the page cache), against held ones."""
    path = bench.folder / f"{large(bench.folder, patterns, window).name}.h5"

    def side(place: str) -> dict[str, Any]:
        settings = {"pattern_storage": place, "probe": {"modes": modes}, "batch": 16}
        return bench.ours(path, settings, 2 * bench.epochs)

    name = f"{patterns} patterns of {window} x {window}, modes: {modes}, an epoch with frames on the disk"
    sides = {place: functools.partial(side, place) for place in ("disk", "host")}
    return bench.row(SUBJECT, name, sides, limit=1.1)


def busy_machine(bench: Bench, name: str, settings: dict[str, Any], more: tuple[str, ...]) -> Row:
    """An epoch while another process computes all the time, against a quiet machine."""
    path = made(bench, "A")

    def busy() -> dict[str, Any]:
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
            try:
                return bench.ours(path, settings, bench.epochs, *more)
            finally:
                other.kill()

    sides = {"beside a busy process": busy, "ptynb, quiet": lambda: bench.ours(path, settings, bench.epochs, *more)}
    return bench.row(SUBJECT, f"{name}, an epoch beside a busy process", sides, limit=2.2)


def odd_sides(bench: Bench, side: int, other: int) -> Row:
    """An epoch of patterns with a large prime factor in their sides, against one of a side without."""
    number = max(4, 64 * 128**2 // side**2)
    sides = {
        f"{one} x {one}": functools.partial(
            bench.ours, bench.folder / f"{large(bench.folder, number, one).name}.h5", {}, 4 * bench.epochs
        )
        for one in (side, other)
    }
    return bench.row(SUBJECT, f"patterns of {side} x {side}, an epoch", sides, limit=MOST_OF_ODD_SIDES)


def time_to_error(
    bench: Bench, name: str = f"A, time to an object error of {ERROR}", subject: str = SUBJECT, device: str = "cpu"
) -> Measured:
    """Epochs until the object's error is reached, looked for apart, times seconds per epoch, measured in turn.

    Both sides start from the same defocused probe and a flat object. The peer draws its batches anew each time, and its
    error may rise again: of as many trials as there are turns the median counts, each with its first epoch below the
    error. No pass for scoring and no start of a process is in the time.
    """
    bench.said(name)
    path, where = made(bench, "A"), ("--device", device)
    needed = {"ptynb": _our_epochs(bench, path, device), "Pty-Chi LSQML": _peer_epochs(bench, path, device)}
    bench.said(f"  epochs needed: {needed}")
    if missing := [side for side, number in needed.items() if number is None]:
        return Missing(subject, name, f"{' and '.join(missing)} did not reach it in {MOST_EPOCHS} epochs")
    given = in_turn(
        {
            "ptynb": lambda: bench.ours(path, FASTEST, bench.epochs, *where),
            "Pty-Chi LSQML": lambda: bench.peer("peer_ptychi.py", path, bench.epochs, "--engine", "LSQML", *where),
        },
        bench.turns,
        bench.said,
    )
    ours, other = (float(number or 0) for number in needed.values())
    note = f"{ours:.0f} epochs against {other:.0f}"
    return compared(subject, name, given, limit=1 / 12, factors=(ours, other), note=note)


def by_lsqml(bench: Bench, name: str, case: LsqmlCase) -> list[Row]:
    """LSQML on both sides with the same parts: an epoch, and the error of the object after `LSQML_EPOCHS`."""
    bench.said(name)
    path, truth = case.problem(bench), case.truth(bench)
    settings = {"optimiser": "lsqml", "batch": case.batch, **case.settings}

    def ours() -> dict[str, Any]:
        with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
            timed = bench.ours(path, settings, bench.epochs)
            bench.ours(path, settings, LSQML_EPOCHS, "--save", folder)
            return {**timed, "error": score(bench, truth, Path(folder) / f"{LSQML_EPOCHS}.npz")}

    def theirs() -> dict[str, Any]:
        script = Path(__file__).with_name("ptychi_parts.py")
        with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
            result = Path(folder) / "result.npz"
            options, peer = json.dumps(case.options), bench.scripts / "peer_ptychi.py"
            more = ("--engine", "LSQML", "--epochs", LSQML_EPOCHS, "--batch", case.batch, "--save", result)
            given = bench.answer([bench.peers, script, options, peer, path, *more])
            return {**given, "seconds": given["s_per_epoch"], "error": score(bench, truth, result)}

    given = in_turn({"ptynb": ours, "Pty-Chi LSQML": theirs}, bench.turns, bench.said)
    of_error = f"{name}, object error after {LSQML_EPOCHS} epochs"
    return [
        compared(SUBJECT, f"{name}, an epoch", given, limit=1 / 4),
        compared(SUBJECT, of_error, given, limit=1.0, key="error", unit=""),
    ]


def _our_epochs(bench: Bench, problem: Path, device: str = "cpu") -> int | None:
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        bench.ours(problem, FASTEST, FASTEST["schedule"]["epochs"], "--save", folder, "--device", device)
        return first_epoch(Path(folder), lambda result: score(bench, problem, result))


def _peer_epochs(bench: Bench, problem: Path, device: str = "cpu") -> int | None:
    if given := bench.options.get("peer_epochs"):
        return int(given)
    found: list[int] = []
    for _ in range(bench.turns):
        with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
            script, work = bench.scripts / "peer_ptychi.py", ("--engine", "LSQML", "--epochs", MOST_EPOCHS)
            watched = Path(__file__).with_name("watched.py")
            bench.answer([bench.peers, watched, folder, script, problem, *work, "--device", device])
            first = first_epoch(Path(folder), lambda result: score(bench, problem, result))
        bench.said(f"  Pty-Chi LSQML reaches it in epoch {first}")
        found.append(first or NEVER)
    median = statistics.median_high(found)
    return None if median == NEVER else median


def first_epoch(folder: Path, error_of: Callable[[Path], float]) -> int | None:
    """The first epoch whose kept result, EPOCH.npz, has the error; None: none has."""
    numbers = range(1, 1 + len(list(folder.glob("*.npz"))))
    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:  # a score takes half a minute of one core
        for first in range(0, len(numbers), cores):
            some = numbers[first : first + cores]
            errors = pool.map(lambda number: error_of(folder / f"{number}.npz"), some)
            for number, error in zip(some, [*errors], strict=True):
                if error <= ERROR:
                    return number
    return None
