"""All patterns of an engine in portions, for algorithms whose updates see every pattern."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ptynb.optimize.algorithm import Problem
from ptynb.physics.components.component import Batch


def portions(problem: Problem) -> Iterator[tuple[slice, Batch]]:
    """This engine's patterns, as (rows among them, batch): as many at once as it has of a batch of the settings.

    So the memory is that of a mini-batch, and `Settings.batch` means the same for every optimiser. None come where the
    engine has no patterns, and numbers differ between engines: nothing inside the loop may wait for other engines.
    """
    first = 0
    for patterns in portions_of(problem):
        yield slice(first, first + len(patterns)), problem.shard.batch(patterns, problem.order.count)
        first += len(patterns)


def portions_of(problem: Problem) -> Iterator[NDArray[np.int64]]:
    """The patterns of each portion."""
    return problem.shard.portions(problem.order.share(problem.group.world))
