"""Two reconstructions of halves of a scan, at the same time or one after the other, compared as a map of errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from ptynb.analysis.error_map import error_map
from ptynb.analysis.half_scans import split_scan
from ptynb.cluster.cluster import Cluster
from ptynb.data.engine_records import Result
from ptynb.data.scan import Scan
from ptynb.data.standard_error import ErrorMap
from ptynb.exceptions import ReconstructionError
from ptynb.settings import Settings

LOOK_SECONDS = 0.25
"""Period of progress, and of the question whether to cancel [s]."""


def map_of_halves(
    reconstruct: Callable[..., Any],
    scan: Scan,
    settings: Settings,
    cluster: Cluster | None,
    *,
    epochs: int,
    smoothing: float,
    device: str,
    extensions: Sequence[Any],
    progress: Callable[[int, int], None] | None,
    cancelled: Callable[[], bool] | None,
) -> ErrorMap:
    """Return `ptynb.error_map`. reconstruct: makes a `Reconstruction`, whose module imports this one."""
    halves = split_scan(scan)
    each = 0 if cluster is None else len(cluster) // 2
    groups: tuple[Sequence[int] | None, ...] = (range(each), range(each, 2 * each)) if each else (None, None)

    def begun(number: int) -> Any:
        own = settings.replace(seed=settings.seed + number)
        recon = reconstruct(
            halves[number],
            own,
            cluster,
            device=device,
            extensions=extensions,
            checkpointing=None,
            ranks=groups[number],
        )
        recon.start(epochs)
        return recon

    done = [0, 0]

    def follow(number: int, recon: Any) -> None:
        done[number] = recon.epoch
        if progress is not None:
            progress(sum(done), 2 * epochs)
        if cancelled is not None and cancelled():
            raise ReconstructionError(
                f"The map was cancelled after {sum(done)} of {2 * epochs} epochs.", code="reconstruction.stopped"
            )

    def ended(number: int, running: dict[int, Any]) -> Result:
        while True:
            try:
                running[number].wait(timeout=LOOK_SECONDS)
            except TimeoutError:
                for one in running.items():
                    follow(*one)
            else:
                follow(number, running[number])
                result: Result = running[number].result
                return result

    results = []
    for numbers in ((0, 1),) if each else ((0,), (1,)):
        with contextlib.ExitStack() as stack:
            running = {number: stack.enter_context(begun(number)) for number in numbers}
            results += [ended(number, running) for number in numbers]
    return error_map(results[0], results[1], smoothing=smoothing)
