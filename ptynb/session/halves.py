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

    def ended(number: int, running: Sequence[tuple[int, Any]]) -> Result:
        def follow_all() -> None:
            for one in running:
                follow(*one)

        recon = dict(running)[number]
        recon.wait(progress=follow_all)
        result: Result = recon.result
        return result

    with contextlib.ExitStack() as stack:
        if each:
            both = [(number, stack.enter_context(begun(number))) for number in (0, 1)]
            results = [ended(number, both) for number in (0, 1)]
        else:
            results = []
            for number in (0, 1):
                with begun(number) as recon:
                    results.append(ended(number, [(number, recon)]))
    return error_map(results[0], results[1], smoothing=smoothing)
