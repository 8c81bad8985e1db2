"""How gradients become updates: torch's optimisers, and Adam for parameters of which a batch sees a few rows only."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ptynb.exceptions import InvalidValueError
from ptynb.kernels import fused_updates
from ptynb.physics.components.component import ModelComponent
from ptynb.physics.model import Model
from ptynb.settings import Settings

ADAM_EPSILON = 0.015
"""Gradients below this move a pixel less than a full step.

The loss of an update is in units of the mean count of a pixel, so this is a number
without unit. Plain Adam (1e-8) moves the pixels
that hardly see the beam as fast as those in its centre, and they fill with noise: problem of 484 patterns of
128 x 128, 40 epochs at rate 0.01: object error 0.0251 with 1e-8, 0.0237 with 0.016, 0.0338 with 0.16.
"""
ROW_EPSILON = 1e-8
COUNTERS = ("step", "mu_product")
"""What optimisers keep that depends on the number of updates alone, equal on all engines."""
BETAS = (0.9, 0.999)


class Light(torch.optim.Optimizer):
    """Without what torch wraps around optimisers: making one loads torch.compile, 1.8 s, a step costs 0.05 ms."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """`move`."""
        self.move()

    def move(self) -> None:
        """Moves what has a gradient."""
        raise NotImplementedError


class Adam(Light, torch.optim.Adam):
    """torch's, fused; on a CPU in one pass of ours (problem A of the benchmarks: 0.27 instead of 0.37 ms a step)."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        """groups: as for torch's."""
        super().__init__(groups, eps=ADAM_EPSILON, fused=True)

    @torch.no_grad()
    def move(self) -> None:
        """Moves all parameters that have a gradient."""
        for group in self.param_groups:
            if any(parameter.device.type != "cpu" for parameter in group["params"]):
                torch.optim.Adam.step(self)
                return
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)

    def _move(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        state["step"] += 1
        own = parameter.data, gradient.contiguous(), state["exp_avg"], state["exp_avg_sq"]
        values, slopes, mean, square = (tensor.numpy().reshape(-1) for tensor in own)
        fused_updates.adam(values, slopes, mean, square, group["lr"], group["betas"], int(state["step"]), group["eps"])


class RowAdam(Light):
    """Adam for parameters whose first axis is the pattern: each row counts its own steps, and rests between them.

    Dense Adam goes on moving all rows in the direction of their last gradient, so its steps would depend on how many
    updates an epoch has. Kingma and Ba, arXiv:1412.6980, algorithm 1, row by row.
    """

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        """groups: of parameters (row, …), each with its "lr" and "momentum" (the first beta)."""
        super().__init__(groups, {"lr": 0.0, "momentum": BETAS[0]})
        self.batch = torch.zeros(0, dtype=torch.int64)
        """The rows that the next step moves, the same on all engines."""

    @torch.no_grad()
    def move(self) -> None:
        """Moves the rows of `batch`."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and group["lr"] > 0:
                    self._move(parameter, parameter.grad, group["lr"], group["momentum"])

    def _move(self, parameter: Tensor, gradient: Tensor, rate: float, momentum: float) -> None:
        state = self.state[parameter]
        if not state:
            state["steps"] = torch.zeros(len(parameter), device=parameter.device)
            state["mean"], state["square"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        if parameter.device.type == "cpu":
            own = parameter.data, gradient, state["mean"], state["square"]
            values, slopes, mean, square = (tensor.reshape(len(parameter), -1).numpy() for tensor in own)
            steps, betas = state["steps"].numpy(), (momentum, BETAS[1])
            fused_updates.adam_of_rows(
                values, slopes, mean, square, steps, self.batch.numpy(), rate, betas, ROW_EPSILON
            )
        else:
            self._move_elsewhere(parameter, gradient, rate, momentum)

    def _move_elsewhere(self, parameter: Tensor, gradient: Tensor, rate: float, momentum: float) -> None:
        state, rows = self.state[parameter], self.batch.to(parameter.device)
        shape = (-1,) + (1,) * (parameter.ndim - 1)
        state["steps"][rows] += 1
        steps = state["steps"][rows].reshape(shape).to(parameter.dtype)
        own = gradient[rows]
        mean = momentum * state["mean"][rows] + (1 - momentum) * own
        square = BETAS[1] * state["square"][rows] + (1 - BETAS[1]) * own.square()
        state["mean"][rows], state["square"][rows] = mean, square
        unbiased = (square / (1 - BETAS[1] ** steps)).sqrt() + ROW_EPSILON
        parameter[rows] -= rate * mean / (1 - momentum**steps) / unbiased


def moments(settings: Settings) -> int:
    """Arrays that the optimiser keeps beside each parameter of object and probe."""
    return {"adam": 2, "adamw": 2, "nadam": 2, "radam": 2, "rmsprop": 1}.get(
        settings.optimiser, int(settings.momentum > 0)
    )


def make_optimisers(model: Model, settings: Settings) -> list[torch.optim.Optimizer]:
    """The optimisers of these settings: one for what every update moves, one for rows, either may be missing."""
    dense, rows = list[dict[str, Any]](), list[dict[str, Any]]()
    for name, piece in model.parts.items():
        for parameter_name, parameter in piece.named_parameters():
            _check(model, piece, parameter_name, parameter)
            by_rows = parameter_name in piece.rows and settings.optimiser != "sgd"
            group = {"params": [parameter], "lr": 0.0, "name": name, "parameter": parameter_name}
            (rows if by_rows else dense).append(group)
    if settings.optimiser == "rpie":
        own = [group for group in dense if group["name"] in ("object", "probe")]
        others = [group for group in dense if group["name"] not in ("object", "probe")]
        made = [torch.optim.SGD(own, momentum=settings.momentum), Adam(others)]
    else:
        made = [_dense(settings, dense)]
    if rows:
        made.append(RowAdam(rows))
    return made


def _check(model: Model, piece: ModelComponent, name: str, parameter: Tensor) -> None:
    """Refuses what loops can't move, or would move beyond its end."""
    if parameter.is_complex() or not parameter.is_contiguous():
        raise InvalidValueError(
            f"Parameter {name!r} of {piece.name!r} is complex or not contiguous: make it a contiguous real view."
        )
    if name in piece.rows and len(parameter) != len(model.initial_positions):
        raise InvalidValueError(
            f"Parameter {name!r} of {piece.name!r} is one of `rows` and has {len(parameter)} of them; there are "
            f"{len(model.initial_positions)} patterns, and each has to have one."
        )


def _dense(settings: Settings, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    match settings.optimiser:
        case "sgd":
            return torch.optim.SGD(groups, momentum=settings.momentum)
        case "adamw":
            return torch.optim.AdamW(groups, eps=ADAM_EPSILON, fused=True)
        case "nadam":
            return torch.optim.NAdam(groups, eps=ADAM_EPSILON)
        case "radam":
            return torch.optim.RAdam(groups, eps=ADAM_EPSILON)
        case "rmsprop":
            return torch.optim.RMSprop(groups, eps=ADAM_EPSILON)
        case _:
            return Adam(groups)


def set_rates(optimisers: list[torch.optim.Optimizer], rate: Callable[[str, str], float], settings: Settings) -> None:
    """Takes over rates by part and parameter from the next update on."""
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = rate(group["name"], group["parameter"])
            if group["name"] == "positions" and isinstance(optimiser, RowAdam):
                group["momentum"] = settings.positions.momentum


def moments_of(optimisers: list[torch.optim.Optimizer]) -> dict[str, Tensor | float]:
    """What the optimisers keep beside each parameter, by "optimiser/part/parameter/key"; not copied."""
    return {
        f"{place}/{key}": value
        for optimiser, parameter, _, place in _places(optimisers)
        for key, value in optimiser.state.get(parameter, {}).items()
        if value is not None
    }


@torch.no_grad()
def restore_moments(optimisers: list[torch.optim.Optimizer], state: Mapping[str, Tensor | float]) -> None:
    """Takes over copies of what `moments_of` said; parameters of which it says nothing begin anew."""
    for optimiser, parameter, group, place in _places(optimisers):
        optimiser.state.pop(parameter, None)
        found = {name.removeprefix(f"{place}/"): one for name, one in state.items() if name.startswith(f"{place}/")}
        for key, value in found.items():
            optimiser.state[parameter][key] = value
            if isinstance(value, Tensor):
                # Counters are where torch has them: on the CPU, but for optimisers that never look at them there.
                counts = key in COUNTERS and not (group.get("fused") or group.get("capturable"))
                device = torch.device("cpu") if counts else parameter.device
                optimiser.state[parameter][key] = torch.empty_like(value, device=device).copy_(value)


def _places(
    optimisers: list[torch.optim.Optimizer],
) -> Iterator[tuple[torch.optim.Optimizer, Tensor, dict[str, Any], str]]:
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            for parameter in group["params"]:
                yield optimiser, parameter, group, f"optimiser/{group['name']}/{group['parameter']}"


@torch.no_grad()
def divide_by_illumination(
    model: Model, object_illumination: Tensor, probe_illumination: Tensor, unit: float, regularisation: float
) -> None:
    """Turns gradients of the amplitude loss into steps of rPIE.

    object_light: Σ_j |P_j|² (y, x) of the batch; probe_light: Σ_j |O_j|² (y, x); both over all engines.
    unit: what the loss was multiplied by. The update -Σ_j P_j* (ψ_j - ψ'_j) / ((1 - α) Σ|P_j|² + α max Σ|P_j|²) has in
    its numerator half the gradient as torch writes it. Maiden, Johnson and Li, Optica 4, 736 (2017), eqs. 21 and 22;
    with one pattern a batch and α = 1 it is Maiden and Rodenburg's ePIE, Ultramicroscopy 109, 1256 (2009).
    """

    def divisor(light: Tensor) -> Tensor:
        most = light.max()
        mixed = (1 - regularisation) * light + regularisation * most
        return (2 * unit * mixed.clamp(min=1e-6 * float(most)))[..., None]

    for parameter, light in (
        (model.object.parts, object_illumination),
        (model.probe.parts, probe_illumination * model.probe.scale**2),
    ):
        if parameter.grad is not None:
            parameter.grad /= divisor(light)
