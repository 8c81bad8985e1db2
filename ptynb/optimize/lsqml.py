"""Least-squares maximum likelihood: mini-batches whose steps have the length that fits each pattern best.

Odstrčil, Menzel and Guizar-Sicairos, Opt. Express 26, 3108 (2018); for several slices Tsai et al., Opt. Express 24,
29089 (2016); for a varying probe Odstrčil et al., Opt. Express 24, 8360 (2016). With χ, A, G and the other symbols of
`physics.exit_wave_corrections`, δ = `DAMPING`, κ = `MEMORY`, and L the illumination of the object by all N patterns,

    ΔO_k = Σ_jm A_k* χ_k / (L + δ max)                            the direction of each slice
    ΔP_m = Σ_j √w_j S_j⁻¹[G_jm] / (Σ_j w_j Π_k |O_k|² + δ max)    the direction of the probe
    a_j, b_j = argmin Σ_m ‖χ_jm - a x_jm - b y_jm‖²               real: the best step of this pattern; x and y are what
                                                                  ΔO and ΔP add to ψ_j, to first order
    O_k += rate f ΔO_k Σ_jm a_j |A_k|² / Σ_jm |A_k|²              by the mean of the steps, weighted with the
                                                                  illumination; f = J / (J + κ N)
    P   += rate ΔP Σ_j b_j / J                                    by their mean over the batch's J patterns

The paper divides by the illumination of the batch. By L, as PtychoShelves does, a pixel at the edge of the batch's
illumination is left to the batches that illuminate it better. f is the step of least squares in which κ N patterns of
earlier batches count besides the batch: a small batch moves the object less, so that its noise does, too, and a large
one makes nearly whole steps. (Object errors after 30 epochs of a scan of 484 patterns with Poisson noise, in batches of
16: 0.033 with neither, 0.029 with L, 0.025 with both; in batches of 96: 0.023 with each. With f for the probe,
positions converge later.) L is that of the mean probe where the epoch begins, without subpixel shifts.

The slices share one step length: each of their directions alone explains the correction, so that steps of their own
would explain it once for every slice. The other parts (`lsqml_parts`) follow the same corrections:

    positions       s_j += v_j,  v_j = momentum v_j + rate H⁻¹ Re Σ (dψ/ds)* χ
                    the shift of least squares, at most a pixel, with H_ab = Σ_xm |P_jm|² Re(∂_a O* ∂_b O), O = Π_k O_k
    intensities     √w_j *= 1 + rate Re Σ ψ* χ / Σ |Ψ|²
    OPR             c_j += rate M_j⁻¹ Re Σ_x V_r* U_j,  M_j,rs = Re Σ_x w_j Π_k |O_k|² V_r* V_s,  U_j = √w_j S_j⁻¹[G_j0]
                    V_r += rate √(J / N) Σ_j c_jr* U_j / (<|c_r|²> (Σ_j w_j Π_k |O_k|² + δ max))
    background      B += rate 2 (J / N) Σ_j (√(I / D) - 1) / Σ_j (1 / D)

H is the norm of dψ/ds if the object moves below the probe. If the probe moved, as in the gradient, dψ would contain the
motion of both together, which no pattern shows. The steps of c and V are those of alternating least squares, that of B
is a Gauss-Newton step; where J of all N patterns determine a quantity of all, a whole step would follow their noise.
Steps of c are real: a mode of the variation is the effect of one quantity, such as a shift, a tilt or the focus of the
beam. Complex ones are twice the unknowns and follow more noise (object error 0.049 instead of 0.043 where three such
quantities vary). The subpixel shift is left out of M, whose size matters only for the length of a step, not out of U.

Where scans share an object, ΔP_m, the sum of b_j and J are those of the patterns of each probe; V is common to them.

`momentum` accelerates object and probe from epoch to epoch: with u the change in an epoch, v = momentum v + u, and
O += v from where the epoch began. Where v and u point apart, v begins anew from u: O'Donoghue and Candès, Found.
Comput. Math. 15, 715 (2015).

Every sum over j is one over all engines, so the result does not depend on their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ptynb.kernels import buffers
from ptynb.kernels.thread_count import torch_alone
from ptynb.optimize.algorithm import Algorithm, Problem
from ptynb.optimize.lsqml_parts import PositionSteps, parts_of
from ptynb.optimize.scatter_sums import over_engines
from ptynb.physics.components.component import copied_to
from ptynb.physics.exit_wave_corrections import Corrections, corrections
from ptynb.physics.model import Model

DAMPING = 0.1
"""δ, relative to the largest illumination; weakly illuminated pixels change less."""
MEMORY = 1 / 32
"""κ, the part of all patterns that counts as fitted by earlier batches."""


@final
class LeastSquares(Algorithm):
    """LSQML: one step of all parts per batch."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._parts = parts_of(problem)
        self._momentum = _Momentum(problem)
        of_pattern = problem.model.probe.of_pattern
        self._probe_of_pattern = None if of_pattern is None else of_pattern.cpu().numpy()
        self._illumination: Tensor | None = None
        """L, of this epoch (y, x); None before the first."""

    @property
    def updates(self) -> int:
        """One update per batch."""
        return self.problem.order.updates

    def rates(self) -> dict[str, float]:
        """Return the factors of the steps of the components that are optimised now."""
        rates = {name: self.problem.rate(name) for name in ("object", "probe", *self._parts)}
        return {name: rate for name, rate in rates.items() if rate > 0}

    def prepare(self) -> None:
        """Activate the components that are optimised now."""
        self.problem.free(self.rates())

    @torch.no_grad()
    def update(self, table: NDArray[np.int64], update: int) -> Tensor:
        """Update all parts with one batch."""
        problem, rates = self.problem, self.rates()
        members = table[:, update][table[:, update] >= 0]
        group = problem.group
        own = members if group.world == 1 else problem.order.part(table, update, group.rank, group.world)
        with torch_alone(problem.model.compiled):
            if update == 0:
                self._momentum.begin_epoch()
            if update == 0 or self._illumination is None:
                self._illumination = illumination_of_all(problem.model)
            loss = self._step(self._by_probe(own), members, rates)
            if update == self.updates - 1:
                self._momentum.end_epoch(rates)
        return loss

    def state(self) -> dict[str, Tensor | float]:
        """Return the last steps of object, probe and positions, where the epoch began, and its illumination."""
        state: dict[str, Tensor | float] = {}
        for path, one in self._momentum.tensors().items():
            state[f"optimiser/{path}"] = one
        if (velocity := self._position_steps.velocity) is not None:
            state["optimiser/positions/moves/velocity"] = velocity
        if self._illumination is not None:
            state["algorithm/illumination"] = self._illumination
        return state

    def restore(self, state: Mapping[str, Tensor | float], rows: Mapping[str, Tensor]) -> None:
        """Restore them. Parts that are not in the state start without momentum."""
        device = self.problem.group.device
        stored = state.get("algorithm/illumination")
        self._illumination = stored.to(device, copy=True) if isinstance(stored, Tensor) else None
        tensors = {
            name.removeprefix("optimiser/"): one.to(device, copy=True)
            for name, one in state.items()
            if isinstance(one, Tensor) and name.startswith("optimiser/")
        }
        self._position_steps.velocity = tensors.pop("positions/moves/velocity", None)
        self._momentum.restore(tensors)

    def disconnect(self) -> None:
        """Release the buffers."""
        buffers.forget()

    @property
    def _position_steps(self) -> PositionSteps:
        steps = self._parts["positions"]
        assert isinstance(steps, PositionSteps)
        return steps

    def _by_probe(self, patterns: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return those of these patterns that each of the probes illuminates, in their order."""
        if self._probe_of_pattern is None:
            return [patterns]
        numbers = self._probe_of_pattern[patterns]
        return [patterns[numbers == number] for number in range(self.problem.model.probe.count)]

    def _step(self, own: Sequence[NDArray[np.int64]], members: NDArray[np.int64], rates: Mapping[str, float]) -> Tensor:
        """Make the step of a batch, and return the sum of this engine's losses.

        own: this engine's patterns, those of each probe. members: patterns of the batch on all engines.
        """
        problem, model = self.problem, self.problem.model
        batches = [problem.shard.batch(patterns, len(members)) for patterns in own]
        further = {"shifts": "positions" in rates, "first": "variations" in rates}
        found = [
            corrections(model.illumination(batch), model.detection(batch), **further) if len(batch) else None
            for batch in batches
        ]
        moving = {name: part for name, part in self._parts.items() if name in rates}
        messages = [*self._sums(found)]
        rows = self._rows_of(own, members) if moving else []
        for part in moving.values():
            values = model.probe.parts.new_zeros((len(members), part.width))
            for one, batch, row in zip(found, batches, rows, strict=True):
                if one is not None:
                    values[row] = part.values(one, batch).to(values)
            sums = [part.sums(one, batch) for one, batch in zip(found, batches, strict=True)]
            messages += [values, total(sums)]
        of_object, illumination, of_probe, power, *others = over_engines(problem.group, *messages)

        assert self._illumination is not None
        object_step = ("object" in rates) * of_object / (self._illumination + DAMPING * self._illumination.max())
        # A probe none of whose patterns is in the batch has no power, and no step.
        damped = power + (DAMPING * power.amax((-2, -1), keepdim=True)).clamp(min=torch.finfo(power.dtype).tiny)
        probe_steps = ("probe" in rates) * of_probe / damped[:, None]
        mean, lengths = self._lengths(found, object_step, probe_steps, illumination, members)
        for one in found:
            if one is not None:
                one.release()
        patterns = problem.shard.on_device(members)
        power = power.sum(0)
        for index, (name, part) in enumerate(moving.items()):
            part.step(rates[name], patterns, others[2 * index], others[2 * index + 1], power + DAMPING * power.max())
        if "object" in rates:
            factor = rates["object"] * len(members) / (len(members) + MEMORY * problem.order.count)
            model.object.set(model.object.values + (factor * mean * object_step)[None])
        if "probe" in rates:
            steps = rates["probe"] * lengths[:, None, None, None] * probe_steps
            model.probe.set(model.probe.values + steps.flatten(0, 1))
        losses = [illumination.new_zeros((), dtype=torch.float64) if one is None else one.loss for one in found]
        return total(losses)

    def _rows_of(
        self, own: Sequence[NDArray[np.int64]], members: NDArray[np.int64]
    ) -> list[Tensor | slice[None, None, None]]:
        """Return where each of these groups of patterns is among the members of the batch."""
        if len(own) == 1 and len(own[0]) == len(members):
            return [slice(None)]
        rows = [torch.from_numpy(np.flatnonzero(np.isin(members, patterns))) for patterns in own]
        return [copied_to(row, self.problem.group.device) for row in rows]

    def _sums(self, found: Sequence[Corrections | None]) -> tuple[Tensor, ...]:
        """Return this engine's sums for object and probes (probe, mode, y, x): numerator and power of each."""
        object, probe = self.problem.model.object.values[0], self.problem.model.probe.values
        own = [one for one in found if one is not None]
        of_probes = torch.zeros_like(probe).unflatten(0, (len(found), -1))
        powers = torch.zeros_like(of_probes[:, 0].real)
        for number, one in enumerate(found):
            if one is not None:
                of_probes[number], powers[number] = one.probe, one.power
        if not own:
            return torch.zeros_like(object), torch.zeros_like(object.real), of_probes, powers
        return total([one.object for one in own]), total([one.illumination for one in own]), of_probes, powers

    def _lengths(
        self,
        found: Sequence[Corrections | None],
        object_step: Tensor,
        probe_steps: Tensor,
        illumination: Tensor,
        members: NDArray[np.int64],
    ) -> tuple[Tensor, Tensor]:
        """Return Σ_jm a_j |A_k|² / Σ_jm |A_k|² (slice, y, x) and Σ_j b_j / J of each probe, over all engines."""
        weighted, of_probes = list[Tensor](), illumination.new_zeros(len(found))
        for number, one in enumerate(found):
            if one is not None:
                lengths = step_lengths(one.products(object_step, probe_steps[number])).to(illumination)
                weighted.append(one.weighted_illumination(lengths[:, 0]))
                of_probes[number] = lengths[:, 1].sum()
        own = total(weighted) if weighted else torch.zeros_like(illumination)
        of_object, of_probes = over_engines(self.problem.group, own, of_probes)
        means = [one / max(len(of), 1) for one, of in zip(of_probes, self._by_probe(members), strict=True)]
        return of_object / illumination.clamp(min=1e-6 * illumination.max()), torch.stack(means)


def total(tensors: Sequence[Tensor]) -> Tensor:
    """Return the sum of at least one tensor; of one, itself."""
    return sum(tensors[1:], tensors[0])


@torch.no_grad()
def illumination_of_all(model: Model) -> Tensor:
    """Return Σ_jm |P_jm|² of all patterns (y, x), of the object's size, from the mean probes at whole pixels.

    A convolution of the numbers of patterns at each pixel with |P|², whose time does not depend on their number.
    """
    shape = model.object.values.shape[-2:]
    origins, _ = model.window_origins_and_shifts(model.all_patterns())
    places = origins[:, 0] * shape[1] + origins[:, 1]
    probes = model.probe.values.abs().square().view(model.probe.count, -1, *model.window).sum(1)
    of_pattern = model.probe.of_pattern
    illumination = probes.new_zeros(shape)
    for number, probe in enumerate(probes):
        own = torch.ones_like(places) if of_pattern is None else (of_pattern == number).to(places)
        # Not by bincount, for which a GPU has to be waited for.
        count = places.new_zeros(shape[0] * shape[1]).index_add_(0, places, own).view(shape).to(probe.dtype)
        illumination += torch.fft.irfft2(torch.fft.rfft2(count) * torch.fft.rfft2(probe, s=shape), s=shape)
    return illumination.clamp(min=0)


def step_lengths(products: Tensor) -> Tensor:
    """Return real a, b (pattern, 2) that minimise Σ |χ - a x - b y|² for each pattern; 0 for a change that is 0.

    products: xx, xy, yy, χx, χy (pattern, 5), in double precision, as of `Corrections.products`.
    """
    xx, xy, yy, cx, cy = products.unbind(1)
    # A millionth more on the diagonal, so that the solution is unique if the changes are parallel or one is 0.
    more = 1e-6 * (xx + yy) + 1e-100
    xx, yy = xx + more, yy + more
    return torch.stack([yy * cx - xy * cy, xx * cy - xy * cx], 1) / (xx * yy - xy * xy)[:, None]


class _Momentum:
    """Acceleration of object and probe from epoch to epoch; on all engines the same."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._starts = dict[str, Tensor]()
        """Parameters where the epoch began, by "component/parameter"; empty if the epoch is not accelerated."""
        self._velocities = dict[str, Tensor]()

    def begin_epoch(self) -> None:
        """Remember where the epoch begins."""
        if self._problem.settings.momentum > 0:
            self._starts = {path: parameter.detach().clone() for path, parameter in self._parameters()}

    def end_epoch(self, rates: Mapping[str, float]) -> None:
        """Add the velocity to where the epoch began. Parts that are frozen now lose theirs."""
        momentum = self._problem.settings.momentum
        for path, parameter in self._parameters():
            start, velocity = self._starts.pop(path, None), self._velocities.pop(path, None)
            if momentum == 0 or start is None or path.partition("/")[0] not in rates:
                continue
            change = parameter - start
            if velocity is None:
                velocity = change
            else:
                together = (velocity * change).sum(dtype=torch.float64) > 0
                velocity = torch.where(together, change + momentum * velocity, change)
            parameter.copy_(start + velocity)
            self._velocities[path] = velocity

    def tensors(self) -> dict[str, Tensor]:
        """Return the state by "component/parameter/kind"."""
        kinds = {"start": self._starts, "velocity": self._velocities}
        return {f"{path}/{kind}": one for kind, values in kinds.items() for path, one in values.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore a state from `tensors`."""
        for kind, values in (("start", self._starts), ("velocity", self._velocities)):
            values.clear()
            values |= {path: tensors[f"{path}/{kind}"] for path, _ in self._parameters() if f"{path}/{kind}" in tensors}

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for part in (self._problem.model.object, self._problem.model.probe):
            for name, parameter in part.named_parameters():
                yield f"{part.name}/{name}", parameter
