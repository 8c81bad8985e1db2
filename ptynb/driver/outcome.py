"""How a reconstruction ended: the result made of what an engine kept, or the cause of a failure."""

from __future__ import annotations

import importlib.metadata
import platform
import time

import torch

from ptynb.driver.devices import ClusterError
from ptynb.driver.engines import Engines
from ptynb.scan import Scan
from ptynb.snapshot import Failure, Kept, Result, Status

FAILURE_SECONDS = 3.0
"""How long the other ranks are given to report after the first failure, to find the one that caused it."""


def find_cause(engines: Engines, lost: Exception | None) -> str:
    """What to tell the user: the rank that failed first with its traceback, not one that only missed the others.

    lost: what the kernel met itself, where no engine has more to say.
    """
    until = time.monotonic() + FAILURE_SECONDS
    while True:
        failures, gone = _failures(engines)
        causes = [failure for failure in failures if not failure.lost_group]
        if gone or causes or time.monotonic() > until:
            break
        time.sleep(0.1)
    if gone:
        return str(gone[0])
    if causes or failures:
        cause = (causes or failures)[0]
        return f"Rank {cause.rank}: {cause.message}\n\n{cause.traceback}"
    return str(lost)


def _failures(engines: Engines) -> tuple[list[Failure], list[Exception]]:
    """Failures that engines report, and errors from engines that are gone."""
    failures: list[Failure] = []
    gone: list[Exception] = []
    for rank in range(engines.world):
        try:
            status: Status = engines.call(rank, "status", 10**9, timeout=FAILURE_SECONDS)
        except ClusterError as error:  # dead, or it does not answer
            gone.append(error)
        else:
            if status.failure is not None:
                failures.append(status.failure)
    return failures, gone


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
