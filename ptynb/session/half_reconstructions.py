"""Independent reconstructions of two halves of a scan, for a map of the standard error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ptynb.analysis.error_map import SMOOTHING
from ptynb.cluster.cluster import Cluster
from ptynb.data.scan import Scan
from ptynb.data.standard_error import ErrorMap
from ptynb.session.halves import map_of_halves
from ptynb.session.reconstruction import Reconstruction
from ptynb.settings import Settings


def error_map(
    scan: Scan,
    settings: Settings | None = None,
    cluster: Cluster | None = None,
    *,
    epochs: int = 100,
    smoothing: float = SMOOTHING,
    area: tuple[slice, slice] | None = None,
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
    area : (slice, slice), optional
        Part (y, x) that is mapped, see `ptynb.analysis.error_map`; for large objects: of each half only what is around
        it leaves the engines.
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
    begin = partial(Reconstruction, device=device, extensions=extensions, checkpointing=None)
    return map_of_halves(begin, scan, settings or Settings(), cluster, epochs, smoothing, progress, cancelled, area)
