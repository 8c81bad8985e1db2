"""Updates by gradients: the batch's loss backwards through DistributedDataParallel, then torch's optimisers."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ptynb.kernels.runtime.thread_count import torch_alone
from ptynb.optimize.algorithm import Problem
from ptynb.optimize.batch_algorithm import BatchAlgorithm
from ptynb.optimize.covered_region import Region, Windows, region, worth_while
from ptynb.optimize.gradient_sync import Exchange
from ptynb.optimize.optimizers import (
    MOMENTS,
    Adam,
    Light,
    RowAdam,
    divide_by_illumination,
    make_optimisers,
    moments_of,
    restore_moments,
    set_rates,
)
from ptynb.optimize.scatter_sums import illumination_sums
from ptynb.physics.components.component import Batch
from ptynb.physics.regularizers import object_terms
from ptynb.settings.regularizers import PACBED, DataTerm

ALONE_BELOW = 2**22
"""Size of the object below which torch's optimisers are faster with one thread than with threads that must be woken."""


class _Sums(NamedTuple):
    """Sums over this engine's patterns of an update.

    losses: a scalar. For rPIE, if there are patterns, illumination: Σ_jm |P_jm|² (y, x), and power: Σ_j |O_j|² (probe,
    y, x), of `illumination_sums`.
    """

    losses: Tensor
    illumination: Tensor | None = None
    power: Tensor | None = None


@final
class Gradient(BatchAlgorithm[_Sums]):
    """Adam and its variants, SGD, rPIE: one step per batch, the same on all engines."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.optimisers = make_optimisers(problem.model, problem.settings)
        self.exchange = Exchange(problem.group, problem.model, problem.tile)
        self._windows = Windows(problem.model, self.optimisers)
        self.recorded_parameters = [*problem.model.parameters()]
        self._small = sum(parameter.numel() for parameter in problem.model.object.parameters()) < ALONE_BELOW
        self._prepared: tuple[Any, ...] | None = None
        self._distributed: nn.Module = problem.model
        self._moments_on_host = dict[str, Tensor]()
        """Those of an object that is streamed, as in `state`."""
        self._stream_moments({})

    @property
    def _sums_apart(self) -> bool:
        """Whether gradients are summed over engines after `backward`, not by DistributedDataParallel within it.

        On GPUs, where `backward` is recorded as a CUDA graph: hooks of Python cannot be. With tiles, whose gradients
        are of other pixels on each engine.
        """
        problem = self.problem
        return problem.group.world > 1 and (problem.group.device.type != "cpu" or problem.tile is not None)

    def prepare(self) -> None:
        """Set step sizes, and wrap the model again if other components are optimised now.

        DistributedDataParallel reduces only parameters that have gradients when it wraps the model.
        """
        self._windows.forget()
        set_rates(self.optimisers, self._rate, self.problem.settings)
        moving, settings = frozenset(self.rates()), self.problem.settings
        # With other regularizers, gradients and so messages have another order: see `_rehearse`.
        wrapped_for = moving, settings.regularizers, settings.object.amplitude_learning_rate == 0
        # Before the comparison: a checkpoint restored meanwhile may have deactivated components.
        self.problem.free(moving)
        if self._graphs.possible:
            gradients = [parameter.requires_grad for parameter in self.recorded_parameters]
            self._graphs.clear_if_changed(moving, gradients)
        if wrapped_for == self._prepared:
            return
        self._prepared = wrapped_for
        any_optimised = any(parameter.requires_grad for parameter in self.problem.model.parameters())
        # The wrapper would allocate buffers as large as the object for messages, which are not needed here.
        self._distributed = (
            self.problem.group.wrap(self.problem.model, self.exchange.hook)
            if any_optimised and not self._sums_apart
            else self.problem.model
        )
        if self._distributed is not self.problem.model:
            self._rehearse()

    def _rehearse(self) -> None:
        """Run the wrapped model once with an empty pattern, without effect.

        DistributedDataParallel rebuilds its buckets after the first pass, in the order of the gradients. The position
        of a number in a bucket determines the order in which three or more engines sum it: without this pass, a resumed
        run would differ in the last digits from one that was not interrupted.
        """
        problem, self.exchange.region, sent = self.problem, None, self.exchange.reduced_bytes
        own, (height, width), dtype = problem.own()[:1], problem.shard.window, problem.shard.kind
        nothing = torch.zeros(
            (len(own), height, width * dtype.itemsize), dtype=torch.uint8, device=problem.group.device
        ).view(dtype)
        patterns = torch.from_numpy(own).to(problem.group.device)
        value: Tensor = self._distributed(Batch(patterns, nothing, 1, problem.shard.dtype))
        torch.autograd.backward(value, torch.zeros_like(value))
        self.exchange.reduced_bytes = sent
        for parameter in self.recorded_parameters:
            parameter.grad = None

    @property
    def recordable(self) -> bool:
        """Whether a graph can hold the gradients: nothing in the model is summed over engines on the way."""
        return self.problem.group.world == 1 or not self.problem.model.mean_pattern_weight

    @property
    def step_recordable(self) -> bool:
        """Whether steps of all optimisers read all that changes from the device.

        Those of torch have their rates as numbers; Adam has the rows of a band so.
        """
        return all(isinstance(optimiser, Light) for optimiser in self.optimisers) and not self._steps_rows

    def begin(self, members: NDArray[np.int64], update: int) -> None:
        """Determine where the object's gradient can differ from 0."""
        problem = self.problem
        if self._steps_rows:
            assert problem.bands is not None
            rows = problem.bands.rows(int(problem.bands.of_pattern[members[0]])) if len(members) else slice(0, 0)
            for _, group in self._object_groups:
                group["rows"] = rows
        self.exchange.region = self._region(members, update)
        if problem.tile is not None:
            everywhere = any(not isinstance(term, DataTerm | PACBED) for term in problem.settings.regularizers)
            problem.tile.begin(None if everywhere else members, problem.model.movers)

    def measure(self, own: NDArray[np.int64], members: int, indices: Tensor | None) -> _Sums:
        """Compute the gradients of these patterns of this engine, and return their sums."""
        for parameter in self.recorded_parameters:
            parameter.grad = None
        with torch_alone(self.problem.model.compiled):
            return self._backward(own, members, indices)

    def step(
        self, sums: _Sums, own: NDArray[np.int64], members: NDArray[np.int64], indices: Tensor | None, release: bool
    ) -> Tensor:
        """Make a step along the gradients and those of the regularizers; return the losses and the regularizers' value.

        Gradients remain until the next update.
        """
        problem, total, regularized = self.problem, sums.losses, bool(self.problem.settings.regularizers)
        if regularized and problem.tile is not None:
            total = total + self._add_regularizers() * problem.normaliser * len(members) / problem.count
        if self._sums_apart:
            self.exchange.sum_gradients(self.recorded_parameters)
        by_rows = [one for one in self.optimisers if isinstance(one, RowAdam) and _has_gradients(one)]
        if by_rows:  # else the indices are not copied to the device
            rows = problem.shard.on_device(members) if indices is None else indices
            for optimiser in by_rows:
                optimiser.batch = rows
        if regularized and problem.tile is None:
            total = total + (
                self._add_regularizers() * problem.normaliser * len(members) / problem.count / problem.group.world
            )
        if problem.settings.optimiser == "rpie" and len(members):
            self._precondition(sums, len(members))
        self._move()
        return total

    def _move(self) -> None:
        """Make the steps of all optimisers."""
        with torch_alone(self.problem.model.compiled and self._small):
            for optimiser in self.optimisers:
                if _has_gradients(optimiser):
                    optimiser.move() if isinstance(optimiser, Light) else optimiser.step()

    def _stream_moments(self, state: Mapping[str, Tensor | float]) -> None:
        """Let the moments of an object that is streamed come to the device with it. state: those to begin with."""
        streamed = self.problem.model.streamed
        if streamed is None:
            return
        for adam, group in self._object_groups:
            (parameter,), name = group["params"], group["parameter"]
            for key, device in adam.start(parameter).items():
                if key in MOMENTS:
                    path = f"optimiser/object/{name}/{key}"
                    whole = streamed.whole.get_parameter(name).data
                    host, stored = self._moments_on_host.setdefault(path, torch.empty_like(whole)), state.get(path)
                    host.copy_(stored) if isinstance(stored, Tensor) else host.zero_()
                    streamed.follow(path, device, host)

    @property
    def _steps_rows(self) -> bool:
        """Whether Adam steps only the rows of the present band; of a streamed object there are no others."""
        return self.problem.bands is not None and self.problem.model.streamed is None and bool(self._object_groups)

    @property
    def _object_groups(self) -> list[tuple[Adam, dict[str, Any]]]:
        """The parameter groups of the object that Adam steps."""
        optimisers = [one for one in self.optimisers if isinstance(one, Adam)]
        return [(one, group) for one in optimisers for group in one.param_groups if group["name"] == "object"]

    def state(self) -> dict[str, Tensor | float]:
        """Return the optimisers' moments."""
        return moments_of(self.optimisers) | self._moments_on_host

    def restore(self, state: Mapping[str, Tensor | float], rows: Mapping[str, Tensor]) -> None:
        """Restore the moments."""
        own = {name: value for name, value in state.items() if name not in self._moments_on_host}
        restore_moments(self.optimisers, own)
        self._stream_moments(state)
        self._graphs.clear()  # moments are other tensors now

    def disconnect(self) -> None:
        """Release the wrapped model, whose connections would outlive the group, the graphs and the buffers."""
        self._distributed = self.problem.model
        super().disconnect()

    def parts(self, own: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return the patterns in portions for gradient accumulation."""
        accumulate = self.problem.settings.gradient_accumulation
        return np.array_split(own, accumulate) if accumulate > 1 else [own]

    def _backward(self, own: NDArray[np.int64], global_batch_size: int, indices: Tensor | None) -> _Sums:
        """Compute gradients, accumulated over portions, and reduce them over engines with the last portion.

        Returns this engine's sums. Without patterns the gradients are 0.
        """
        problem = self.problem
        values, lit, powers, first = list[Tensor](), list[Tensor](), list[Tensor](), 0
        portions = self.parts(own)
        for number, patterns in enumerate(portions):
            last = number == len(portions) - 1
            on_device = None if indices is None else indices[first : first + len(patterns)]
            first += len(patterns)
            batch = problem.shard.batch(patterns, global_batch_size, indices=on_device)
            with contextlib.nullcontext() if last else problem.group.unreduced(self._distributed):
                values.append(self._descend(batch, problem.scale / max(global_batch_size, 1)).double())
            if problem.settings.optimiser == "rpie" and len(batch):
                illumination, power = illumination_sums(problem.model, batch)
                lit = [illumination if not lit else lit[0].add_(illumination)]
                powers = [power if not powers else powers[0].add_(power)]
        return _Sums(sum(values[1:], values[0]), *lit, *powers)

    def _descend(self, batch: Batch, factor: float) -> Tensor:
        """Call `Model.descend`, or its equivalent with gradients summed over engines."""
        if self._distributed is self.problem.model:
            return self.problem.model.descend(batch, factor)
        value: Tensor = self._distributed(batch)
        torch.autograd.backward(value, torch.full_like(value, factor))
        return value.detach()

    def _add_regularizers(self) -> Tensor:
        """Add the gradients of the regularizers to those of the patterns, and return their value.

        They are equal on all engines, if all have the whole object; of a tile they are those of its own pixels.
        """
        problem, model = self.problem, self.problem.model
        value = object_terms(problem.settings.regularizers, model.object.values, model.part)
        moving = [parameter for parameter in model.object.parameters() if parameter.requires_grad]
        if value.requires_grad:
            for parameter, gradient in zip(
                moving, torch.autograd.grad(problem.pixels * value, moving, materialize_grads=True), strict=True
            ):
                assert parameter.grad is not None
                parameter.grad += gradient
        return value.detach().double()

    def _region(self, members: NDArray[np.int64], update: int) -> Region | None:
        """Return the region where the gradient of a batch of all engines can differ from 0; None: the whole object."""
        problem = self.problem
        whole = problem.settings.gradient_sync == "dense" or problem.group.world == 1 or problem.tile is not None
        if whole or not worth_while(self.problem.model) or not self._windows.known:
            return None
        if self._constrains_updates:
            self._windows.forget()  # constraints may move positions
        return region(self._windows.blocks(members, update), self.problem.model)

    @property
    def _constrains_updates(self) -> bool:
        """Whether constraints are imposed after each update."""
        constraints = (*self.problem.settings.constraints, *self.problem.imposed)
        return any(constraint.after == "update" for constraint in constraints)

    def _rate(self, name: str, parameter: str) -> float:
        problem = self.problem
        rate, own = problem.rate(name), problem.settings.object.amplitude_learning_rate
        if (name, parameter) == ("object", "amplitude") and own is not None and rate > 0:
            return own * problem.rate_factor
        return rate

    @torch.no_grad()
    def _precondition(self, found: _Sums, global_batch_size: int) -> None:
        """Convert gradients to steps of rPIE. found: this engine's sums."""
        problem, model = self.problem, self.problem.model
        illumination, power = found.illumination, found.power
        if illumination is None or power is None:  # no patterns
            illumination = model.probe.parts.new_zeros(model.object.values.shape[-2:])
            power = illumination.new_zeros((model.probe.count, *model.window))
        illumination, power = self.exchange.sum(illumination), problem.group.sum(power)
        largest = None
        if problem.tile is not None:
            largest = problem.group.largest(illumination.amax((-2, -1), keepdim=True))
        divide_by_illumination(
            model, illumination, power, problem.scale / global_batch_size, problem.settings.rpie_alpha, largest
        )


def _has_gradients(optimiser: torch.optim.Optimizer) -> bool:
    return any(parameter.grad is not None for group in optimiser.param_groups for parameter in group["params"])
