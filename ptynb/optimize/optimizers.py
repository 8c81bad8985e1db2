"""Optimisers: those of torch, and Adam for parameters of which a batch contains a few rows only."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ptynb.exceptions import InvalidValueError
from ptynb.kernels import fused_updates
from ptynb.physics.components.component import ModelComponent
from ptynb.physics.model import Model
from ptynb.physics.operations import step_all_, step_rows_
from ptynb.settings import Settings

ADAM_EPSILON = 0.015
"""Gradients below this change a pixel by less than a full step.

The loss of an update is in units of the mean count of a pixel, so this number has no unit. Plain Adam (1e-8) changes
weakly illuminated pixels as fast as those in the centre of the beam, and they fill with noise: with 484 patterns of
128 x 128, 40 epochs at rate 0.01, the object error was 0.0251 with 1e-8, 0.0237 with 0.016, 0.0338 with 0.16.
"""
ROW_EPSILON = 1e-8
MOMENTS = ("exp_avg", "exp_avg_sq")
"""Entries of the state of `Adam` that are arrays."""
COUNTERS = ("step", "mu_product")
"""Entries of an optimiser's state that depend on the number of updates alone, equal on all engines."""
BETAS = (0.9, 0.99)
"""Decay of the means of gradients and of their squares from update to update.

With torch's 0.999 for the squares these were, in all of a run of 100 epochs of 11 updates, those of the first epochs,
whose gradients are ten times larger: strong objects at the edge of a scan had not converged at its end.
"""


class Light(torch.optim.Optimizer):
    """An optimiser without torch's wrappers: they import torch.compile at creation (1.8 s), and cost 0.05 ms a step."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Call `move`."""
        self.move()

    def move(self) -> None:
        """Update all parameters that have a gradient."""
        raise NotImplementedError


class Adam(Light, torch.optim.Adam):
    """torch's Adam in one pass: a compiled loop on a CPU (0.27 ms a step of A, by torch's fused one 0.37), or a kernel.

    If a parameter group has `rows`, only these rows of its arrays (state, slice, y, x, …) make a step.

    On an H100 torch's fused one took half of the time of an update of A: each of its programs has 65536 numbers, so
    that most of the GPU has nothing to do.
    """

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        """groups: parameter groups as for torch.optim.Adam."""
        super().__init__(groups, betas=BETAS, eps=ADAM_EPSILON, fused=True)

    def start(self, parameter: Tensor) -> dict[str, Any]:
        """Return the moments of a parameter, and the number of its steps; what is not there begins with 0."""
        state: dict[str, Any] = self.state[parameter]
        if "step" not in state:
            state["step"] = torch.zeros((), device=parameter.device)
        for key in MOMENTS:
            if key not in state:
                state[key] = torch.zeros_like(parameter)
        return state

    @torch.no_grad()
    def move(self) -> None:
        """Update all parameters that have a gradient."""
        elsewhere = list[tuple[Tensor, Tensor, dict[str, Any]]]()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if parameter.device.type == "cpu":
                    self._move(parameter, parameter.grad, group)
                else:
                    elsewhere.append((parameter, parameter.grad, group))
        if elsewhere:
            self._move_elsewhere(elsewhere)

    def _move_elsewhere(self, moving: list[tuple[Tensor, Tensor, dict[str, Any]]]) -> None:
        for parameter, _, _ in moving:
            self.start(parameter)
        torch._foreach_add_([self.state[parameter]["step"] for parameter, _, _ in moving], 1)
        for parameter, gradient, group in moving:
            state, rate = self.state[parameter], rate_on_device(group, parameter)
            arrays = parameter.data, gradient, *(state[key] for key in MOMENTS)
            beta, beta_of_squares = group["betas"]
            for values, slopes, mean, square in _parts(arrays, group.get("rows")):
                step_all_(values, slopes, mean, square, state["step"], rate, beta, beta_of_squares, group["eps"])

    def _move(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.start(parameter)
        state["step"] += 1
        arrays = parameter.data, gradient.contiguous(), *(state[key] for key in MOMENTS)
        for own in _parts(arrays, group.get("rows")):
            values, slopes, mean, square = (tensor.numpy().reshape(-1) for tensor in own)
            steps = int(state["step"])
            fused_updates.adam(values, slopes, mean, square, group["lr"], group["betas"], steps, group["eps"])


def _parts(arrays: tuple[Tensor, ...], rows: slice | None) -> Iterator[tuple[Tensor, ...]]:
    """Yield the rows of each plane of arrays (state, slice, y, x, …), which are contiguous; rows None: the arrays."""
    if rows is None:
        yield arrays
        return
    for plane in np.ndindex(arrays[0].shape[:2]):
        yield tuple(array[plane][rows] for array in arrays)


class SGD(Light, torch.optim.SGD):
    """torch's SGD; on a GPU its rates are read from the device, so that its steps can be recorded."""

    @torch.no_grad()
    def move(self) -> None:
        """Update all parameters that have a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                step: Tensor = parameter.grad
                if group["momentum"]:
                    state = self.state[parameter]
                    if state.get("momentum_buffer") is None:
                        state["momentum_buffer"] = torch.zeros_like(parameter)
                    step = state["momentum_buffer"].mul_(group["momentum"]).add_(step)
                if parameter.device.type == "cpu":
                    parameter.add_(step, alpha=-group["lr"])
                else:
                    parameter.addcmul_(step, rate_on_device(group, parameter), value=-1)


class RowAdam(Light):
    """Adam for parameters whose first axis is the pattern: only rows of the batch are updated, with own step counts.

    Dense Adam would update all rows at every step, along their last gradients, so the result would depend on the number
    of updates in an epoch. Kingma and Ba, arXiv:1412.6980, algorithm 1, row by row.
    """

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        """groups: of parameters (row, …), each with its "lr" and "momentum" (the first beta)."""
        super().__init__(groups, {"lr": 0.0, "momentum": BETAS[0]})
        self.batch = torch.zeros(0, dtype=torch.int64)
        """Rows that the next step updates, the same on all engines; int64, on the device of the parameters."""

    @torch.no_grad()
    def move(self) -> None:
        """Update the rows of `batch`."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and group["lr"] > 0:
                    self._move(parameter, parameter.grad, group)

    def _move(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["steps"] = torch.zeros(len(parameter), device=parameter.device)
            state["mean"], state["square"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        if parameter.device.type == "cpu":
            own = parameter.data, gradient, state["mean"], state["square"]
            values, slopes, mean, square = (tensor.reshape(len(parameter), -1).numpy() for tensor in own)
            steps, betas = state["steps"].numpy(), (group["momentum"], BETAS[1])
            fused_updates.adam_of_rows(
                values, slopes, mean, square, steps, self.batch.numpy(), group["lr"], betas, ROW_EPSILON
            )
        else:
            step_rows_(
                parameter.data,
                gradient,
                state["mean"],
                state["square"],
                state["steps"],
                self.batch,
                rate_on_device(group, parameter),
                group["momentum"],
                BETAS[1],
                ROW_EPSILON,
            )


def rate_on_device(group: dict[str, Any], parameter: Tensor) -> Tensor:
    """Return the learning rate of a parameter group as a scalar on a GPU, the same tensor after each change.

    A CUDA graph reads it at every replay, so that a change of the rate needs no other graph. parameter: of the group,
    whose precision the scalar has.
    """
    kept: Tensor | None = group.get("rate")
    if kept is None:
        kept = group["rate"] = torch.empty((), device=parameter.device, dtype=parameter.dtype)
    if group.get("rate_of") != group["lr"]:
        kept.fill_(group["lr"])
        group["rate_of"] = group["lr"]
    return kept


def moments(settings: Settings) -> int:
    """Return the number of arrays that the optimiser stores for each parameter of object and probe."""
    if settings.optimiser == "lsqml":  # the last step, and where the epoch began
        return 2 * (settings.momentum > 0)
    return {"adam": 2, "adamw": 2, "nadam": 2, "radam": 2, "rmsprop": 1}.get(
        settings.optimiser, int(settings.momentum > 0)
    )


def make_optimisers(model: Model, settings: Settings) -> list[torch.optim.Optimizer]:
    """Return the optimisers of these settings: for dense parameters, and for parameters with a row per pattern."""
    dense, rows = list[dict[str, Any]](), list[dict[str, Any]]()
    for name, component in model.components.items():
        for parameter_name, parameter in component.named_parameters():
            _check(model, component, parameter_name, parameter)
            by_rows = parameter_name in component.rows and settings.optimiser != "sgd"
            group = {"params": [parameter], "lr": 0.0, "name": name, "parameter": parameter_name}
            (rows if by_rows else dense).append(group)
    if settings.optimiser == "rpie":
        own = [group for group in dense if group["name"] in ("object", "probe")]
        others = [group for group in dense if group["name"] not in ("object", "probe")]
        optimisers: list[torch.optim.Optimizer] = [SGD(own, momentum=settings.momentum), Adam(others)]
    else:
        optimisers = [_dense(settings, dense, model.part.is_whole)]
    if rows:
        optimisers.append(RowAdam(rows))
    return optimisers


def _check(model: Model, piece: ModelComponent, name: str, parameter: Tensor) -> None:
    """Raise InvalidValueError for parameters that the compiled loops do not support."""
    if parameter.is_complex() or not parameter.is_contiguous():
        raise InvalidValueError(
            f"Parameter {name!r} of {piece.name!r} is complex or not contiguous: make it a contiguous real view.",
            code="component.invalid-parameter",
        )
    if name in piece.rows and len(parameter) != len(model.initial_positions):
        raise InvalidValueError(
            f"Parameter {name!r} of {piece.name!r} is one of `rows` and has length {len(parameter)}; expected "
            f"{len(model.initial_positions)}, one row for each pattern.",
            code="component.invalid-parameter",
        )


def _dense(settings: Settings, groups: list[dict[str, Any]], whole: bool) -> torch.optim.Optimizer:
    """Return the optimiser of dense parameters. whole: whether the object is not in tiles."""
    match settings.optimiser:
        case "sgd":
            return SGD(groups, momentum=settings.momentum)
        case "adamw":
            # The fused one rounds the last numbers of an array differently, which are other pixels in each tile.
            return torch.optim.AdamW(groups, betas=BETAS, eps=ADAM_EPSILON, fused=whole)
        case "nadam":
            return torch.optim.NAdam(groups, betas=BETAS, eps=ADAM_EPSILON)
        case "radam":
            return torch.optim.RAdam(groups, betas=BETAS, eps=ADAM_EPSILON)
        case "rmsprop":
            return torch.optim.RMSprop(groups, eps=ADAM_EPSILON)
        case "adam":
            return Adam(groups)
        case optimiser:
            raise AssertionError(f"{optimiser} has steps of its own")


def set_rates(optimisers: list[torch.optim.Optimizer], rate: Callable[[str, str], float], settings: Settings) -> None:
    """Set the learning rates by component and parameter, from the next update on."""
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = rate(group["name"], group["parameter"])
            if "rate" in group:
                rate_on_device(group, group["rate"])
            if group["name"] == "positions" and isinstance(optimiser, RowAdam):
                group["momentum"] = settings.positions.momentum


def moments_of(optimisers: list[torch.optim.Optimizer]) -> dict[str, Tensor | float]:
    """Return the optimisers' state by "optimiser/component/parameter/key"; tensors are not copied."""
    return {
        f"{prefix}/{key}": value
        for optimiser, parameter, _, prefix in _named_parameters(optimisers)
        for key, value in optimiser.state.get(parameter, {}).items()
        if value is not None
    }


@torch.no_grad()
def restore_moments(optimisers: list[torch.optim.Optimizer], state: Mapping[str, Tensor | float]) -> None:
    """Restore copies of a state from `moments_of`; parameters that are not in it start without moments."""
    for optimiser, parameter, group, prefix in _named_parameters(optimisers):
        optimiser.state.pop(parameter, None)
        entries = {name.removeprefix(f"{prefix}/"): one for name, one in state.items() if name.startswith(f"{prefix}/")}
        for key, value in entries.items():
            optimiser.state[parameter][key] = value
            if isinstance(value, Tensor):
                # torch has counters on the CPU, unless the optimiser is fused or capturable.
                counts = key in COUNTERS and not (group.get("fused") or group.get("capturable"))
                device = torch.device("cpu") if counts else parameter.device
                optimiser.state[parameter][key] = torch.empty_like(value, device=device).copy_(value)


def _named_parameters(
    optimisers: list[torch.optim.Optimizer],
) -> Iterator[tuple[torch.optim.Optimizer, Tensor, dict[str, Any], str]]:
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            for parameter in group["params"]:
                yield optimiser, parameter, group, f"optimiser/{group['name']}/{group['parameter']}"


@torch.no_grad()
def divide_by_illumination(
    model: Model,
    object_illumination: Tensor,
    probe_illumination: Tensor,
    unit: float,
    regularisation: float,
    largest_of_object: Tensor | None = None,
) -> None:
    """Convert gradients of the amplitude loss to steps of rPIE, in place.

    object_illumination: Σ_j |P_j|² (y, x) of the batch; probe_illumination: Σ_j |O_j|² (probe, y, x) of the patterns of
    each probe; both over all engines.
    largest_of_object: largest value of the former in the whole object, if this is a tile (1, 1).
    unit: factor of the loss. regularisation: α. The numerator of the update -Σ_j P_j* (ψ_j - ψ'_j) / ((1 - α) Σ|P_j|² +
    α max Σ|P_j|²) is half the gradient in torch's convention. Maiden, Johnson and Li, Optica 4, 736 (2017), eqs. 21 and
    22; with batches of one pattern and α = 1 it is Maiden and Rodenburg's ePIE, Ultramicroscopy 109, 1256 (2009).
    """

    def divisor(illumination: Tensor, largest: Tensor | None = None) -> Tensor:
        largest = illumination.amax((-2, -1), keepdim=True) if largest is None else largest
        mixed = (1 - regularisation) * illumination + regularisation * largest
        # A probe none of whose patterns is in the batch has neither illumination nor gradient.
        found = 2 * unit * torch.maximum(mixed, 1e-6 * largest)
        return found.clamp(min=torch.finfo(found.dtype).tiny)[..., None]

    modes_of_each = len(model.probe.parts) // model.probe.count

    for parameter, *illumination in (
        (model.object.parts, object_illumination, largest_of_object),
        (model.probe.parts, probe_illumination.repeat_interleave(modes_of_each, 0) * model.probe.scale**2),
    ):
        if parameter.grad is not None:
            parameter.grad /= divisor(*illumination)
