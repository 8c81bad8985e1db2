"""Compilation of the loops of a usual reconstruction in a process of its own.

The first run on a machine compiles for some 9 seconds (`kernels.runtime.compiler`), most of it for one loop. An
engine on a CPU starts the process when its cluster has found it, so that much of this is done while the user loads a
scan; otherwise the first reconstruction starts it, and both compile different loops at the same time: each loop is
locked by the process that compiles it. Loops of transforms remain: each length of a side has its own.

An engine that waits for the first patterns of a scan that is being measured has the time to make an epoch of made-up
ones of their size (`rehearse`). Without it model and first update took 1.4 s (484 patterns of 128 x 128, two cores).
"""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
import threading
from pathlib import Path

import filelock
import numpy as np
import torch

from ptynb.data.patterns.in_memory import ArrayFrames
from ptynb.data.scan import Scan
from ptynb.distributed.group import SingleGroup
from ptynb.kernels import unpack
from ptynb.kernels.runtime.compiler import marker as marker_of
from ptynb.settings import Settings
from ptynb.supervised_thread import SupervisedThread

_lock = threading.Lock()
_started = False


def start(device: torch.device) -> None:
    """Start the process, once in this one, if `device` is a CPU and the loops have not been compiled before."""
    global _started
    with _lock:
        if _started or device.type != "cpu":
            return
        _started = True
    marker = marker_of("usual-loops", unpack.arrange)
    if marker is not None and not marker.exists():
        SupervisedThread("ptynb precompilation", _run_process, marker).start()


def _run_process(marker: Path) -> None:
    # One process serves all engines of a host. If it fails, the first reconstruction compiles all loops itself.
    with (
        contextlib.suppress(OSError, NotImplementedError, filelock.Timeout),
        filelock.FileLock(f"{marker}.lock", timeout=0),
    ):
        subprocess.run(
            # -P: a torch.py in the working folder, beside a scan, is not to be run instead of the package.
            [sys.executable, "-P", "-m", __name__, str(marker)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )


def rehearse(scan: Scan, settings: Settings, device: torch.device) -> None:
    """Make an epoch of two updates with made-up patterns of this scan's size, so that later ones begin at once."""
    from ptynb.engine.loop import Loop

    count, random = 2 * settings.effective_batch(1), np.random.default_rng(0)
    counts = random.integers(1, 100, (count, *scan.pattern_shape)).astype(scan.frames.dtype)
    made_up = dataclasses.replace(
        scan,
        frames=ArrayFrames.of(counts),
        positions=scan.positions[0] + random.uniform(-2, 2, (count, 2)),
        motion=None if scan.motion is None else np.zeros((count, 2)),
        object=None,
        loaded=None,
        acquisition=None,
    )
    loop = Loop(made_up, settings.replace(pattern_storage="auto"), SingleGroup(device), find_probe=False)
    try:
        with contextlib.suppress(FloatingPointError):  # such patterns are those of no object
            for _ in range(loop.updates):
                loop.step()
    finally:
        loop.disconnect()


def _compile_small_loops() -> None:
    """Compile those that a reconstruction needs after its largest one."""
    from ptynb.kernels import parallel_sections
    from ptynb.kernels.cpu_steps import Cross, Move
    from ptynb.kernels.fused_updates import adam

    probes = torch.zeros(1, 1, 2, 2, dtype=torch.complex64)
    object = torch.zeros(1, 1, 4, 4, dtype=torch.complex64)
    move = Move(probes, torch.ones(4, 2), of_probes=True, of_shifts=False)
    cross = Cross(object, torch.zeros(4, 2, dtype=torch.int64), move.moving.moved, None, wanted=True)
    cross.gradient(1.0)
    move.gradients(1.0, 1.0)
    values, gradient, mean, square = torch.zeros(4, 8).numpy()
    adam(values, gradient, mean, square, rate=0.0, betas=(0.9, 0.999), steps=1, epsilon=1e-8)
    intensity = torch.zeros(4, 2, 2).numpy()
    parallel_sections.patterns(move.moving, cross.crossing, None, intensity)


def _compile_all() -> None:
    """Compute an update of a simulated scan, one of the search for a probe, and the R-factor."""
    from ptynb.distributed.group import Membership, join
    from ptynb.engine import initial_probe
    from ptynb.engine.loop import Loop
    from ptynb.settings import Settings
    from ptynb.simulation.simulated_scan import simulate

    alone = Membership(rank=0, world=1, store="", backend="none", device="cpu", identity="CPU")
    for settings in (Settings(), initial_probe.run_settings(Settings())):
        loop = Loop(simulate(9, window=16, seed=0), settings, join(alone))
        loop.step()
        loop.r_factor()
        loop.disconnect()


if __name__ == "__main__":
    _compile_small_loops()
    _compile_all()
    Path(sys.argv[1]).touch()
