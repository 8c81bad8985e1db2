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

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ptynb.kernels.runtime.thread_count import torch_alone
from ptynb.optimize.algorithm import Problem
from ptynb.optimize.batch_algorithm import BatchAlgorithm
from ptynb.optimize.lsqml_parts import PartOfModel, PositionSteps, parts_of
from ptynb.optimize.optimizers import rate_on_device
from ptynb.optimize.scatter_sums import over_engines
from ptynb.physics.components.component import copied_to
from ptynb.physics.exit_wave_corrections import Corrections, corrections
from ptynb.physics.model import Model
from ptynb.physics.operations import best_lengths, fit_steps
from ptynb.physics.streamed_object import StreamedObject

DAMPING = 0.1
"""δ, relative to the largest illumination; weakly illuminated pixels change less."""
MEMORY = 1 / 32
"""κ, the part of all patterns that counts as fitted by earlier batches."""


@dataclass(frozen=True, eq=False)
class _Sums:
    """What an engine knows of its patterns of a batch: their corrections, and its part of the sums over the batch.

    found: of the patterns of each probe; None without any. object: Σ A* χ, and illumination: Σ |A|², (slice, y, x).
    probes: Σ √w S⁻¹[G], (probe, mode, y, x). powers: Σ w Π |O|², (probe, y, x). values: of the patterns of each probe,
    by part. of_parts: sums by part.
    """

    found: list[Corrections | None]
    object: Tensor
    illumination: Tensor
    probes: Tensor
    powers: Tensor
    values: dict[str, list[Tensor | None]]
    of_parts: dict[str, Tensor]


@final
class LeastSquares(BatchAlgorithm[_Sums]):
    """LSQML: one step of all parts per batch."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._parts = parts_of(problem)
        self._momentum = _Momentum(problem)
        of_pattern = problem.model.probe.of_pattern
        self._probe_of_pattern = None if of_pattern is None else of_pattern.cpu().numpy()
        self._illumination: Tensor | None = None
        """L, of this epoch (y, x); None before the first."""
        self._damped: Tensor | None = None
        """L + δ max, and all of it if the object is streamed."""
        self._damped_on_host: Tensor | None = None
        self._rates: Mapping[str, float | Tensor] = {}
        """Those of the present update: numbers, or scalars on a GPU, which recorded updates read."""
        self._rates_on_device = dict[str, dict[str, Any]]()
        """As of a parameter group."""

    def rates(self) -> dict[str, float]:
        """Return the factors of the steps of the components that are optimised now."""
        rates = {name: self.problem.rate(name) for name in ("object", "probe", *self._parts)}
        return {name: rate for name, rate in rates.items() if rate > 0}

    def prepare(self) -> None:
        """Activate the components that are optimised now."""
        rates = self.rates()
        self.problem.free(rates)
        if self._graphs.possible:
            self._graphs.clear_if_changed([*rates])

    @torch.no_grad()
    def update(self, table: NDArray[np.int64], update: int) -> Tensor:
        """Update all parts with one batch."""
        with torch_alone(self.problem.model.compiled):
            loss = super().update(table, update)
            if update == self.updates - 1:
                self._momentum.end_epoch(self._rates)
        return loss

    def begin(self, members: NDArray[np.int64], update: int) -> None:
        """Read the rates; where an epoch begins, determine the illumination."""
        self._rates = self._present_rates()
        if self.problem.tile is not None:
            self.problem.tile.begin(members, self.problem.model.movers)
        if update == 0:
            self._momentum.begin_epoch()
        if update == 0 or self._illumination is None:
            model, order = self.problem.model, self.problem.order
            if model.streamed is not None:
                self._set_illumination(self._illumination_by_rows(model, model.streamed))
                return
            illumination = illumination_of_all(model, planned=order.open)
            if self.problem.tile is not None:  # its transforms round differently on each tile
                self.problem.tile.refresh(illumination[None, None])
            self._set_illumination(illumination)

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
        self._graphs.clear()  # they are other tensors now
        device = self.problem.group.device
        # Where arrays of the whole object are.
        host = device if self.problem.model.streamed is None else torch.device("cpu")
        self._illumination = self._damped = None
        stored = state.get("algorithm/illumination")
        if isinstance(stored, Tensor):
            self._set_illumination(stored.to(host, copy=True))
        tensors = {
            name.removeprefix("optimiser/"): one.to(host if name.startswith("optimiser/object/") else device, copy=True)
            for name, one in state.items()
            if isinstance(one, Tensor) and name.startswith("optimiser/")
        }
        self._position_steps.velocity = tensors.pop("positions/moves/velocity", None)
        self._momentum.restore(tensors)

    @property
    def _position_steps(self) -> PositionSteps:
        steps = self._parts["positions"]
        assert isinstance(steps, PositionSteps)
        return steps

    def _present_rates(self) -> Mapping[str, float | Tensor]:
        """Return `rates`, on a GPU as scalars there."""
        rates, parameter = self.rates(), self.problem.model.probe.parts
        if parameter.device.type == "cpu":
            return rates
        groups = {name: self._rates_on_device.setdefault(name, {}) for name in rates}
        for name, group in groups.items():
            group["lr"] = rates[name]
        return {name: rate_on_device(group, parameter) for name, group in groups.items()}

    @staticmethod
    def _illumination_by_rows(model: Model, streamed: StreamedObject) -> Tensor:
        """Return L of an object that is streamed, in host memory."""
        whole = model.probe.parts.new_zeros(model.part.shape, device="cpu")
        present = model.top
        for band, top in enumerate(streamed.bands.tops):
            model.begin_at(top)
            whole[streamed.bands.rows(band)] = illumination_of_all(model).cpu()
        model.begin_at(present)
        return whole

    def _set_illumination(self, illumination: Tensor) -> None:
        """Set L, in the same memory every time, which recorded updates read."""
        damped = illumination + DAMPING * self._largest(illumination)
        streamed = self.problem.model.streamed
        if streamed is not None:
            self._illumination = illumination
            streamed.write_back()
            if self._damped_on_host is None:
                self._damped_on_host = damped
            else:
                self._damped_on_host.copy_(damped)
            if self._damped is None:
                self._damped = damped[: streamed.bands.height].to(self.problem.group.device, copy=True)
                streamed.follow("illumination", self._damped, self._damped_on_host)
            else:
                streamed.reload()
            return
        if self._illumination is None or self._damped is None:
            self._illumination, self._damped = illumination, damped
        else:
            self._illumination.copy_(illumination)
            self._damped.copy_(damped)

    def parts(self, own: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return those of these patterns that each of the probes illuminates, in their order."""
        if self._probe_of_pattern is None:
            return [own]
        numbers = self._probe_of_pattern[own]
        return [own[numbers == number] for number in range(self.problem.model.probe.count)]

    @property
    def recordable(self) -> bool:
        """Not where there are several probes: each batch has other numbers of patterns of each."""
        return self._probe_of_pattern is None

    def measure(self, own: NDArray[np.int64], members: int, indices: Tensor | None) -> _Sums:
        """Return the corrections of this engine's patterns, and its sums."""
        problem, model = self.problem, self.problem.model
        batches = [problem.shard.batch(patterns, members, indices) for patterns in self.parts(own)]
        further = {"shifts": "positions" in self._rates, "first": "variations" in self._rates}
        found = [
            corrections(model.illumination(batch), model.detection(batch), **further) if len(batch) else None
            for batch in batches
        ]
        pairs, moving = [*zip(found, batches, strict=True)], self._moving()
        values = {
            name: [None if one is None else part.values(one, batch) for one, batch in pairs]
            for name, part in moving.items()
        }
        of_parts = {name: total([part.sums(one, batch) for one, batch in pairs]) for name, part in moving.items()}
        return _Sums(found, *self._sums(found), values, of_parts)

    def _moving(self) -> dict[str, PartOfModel]:
        """Return the parts beside object and probe that are optimised now."""
        return {name: part for name, part in self._parts.items() if name in self._rates}

    def step(
        self, sums: _Sums, own: NDArray[np.int64], members: NDArray[np.int64], indices: Tensor | None, release: bool
    ) -> Tensor:
        """Make the step from the sums of all engines, and return the sum of this engine's losses."""
        problem, model, rates, moving = self.problem, self.problem.model, self._rates, self._moving()
        messages = [sums.probes, sums.powers]
        for name, values in self._values(sums, own, members, moving).items():
            messages += [values, sums.of_parts[name]]
        of_object, illumination, *others = self._over_engines((sums.object, sums.illumination), *messages)
        of_probe, power, *others = others

        assert self._damped is not None
        object_step = of_object.div_(self._damped) if "object" in rates else torch.zeros_like(of_object)
        # A probe none of whose patterns is in the batch has no power, and no step.
        damped = power + (DAMPING * power.amax((-2, -1), keepdim=True)).clamp(min=torch.finfo(power.dtype).tiny)
        probe_steps = of_probe.div_(damped[:, None]) if "probe" in rates else torch.zeros_like(of_probe)
        mean, lengths = self._lengths(sums.found, object_step, probe_steps, illumination, members)
        losses = [illumination.new_zeros((), dtype=torch.float64) if one is None else one.loss for one in sums.found]
        for found in sums.found if release else ():
            if found is not None:
                found.release()
        if moving:
            indices = problem.shard.on_device(members) if indices is None else indices
            of_all = power.sum(0)
            of_all = of_all + DAMPING * of_all.max()
            for index, (name, part) in enumerate(moving.items()):
                part.step(rates[name], indices, others[2 * index], others[2 * index + 1], of_all)
        if "object" in rates:
            factor = len(members) / (len(members) + MEMORY * problem.count)
            step = object_step.mul_(mean.mul_(rates["object"]))
            model.object.parts.add_(torch.view_as_real(step)[None], alpha=factor)
        if "probe" in rates:
            lengths = lengths * rates["probe"] / model.probe.scale
            steps = probe_steps.mul_(lengths[:, None, None, None])
            model.probe.parts.add_(torch.view_as_real(steps.flatten(0, 1)))
        return total(losses)

    def _values(
        self,
        own: _Sums,
        patterns: NDArray[np.int64],
        members: NDArray[np.int64],
        moving: Mapping[str, PartOfModel],
    ) -> dict[str, Tensor]:
        """Return the values of each part (member, `width`), 0 for patterns of other engines."""
        parameter = self.problem.model.probe.parts
        if len(own.found) == 1 and len(patterns) == len(members):
            return {name: values.to(parameter.dtype) for name, (values,) in own.values.items() if values is not None}
        rows = [torch.from_numpy(np.flatnonzero(np.isin(members, one))) for one in self.parts(patterns)]
        on_device = [copied_to(row, parameter.device) for row in rows] if moving else []
        found = dict[str, Tensor]()
        for name, part in moving.items():
            found[name] = parameter.new_zeros((len(members), part.width))
            for values, row in zip(own.values[name], on_device, strict=True):
                if values is not None:
                    found[name][row] = values.to(parameter.dtype)
        return found

    def _sums(self, found: Sequence[Corrections | None]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return this engine's sums for object and probes (probe, mode, y, x): numerator and power of each."""
        own = [one for one in found if one is not None]
        if len(own) == len(found) == 1:
            return own[0].object, own[0].illumination, own[0].probe[None], own[0].power[None]
        object, probe = self.problem.model.object.values[0], self.problem.model.probe.values
        of_probes = torch.zeros_like(probe).unflatten(0, (len(found), -1))
        powers = torch.zeros_like(of_probes[:, 0].real)
        for number, one in enumerate(found):
            if one is not None:
                of_probes[number], powers[number] = one.probe, one.power
        if not own:
            return torch.zeros_like(object), torch.zeros_like(object.real), of_probes, powers
        return total([one.object for one in own]), total([one.illumination for one in own]), of_probes, powers

    def _over_engines(self, of_object: Sequence[Tensor], *others: Tensor) -> list[Tensor]:
        """Return the sums of these tensors over all engines: those of the object's pixels (slice, y, x), and others."""
        tile, group = self.problem.tile, self.problem.group
        if tile is None:
            return [*over_engines(group, *of_object, *others)]
        views = [torch.view_as_real(one) if one.is_complex() else one for one in of_object]
        complete = tile.start_sum(*(one[None] for one in views))
        summed = over_engines(group, *others)
        complete()
        return [*of_object, *summed]

    def _largest(self, values: Tensor) -> Tensor:
        """Return the largest value in the whole object, a scalar."""
        return self.problem.group.largest(values.max()) if self.problem.tile is not None else values.max()

    def _lengths(
        self,
        found: Sequence[Corrections | None],
        object_step: Tensor,
        probe_steps: Tensor,
        illumination: Tensor,
        members: NDArray[np.int64],
    ) -> tuple[Tensor, Tensor]:
        """Return Σ_jm a_j |A_k|² / Σ_jm |A_k|² (slice, y, x) and Σ_j b_j / J of each probe, over all engines.

        Overwrites `illumination`.
        """
        weighted, of_probes = list[Tensor](), list[Tensor]()
        for one, probe_step in zip(found, probe_steps, strict=True):
            if one is None:
                of_probes.append(illumination.new_zeros(()))
                continue
            lengths = step_lengths(one.products(object_step, probe_step)).to(illumination)
            weighted.append(one.weighted_illumination(lengths[:, 0]))
            of_probes.append(lengths[:, 1].sum())
        own = total(weighted) if weighted else torch.zeros_like(illumination)
        of_object, sums = self._over_engines((own,), torch.stack(of_probes))
        means = [one / max(len(of), 1) for one, of in zip(sums, self.parts(members), strict=True)]
        least = 1e-6 * self._largest(illumination)
        return of_object.div_(illumination.clamp_(min=least)), torch.stack(means)


def total(tensors: Sequence[Tensor]) -> Tensor:
    """Return the sum of at least one tensor; of one, itself."""
    return sum(tensors[1:], tensors[0])


@torch.no_grad()
def illumination_of_all(model: Model, planned: bool = False) -> Tensor:
    """Return Σ_jm |P_jm|² of all patterns (y, x), of the object's size, from the mean probes at whole pixels.

    planned: whether also of those that have not come yet: else the first steps where they come would be too long.
    A convolution of the numbers of patterns at each pixel with |P|², whose time does not depend on their number.
    """
    shape, rim = model.object.values.shape[-2:], model.window
    patterns = model.all_patterns() if planned else model.admitted_patterns()
    rows, columns = model.window_origins(patterns).unbind(1)
    tile = (model.part.shape[0], model.part.shape[1]) != (*shape,)
    if tile:  # of windows that begin before it, too
        shape = torch.Size(side + before for side, before in zip(shape, rim, strict=True))
        rows, columns = rows + rim[0], columns + rim[1]
    inside = (rows >= 0) & (rows < shape[0]) & (columns >= 0) & (columns < shape[1])
    places = torch.where(inside, rows * shape[1] + columns, 0)
    probes = model.probe.values.abs().square().view(model.probe.count, -1, *model.window).sum(1)
    of_pattern = model.probe.of_pattern
    of_pattern = None if of_pattern is None else of_pattern[patterns.patterns]
    illumination = probes.new_zeros(shape)
    for number, probe in enumerate(probes):
        own = inside.to(places) if of_pattern is None else (inside & (of_pattern == number)).to(places)
        # Not by bincount, for which a GPU has to be waited for.
        count = places.new_zeros(shape[0] * shape[1]).index_add_(0, places, own).view(shape).to(probe.dtype)
        illumination += torch.fft.irfft2(torch.fft.rfft2(count) * torch.fft.rfft2(probe, s=shape), s=shape)
    illumination = illumination.clamp(min=0)
    return illumination[rim[0] :, rim[1] :].contiguous() if tile else illumination


def step_lengths(products: Tensor) -> Tensor:
    """Return `operations.best_lengths` of the `Corrections.products` of some patterns."""
    return best_lengths(products) if products.device.type == "cpu" else fit_steps(products)


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

    def end_epoch(self, rates: Collection[str]) -> None:
        """Add the velocity to where the epoch began. Parts that are not among the rates, frozen now, lose theirs."""
        momentum = self._problem.settings.momentum
        for path, parameter in self._parameters():
            start, velocity = self._starts.pop(path, None), self._velocities.pop(path, None)
            if momentum == 0 or start is None or path.partition("/")[0] not in rates:
                continue
            change = parameter - start
            if velocity is None:
                velocity = change
            else:
                product = velocity * change
                if path.startswith("object/"):
                    part = self._problem.model.part
                    product = part.total(product[:, :, part.rows, part.columns].sum(dtype=torch.float64))
                together = product.sum(dtype=torch.float64) > 0
                velocity = torch.where(together, change + momentum * velocity, change)
            parameter.copy_(start + velocity)
            self._velocities[path] = velocity
        if momentum > 0 and self._problem.model.streamed is not None:
            self._problem.model.streamed.invalidate()

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
        for part in (self._problem.model.whole_object, self._problem.model.probe):
            for name, parameter in part.named_parameters():
                yield f"{part.name}/{name}", parameter
