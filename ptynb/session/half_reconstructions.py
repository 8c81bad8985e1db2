"""Independent reconstructions of two halves of a scan, for a map of the standard error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from ptynb.analysis.error_map import SMOOTHING
from ptynb.analysis.error_map import error_map as map_of_results
from ptynb.analysis.half_scans import split_scan
from ptynb.cluster.cluster import Cluster
from ptynb.data.result import Result
from ptynb.data.scan import Scan
from ptynb.data.standard_error import ErrorMap
from ptynb.exceptions import ReconstructionError
from ptynb.session.reconstruction import Reconstruction
from ptynb.settings import Settings


def error_map(
    scan: Scan,
    settings: Settings | None = None,
    cluster: Cluster | None = None,
    *,
    epochs: int = 100,
    smoothing: float = SMOOTHING,
    device: str = "auto",
    extensions: Sequence[Any] = (),
    progress: Callable[[int, int], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> ErrorMap:
    """Reconstruct two halves of a scan independently, and map the standard error of the object.

    The halves have neighbouring patterns and different seeds. On a cluster of two or more engines they run at the same
    time, each on half of the engines; else one after the other. Use the settings and the number of epochs of the
    reconstruction whose error is of interest: the mean of the halves has about its error, if noise dominates.

    Parameters
    ----------
    scan : Scan
        Scan with at least 2 patterns.
    settings : Settings, optional
        Settings of both reconstructions. None: `Settings()`.
    cluster : Cluster, optional
        Cluster whose engines reconstruct. None: this process reconstructs.
    epochs : int
        Number of epochs of each half.
    smoothing : float
        Width of the local average, see `ptynb.analysis.error_map` [object pixels].
    device : {"auto", "cpu", "cuda", "xpu"}
        Device of this process if there is no cluster.
    extensions : sequence of ModelComponent or CustomConstraint
        User-defined components of the forward model and constraints.
    progress : callable, optional
        Called with the epochs completed and their number, of both halves together.
    cancelled : callable, optional
        Called now and then; if it returns True, both reconstructions end.

    Returns
    -------
    ErrorMap
        Mean of both objects and its standard error; `Result.with_error_map` adds it to a result, its file and report.

    Raises
    ------
    ScanError
        If there are fewer than two patterns ("scan.too-few-patterns").
    InvalidValueError
        If the objects cannot be compared, as `ptynb.analysis.error_map`.
    ReconstructionError
        If a reconstruction fails, or was cancelled ("reconstruction.stopped").
    """
    halves, chosen = split_scan(scan), settings or Settings()
    each = 0 if cluster is None else len(cluster) // 2
    groups: tuple[Sequence[int] | None, ...] = (range(each), range(each, 2 * each)) if each else (None, None)

    def begun(number: int) -> Reconstruction:
        own = chosen.replace(seed=chosen.seed + number)
        recon = Reconstruction(
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

    def follow(number: int, recon: Reconstruction) -> None:
        done[number] = recon.epoch
        if progress is not None:
            progress(sum(done), 2 * epochs)
        if cancelled is not None and cancelled():
            raise ReconstructionError(
                f"The map was cancelled after {sum(done)} of {2 * epochs} epochs.", code="reconstruction.stopped"
            )

    def ended(number: int, running: dict[int, Reconstruction]) -> Result:
        def follow_all() -> None:
            for one in running.items():
                follow(*one)

        running[number].wait(progress=follow_all)
        return running[number].result

    results = []
    for numbers in ((0, 1),) if each else ((0,), (1,)):
        with contextlib.ExitStack() as stack:
            running = {number: stack.enter_context(begun(number)) for number in numbers}
            results += [ended(number, running) for number in numbers]
    return map_of_results(results[0], results[1], smoothing=smoothing)
