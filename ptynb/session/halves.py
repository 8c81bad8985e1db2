"""Two reconstructions of halves of a scan, at the same time or one after the other, compared as a map of errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ptynb.analysis.error_map import error_map
from ptynb.analysis.half_scans import split_scan
from ptynb.analysis.registration import Area, margin_around
from ptynb.analysis.result_comparison import check_area, common_area
from ptynb.cluster.cluster import Cluster
from ptynb.data.engine_records import Result
from ptynb.data.geometry import illuminated_area
from ptynb.data.scan import Scan
from ptynb.data.standard_error import ErrorMap
from ptynb.exceptions import InvalidValueError, ReconstructionError
from ptynb.physics.model_builder import object_frame
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
    area: Area | None = None,
) -> ErrorMap:
    """Return `ptynb.error_map`.

    reconstruct: makes a `Reconstruction`, whose module imports this one, of scan, settings, cluster and `ranks`.
    """
    halves = split_scan(scan)
    if area is not None:  # before hours of reconstruction
        check_area(area)
        for half in halves:
            try:
                common_area(illuminated_area(half.positions, half.pattern_shape), area, limited=True)
            except InvalidValueError as error:
                raise InvalidValueError(f"{half.name} cannot be mapped: {error}", code=error.code) from None
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
                results.append(recon.result if area is None else _result_around(area, recon))
    return error_map(*results, smoothing=smoothing, area=area)


def _result_around(area: Area, recon: Any) -> Result:
    """Return what `error_map` needs of a reconstruction: of its object only the area and what is registered with it."""
    frame = object_frame(recon.scan, recon.settings)
    bounds = list[tuple[int, int]]()
    for part, first, side in zip(area, frame.origin, frame.shape, strict=True):
        margin = margin_around(part)
        bounds.append((max(part.start - margin - first, 0), min(part.stop + margin - first, side)))
    taken = recon.snapshot(max(frame.shape), (*bounds[0], *bounds[1]))
    corner = np.array([first for first, _ in bounds])
    y, x = (np.array(frame.origin) + corner).tolist()
    positions = recon.positions[1] - corner
    return Result(taken.object, taken.probe, positions, (y, x), r_factor=float("nan"), pixel_size=recon.scan.pixel_size)
