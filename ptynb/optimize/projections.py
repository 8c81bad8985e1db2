"""Difference map and RAAR: alternating projections of the exit waves of all patterns.

The modulus projection replaces the amplitude of the waves on the detector, of all modes together, by the measured one.
It leaves bad pixels, and pixels whose waves are nearly 0 and so have no phase (the damping of `losses.Amplitude`):

    π_a(ψ_j) = F⁻¹[√(I_j / Σ_m |F ψ_jm|²) F ψ_jm]

The overlap projection alternately finds the object and the probe whose products are nearest to the waves; sums run over
all patterns of all engines. With π_o(ψ)_jm = P_jm O_j for the present object and probe, one epoch is

    DM     ψ ← ψ + β (π_a(2 π_o(ψ) - ψ) - π_o(ψ))               then O, P from ψ
    RAAR   ψ ← β/2 (R_o R_a + 1) ψ + (1 - β) π_a(ψ), R = 2 π - 1    with O, P from R_a ψ in between

Thibault et al., Ultramicroscopy 109, 338 (2009), whose map has β = 1; Luke, Inverse Problems 21, 37 (2005), eq. 22.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.optimize.algorithm import Algorithm, Problem, portions
from ptynb.optimize.scatter_sums import object_sums, over_engines, probe_sums
from ptynb.physics.components.component import Batch, copied_to
from ptynb.physics.torch_steps import intensity_of

TURNS = 1
"""How often object and probe are alternately computed from the waves in an epoch."""
INERTIA = 1e-2
"""Weight of the previous value, relative to the largest illumination; it stabilises weakly illuminated pixels."""


@final
class Projections(Algorithm):
    """DM or RAAR, with one update of all patterns per epoch.

    Object and probe are computed from the present waves; constraints change them between updates, but not the waves,
    and the next update starts from the constrained ones. RAAR therefore completes its step in the next update:

        ψ = κ + β π_o   with   κ = β ψ' + (1 - 2 β) π_a(ψ')

    so it stores κ, and R_a ψ', from which object and probe are computed: twice the memory of DM.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._beta = problem.settings.beta
        self._reflects = problem.settings.optimiser == "raar"
        of_pattern = problem.model.probe.of_pattern
        self._probe_of_pattern = None if of_pattern is None else of_pattern.cpu().numpy()
        probe = problem.model.probe.values.detach().unflatten(0, (problem.model.probe.count, -1))
        self._waves = probe.new_empty((len(problem.own()), *probe.shape[1:]))
        self._reset_waves()
        self._targets = torch.empty_like(self._waves) if self._reflects else self._waves

    def _reset_waves(self) -> None:
        """Set the waves to those of the present object and probe."""
        for rows, batch in portions(self.problem):
            self._waves[rows] = self._project_overlap(batch)[0]
        if self._reflects:
            self._waves.mul_(1 - self._beta)

    def rates(self) -> dict[str, float]:
        """Return the step sizes of object and probe, whose size does not matter."""
        return {name: rate for name, rate in super().rates().items() if name in ("object", "probe")}

    def rows(self) -> dict[str, Tensor]:
        """Return the waves of DM, or κ of RAAR, as a real view; R_a ψ' is computed from them in the next update."""
        return {"waves": torch.view_as_real(self._waves)}

    def restore(self, state: Mapping[str, Tensor | float], rows: Mapping[str, Tensor]) -> None:
        """Restore the waves; if there are none, after a change of structure, compute them from object and probe."""
        if "waves" in rows:
            torch.view_as_real(self._waves).copy_(rows["waves"])
        else:
            self._reset_waves()

    @torch.no_grad()
    def update(self, table: NDArray[np.int64], update: int) -> Tensor:
        """Update the waves, then object and probe from them. While both are frozen, so are the waves."""
        rates = self.rates()
        frozen = not rates
        total = torch.zeros((), dtype=torch.float64, device=self.problem.group.device)
        for rows, batch in portions(self.problem):
            total += self._update_waves(rows, batch, frozen)
        for _ in range(0 if frozen else TURNS):
            if "object" in rates:
                self._update_object()
            if "probe" in rates:
                self._update_probe()
        return total

    def _project_overlap(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return π_o (pattern, mode, y, x), and its factors: probes, and the object's windows (pattern, y, x)."""
        with torch.no_grad():
            probes, windows = self.problem.model.illuminated(batch)
        windows = windows[:, 0, 0]
        return probes * windows[:, None], probes, windows

    def _update_waves(self, rows: slice, batch: Batch, frozen: bool) -> Tensor:
        """Update the waves of these rows, unless `resting`. Returns the sum of losses of object and probe."""
        model, beta = self.problem.model, self._beta
        overlap, _, _ = self._project_overlap(batch)
        value, _ = model.loss.value_and_slope(intensity_of(model.to_detector(overlap, batch)), batch.counts, model.mask)
        if frozen:
            return value
        waves = self._waves[rows]
        trial = waves + beta * overlap if self._reflects else 2 * overlap - waves
        fitting = self._project_modulus(trial, batch)
        if self._reflects:
            self._targets[rows] = 2 * fitting - trial
            self._waves[rows] = beta * trial + (1 - 2 * beta) * fitting
        else:
            self._waves[rows] = waves + beta * (fitting - overlap)
        return value

    def _project_modulus(self, waves: Tensor, batch: Batch) -> Tensor:
        """Return π_a: the slope of the amplitude loss, 1 - √(I / M), is the fraction of the waves to subtract."""
        model = self.problem.model
        far = model.to_detector(waves, batch)
        _, slope = model.loss.value_and_slope(intensity_of(far), batch.counts, model.mask)
        return waves - model.from_detector(far.mul_(slope[:, None]), batch)

    def _update_object(self) -> None:
        model = self.problem.model
        object = model.object.values
        numerator, illumination = torch.zeros_like(object[0, 0]), torch.zeros_like(object[0, 0].real)
        for rows, batch in portions(self.problem):
            overlap, probes, _ = self._project_overlap(batch)
            corners, _ = model.window_origins_and_shifts(batch)
            sums = object_sums(model, corners, probes, self._targets[rows] - overlap)
            numerator, illumination = numerator + sums[0], illumination + sums[1]
        numerator, illumination = over_engines(self.problem.group, numerator, illumination)
        model.object.set(object + numerator / (illumination + INERTIA * illumination.max()))

    def _of_each_probe(self, rows: slice) -> list[Tensor | slice[None, None, None]]:
        """Return which of this engine's patterns in these rows each of the probes illuminates."""
        if self._probe_of_pattern is None:
            return [slice(None)]
        numbers = self._probe_of_pattern[self.problem.own()[rows]]
        device = self.problem.group.device
        return [
            copied_to(torch.from_numpy(np.flatnonzero(numbers == number)), device)
            for number in range(self.problem.model.probe.count)
        ]

    def _update_probe(self) -> None:
        model = self.problem.model
        # (probe, mode, y, x): several scans of one object have a probe each.
        probes = model.probe.values.unflatten(0, (model.probe.count, -1))
        numerator, denominator = torch.zeros_like(probes), torch.zeros_like(probes[:, 0].real)
        for rows, batch in portions(self.problem):
            overlap, _, windows = self._project_overlap(batch)
            _, shifts = model.window_origins_and_shifts(batch)
            changes = self._targets[rows] - overlap
            for number, own in enumerate(self._of_each_probe(rows)):
                sums = probe_sums(model, shifts[own], windows[own], changes[own])
                numerator[number] += sums[0]
                denominator[number] += sums[1]
        numerator, denominator = over_engines(self.problem.group, numerator, denominator)
        damped = denominator + INERTIA * denominator.amax((-2, -1), keepdim=True)
        model.probe.set((probes + numerator / damped[:, None]).flatten(0, 1))
