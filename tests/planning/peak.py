"""A scan of a given size, and the peak of memory of a run with it, beyond what importing takes, in a fresh process.

usage: python -m tests.planning.peak PATTERNS WINDOW STEP EPOCHS SETTINGS_AS_JSON [FOLDER]

FOLDER: where the state is kept after every epoch.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np

import ptynb as pt


def scan_of(patterns: int, window: int, step: float) -> pt.Scan:
    """Patterns of 16 bits, all alike, on a square grid between pixels, with a probe."""
    side = int(np.ceil(np.sqrt(patterns)))
    places = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), -1).reshape(-1, 2)[:patterns]
    ramp = np.arange(window) - window // 2
    spot = 200 * np.exp(-(ramp[:, None] ** 2 + ramp**2) / (2 * (window / 16) ** 2))
    return pt.Scan.from_arrays(
        np.tile(spot.astype(np.uint16), (patterns, 1, 1)),
        places * step + 0.25,
        probe=np.ones((1, window, window), np.complex64),
        geometry=pt.Geometry(wavelength=1e-10, distance=1.0, detector_pixel=(5e-5, 5e-5)),
    )


def run(scan: pt.Scan, settings: pt.Settings, epochs: int, folder: str | None = None) -> None:
    keep = None if folder is None else pt.Checkpointing(folder=Path(folder), epochs=1, seconds=None)
    with pt.Reconstruction(scan, settings, device="cpu", checkpointing=keep) as recon:
        recon.start(epochs)
        recon.wait()


def taken() -> float:
    """Memory of this process that no file backs, which a system without swap cannot take back meanwhile [bytes]."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * float(lines["RssAnon"].split()[0])


class Peak(threading.Thread):
    """Looks a thousand times a second; every array that is foreseen lives longer."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self.ended = taken(), threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.001):
            self.most = max(self.most, taken())


def main() -> None:
    patterns, window, step, epochs = (int(argument) for argument in sys.argv[1:5])
    with tempfile.TemporaryDirectory() as folder:  # libraries that are loaded when first used are no part of it
        run(scan_of(9, 16, 2), pt.Settings(batch=2), 1, folder)
    scan, settings = scan_of(patterns, window, step), pt.Settings(**json.loads(sys.argv[5]))
    before, peak = taken(), Peak()
    peak.start()
    run(scan, settings, epochs, *sys.argv[6:])
    peak.ended.set()
    peak.join()
    print(peak.most - before)


if __name__ == "__main__":
    main()
