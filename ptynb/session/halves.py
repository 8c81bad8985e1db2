"""Two reconstructions of halves of a scan, at the same time or one after the other, compared as a map of errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
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
    epochs: int,
    smoothing: float,
    progress: Callable[[int, int], None] | None,
    cancelled: Callable[[], bool] | None,
    area: tuple[slice, slice] | None = None,
) -> ErrorMap:
    """Return `ptynb.error_map`.

    reconstruct: makes a `Reconstruction`, whose module imports this one, of scan, settings, cluster and `ranks`.
    """
    halves = split_scan(scan)
    each = 0 if cluster is None else len(cluster) // 2
    done, results = {0: 0, 1: 0}, list[Result]()

    def follow(running: dict[int, Any]) -> None:
        done.update({number: recon.epoch for number, recon in running.items()})
        if progress is not None:
            progress(sum(done.values()), 2 * epochs)
        if cancelled is not None and cancelled():
            raise ReconstructionError(
                f"The map was cancelled after {sum(done.values())} of {2 * epochs} epochs.",
                code="reconstruction.stopped",
            )

    for numbers in ((0, 1),) if each else ((0,), (1,)):
        with contextlib.ExitStack() as stack:
            running = dict[int, Any]()
            for number in numbers:
                own, ranks = settings.replace(seed=settings.seed + number), range(number * each, (number + 1) * each)
                recon = reconstruct(halves[number], own, cluster, ranks=ranks or None)
                running[number] = stack.enter_context(recon)
                recon.start(epochs)
            for recon in running.values():
                recon.wait(progress=partial(follow, running))
                results.append(recon.result)
    return error_map(*results, smoothing=smoothing, area=area)
