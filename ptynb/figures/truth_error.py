"""A result compared with the ground truth of a simulated scan."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.analysis import Comparison, compare
from ptynb.data.engine_records import Result
from ptynb.data.scan import Truth


def compare_with_truth(result: Result, truth: Truth) -> Comparison:
    """Return the result's object against the true one, over the area between the outermost probe centres."""
    window = np.array(result.probe.shape[-2:])
    low = np.ceil(result.positions.min(0) + window / 2).astype(int) + result.origin
    high = np.floor(result.positions.max(0) + window / 2).astype(int) + result.origin
    area = (slice(int(low[0]), int(high[0])), slice(int(low[1]), int(high[1])))
    return compare(result.projection, _projection(truth), area, result.origin)


def _projection(truth: Truth) -> NDArray[Any]:
    projection: NDArray[Any] = truth.object.prod(0) if truth.object.ndim == 3 else truth.object
    return projection
