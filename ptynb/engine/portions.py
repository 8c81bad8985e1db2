"""All patterns of an engine in portions, for algorithms whose updates see every pattern."""

from __future__ import annotations

from collections.abc import Iterator

from ptynb.engine.algorithm import Problem
from ptynb.physics.piece import Batch


def portions(problem: Problem) -> Iterator[tuple[slice, Batch]]:
    """This engine's patterns, as (rows among them, batch): as many at once as it has of a batch of the settings.

    So the memory is that of a mini-batch, and `Settings.batch` means the same for every optimiser. None come where the
    engine has no patterns, and numbers differ between engines: nothing inside the loop may wait for other engines.
    """
    own = problem.own()
    size = -(-problem.order.lanes // problem.group.world)
    for first in range(0, len(own), size):
        rows = slice(first, min(first + size, len(own)))
        yield rows, problem.shard.batch(own[rows], problem.order.count)
