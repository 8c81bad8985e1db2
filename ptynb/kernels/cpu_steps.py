"""The steps of the hot path on a CPU, one by one or combined; same interface as `physics.torch_steps`.

Each thread takes its patterns through all steps. Gradients of shared arrays are summed by each thread separately and
then over threads, by rows; or, if an object is larger than the waves of a batch, from the waves, by rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.exceptions import InvalidValueError
from ptynb.kernels import parallel_sections
from ptynb.kernels.hotpath_types import Illumination
from ptynb.kernels.runtime import fft, thread_count
from ptynb.kernels.runtime.buffers import empty
from ptynb.kernels.step_kernels import Crossing, Moving, Near, Seen

Array = NDArray[Any]
GUARD = 2**16
"""Length of the memory behind an empty array [numbers]: more than a row and a column of a window."""
EMPTY, UNWRITTEN = ({np.dtype(kind): np.empty(GUARD, kind)[:0] for kind in (np.float32, np.float64)} for _ in range(2))
"""Placeholders for missing arrays, for reading and for writing.

A compiled loop first checks from the addresses of their rows whether its arrays overlap, and sums in another order if
they do. An empty array allocated separately may lie just before another array: the same loss then differed by 1e-10.
"""


class Move:
    """Probe shift P_jm = F⁻¹[R_j F[P_m]], without transforms if all shifts are 0."""

    def __init__(self, probes: Tensor, shifts: Tensor, of_probes: bool, of_shifts: bool, alone: bool = False) -> None:
        """of_probes, of_shifts: which gradients to compute. alone: whether a share stores one pattern's probes only."""
        spectra, along = copied(probes), array(shifts)
        shares, patterns, (count, *planes) = thread_count.count(), len(along), spectra.shape
        plans = fft.plans(*planes[1:], spectra.dtype)
        self.shared, still = count == 1, not (of_shifts or along.any())
        if self.shared and not still:
            parallel_sections.transform(plans, spectra[0], False)
        alone = alone and self.shared
        height, width = planes[1:]
        ramps = np.ones if still else np.empty
        self.moving = Moving(
            plans,
            spectra,
            along,
            still,
            ramps((patterns, height), spectra.dtype),
            ramps((patterns, width), spectra.dtype),
            empty((shares if alone else patterns, *planes), spectra),
            alone,
            empty((shares, *(planes if self.shared and of_probes else (0, 0, 0))), spectra),
            np.empty((patterns, 2), along.dtype),
            of_probes,
            of_shifts,
        )

    def gradients(
        self, factor: float, shift_factor: float, near: Near | None = None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return the gradients of probes and shifts, if requested, times `factor` and `shift_factor`; call only once.

        near: with the gradient of the shift back.
        """
        moving = self.moving
        probes = moving.spectra if self.shared else moving.moved
        if moving.of_probes and self.shared:
            pixels = 1 if moving.still else probes.shape[-2] * probes.shape[-1]
            parallel_sections.gather_probes(moving, factor / pixels)
            if not moving.still:
                parallel_sections.transform(moving.plans, probes[0], True)
        elif moving.of_probes and factor != 1:
            probes *= factor
        if not moving.of_shifts:
            slopes = None
        else:
            total = moving.slopes if near is None else moving.slopes + near.slopes
            slopes = torch.from_numpy(total * total.dtype.type(shift_factor))
        return torch.from_numpy(probes) if moving.of_probes else None, slopes


class Cross:
    """Propagation through the object: ψ₁ = P O₁ and ψ_k = O_k F⁻¹[H F[ψ_k-1]]."""

    def __init__(
        self,
        object: Tensor,
        window_origins: Tensor,
        probes: Array,
        kernel: Tensor | None,
        wanted: bool,
        alone: bool = False,
        waves: Array | None = None,
    ) -> None:
        """probes: (pattern, mode, y, x); overwritten by the gradient. wanted: whether to compute the object's gradient.

        waves: memory (pattern, state, mode, y, x) for the waves behind the object.

        alone: whether each share stores the waves of one pattern at a time and its own gradient of the object, if this
        takes less memory than the waves of all patterns.
        """
        values, planes, patterns = array(object), probes.shape[1:], len(window_origins)
        (states, slices), shares = values.shape[:2], thread_count.count()
        between = np.ones((1, 1, 1), probes.dtype) if kernel is None else array(kernel)
        of_one = states * math.prod(planes) * slices
        alone = alone and shares * (values.size + of_one) <= patterns * of_one
        self.change = torch.empty(object.shape, dtype=object.dtype) if wanted else None
        self.crossing = Crossing(
            fft.plans(*planes[1:], probes.dtype),
            values,
            array(window_origins),
            between.reshape(-1, *between.shape[-2:]),
            probes[:, None],
            empty((*((shares, slices - 1, 1) if alone else (1, slices - 1, patterns)), states, *planes), probes),
            empty((shares if alone else patterns, states, *planes), probes) if waves is None else waves,
            alone,
            empty((shares, *(values.shape if wanted and alone else (0, 0, 0, 0))), probes),
        )

    def gradient(self, factor: float) -> Tensor | None:
        """Return the gradient of the object, if requested, times `factor`; call only once."""
        if self.change is not None:
            parallel_sections.gather_object(self.crossing, factor, array(self.change))
        return self.change


def near_field(propagator: Tensor | None, move: Move, cross: Cross) -> Near | None:
    """Return the arguments of the propagation in the near field; None for the far field."""
    if propagator is None:
        return None
    waves, moving = cross.crossing.waves, move.moving
    return Near(
        array(propagator)[None],
        empty(waves.shape if moving.of_shifts else (0,) * waves.ndim, waves),
        np.empty_like(moving.slopes),
    )


class CompiledPatterns(torch.autograd.Function):
    """`hotpath.patterns`."""

    @staticmethod
    def forward(ctx: Any, object: Tensor, probes: Tensor, shifts: Tensor, given: Illumination) -> Tensor:
        ctx.move = Move(probes, shifts, probes.requires_grad, shifts.requires_grad)
        ctx.cross = Cross(object, given.window_origins, ctx.move.moving.moved, given.kernel, object.requires_grad)
        ctx.near = near_field(given.propagator, ctx.move, ctx.cross)
        ctx.save_for_backward(object)
        waves = ctx.cross.crossing.waves
        intensity = empty((len(waves), *waves.shape[-2:]), waves.real)
        parallel_sections.patterns(ctx.move.moving, ctx.cross.crossing, ctx.near, intensity)
        return torch.from_numpy(intensity)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        move, cross, near = ctx.move, ctx.cross, ctx.near
        del ctx.move, ctx.cross, ctx.near
        ctx.saved_tensors  # noqa: B018  # raises if the object was modified meanwhile
        shares = len(move.moving.totals)
        parallel_sections.patterns_back(move.moving, cross.crossing, near, array(outer[0]), shares=shares)
        return cross.gradient(1.0), *move.gradients(1.0, 1.0, near), None


class CompiledMovedProbes(torch.autograd.Function):
    """`hotpath.moved_probes`."""

    @staticmethod
    def forward(ctx: Any, probes: Tensor, shifts: Tensor) -> Tensor:
        ctx.move = Move(probes, shifts, probes.requires_grad, shifts.requires_grad)
        parallel_sections.move(ctx.move.moving)
        return torch.from_numpy(ctx.move.moving.moved)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        move = ctx.move
        del ctx.move
        move.moving = move.moving._replace(moved=copied(outer[0]))
        parallel_sections.move_back(move.moving, shares=len(move.moving.totals))
        gradients: tuple[Tensor | None, ...] = move.gradients(1.0, 1.0)
        return gradients


class CompiledExitWaves(torch.autograd.Function):
    """`hotpath.exit_waves`."""

    @staticmethod
    def forward(ctx: Any, object: Tensor, window_origins: Tensor, probes: Tensor, kernel: Tensor | None) -> Tensor:
        ctx.probes = copied(probes)
        ctx.cross = Cross(object, window_origins, ctx.probes, kernel, object.requires_grad)
        ctx.save_for_backward(object)
        parallel_sections.cross(ctx.cross.crossing)
        return torch.from_numpy(ctx.cross.crossing.waves)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        cross, probes = ctx.cross, ctx.probes
        del ctx.cross, ctx.probes
        ctx.saved_tensors  # noqa: B018  # raises if the object was modified meanwhile
        cross.crossing = cross.crossing._replace(waves=copied(outer[0]))
        parallel_sections.cross_back(cross.crossing)
        return cross.gradient(1.0), None, torch.from_numpy(probes), None


class CompiledFarFieldIntensity(torch.autograd.Function):
    """`hotpath.far_field_intensity`."""

    @staticmethod
    def forward(ctx: Any, waves: Tensor) -> Tensor:
        ctx.waves = copied(waves)
        intensity = empty((len(ctx.waves), *ctx.waves.shape[-2:]), ctx.waves.real)
        parallel_sections.propagate(_plans(ctx.waves), ctx.waves, intensity)
        return torch.from_numpy(intensity)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor]:
        waves = ctx.waves
        del ctx.waves
        parallel_sections.propagate_back(_plans(waves), waves, array(outer[0]))
        return (torch.from_numpy(waves),)


def loss_of_counts(
    model: Tensor, frames: Tensor, mask: Tensor | None, floor: float, damping: float = 0.0, *, poisson: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the value of `losses.AmplitudeLoss` or `losses.PoissonLoss`, a sum (scalar float64), and its slope.

    The slope is (pattern, y, x), as the model is.

    Raises ValueError if shapes differ.
    """
    if model.shape != frames.shape or (mask is not None and mask.shape != model.shape[1:]):
        raise InvalidValueError(
            f"Modelled patterns have shape {tuple(model.shape)}, measured ones {tuple(frames.shape)} and the mask "
            f"{None if mask is None else tuple(mask.shape)}; expected equal shapes: a component must keep them.",
            code="array.shape-mismatch",
        )
    slope, values = copied(model), np.empty(len(model))
    detected = seen(frames, np.arange(len(slope)), mask, None, None, slope.dtype)
    shares = len(detected.of_background)
    parallel_sections.loss_of_counts(slope, detected, floor, damping, poisson, values, shares=shares)
    return model.new_tensor(values.sum(), dtype=torch.float64), torch.from_numpy(slope)


def seen(
    frames: Tensor,
    rows: Array,
    mask: Tensor | None,
    weights: Tensor | None,
    background: Tensor | None,
    kind: np.dtype[Any],
) -> Seen:
    """Return the arguments of the detector model for loops of this real type."""
    nothing = EMPTY[kind]
    own, plane, masked = (
        nothing.reshape((0,) * axes) if tensor is None else array(tensor)
        for tensor, axes in ((weights, 1), (background, 2), (mask, 2))
    )
    if background is not None and weights is None:
        own = np.ones(len(rows), kind)
    planes = thread_count.count(), *plane.shape
    of_background = UNWRITTEN[kind].reshape(planes) if background is None else np.empty(planes, kind)
    return Seen(array(frames), rows, masked, own, plane, np.empty_like(own), of_background)


def array(tensor: Tensor) -> Array:
    """Return the tensor as a contiguous NumPy array."""
    found: Array = tensor.numpy(force=True)
    return np.ascontiguousarray(found)


def copied(tensor: Tensor) -> Array:
    """Return a copy of the tensor as a NumPy array."""
    given = tensor.numpy(force=True)
    copy = empty(given.shape, given)
    copy[...] = given
    return copy


def _plans(waves: Array) -> fft.Plans:
    found: fft.Plans = fft.plans(*waves.shape[-2:], waves.dtype)
    return found
