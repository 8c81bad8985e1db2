"""Search of positions by random trial shifts, for errors that are too large for gradients.

After an epoch each engine tries shifts of its own patterns: with the present object and probe it computes the pattern
at each trial position, and keeps the position with the smallest misfit Σ (√M - √I)², which may be the present one. Half
of the trials are drawn from a square about the present position that shrinks from `search_radius` to one pixel over the
epochs of the search, the others from the whole radius, so that a position in a wrong minimum can still leave it late.
Maiden, Humphry, Sarahan, Kraus and Rodenburg, Ultramicroscopy 120, 64 (2012), whose trials are all of the first kind.

An object that has adapted to wrong positions holds them there: parts of the scan fit shifted copies of the object, and
a pattern at the edge an object of its own. So the object restarts from its initial values `search_restarts` times, and
the trials begin again with the largest radius.

A trial costs the forward model of a pattern, without gradient. Six random draws of errors of 7 pixels (rms), of 100
patterns of 64 x 64, 5 pixels apart, with a known probe, were measured. With 12 trials after each of 120 epochs and two
restarts, gradients then left 0.02, 0.02, 0.02, 0.05 and 0.4 pixels; in the sixth draw 97 positions were right to 0.05
pixels, and three at the edge, two of them wrong by more than the radius from the start, by more than 10. With 50 epochs
and no restart: 0.1, 1.4, 0.6, 2.8, 2.5 and 3.4; gradients alone left 5.8. The probe has to be known: from a guess the
search failed. The cross-correlation of updated exit waves with the object (Zhang et al., Opt. Express 21, 13592
(2013)) left errors of this size as they were, since the object has adapted to the wrong positions.

Random numbers follow from the seed, the epoch and the index of the pattern, so that the result does not depend on the
number of engines, nor on interruptions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.kernels.runtime import buffers
from ptynb.kernels.runtime.thread_count import torch_alone
from ptynb.optimize.algorithm import Problem
from ptynb.physics.components.builtin import Positions
from ptynb.physics.components.component import Batch, copied_to

SMALLEST = 1.0
"""Smallest radius of trials; the rest is left to gradients [object pixels]."""


def batches_of_search(problem: Problem, epoch: int) -> Iterator[NDArray[np.int64]]:
    """Yield the batches that the search after an epoch (1 for the first) requests from the patterns, in order."""
    if problem.settings.positions.searches(epoch):
        share = problem.order.share(problem.group.world)
        yield from problem.shard.portions(-(-share // problem.settings.gradient_accumulation))


@torch.no_grad()
def search_positions(problem: Problem) -> None:
    """Try shifts of all positions if the settings search in the present epoch. Call it on all engines.

    Positions that improve are updated on all engines; for an epoch without search nothing happens.
    """
    chosen = problem.settings.positions
    if not chosen.searches(problem.epoch):
        return
    positions = problem.model.components["positions"]
    assert isinstance(positions, Positions)
    positions.active = True
    radii = _radii(chosen.search_trials, chosen.search_radius, chosen.search_progress(problem.epoch))
    found = torch.zeros_like(positions.moves)
    buffers.forget()  # the buffers of updates have another size
    with torch_alone(problem.model.compiled):
        for patterns in batches_of_search(problem, problem.epoch):
            batch = problem.shard.batch(patterns, problem.count)
            found[batch.patterns] = _best(problem, positions, patterns, batch, radii)
    # Each row is 0 on all engines but one, so that the sum is exact.
    positions.moves.copy_(problem.group.sum(found))
    buffers.forget()
    if chosen.restarts_object(problem.epoch) and problem.initial_object is not None:
        problem.model.object.set(problem.initial_object)
        if problem.tile is not None:
            with torch.no_grad():
                problem.tile.refresh(*problem.model.object.parameters())


def _radii(trials: int, largest: float, progress: float) -> list[float]:
    """Return the radius of each trial: every other one has the largest. progress: 0 to 1 over the search."""
    present = max(SMALLEST, largest * (1 - progress))
    return [largest if trial % 2 else present for trial in range(trials)]


def _best(
    problem: Problem, positions: Positions, patterns: NDArray[np.int64], batch: Batch, radii: list[float]
) -> Tensor:
    """Return the shifts (pattern, yx) of these patterns with the smallest misfit, and leave the present ones."""
    seed, epoch = problem.settings.seed, problem.epoch
    # The first number separates these streams from those of the sampler.
    draws = np.stack(
        [
            np.random.default_rng([1, seed, epoch, pattern]).uniform(-1, 1, (len(radii), 2))
            for pattern in patterns.tolist()
        ]
    )
    trials = torch.from_numpy(draws * np.array(radii)[:, None]).to(positions.moves.dtype)
    steps = copied_to(trials, positions.moves.device)
    present = positions.moves[batch.patterns]
    best, least = present.clone(), _misfits(problem, batch)
    for trial in range(len(radii)):
        candidate = (present + steps[:, trial]).clamp(-positions.limit, positions.limit)
        positions.moves[batch.patterns] = candidate
        misfit = _misfits(problem, batch)
        better = misfit < least
        best = torch.where(better[:, None], candidate, best)
        least = torch.where(better, misfit, least)
    positions.moves[batch.patterns] = present
    return best


def _misfits(problem: Problem, batch: Batch) -> Tensor:
    """Return Σ (√M - √I)² over the good pixels of each pattern (pattern,)."""
    model = problem.model
    difference = model.intensities(batch).clamp(min=0).sqrt() - batch.counts.sqrt()
    if model.mask is not None:
        difference = difference * model.mask
    return difference.square().sum((1, 2))
