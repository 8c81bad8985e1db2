"""Peak memory of a run beyond what importing takes, in a process of its own.

usage, for one run: python -m tests.benchmarks.memory SCAN.h5 SETTINGS_AS_JSON
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import ptynb as pt
from tests.benchmarks.harness import Bench, Measured, Row
from tests.benchmarks.problems import large

SUBJECT = "memory"
PATTERNS, WINDOW = 2000, 256
OBJECTS, BATCHES = 10, 12


def rows(bench: Bench) -> list[Measured]:
    """One mode and four, counts of 16 bits."""
    return [peak(bench, modes) for modes in (1, 4)]


def peak(bench: Bench, modes: int) -> Row:
    """The peak against frames (in the file's own type) + 10 objects + 12 batches of exit waves."""
    name = f"{PATTERNS} patterns of {WINDOW} x {WINDOW}, {modes} mode{'s' * (modes > 1)}: memory at the peak"
    scan = large(bench.folder, PATTERNS, WINDOW)
    settings: dict[str, Any] = {"probe": {"modes": modes}}
    limit = allowed(scan, pt.Settings(**settings))
    command = [sys.executable, "-m", "tests.benchmarks.memory", bench.folder / f"{scan.name}.h5", json.dumps(settings)]
    sides = {
        "ptynb": lambda: bench.answer(command),
        "frames + 10 objects + 12 batches of exit waves": lambda: limit,
    }
    return bench.row(SUBJECT, name, sides, limit=1.0, unit="MB", key="megabytes")


def allowed(scan: pt.Scan, settings: pt.Settings) -> dict[str, float]:
    """The goal's bytes, by what they are for [MB]."""
    object_shape = scan.object_frame(settings.object.padding).shape
    frames = np.prod(scan.frames.shape, dtype=float) * scan.frames.dtype.itemsize
    objects = OBJECTS * 8.0 * object_shape[0] * object_shape[1]
    waves = BATCHES * 8.0 * settings.batch * settings.probe.modes * scan.pattern_shape[0] * scan.pattern_shape[1]
    parts = {"frames": frames / 1e6, "objects": objects / 1e6, "waves": waves / 1e6}
    return {"megabytes": sum(parts.values()), **parts}


def main() -> None:
    """Two epochs; prints the peak of resident memory beyond that after importing and the first small transform."""
    _warm_up()
    # Written to this file, 5 sets the peak back to what is resident now (proc(5)).
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    with pt.Reconstruction(pt.load(sys.argv[1]), pt.Settings(**json.loads(sys.argv[2])), device="cpu") as recon:
        recon.start(2)
        recon.wait()
        peak_bytes = _status("VmHWM")
    print(json.dumps({"megabytes": (peak_bytes - before) / 1e6, "before": before / 1e6}))


def _warm_up() -> None:
    """A tiny run: libraries that are loaded when first used belong to importing, not to the scan."""
    with pt.Reconstruction(pt.simulate(patterns=4, window=16), pt.Settings(batch=2), device="cpu") as recon:
        recon.start(1)
        recon.wait()


def _status(name: str) -> float:
    """A figure of this process [bytes]."""
    lines: dict[str, Any] = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024.0 * float(lines[name].split()[0])


if __name__ == "__main__":
    main()
