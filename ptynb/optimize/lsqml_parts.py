"""How LSQML updates the parts beside object and probe; `lsqml` has the equations.

Each part contributes to the sums over the batch, which engines exchange in one message: values of single patterns,
which only the engine of a pattern knows, and sums over patterns. From these all engines make the same step.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, final

import torch
from torch import Tensor

from ptynb.optimize.algorithm import Problem
from ptynb.physics.components.builtin import Background, Positions, Variations, Weights
from ptynb.physics.components.component import Batch
from ptynb.physics.exit_wave_corrections import Corrections
from ptynb.physics.patches import read_windows

FLATTEST = 1e-4
"""Mean square of the difference of neighbouring pixels that the object has at least where positions are concerned.

An object that is still flat does not determine positions: their steps would be noise divided by noise.
"""
FARTHEST = 1.0
"""Largest step of a position along y and x [pixels]: farther away, exit waves do not depend linearly on it."""
BRIGHTEST = 2.0
"""Largest factor by which a step changes the amplitude of a pattern."""
RIDGE = 1e-6
"""Added to the diagonal of least squares, relative to its mean, so that the solution is unique."""


class PartOfModel(ABC):
    """The steps of one component. On an engine without patterns of the batch, values are (0, …) and sums 0."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @abstractmethod
    def values(self, found: Corrections, batch: Batch) -> Tensor:
        """Return values of this engine's patterns (pattern, `width`), real."""

    @abstractmethod
    def step(self, rate: float | Tensor, members: Tensor, values: Tensor, sums: Tensor, power: Tensor) -> None:
        """Update the component. members: the batch's patterns, of all engines, with their values (pattern, `width`).

        rate: a scalar on a GPU, so that a recorded update reads it. sums: over all engines. power: Σ_j w_j Π_k |O_k|² +
        δ max, (y, x).
        """

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of values of a pattern."""

    def sums(self, found: Corrections | None, batch: Batch) -> Tensor:
        """Return sums over this engine's patterns; none by default."""
        return self.problem.model.probe.parts.new_zeros(0)


@final
class IntensitySteps(PartOfModel):
    """Relative intensity of each pattern."""

    width = 1

    def __init__(self, problem: Problem, weights: Weights) -> None:
        super().__init__(problem)
        self._weights = weights.weights

    def values(self, found: Corrections, batch: Batch) -> Tensor:
        """Return Re Σ ψ* χ / Σ |Ψ|²."""
        assert found.brightness is not None
        product, square = found.brightness.unbind(1)
        return (product / square.clamp(min=torch.finfo(torch.float32).tiny))[:, None]

    def step(self, rate: float | Tensor, members: Tensor, values: Tensor, sums: Tensor, power: Tensor) -> None:
        """Multiply the amplitudes."""
        factor = (1 + rate * values[:, 0]).clamp(1 / BRIGHTEST, BRIGHTEST)
        self._weights[members] *= factor.square().to(self._weights.dtype)


@final
class PositionSteps(PartOfModel):
    """Shift of each position, with momentum from its last steps."""

    width = 2

    def __init__(self, problem: Problem, positions: Positions) -> None:
        super().__init__(problem)
        self._moves = positions.moves
        self.velocity: Tensor | None = None
        """Last step of each position (pattern, yx); None before the first."""

    def values(self, found: Corrections, batch: Batch) -> Tensor:
        """Return the shifts of least squares [pixels]."""
        assert found.shifts is not None
        assert found.brightness is not None
        slices = self.problem.model.object.values[0]
        curvatures = found.curvatures(slices[0] if len(slices) == 1 else slices.prod(0))
        return position_steps(found.shifts, curvatures, FLATTEST * found.brightness[:, 1])

    def step(self, rate: float | Tensor, members: Tensor, values: Tensor, sums: Tensor, power: Tensor) -> None:
        """Move the positions of the batch."""
        momentum = self.problem.settings.positions.momentum
        if self.velocity is None:
            self.velocity = torch.zeros_like(self._moves)
        step = momentum * self.velocity[members] + rate * values.to(self._moves.dtype)
        self.velocity[members] = step
        self._moves[members] += step


@final
class ProbeVariationSteps(PartOfModel):
    """Coefficients of each pattern and modes of the varying probe (OPR)."""

    def __init__(self, problem: Problem, variations: Variations) -> None:
        super().__init__(problem)
        self._part = variations

    @property
    def width(self) -> int:
        """The real part of each coefficient."""
        return self._part.coefficients.shape[1]

    def values(self, found: Corrections, batch: Batch) -> Tensor:
        """Return the changes of the coefficients, which are real."""
        assert found.first is not None
        modes, model = self._modes().flatten(1), self.problem.model
        origins, _ = model.window_origins_and_shifts(batch)
        object = torch.view_as_real(model.object.values[0]).square().sum(-1).prod(0)
        power = read_windows(object, origins, model.window).flatten(1)
        weights = model.detection(batch).weights
        power = power if weights is None else weights[:, None] * power
        pairs = (modes.conj()[:, None] * modes).real.flatten(0, 1)
        matrices = (power @ pairs.T).view(len(batch), len(modes), len(modes))
        return solved(matrices, (found.first.flatten(1) @ modes.conj().T).real)

    def sums(self, found: Corrections | None, batch: Batch) -> Tensor:
        """Return Σ_j c_jr* U_j (rank, y, x)."""
        if found is None or found.first is None:
            return torch.zeros_like(self._modes())
        return torch.einsum("pr,pyx->ryx", self._coefficients()[batch.patterns].conj(), found.first)

    def step(self, rate: float | Tensor, members: Tensor, values: Tensor, sums: Tensor, power: Tensor) -> None:
        """Change both. Modes whose coefficients are all 0 remain as they are."""
        squares = self._part.coefficients.detach().square().sum(2).mean(0)[:, None, None]
        steps = sums / (squares * power).clamp(min=torch.finfo(torch.float32).tiny)
        fraction = math.sqrt(len(members) / self.problem.count)
        self._part.ways.add_(torch.view_as_real(steps * (rate * fraction / self._part.scale)))
        self._part.coefficients[members, :, 0] += (rate * values).to(self._part.coefficients.dtype)

    def _modes(self) -> Tensor:
        return torch.view_as_complex(self._part.ways.detach()) * self._part.scale

    def _coefficients(self) -> Tensor:
        return torch.view_as_complex(self._part.coefficients.detach())


@final
class BackgroundSteps(PartOfModel):
    """Background of all patterns."""

    width = 0

    def __init__(self, problem: Problem, background: Background) -> None:
        super().__init__(problem)
        self._part = background

    def values(self, found: Corrections, batch: Batch) -> Tensor:
        """Return nothing."""
        return self._part.background.new_zeros((len(batch), 0))

    def sums(self, found: Corrections | None, batch: Batch) -> Tensor:
        """Return Σ_j (√(I / D) - 1) and Σ_j 1 / D (2, y, x)."""
        if found is None or found.background is None:
            return self._part.background.new_zeros((2, *self._part.background.shape))
        return found.background

    def step(self, rate: float | Tensor, members: Tensor, values: Tensor, sums: Tensor, power: Tensor) -> None:
        """Change the background; bad pixels, of which nothing is known, keep it."""
        lacking, curvature = sums
        change = 2 * len(members) / self.problem.count * lacking / torch.where(curvature > 0, curvature, 1)
        self._part.set(self._part.counts + rate * change)


def parts_of(problem: Problem) -> dict[str, PartOfModel]:
    """Return the steps of the model's components that LSQML supports beside object and probe, by component."""
    makers: dict[type[Any], type[Any]] = {
        Weights: IntensitySteps,
        Positions: PositionSteps,
        Variations: ProbeVariationSteps,
        Background: BackgroundSteps,
    }
    return {
        name: makers[type(component)](problem, component)
        for name, component in problem.model.components.items()
        if type(component) in makers
    }


def position_steps(slopes: Tensor, curvatures: Tensor, least: Tensor) -> Tensor:
    """Return H⁻¹ g (pattern, yx) [pixels], at most `FARTHEST` along each axis.

    slopes: g (pattern, yx). curvatures: H_yy, H_yx, H_xx (pattern, 3). least: added to H_yy and H_xx (pattern,).
    """
    along_y, both, along_x = curvatures.double().unbind(1)
    along_y, along_x = along_y + least, along_x + least
    y, x = slopes.double().unbind(1)
    determinant = (along_y * along_x - both.square()).clamp(min=1e-300)
    steps = torch.stack([along_x * y - both * x, along_y * x - both * y], 1) / determinant[:, None]
    return steps.clamp(-FARTHEST, FARTHEST)


def solved(matrices: Tensor, right: Tensor) -> Tensor:
    """Return the solutions (pattern, r) of symmetric, positive semidefinite systems (pattern, r, r)."""
    mean = matrices.diagonal(dim1=1, dim2=2).mean(1).clamp(min=torch.finfo(torch.float32).tiny)
    ridge = RIDGE * mean[:, None, None] * torch.eye(matrices.shape[1], dtype=matrices.dtype, device=matrices.device)
    if matrices.device.type == "cpu":
        return torch.linalg.solve_ex(matrices + ridge, right)[0]
    return _eliminated((matrices + ridge).double(), right.double()).to(right.dtype)


def _eliminated(matrices: Tensor, right: Tensor) -> Tensor:
    """Return the solutions by Gauss and Jordan, without pivots, which positive definite matrices do not need.

    By torch's simple operations: its solvers of many small matrices belong to libraries that wait for the GPU, or
    allocate memory there, which an update that is recorded as a graph must not do.
    """
    system = torch.cat([matrices, right[:, :, None]], 2)
    for column in range(matrices.shape[1]):
        pivot = system[:, column] / system[:, column, column, None]
        system = torch.baddbmm(system, system[:, :, column, None], pivot[:, None], alpha=-1)
        system[:, column] = pivot
    return system[:, :, -1]
