"""Least-squares maximum likelihood: mini-batches whose steps have the length that fits each pattern best.

Odstrčil, Menzel and Guizar-Sicairos, Opt. Express 26, 3108 (2018). With Ψ_jm the wave on the detector, M_j its
intensity, and P_jm, O_j the probe's modes and the object's window of pattern j,

    χ_jm = F⁻¹[(√(I_j / M_j) - 1) Ψ_jm]                      correction of the exit waves; 0 at bad pixels, damped
                                                             where M_j is nearly 0 (`losses.Amplitude`)
    ΔO   = Σ_jm P_jm* χ_jm / (Σ_jm |P_jm|² + δ max)          the direction of the object; that of the probe likewise
    a_j, b_j = argmin Σ_m ‖χ_jm - a ΔO_j P_jm - b ΔP_jm O_j‖²   real: the best step of this pattern
    O   += rate ΔO Σ_j a_j |P_j|² / Σ_j |P_j|²               by the mean of the steps, weighted with the illumination
    P   += rate ΔP Σ_j b_j / J                               by their mean over the batch's J patterns

Every sum over j is one over all engines, so the result does not depend on their number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.optimize.algorithm import Algorithm
from ptynb.optimize.scatter_sums import object_sums, over_engines, probe_sums
from ptynb.physics.components.component import Batch
from ptynb.physics.hotpath import intensity_of, moved_probes
from ptynb.physics.patches import add_windows, read_windows

DAMPING = 0.1
"""δ, relative to the largest illumination; weakly illuminated pixels change less."""


@dataclass(frozen=True, eq=False)
class _ExitWaves:
    """Quantities of a batch at the present parameters.

    window_origins, subpixel_shifts: (pattern, yx). probes: (pattern, mode, y, x). windows: of the object (pattern, y,
    x). lacking: χ (pattern, mode, y, x), the correction of the exit waves. loss: sum of losses.
    """

    window_origins: Tensor
    subpixel_shifts: Tensor
    probes: Tensor
    windows: Tensor
    lacking: Tensor
    loss: Tensor


@final
class LeastSquares(Algorithm):
    """LSQML: one step of object and probe per batch."""

    @property
    def updates(self) -> int:
        """One update per batch."""
        return self.problem.order.updates

    def rates(self) -> dict[str, float]:
        """Return the factors of the steps of object and probe."""
        return {name: self.problem.rate(name) for name in ("object", "probe")}

    @torch.no_grad()
    def update(self, table: NDArray[np.int64], update: int) -> Tensor:
        """Update object and probe with one batch."""
        problem, model, rates = self.problem, self.problem.model, self.rates()
        members = int((table[:, update] >= 0).sum())
        own = problem.order.part(table, update, problem.group.rank, problem.group.world)
        waves = self._exit_waves(problem.shard.batch(own, members))
        numerator, illumination = over_engines(
            problem.group, *object_sums(model, waves.window_origins, waves.probes, waves.lacking)
        )
        object_step = (rates["object"] > 0) * numerator / (illumination + DAMPING * illumination.max())
        numerator, denominator = over_engines(
            problem.group, *probe_sums(model, waves.subpixel_shifts, waves.windows, waves.lacking)
        )
        probe_step = (rates["probe"] > 0) * numerator / (denominator + DAMPING * denominator.max())

        lengths = illumination.new_zeros((len(own), 2))
        if len(own):
            object_change = read_windows(object_step, waves.window_origins, model.window)[:, None] * waves.probes
            probe_change = moved_probes(probe_step, waves.subpixel_shifts) * waves.windows[:, None]
            lengths = step_lengths(waves.lacking, object_change, probe_change)
        weighted = add_windows(
            torch.zeros_like(illumination), waves.window_origins, lengths[:, 0, None, None] * intensity_of(waves.probes)
        )
        sums = problem.group.sum(torch.cat([weighted.reshape(-1), lengths[:, 1].sum()[None]]))
        mean = sums[:-1].view(illumination.shape) / illumination.clamp(min=1e-6 * float(illumination.max()))
        if rates["object"] > 0:
            model.object.set(model.object.values + rates["object"] * mean * object_step)
        if rates["probe"] > 0:
            model.probe.set(model.probe.values + rates["probe"] * sums[-1] / members * probe_step)
        return waves.loss

    def _exit_waves(self, batch: Batch) -> _ExitWaves:
        """Compute the corrections of the batch's exit waves. Empty batches are returned early, as FFTs refuse them."""
        model = self.problem.model
        corners, shifts = model.window_origins_and_shifts(batch)
        windows = read_windows(model.object.values[0, 0], corners, model.window)
        if not len(batch):
            empty = model.probe.values[None][:0]
            return _ExitWaves(
                corners, shifts, empty, windows, empty, torch.zeros((), dtype=torch.float64, device=shifts.device)
            )
        probes = moved_probes(model.probe.values, shifts)
        waves = model.to_detector(probes * windows[:, None], batch)
        loss, slope = model.loss.value_and_slope(intensity_of(waves), batch.counts, model.mask)
        # The slope of the amplitude loss is 1 - √(I / M), and 0 at bad pixels.
        lacking = model.from_detector(waves.mul_(slope.neg_()[:, None]), batch)
        return _ExitWaves(corners, shifts, probes, windows, lacking, loss.double())


def step_lengths(lacking: Tensor, object_change: Tensor, probe_change: Tensor) -> Tensor:
    """Return real a, b (pattern, 2) that minimise Σ |χ - a x - b y|² for each pattern; 0 for a change that is 0.

    lacking: χ, object_change: x, probe_change: y, all complex (pattern, mode, y, x); the sum includes all modes.
    """
    chi, x, y = (torch.view_as_real(waves).flatten(3).flatten(1, 2) for waves in (lacking, object_change, probe_change))
    # Products of rows in their own precision, in one pass, and their sums in double.
    xx, xy, yy, cx, cy = (
        torch.linalg.vecdot(one, other).sum(1, dtype=torch.float64)
        for one, other in ((x, x), (x, y), (y, y), (chi, x), (chi, y))
    )
    # A millionth more on the diagonal, so that the solution is unique if the changes are parallel or one is 0.
    more = 1e-6 * (xx + yy) + 1e-100
    xx, yy = xx + more, yy + more
    lengths = torch.stack([yy * cx - xy * cy, xx * cy - xy * cx], 1) / (xx * yy - xy * xy)[:, None]
    return lengths.to(chi.dtype)
