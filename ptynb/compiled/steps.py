"""The steps of the hot path on a CPU, alone or one after the other; as `physics.steps`, for torch's tensors.

Each thread takes its patterns through all steps; what overlaps is added up afterwards, by rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.compiled import chain, passes, transforms
from ptynb.compiled.buffers import empty, give_back
from ptynb.compiled.threads import in_shares, part

Array = NDArray[Any]


class _Move:
    """P_jm = F⁻¹[R_j F[P_m]], without transforms where nothing moves."""

    def __init__(self, probes: Tensor, shifts: Tensor) -> None:
        self.spectra, self.shifts = _copy(probes), _array(shifts)
        patterns, (count, modes, height, width) = len(self.shifts), self.spectra.shape
        self.plans = transforms.plans(height, width, self.spectra.dtype)
        self.shared, self.still = count == 1, not (shifts.requires_grad or self.shifts.any())
        if self.shared and not self.still:
            transforms.forward(self.plans, self.spectra, 0, 1)
        self.moved = empty((patterns, modes, height, width), self.spectra)
        self.along_y, self.along_x = (np.ones((patterns, side), self.spectra.dtype) for side in (height, width))
        self.slopes = np.empty((patterns, 2), self.shifts.dtype)
        self.wanted = probes.requires_grad, shifts.requires_grad

    @property
    def start(self) -> tuple[Any, ...]:
        return self.plans, self.spectra, self.shifts, self.still, self.along_y, self.along_x

    def there(self, first: int, last: int) -> None:
        chain.move(self.start, first, last, self.moved)

    def back(self, first: int, last: int) -> None:
        chain.move_back(self.start, self.wanted, first, last, self.moved, self.slopes)

    def gather(self, factor: float, share: int, shares: int) -> None:
        """Σ_j R_j* Q_jm, in the place of the spectra."""
        if self.shared and self.wanted[0]:
            height, width = self.moved.shape[-2:]
            factor = factor if self.still else factor / (height * width)
            rows = part(height, share, shares)
            passes.ramped_sum(self.moved, self.along_y, self.along_x, factor, *rows, self.spectra[0])

    def gradients(self, factor: float) -> tuple[Tensor | None, Tensor | None]:
        """Of the probes and of the shifts, as far as they are wanted, times the same factor."""
        want_probes, want_shifts = self.wanted
        probes = self.spectra if self.shared else self.moved
        if want_probes and self.shared and not self.still:
            transforms.backward(self.plans, probes, 0, 1)
        elif want_probes and not self.shared and factor != 1:
            probes *= factor
        slopes = torch.from_numpy(self.slopes).mul_(factor) if want_shifts else None
        return torch.from_numpy(probes) if want_probes else None, slopes


class _Cross:
    """ψ₁ = P O₁ and ψ_k = O_k F⁻¹[H F[ψ_k-1]]."""

    def __init__(self, object: Tensor, corners: Tensor, probes: Array, kernel: Tensor | None) -> None:
        """probes: (pattern, mode, y, x); the gradient will take their place."""
        self.object, self.corners, self.probes = _array(object), _array(corners), probes[:, None]
        (states, slices), (patterns, modes, height, width) = self.object.shape[:2], probes.shape
        self.plans = transforms.plans(height, width, probes.dtype)
        between = np.ones((1, 1, 1), probes.dtype) if kernel is None else _array(kernel)
        self.kernel = between.reshape(-1, *between.shape[-2:])
        self.waves = empty((patterns, states, modes, height, width), probes)
        self.arriving = empty((slices - 1, *self.waves.shape), probes)
        self.object_change = torch.zeros(object.shape, dtype=object.dtype) if object.requires_grad else None

    @property
    def start(self) -> tuple[Any, ...]:
        return self.plans, self.object, self.corners, self.probes, self.arriving, self.kernel

    def there(self, first: int, last: int) -> None:
        chain.cross(self.start, first, last, self.waves)

    def back(self, first: int, last: int) -> None:
        chain.cross_back(self.start, first, last, self.waves)

    def gather(self, factor: float, share: int, shares: int) -> None:
        """Σ_j P_j* g_j at c_j, for each slice."""
        if self.object_change is not None:
            for layer, windows in enumerate([*self.arriving, self.waves]):
                passes.add_windows(windows, layer, self.corners, factor, share, shares, _array(self.object_change))


class _Propagate:
    """M_j = Σ_m |F[ψ_jm]|²."""

    def __init__(self, waves: Array) -> None:
        """waves: (pattern, state, mode, y, x); those on the detector, and then the gradient, take their place."""
        self.waves = waves
        self.plans = transforms.plans(*waves.shape[-2:], waves.dtype)
        self.intensity = empty((len(waves), *waves.shape[-2:]), waves.real)
        self.slopes = self.intensity

    def there(self, first: int, last: int) -> None:
        chain.propagate(self.plans, self.waves, first, last, self.intensity)

    def back(self, first: int, last: int) -> None:
        chain.propagate_back(self.plans, self.waves, self.slopes, first, last)


class Misfit(torch.autograd.Function):
    """`hotpath.far_field_misfit`: the way there and the way back at once, since the loss needs no other pattern."""

    @staticmethod
    def forward(
        ctx: Any,
        object: Tensor,
        corners: Tensor,
        probes: Tensor,
        shifts: Tensor,
        kernel: Tensor | None,
        frames: Tensor,
        mask: Tensor | None,
        floor: float,
    ) -> Tensor:
        move = _Move(probes, shifts)
        cross = _Cross(object, corners, move.moved, kernel)
        intensity = empty((len(corners), *cross.waves.shape[-2:]), cross.waves.real)
        counts, where, values = _array(frames), _mask(mask, intensity), np.empty(len(corners))
        backwards = any(ctx.needs_input_grad)

        def work(share: int, shares: int) -> None:
            chain.misfit(
                move.start,
                move.moved,
                cross.start,
                cross.waves,
                intensity,
                counts,
                where,
                floor,
                backwards,
                move.wanted,
                values,
                move.slopes,
                *part(len(values), share, shares),
            )

        in_shares(work)
        ctx.steps = move, cross
        return object.new_tensor(values.sum(), dtype=object.real.dtype)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        move, cross = ctx.steps
        del ctx.steps
        factor = float(outer[0])
        _gather((cross, move), factor)
        gradients = move.gradients(factor)
        give_back(cross.waves, cross.arriving, *([move.moved] if move.shared else []))
        return cross.object_change, None, *gradients, None, None, None, None


class Patterns(torch.autograd.Function):
    """`hotpath.far_field_patterns`."""

    @staticmethod
    def forward(
        ctx: Any, object: Tensor, corners: Tensor, probes: Tensor, shifts: Tensor, kernel: Tensor | None
    ) -> Tensor:
        move = _Move(probes, shifts)
        cross = _Cross(object, corners, move.moved, kernel)
        ctx.steps = move, cross, _Propagate(cross.waves)
        ctx.save_for_backward(object)
        _for_patterns([step.there for step in ctx.steps], len(corners))
        return torch.from_numpy(ctx.steps[2].intensity)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        move, cross, propagate = ctx.steps
        del ctx.steps
        ctx.saved_tensors  # noqa: B018  # raises if the object has been changed since
        propagate.slopes = _array(outer[0])
        _for_patterns([propagate.back, cross.back, move.back], len(cross.waves))
        _gather((cross, move), 1.0)
        return cross.object_change, None, *move.gradients(1.0), None


class MovedProbes(torch.autograd.Function):
    """`hotpath.moved_probes`."""

    @staticmethod
    def forward(ctx: Any, probes: Tensor, shifts: Tensor) -> Tensor:
        ctx.move = move = _Move(probes, shifts)
        _for_patterns([move.there], len(shifts))
        return torch.from_numpy(move.moved)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        move = ctx.move
        del ctx.move
        move.moved = _copy(outer[0])
        _for_patterns([move.back], len(move.moved))
        _gather((move,), 1.0)
        return move.gradients(1.0)


class ExitWaves(torch.autograd.Function):
    """`hotpath.exit_waves`."""

    @staticmethod
    def forward(ctx: Any, object: Tensor, corners: Tensor, probes: Tensor, kernel: Tensor | None) -> Tensor:
        ctx.cross = cross = _Cross(object, corners, _copy(probes), kernel)
        ctx.save_for_backward(object)
        _for_patterns([cross.there], len(corners))
        return torch.from_numpy(cross.waves)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        cross = ctx.cross
        del ctx.cross
        ctx.saved_tensors  # noqa: B018  # raises if the object has been changed since
        cross.waves = _copy(outer[0])
        _for_patterns([cross.back], len(cross.waves))
        _gather((cross,), 1.0)
        return cross.object_change, None, torch.from_numpy(cross.probes[:, 0]), None


class FarFieldIntensity(torch.autograd.Function):
    """`hotpath.far_field_intensity`."""

    @staticmethod
    def forward(ctx: Any, waves: Tensor) -> Tensor:
        ctx.propagate = propagate = _Propagate(_copy(waves))
        _for_patterns([propagate.there], len(waves))
        return torch.from_numpy(propagate.intensity)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor]:
        propagate = ctx.propagate
        del ctx.propagate
        propagate.slopes = _array(outer[0])
        _for_patterns([propagate.back], len(propagate.waves))
        return (torch.from_numpy(propagate.waves),)


class Intensity(torch.autograd.Function):
    """`hotpath.intensity_of`."""

    @staticmethod
    def forward(ctx: Any, waves: Tensor) -> Tensor:
        """Σ |Ψ|²."""
        given = _with_states(waves)
        squares = np.empty((len(given), *given.shape[-2:]), given.real.dtype)
        in_shares(lambda share, shares: passes.add_squares(given, 1.0, *part(len(given), share, shares), squares))
        ctx.save_for_backward(waves)
        return torch.from_numpy(squares)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor]:
        """2 (dL/dM) Ψ."""
        (waves,) = ctx.saved_tensors
        given, slopes = _with_states(waves), _array(outer[0])
        change = given.copy()
        in_shares(lambda share, shares: passes.scaled(change, slopes, 2.0, *part(len(given), share, shares)))
        return (torch.from_numpy(change).view(waves.shape),)


def amplitude_loss(model: Tensor, frames: Tensor, mask: Tensor | None, floor: float) -> tuple[Tensor, Tensor]:
    """`losses.Amplitude`: its value, a sum (scalar), and its slope (pattern, y, x).

    Raises ValueError where shapes differ.
    """
    if model.shape != frames.shape or (mask is not None and mask.shape != model.shape[1:]):
        raise ValueError(
            f"The modelled patterns' shape is {tuple(model.shape)}, the measured ones' {tuple(frames.shape)}, their "
            f"mask's {None if mask is None else tuple(mask.shape)}: a step of the model that changes it is wrong."
        )
    slope, counts = _copy(model), _array(frames)
    values, where = np.empty(len(slope)), _mask(mask, slope)

    def work(share: int, shares: int) -> None:
        passes.amplitude_loss(slope, counts, where, floor, *part(len(values), share, shares), values)

    in_shares(work)
    return model.new_tensor(values.sum()), torch.from_numpy(slope)


def _for_patterns(ways: Sequence[Callable[[int, int], None]], patterns: int) -> None:
    """Takes all patterns these ways, one after the other."""

    def work(share: int, shares: int) -> None:
        for way in ways:
            way(*part(patterns, share, shares))

    in_shares(work)


def _gather(steps: tuple[_Move | _Cross, ...], factor: float) -> None:
    """Adds up what patterns have in common, times a factor."""

    def work(share: int, shares: int) -> None:
        for step in steps:
            step.gather(factor, share, shares)

    in_shares(work)


def _array(tensor: Tensor) -> Array:
    """The same numbers, in order, for loops."""
    array: Array = tensor.detach().resolve_conj().resolve_neg().contiguous().numpy()
    return array


def _copy(tensor: Tensor) -> Array:
    array = _array(tensor)
    copy = empty(array.shape, array)
    copy[...] = array
    return copy


def _mask(mask: Tensor | None, like: Array) -> Array:
    """A mask for loops; of size 0 where there is none."""
    return np.empty((0, 0), like.dtype) if mask is None else _array(mask)


def _with_states(waves: Tensor) -> Array:
    """(pattern, …, y, x) as (pattern, 1, …, y, x) with all axes between in one."""
    array = _array(waves)
    return array.reshape(len(array), 1, math.prod(array.shape[1:-2]), *array.shape[-2:])
