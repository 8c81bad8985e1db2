"""Selection of patterns."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.data.patterns import SelectedFrames
from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError
from ptynb.preparation.recorded_steps import recorded


@recorded
def select(scan: Scan, which: ArrayLike | slice) -> Scan:
    """Return the scan with some of its patterns and positions.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    which : array_like or slice
        Indices (negative ones count from the end), a slice, or a bool per pattern (True: keep).

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    InvalidValueError
        If nothing is left (code "scan.nothing-left") or an index does not exist.
    ScanError
        If the remaining positions are disconnected.
    """
    indices = np.arange(len(scan))[which] if isinstance(which, slice) else _indices(np.asarray(which), len(scan))
    if not len(indices):
        raise InvalidValueError(
            f"None of the {len(scan)} patterns is selected; expected at least one.", code="scan.nothing-left"
        )
    return dataclasses.replace(
        scan,
        frames=SelectedFrames.of(scan.frames, indices),
        positions=scan.positions[indices],
        motion=None if scan.motion is None else scan.motion[indices],
    )


def _indices(which: NDArray[Any], count: int) -> NDArray[np.int64]:
    if which.ndim == 1 and which.dtype == bool and len(which) == count:
        return np.flatnonzero(which)
    whole = which.ndim == 1 and (np.issubdtype(which.dtype, np.integer) or not which.size)
    if not whole or (which.size and not (-count <= which.min() and which.max() < count)):
        raise InvalidValueError(
            f"which has shape {which.shape} and type {which.dtype}; expected indices from {-count} to "
            f"{count - 1}, a slice, or {count} bools.",
            code="argument.invalid-value",
        )
    return which.astype(np.int64) % count
