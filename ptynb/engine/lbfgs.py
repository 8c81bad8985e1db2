"""L-BFGS on all patterns at once, with equal line searches on all engines.

Liu and Nocedal, Math. Programming 45, 503 (1989), as torch.optim.LBFGS does it, with a line search to the strong Wolfe
conditions. Loss and gradient are sums over the group, so every engine sees the same numbers and takes the same steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ptynb.engine.algorithm import Algorithm, Problem
from ptynb.engine.portions import portions, portions_of
from ptynb.physics.terms import object_terms

HISTORY = 10
"""Steps from which the curvature is estimated."""
MOST_TRIALS = 25
"""Evaluations of a line search at most. torch's own limit follows from max_iter, and would leave it none."""
HISTORIES = ("old_dirs", "old_stps", "ro")
"""What torch's optimiser keeps as lists."""
SHORTEST = 1e-9
"""A line search ends where the steps that it has still to choose from differ by less in every parameter."""


@final
class LBFGS(Algorithm):
    """One step along a quasi-Newton direction an epoch, of a length that a line search finds.

    A part moves where its rate is above 0; how far is up to the line search, so the rate's size does not matter.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._moving: list[nn.Parameter] = []
        self._objective: object = None
        self._optimiser: torch.optim.LBFGS | None = None
        self._evaluated: Tensor | None = None
        self._left: Tensor | None = None
        self._loss = self._own = torch.zeros((), dtype=torch.float64)
        self.passes = 0
        """Times that the loss of all patterns was computed so far."""

    @property
    def updates(self) -> int:
        """One an epoch."""
        return 1

    def rates(self) -> dict[str, float]:
        """By part; only whether one is above 0 matters."""
        return {name: self.problem.rate(name) for name in self.problem.model.parts}

    def prepare(self) -> None:
        """Starts anew where other parameters move than before, or where something else is minimised."""
        model, settings = self.problem.model, self.problem.settings
        self.problem.free({name for name, rate in self.rates().items() if rate > 0})
        pieces = model.parts.values()
        moving = [parameter for piece in pieces for parameter in piece.parameters() if parameter.requires_grad]
        objective = (settings.terms, self.problem.normaliser)
        if [id(one) for one in moving] == [id(one) for one in self._moving] and objective == self._objective:
            return
        self._moving, self._objective = moving, objective
        self._optimiser = self._evaluated = self._left = None
        if moving:
            self._optimiser = torch.optim.LBFGS(
                moving,
                lr=1,
                max_iter=1,
                max_eval=1 + MOST_TRIALS,
                history_size=HISTORY,
                tolerance_grad=0,
                tolerance_change=SHORTEST,
                line_search_fn="strong_wolfe",
            )
            # Gradients are views of one buffer, which all engines sum in one message.
            self._gradient = torch.zeros_like(flat(moving))
            parts = self._gradient.split([parameter.numel() for parameter in moving])
            for parameter, part in zip(moving, parts, strict=True):
                parameter.grad = part.view_as(parameter)

    def asks(self, table: NDArray[np.int64], update: int) -> Iterator[NDArray[np.int64]]:
        """All patterns, in portions; each pass asks for the same ones, however many passes there are."""
        return portions_of(self.problem)

    def state(self) -> dict[str, Tensor | float]:
        """The history, and where the last step ended; what was evaluated there is evaluated again."""
        if self._optimiser is None or not self._optimiser.state:
            return {}
        kept = self._optimiser.state[self._moving[0]]
        found: dict[str, Tensor | float] = {}
        for key, value in kept.items():
            if key in HISTORIES and value:
                found[f"algorithm/{key}"] = torch.stack(value)
            elif isinstance(value, Tensor | float | int):
                found[f"algorithm/{key}"] = value
        return found if self._left is None else found | {"algorithm/left": self._left}

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor | float], rows: Mapping[str, Tensor]) -> None:
        """Takes over the history."""
        self._evaluated = self._left = None
        if self._optimiser is None or not state:
            return
        device = self._moving[0].device
        kept = self._optimiser.state[self._moving[0]]
        kept.clear()
        for name, value in state.items():
            key = name.removeprefix("algorithm/")
            kept[key] = torch.empty_like(value, device=device).copy_(value) if isinstance(value, Tensor) else value
        # Copies one by one: rows of one tensor begin anywhere in memory, and their products may round otherwise.
        kept |= {key: [row.clone() for row in kept[key]] if key in kept else [] for key in HISTORIES}
        self._left = kept.pop("left", None)

    def update(self, table: NDArray[np.int64], update: int) -> Tensor:
        """One step. Where the last evaluation was made at the present parameters, it is not made again."""
        if self._optimiser is None:
            return sum(
                (self.problem.model(batch).detach().double() for _, batch in portions(self.problem)),
                torch.zeros((), dtype=torch.float64, device=self.problem.group.device),
            )
        self._take_in_changes(self._optimiser)
        known = self._is_known()
        before = list[Tensor]()

        def closure() -> Tensor:
            if before or not known:
                self._evaluate()
            before.append(self._own)
            return self._loss

        self._optimiser.step(closure)
        self._left = flat(self._moving)
        return before[0]

    def _is_known(self) -> bool:
        """Whether the last evaluation was made at the present parameters, on all engines."""
        same = self._evaluated is not None and torch.equal(self._evaluated, flat(self._moving))
        # Engines that drifted apart must not wait for each other here: the loop finds them at the end of the epoch.
        return self.problem.group.all_equal(float(same)) and same

    def _take_in_changes(self, optimiser: torch.optim.LBFGS) -> None:
        """Adds what constraints did after the last step to that step: the curvature is that between both ends."""
        state = optimiser.state[self._moving[0]]
        if self._left is None or state.get("d") is None:
            return
        state["d"] = state["d"] * state["t"] + (flat(self._moving) - self._left)
        state["t"] = 1.0

    def _evaluate(self) -> None:
        """The loss of all patterns, and its gradient in the buffer, both summed over engines."""
        problem, settings = self.problem, self.problem.settings
        self.passes += 1
        self._gradient.zero_()
        own = torch.zeros((), dtype=torch.float64, device=problem.group.device)
        factor = problem.scale / problem.order.count
        for _, batch in portions(problem):
            value = problem.model(batch)
            own += value.detach()
            (factor * value).backward()
        if settings.terms and problem.group.rank == 0:
            extra = object_terms(settings.terms, problem.model.object.values)
            own += extra.detach() * problem.normaliser
            if extra.requires_grad:
                (problem.pixels * extra).backward()
        problem.group.sum(self._gradient)
        self._own, self._loss = own, factor * problem.group.sum(own.clone())
        self._evaluated = flat(self._moving)


def flat(parameters: list[nn.Parameter]) -> Tensor:
    """A copy of all parameters in one row."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
