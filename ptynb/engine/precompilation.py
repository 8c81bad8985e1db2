"""Compilation of the loops of a usual reconstruction, while an engine has nothing else to do.

The first run on a machine compiles for some 9 seconds (`ptynb.kernels.compiler`). An engine on a CPU begins when its
cluster has found it, so that much of this is done while the user loads a scan. A reconstruction that starts meanwhile
waits for the loop that is being compiled, and compiles the others. Those of transforms remain: each length of a side
has its own.
"""

from __future__ import annotations

import contextlib
import threading

import torch

from ptynb.distributed.group import Membership, join
from ptynb.engine.loop import Loop
from ptynb.kernels.compiler import usual_loops_marker
from ptynb.settings import Settings

_lock = threading.Lock()
_begun = False


def begin() -> None:
    """Start it in a thread, once in a process, unless a GPU computes or the loops have been compiled before."""
    global _begun
    with _lock:
        if _begun or torch.cuda.is_available():
            return
        _begun = True
    marker = usual_loops_marker()
    if marker is not None and not marker.exists():
        threading.Thread(target=_compile, name="ptynb precompilation", daemon=True).start()


def _compile() -> None:
    # If it fails, so will the first reconstruction, whose error is shown.
    with contextlib.suppress(Exception):
        from ptynb.simulation.simulated_scan import simulate

        alone = Membership(rank=0, world=1, store="", backend="none", device="cpu", identity="CPU")
        loop = Loop(simulate(9, window=16, seed=0), Settings(), join(alone))
        loop.step()
        loop.r_factor()
        loop.disconnect()
        if (marker := usual_loops_marker()) is not None:
            marker.touch()
