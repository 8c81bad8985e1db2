"""The result made of the state that an engine kept."""

from __future__ import annotations

import importlib.metadata
import platform
import time

import torch

from ptynb.scan import Scan
from ptynb.snapshot import Kept, Result


def make_result(scan: Scan, kept: Kept, engines: str, backend: str, batch: str, failure: Exception | None) -> Result:
    """The result of a scan from the state that an engine kept.

    engines, backend: what reconstructed. batch: the effective one. failure: what ended it, if something did.
    """
    return Result(
        object=kept.object,
        probe=kept.probe,
        positions=kept.positions,
        origin=kept.origin,
        optimised=kept.optimised,
        epochs=kept.epochs,
        r_factor=kept.r_factor,
        settings=kept.settings,
        changes=kept.changes,
        pixel_size=scan.pixel_size,
        about={
            "scan": scan.name,
            "ptynb": importlib.metadata.version("ptynb"),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "engines": engines,
            "backend": backend,
            "batch": batch,
            "frames": kept.frames,
            "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "failure": "" if failure is None else str(failure),
        },
    )
