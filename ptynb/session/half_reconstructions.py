"""Independent reconstructions of two halves of a scan, for a map of the standard error."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from ptynb.analysis.error_map import SMOOTHING
from ptynb.analysis.error_map import error_map as error_map_of
from ptynb.analysis.half_scans import split_scan
from ptynb.cluster.cluster import Cluster
from ptynb.data.engine_records import Result
from ptynb.data.scan import Scan
from ptynb.data.standard_error import ErrorMap
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
        If a reconstruction fails.
    """
    settings = settings or Settings()
    halves = split_scan(scan)
    each = 0 if cluster is None else len(cluster) // 2
    groups: tuple[Sequence[int] | None, ...] = (range(each), range(each, 2 * each)) if each else (None, None)

    def begun(number: int) -> Reconstruction:
        own = settings.replace(seed=settings.seed + number)
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

    def ended(recon: Reconstruction) -> Result:
        recon.wait()
        return recon.result

    with contextlib.ExitStack() as stack:
        if each:
            both = [stack.enter_context(begun(number)) for number in (0, 1)]
            results = [ended(recon) for recon in both]
        else:
            results = []
            for number in (0, 1):
                with begun(number) as recon:
                    results.append(ended(recon))
    return error_map_of(results[0], results[1], smoothing=smoothing)
