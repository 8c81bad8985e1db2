"""Updates by gradients: the batch's loss backwards through DistributedDataParallel, then torch's optimisers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ptynb.engine.algorithm import Algorithm, Problem
from ptynb.engine.optim import RowAdam, divide_by_illumination, make_optimisers, set_rates
from ptynb.physics.piece import Batch
from ptynb.physics.terms import object_terms
from ptynb.physics.windows import add_windows
from ptynb.settings import PARTS


@final
class Gradient(Algorithm):
    """Adam and its kin, SGD, rPIE: one step a batch."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.optimisers = make_optimisers(problem.model, problem.settings)
        self._moving: frozenset[str] | None = None
        self._distributed: nn.Module = problem.model

    @property
    def updates(self) -> int:
        """One a batch."""
        return self.problem.order.updates

    def prepare(self) -> None:
        """Sets rates, and wraps the model again if other parts move now.

        What is frozen then costs nothing, and what is freed is reduced: a parameter that is frozen when
        DistributedDataParallel wraps the model would never be.
        """
        set_rates(self.optimisers, self._rate, self.problem.settings)
        moving = frozenset(self.rates())
        if moving == self._moving:
            return
        self._moving = moving
        for name, piece in self.problem.model.parts.items():
            piece.requires_grad_(name in moving)
            piece.awake = piece.awake or name in moving
        if self.problem.settings.object.form == "polar" and self._rate("object", "amplitude") == 0:
            self.problem.model.object.amplitude.requires_grad_(False)
        some = any(parameter.requires_grad for parameter in self.problem.model.parameters())
        self._distributed = self.problem.group.wrap(self.problem.model) if some else self.problem.model

    def rates(self) -> dict[str, float]:
        """Of the parts that move now."""
        rates = {name: self._rate(name) for name in self.problem.model.parts}
        return {name: rate for name, rate in rates.items() if rate > 0}

    def asks(self, table: NDArray[np.int64], update: int) -> Iterator[NDArray[np.int64]]:
        """The portions; with rPIE then all of them at once."""
        for own in super().asks(table, update):
            yield from np.array_split(own, self.problem.settings.accumulate)
            if self.problem.settings.optimiser == "rpie" and self.problem.settings.accumulate > 1:
                yield own

    def update(self, table: NDArray[np.int64], update: int) -> Tensor:
        """One batch, in as many portions as were asked for; only the last one's gradients travel."""
        problem, settings = self.problem, self.problem.settings
        members = table[:, update][table[:, update] >= 0]
        own = problem.order.part(table, update, problem.group.rank, problem.group.world)
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
            if isinstance(optimiser, RowAdam):
                optimiser.batch = torch.from_numpy(members)
        # DistributedDataParallel averages over ranks; the loss is a sum over all patterns of the batch.
        factor = problem.group.world * problem.scale / len(members)
        total = torch.zeros((), dtype=torch.float64, device=problem.group.device)
        portions = np.array_split(own, settings.accumulate)
        for number, patterns in enumerate(portions):
            last = number == len(portions) - 1
            with contextlib.nullcontext() if last else problem.group.unreduced(self._distributed):
                value = self._distributed(problem.shard.batch(patterns, len(members)))
                total += value.detach()
                value = factor * value
                if last and settings.terms:
                    # Every engine has the whole object: the mean over ranks is the term itself.
                    extra = object_terms(settings.terms, problem.model.object.values)
                    value = value + problem.pixels * extra
                    total += (
                        extra.detach() * problem.normaliser * len(members) / problem.order.count / problem.group.world
                    )
                if value.requires_grad:
                    value.backward()
        if settings.optimiser == "rpie":
            self._precondition(own, len(members))
        for optimiser in self.optimisers:
            optimiser.step()
        return total

    def disconnect(self) -> None:
        """Lets go of the wrapped model, whose connections would outlive the group."""
        self._distributed = self.problem.model

    def _rate(self, name: str, parameter: str = "") -> float:
        problem = self.problem
        if name not in PARTS:
            return problem.model.parts[name].rate
        rate, own = problem.rate(name), problem.settings.object.amplitude_rate
        if parameter == "amplitude" and own is not None and rate > 0:
            return own * problem.settings.schedule.factor(problem.epoch)
        return rate

    @torch.no_grad()
    def _precondition(self, own: NDArray[np.int64], members: int) -> None:
        problem, model = self.problem, self.problem.model
        light = torch.zeros(model.object.values.shape[-2:], dtype=model.probe.parts.dtype, device=problem.group.device)
        seen = light.new_zeros(model.window)
        if len(own):
            batch: Batch = problem.shard.batch(own, members)
            probes, windows = model.lit(batch)
            corners, _ = model.corners_and_rests(batch)
            light = add_windows(light, corners, probes.abs().square().sum(1))
            seen = windows.abs().square().mean((1, 2)).sum(0)
        light, seen = problem.group.sum(light), problem.group.sum(seen)
        divide_by_illumination(model, light, seen, problem.scale / members, problem.settings.regularisation)
