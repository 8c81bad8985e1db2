"""L-BFGS on all patterns at once, with the same steps on all engines.

The direction follows from the last steps by the two-loop recursion of Liu and Nocedal, Math. Programming 45, 503
(1989). Its length meets the strong Wolfe conditions (Nocedal and Wright, Numerical Optimization, 2nd ed., algorithms
3.5 and 3.6).

Vectors have the precision of the reconstruction. Losses, inner products and the line search are double: the difference
of two nearly equal losses decides about a step. With sums in single precision several engines took other steps than one
engine (12% in the loss after 4 epochs).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ptynb.optimize.algorithm import Algorithm, Problem, portions
from ptynb.physics.regularizers import object_terms

HISTORY = 10
"""Number of last steps from which the curvature is estimated."""
MOST_TRIALS = 25
"""Maximum number of evaluations of a line search."""
DECREASE, CURVATURE = 1e-4, 0.9
"""c1 and c2 of the Wolfe conditions."""
SHORTEST = 1e-9
"""A line search ends when the remaining interval changes every parameter by less than this."""
FLATTEST = 1e-10
"""A step s with change y of the gradient is used to estimate the curvature only if s·y exceeds this."""


@dataclass(frozen=True)
class LineSearchStep:
    """A step of a line search: its length, the loss after it, and there the slope of the loss along the direction."""

    length: float
    loss: float
    slope: float


@final
class LBFGS(Algorithm):
    """One step along a quasi-Newton direction per epoch, with a line search.

    Components with a rate above 0 are optimised; the size of the rate has no effect.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._moving: list[nn.Parameter] = []
        self._objective: object = None
        self._reset_history()
        self.passes = 0
        """Number of evaluations of the loss of all patterns."""

    def _reset_history(self) -> None:
        self._history: deque[tuple[Tensor, Tensor]] = deque(maxlen=HISTORY)
        """Steps of all parameters, and the change of the gradient by each."""
        self._last: tuple[Tensor, Tensor] | None = None
        """Parameters and gradient before the last step."""
        self._evaluated: Tensor | None = None
        """Parameters of the last evaluation of loss and gradient."""
        self._loss = 0.0
        self._own = torch.zeros((), dtype=torch.float64)

    def prepare(self) -> None:
        """Discard the history if other parameters than before are optimised, or another objective is minimised."""
        model, settings = self.problem.model, self.problem.settings
        self.problem.free(self.rates())
        pieces = model.components.values()
        moving = [parameter for piece in pieces for parameter in piece.parameters() if parameter.requires_grad]
        objective = (settings.regularizers, self.problem.normaliser)
        if [id(one) for one in moving] == [id(one) for one in self._moving] and objective == self._objective:
            return
        self._moving, self._objective = moving, objective
        self._reset_history()
        if moving:
            # Gradients are views of one buffer, which all engines sum in one message.
            self._gradient = torch.zeros_like(flat(moving))
            for parameter, part in zip(moving, self._parts(self._gradient), strict=True):
                parameter.grad = part

    def state(self) -> dict[str, Tensor | float]:
        """Return the history, and parameters and gradient before the last step.

        Loss and gradient after it are not included: they are computed again.
        """
        if self._last is None:
            return {}
        parameters, gradient = self._last
        entries: dict[str, Tensor | float] = {"algorithm/parameters": parameters, "algorithm/gradient": gradient}
        if self._history:
            entries["algorithm/steps"] = torch.stack([step for step, _ in self._history])
            entries["algorithm/changes"] = torch.stack([change for _, change in self._history])
        return entries

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor | float], rows: Mapping[str, Tensor]) -> None:
        """Restore the history; a state before the first step has none."""
        self._reset_history()
        if not self._moving or "algorithm/parameters" not in state:
            return

        def copy_of(name: str) -> Tensor:
            value = state[f"algorithm/{name}"]
            assert isinstance(value, Tensor)
            return torch.empty_like(value, device=self._gradient.device).copy_(value)

        self._last = copy_of("parameters"), copy_of("gradient")
        if "algorithm/steps" in state:
            # Separate copies: rows of one tensor have another alignment, so their products may round differently.
            pairs = zip(copy_of("steps"), copy_of("changes"), strict=True)
            self._history.extend((step.clone(), change.clone()) for step, change in pairs)

    @torch.no_grad()
    def update(self, table: NDArray[np.int64], update: int) -> Tensor:
        """Perform one step. An evaluation at the present parameters is reused."""
        if not self._moving:
            return sum(
                (self.problem.model(batch).double() for _, batch in portions(self.problem)),
                torch.zeros((), dtype=torch.float64, device=self.problem.group.device),
            )
        if not self._is_evaluated():
            self._evaluate()
        loss, own, here, gradient = self._loss, self._own, flat(self._moving), self._gradient.clone()
        self._extend_history(here, gradient)
        direction = self._direction(gradient)
        slope, largest = self._slope_and_largest(gradient, direction)
        if not slope < 0:  # the history is invalid because of rounding
            self._history.clear()
            direction = -gradient
            slope, largest = self._slope_and_largest(gradient, direction)
        self._last = here, gradient
        if slope == 0:  # a stationary point
            return own

        def after(length: float) -> tuple[float, float]:
            self._set_parameters(here, direction, length)
            slope = self._evaluate(direction)
            return self._loss, slope

        # Without a history the length of the gradient has no meaning: try where a loss of constant slope would reach 0.
        first = 1.0 if self._history else (loss if loss > 0 else 1.0) / -slope
        precision = torch.finfo(here.dtype).eps
        chosen = line_search(after, loss, slope, first, SHORTEST / max(largest, SHORTEST), precision * abs(loss))
        if chosen.length == 0:
            self._history.clear()
        self._set_parameters(here, direction, chosen.length)
        return own

    def _is_evaluated(self) -> bool:
        """Return whether the last evaluation was made at the present parameters, on all engines."""
        same = self._evaluated is not None and torch.equal(self._evaluated, flat(self._moving))
        # All engines must take the same branch even if their parameters differ: the loop detects that after the epoch.
        return self.problem.group.all_equal(float(same)) and same

    def _extend_history(self, here: Tensor, gradient: Tensor) -> None:
        """Add the last step, with changes by constraints after it, and its change of the gradient to the history."""
        if self._last is None:
            return
        step, change = (last.neg_().add_(now) for last, now in zip(self._last, (here, gradient), strict=True))
        self._last = None
        if float(self._inner(step, change)) > FLATTEST:
            self._history.append((step, change))

    def _direction(self, gradient: Tensor) -> Tensor:
        """Return -H g, with the inverse Hessian H estimated from the history and initially scaled by the last step."""
        direction, weights = -gradient, list[Tensor]()
        curvatures = [self._inner(step, change) for step, change in self._history]
        for (step, change), curvature in zip(reversed(self._history), reversed(curvatures), strict=True):
            weights.append(self._inner(step, direction) / curvature)
            _add(direction, change, -weights[-1])
        if self._history:
            last = self._history[-1][1]
            direction.mul_((curvatures[-1] / self._inner(last, last)).to(direction.dtype))
        for (step, change), curvature in zip(self._history, curvatures, strict=True):
            _add(direction, step, weights.pop() - self._inner(change, direction) / curvature)
        return direction

    def _slope_and_largest(self, gradient: Tensor, direction: Tensor) -> tuple[float, float]:
        """Return the slope of the loss along a direction, and its largest component."""
        slope, largest = torch.stack([self._inner(gradient, direction), direction.abs().max().double()]).tolist()
        return slope, largest

    def _inner(self, one: Tensor, other: Tensor) -> Tensor:
        """Return rank 0's inner product, a scalar float64 on the device.

        Engines with other numbers of threads may round the sum differently.
        """
        return self.problem.group.broadcast((one * other).sum(dtype=torch.float64))

    def _set_parameters(self, here: Tensor, direction: Tensor, length: float) -> None:
        """Set the parameters to here + length direction."""
        for parameter, value in zip(self._moving, self._parts(here.add(direction, alpha=length)), strict=True):
            parameter.copy_(value)

    def _parts(self, row: Tensor) -> list[Tensor]:
        """Return views of a flat tensor, in the shapes of the parameters."""
        parts = row.split([parameter.numel() for parameter in self._moving])
        return [part.view_as(parameter) for part, parameter in zip(parts, self._moving, strict=True)]

    @torch.enable_grad()
    def _evaluate(self, direction: Tensor | None = None) -> float:
        """Compute the loss of all patterns, and its gradient in the buffer, both summed over engines.

        Returns the slope of the loss along a direction; 0 without one.
        """
        problem, settings = self.problem, self.problem.settings
        self.passes += 1
        self._gradient.zero_()
        own = torch.zeros((), dtype=torch.float64, device=problem.group.device)
        factor = problem.scale / problem.count
        for _, batch in portions(problem):
            value = problem.model(batch)
            own += value.detach()
            (factor * value).backward()
        if settings.regularizers and problem.group.rank == 0:
            extra = object_terms(settings.regularizers, problem.model.object.values)
            own += extra.detach() * problem.normaliser
            if extra.requires_grad:
                (problem.pixels * extra).backward()
        problem.group.sum(self._gradient)
        numbers = [problem.group.sum(own.clone())]
        if direction is not None:
            numbers.append(self._inner(self._gradient, direction))
        loss, *slopes = torch.stack(numbers).tolist()
        self._own, self._loss = own, factor * loss
        self._evaluated = flat(self._moving)
        return float(sum(slopes))


def line_search(
    evaluate: Callable[[float], tuple[float, float]],
    loss: float,
    slope: float,
    first: float,
    shortest: float,
    noise: float,
) -> LineSearchStep:
    """Return a step that meets the strong Wolfe conditions, or the best trial if none was found.

    evaluate: returns loss and slope after a step of some length. loss, slope: those at length 0. first: length to try
    first. shortest: smallest difference of lengths. noise: rounding error of a loss, which may hide a decrease.
    """
    best, other = LineSearchStep(0.0, loss, slope), None
    length = first
    for _ in range(MOST_TRIALS):
        trial = LineSearchStep(length, *evaluate(length))
        # Negated comparisons, so that NaN counts as higher.
        if not trial.loss <= loss + DECREASE * trial.length * slope + noise or not trial.loss <= best.loss + noise:
            other = trial
        elif abs(trial.slope) <= CURVATURE * abs(slope):
            return trial
        else:
            if trial.slope * (1.0 if other is None else other.length - best.length) >= 0:
                other = best
            earlier, best = best, trial
            if other is None:
                length = _farther(earlier, best)
                continue
        if abs(other.length - best.length) < shortest:
            break
        length = _between(best, other)
    return best


def _farther(earlier: LineSearchStep, trial: LineSearchStep) -> float:
    """Return the next length while the loss still decreases: the minimum of a cubic, within 2 to 10 times the last."""
    predicted = _cubic_minimum(earlier, trial)
    return min(max(predicted, 2 * trial.length), 10 * trial.length) if math.isfinite(predicted) else 4 * trial.length


def _between(one: LineSearchStep, other: LineSearchStep) -> float:
    """Return the minimum of a cubic, at least a tenth of the interval from either end; or the middle if it has none."""
    low, high = sorted((one.length, other.length))
    predicted, margin = _cubic_minimum(one, other), 0.1 * (high - low)
    return min(max(predicted, low + margin), high - margin) if math.isfinite(predicted) else (low + high) / 2


def _cubic_minimum(one: LineSearchStep, other: LineSearchStep) -> float:
    """Return the minimum of the cubic with these losses and slopes; NaN: none. Nocedal and Wright, eq. 3.59."""
    distance = other.length - one.length
    d1 = one.slope + other.slope - 3 * (one.loss - other.loss) / (one.length - other.length)
    square = d1 * d1 - one.slope * other.slope
    if not square >= 0:
        return math.nan
    d2 = math.copysign(math.sqrt(square), distance)
    below = other.slope - one.slope + 2 * d2
    return other.length - distance * (other.slope + d2 - d1) / below if below else math.nan


def _add(values: Tensor, other: Tensor, factor: Tensor) -> None:
    """Add `factor` times `other`, with a scalar float64 that the host does not have to know."""
    if values.device.type == "cpu":
        values.add_(other, alpha=float(factor))  # one pass, rounded once
    else:
        values.add_(other * factor.to(values.dtype))


def flat(parameters: list[nn.Parameter]) -> Tensor:
    """Return a flat copy of all parameters."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
