"""A GPU: seconds per epoch against PtyRAD (torch.compile) and Pty-Chi's LSQML, and against the copy bandwidth.

How the fewest bytes are counted, for one pixel of one mode of one pattern, complex numbers of 8 bytes, with object,
probe and their gradients in the cache, and all products done where a transform reads or writes:

    P_jm = F⁻¹[exp(-2πi k·s_j) F[P_m]]     one spectrum for all patterns        write             8
    Ψ = F[P O]                                                                  read, write      16
    g = F⁻¹[(dL/dM) Ψ]                     the slope while reading              read, write      16
    Σ P* g added to the object's           P and g                              read, read       16
    F[O* g], Σ over patterns               g, and the transform once more       read, write, read 24
                                                                                                 80

and the count itself in its own type. Each further slice adds two transforms forwards, two backwards (64) and its own
gradient (16): 80 again. A transform counts as one pass: cuFFT makes two of 256 x 256.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from tests.benchmarks.problems import made
from tests.benchmarks.rows import Measured, Missing, Row, compared, in_turn
from tests.benchmarks.sides import Bench

SUBJECT = "gpu"
BYTES = 80
COUNT_BYTES = 4
"""The common problem's counts are float32."""
COPIED = 2**30


@dataclasses.dataclass(frozen=True)
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
    def bytes(self) -> float:
        """The fewest that an epoch moves."""
        pixels = self.side**2 * self.window**2
        return float(pixels * (BYTES * self.modes * self.slices + COUNT_BYTES))


CASES = (
    *(Case(256, 100, modes, batch) for modes in (1, 8) for batch in (32, 256)),
    Case(256, 100, 1, 32, slices=20),
    Case(128, 100, 1, 8),
    Case(128, 100, 1, 16),
)


def rows(bench: Bench) -> list[Measured]:
    """All cases, or one line where there is no GPU."""
    if not torch.cuda.is_available():
        return [Missing(SUBJECT, "GPU", "no GPU here")]
    found: list[Measured] = []
    bandwidth = copy_bandwidth()
    bench.said(f"copy bandwidth {bandwidth / 1e9:.0f} GB/s")
    for case in CASES:
        found += measured(bench, case, bandwidth)
    return found


def measured(bench: Bench, case: Case, bandwidth: float) -> list[Measured]:
    """One case: against each peer, against the bandwidth, and how often the host waits."""
    bench.said(case.name)
    problem = made(
        bench,
        f"gpu-{case.window}-{case.side}-{min(case.modes, 4)}",
        *("--n", str(case.window), "--side", str(case.side), "--modes", str(min(case.modes, 4))),
    )
    settings: dict[str, Any] = {"batch": case.batch, "probe": {"modes": case.modes}}
    if case.slices > 1:
        settings["slices"] = {"count": case.slices, "thickness": 2e-6}
    common = ("--batch", str(case.batch), "--device", "cuda")
    sides: dict[str, Any] = {"ptynb": lambda: bench.ours(problem, settings, bench.epochs, "--device", "cuda")}
    if bench.peers is not None:
        work = (*common, "--modes", str(case.modes), "--slices", str(case.slices), "--compile")
        sides["PtyRAD, torch.compile"] = lambda: bench.peer("peer_ptyrad.py", problem, bench.epochs, *work)
        # The script's guesses of modes end at four.
        if case.slices == 1 and case.modes <= 4:
            other = (*common, "--modes", str(case.modes), "--engine", "LSQML")
            sides["Pty-Chi LSQML"] = lambda: bench.peer("peer_ptychi.py", problem, bench.epochs, *other)
    given = in_turn(sides, bench.turns, bench.said)
    ours = given.pop("ptynb")
    found: list[Measured] = [
        compared(SUBJECT, case.name, {"ptynb": ours, peer: turns}, limit=1 / 3) for peer, turns in given.items()
    ]
    return [*found, _against_copying(case, ours, bandwidth)]


def _against_copying(case: Case, ours: list[Any], bandwidth: float) -> Row:
    copying = [{"seconds": case.bytes / bandwidth}] * len(ours)
    waits = max(turn["host_waits"] for turn in ours)
    note = f"{case.bytes / 1e9:.1f} GB; the host waits {waits} times in an epoch"
    return compared(SUBJECT, case.name, {"ptynb": ours, "copying as many bytes": copying}, limit=1 / 0.4, note=note)


def copy_bandwidth() -> float:
    """Bytes read and written in a second by a copy of 1 GiB on the device, the best of ten."""
    source = torch.empty(COPIED, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(10):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) / 1000)
    return 2 * COPIED / best
