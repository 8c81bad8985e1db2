"""The steps of the hot path on a CPU, alone or one after the other; as `physics.steps`, for torch's tensors.

Each thread takes its patterns through all steps. What they have in common is added up by each thread for itself, and
then over threads, by rows; or, where an object is larger than a batch's waves, from the waves, by rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.compiled import chain, passes, threads, transforms
from ptynb.compiled.buffers import empty, give_back
from ptynb.compiled.threads import in_shares, part

Array = NDArray[Any]


class _Move:
    """P_jm = F⁻¹[R_j F[P_m]], without transforms where nothing moves."""

    def __init__(self, probes: Tensor, shifts: Tensor, wanted: tuple[bool, bool], alone: bool = False) -> None:
        """wanted: gradients of the probes, and of the shifts. alone: each share has one pattern's probes at a time."""
        self.spectra, self.shifts, self.wanted = _copy(probes), _array(shifts), wanted
        self.shares, patterns, (count, *planes) = threads.count(), len(self.shifts), self.spectra.shape
        self.plans = transforms.plans(*planes[1:], self.spectra.dtype)
        self.shared, self.still = count == 1, not (wanted[1] or self.shifts.any())
        if self.shared and not self.still:
            transforms.forward(self.plans, self.spectra, 0, 1)
        self.alone = alone and self.shared
        self.moved = empty((self.shares if self.alone else patterns, *planes), self.spectra)
        self.totals = empty((self.shares, *(planes if self.shared and wanted[0] else (0, 0, 0))), self.spectra)
        ramps = np.ones if self.still else np.empty
        self.along_y, self.along_x = (ramps((patterns, side), self.spectra.dtype) for side in planes[1:])
        self.slopes = np.empty((patterns, 2), self.shifts.dtype)

    @property
    def start(self) -> tuple[Any, ...]:
        return self.plans, self.spectra, self.shifts, self.still, self.along_y, self.along_x

    def room(self, share: int) -> Array:
        """Where a share's moved probes are."""
        return self.moved[share : share + 1] if self.alone else self.moved

    def there(self, share: int, first: int, last: int) -> None:
        chain.move(self.start, first, last, self.moved)

    def back(self, share: int, first: int, last: int) -> None:
        total = self.totals[share]
        total[...] = 0
        chain.move_back(self.start, self.wanted, first, last, self.moved, self.slopes, total)

    def gather(self, factor: float, share: int) -> None:
        """Σ_j R_j* Q_jm, in the place of the spectra."""
        if self.totals.size:
            height, width = self.moved.shape[-2:]
            factor = factor if self.still else factor / (height * width)
            passes.sum_of_shares(self.totals, factor, *part(height, share, self.shares), self.spectra[0])

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

    def __init__(
        self, object: Tensor, corners: Tensor, probes: Array, kernel: Tensor | None, wanted: bool, alone: bool = False
    ) -> None:
        """probes: (pattern, mode, y, x); the gradient will take their place. wanted: the gradient of the object.

        alone: each share may have one pattern's waves at a time, and an object's gradient of its own: where that takes
        less memory than the waves of all patterns.
        """
        self.object, self.corners, self.probes = _array(object), _array(corners), probes
        (states, slices), planes = self.object.shape[:2], probes.shape[1:]
        self.shares, self.patterns = threads.count(), len(self.corners)
        self.plans = transforms.plans(*planes[1:], probes.dtype)
        between = np.ones((1, 1, 1), probes.dtype) if kernel is None else _array(kernel)
        self.kernel = between.reshape(-1, *between.shape[-2:])
        of_one = states * math.prod(planes) * slices
        self.alone = alone and self.shares * (self.object.size + of_one) <= self.patterns * of_one
        self.waves = empty((self.shares if self.alone else self.patterns, states, *planes), probes)
        layers = (self.shares, slices - 1, 1) if self.alone else (1, slices - 1, self.patterns)
        self.arriving = empty((*layers, states, *planes), probes)
        apart = self.object.shape if wanted and self.alone else (0, 0, 0, 0)
        self.changes = empty((self.shares, *apart), probes)
        self.change = torch.empty(object.shape, dtype=object.dtype) if wanted else None

    def start(self, share: int = 0, probes: Array | None = None) -> tuple[Any, ...]:
        arriving = self.arriving[share if self.alone else 0]
        moved = self.probes if probes is None else probes
        return self.plans, self.object, self.corners, moved[:, None], arriving, self.kernel

    def room(self, share: int) -> Array:
        """Where a share's waves are."""
        return self.waves[share : share + 1] if self.alone else self.waves

    def there(self, share: int, first: int, last: int) -> None:
        chain.cross(self.start(), first, last, self.waves)

    def back(self, share: int, first: int, last: int) -> None:
        chain.cross_back(self.start(), first, last, self.waves)

    def gather(self, factor: float, share: int) -> None:
        """Σ_j P_j* g_j at c_j, for each slice."""
        if self.change is None:
            return
        change, rows = _array(self.change), (share, self.shares)
        if self.alone:
            height, width = change.shape[-2:]
            own, out = self.changes.reshape(self.shares, -1, height, width), change.reshape(-1, height, width)
            passes.sum_of_shares(own, factor, *part(height, *rows), out)
        else:
            passes.clear(change, *rows)
            chain.add_change(self.start(), self.waves, factor, 0, self.patterns, rows, change)


class _Propagate:
    """M_j = Σ_m |F[ψ_jm]|²."""

    def __init__(self, waves: Array) -> None:
        """waves: (pattern, state, mode, y, x); those on the detector, and then the gradient, take their place."""
        self.waves = waves
        self.plans = transforms.plans(*waves.shape[-2:], waves.dtype)
        self.intensity = empty((len(waves), *waves.shape[-2:]), waves.real)
        self.slopes = self.intensity

    def there(self, share: int, first: int, last: int) -> None:
        chain.propagate(self.plans, self.waves, first, last, self.intensity)

    def back(self, share: int, first: int, last: int) -> None:
        chain.propagate_back(self.plans, self.waves, self.slopes, first, last)


class Descent:
    """`hotpath.far_field_misfit`: the way there and the way back at once, since the loss needs no other pattern."""

    def __init__(
        self,
        object: Tensor,
        corners: Tensor,
        probes: Tensor,
        shifts: Tensor,
        kernel: Tensor | None,
        wanted: tuple[bool, bool, bool],
        weights: Tensor | None = None,
        background: Tensor | None = None,
    ) -> None:
        """wanted: the gradients of the object, the probes, and the shifts; those of the others always are."""
        real = probes.real.dtype
        if background is not None and weights is None:
            weights = torch.ones(len(corners), dtype=real)
        self.weights, self.background = (
            _array(torch.empty(empty, dtype=real) if tensor is None else tensor)
            for tensor, empty in ((weights, (0,)), (background, (0, 0)))
        )
        self.move = _Move(probes, shifts, wanted[1:], alone=True)
        self.cross = _Cross(object, corners, self.move.moved, kernel, wanted[0], alone=True)
        self.backwards = any(wanted)
        self.of_weights = np.empty_like(self.weights)
        self.of_background = np.empty((self.move.shares, *self.background.shape), self.background.dtype)

    def value(self, held: Tensor, rows: Tensor, mask: Tensor | None, floor: float) -> float:
        """The loss."""
        move, cross = self.move, self.cross
        intensity = empty((move.shares, *cross.waves.shape[-2:]), cross.waves.real)
        counts, chosen, values = _array(held), _array(rows), np.empty(cross.patterns)
        seen = counts, chosen, _mask(mask, intensity), self.weights, self.background, self.of_weights

        def work(share: int, shares: int) -> None:
            moved = move.room(share)
            chain.misfit(
                move.start,
                moved,
                move.totals[share],
                cross.start(share, moved),
                cross.room(share),
                cross.changes[share],
                intensity[share : share + 1],
                (*seen, self.of_background[share]),
                floor,
                self.backwards,
                move.wanted,
                values,
                move.slopes,
                *part(len(values), share, shares),
            )

        in_shares(work, move.shares)
        give_back(intensity)
        return float(values.sum())

    def gradients(self, factor: float) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Of the object, the probes and the shifts, as far as they are wanted, times a factor; once."""
        move, cross = self.move, self.cross
        _gather((cross, move), factor)
        of_probes, of_shifts = move.gradients(factor)
        give_back(cross.waves, cross.arriving, cross.changes, move.totals, *([move.moved] if move.shared else []))
        return cross.change, of_probes, of_shifts

    def slopes_at_detector(self, factor: float) -> tuple[Tensor, Tensor]:
        """Of the weights and the background, times a factor."""
        return torch.from_numpy(self.of_weights * factor), torch.from_numpy(self.of_background.sum(0) * factor)


class Misfit(torch.autograd.Function):
    """`Descent`, recorded."""

    @staticmethod
    def forward(
        ctx: Any,
        object: Tensor,
        corners: Tensor,
        probes: Tensor,
        shifts: Tensor,
        kernel: Tensor | None,
        held: Tensor,
        rows: Tensor,
        mask: Tensor | None,
        floor: float,
        weights: Tensor | None,
        background: Tensor | None,
    ) -> Tensor:
        wanted = object.requires_grad, probes.requires_grad, shifts.requires_grad
        ctx.descent = Descent(object, corners, probes, shifts, kernel, wanted, weights, background)
        return object.new_tensor(ctx.descent.value(held, rows, mask, floor), dtype=object.real.dtype)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        descent = ctx.descent
        del ctx.descent
        factor = float(outer[0])
        of_object, *others = descent.gradients(factor)
        at_detector = (
            slope if asked else None
            for slope, asked in zip(descent.slopes_at_detector(factor), ctx.needs_input_grad[-2:], strict=True)
        )
        return of_object, None, *others, None, None, None, None, None, *at_detector


class Patterns(torch.autograd.Function):
    """`hotpath.far_field_patterns`."""

    @staticmethod
    def forward(
        ctx: Any, object: Tensor, corners: Tensor, probes: Tensor, shifts: Tensor, kernel: Tensor | None
    ) -> Tensor:
        move = _Move(probes, shifts, (probes.requires_grad, shifts.requires_grad))
        cross = _Cross(object, corners, move.moved, kernel, object.requires_grad)
        ctx.steps = move, cross, _Propagate(cross.waves)
        ctx.save_for_backward(object)
        _for_patterns([step.there for step in ctx.steps], len(corners), move.shares)
        return torch.from_numpy(ctx.steps[2].intensity)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        move, cross, propagate = ctx.steps
        del ctx.steps
        ctx.saved_tensors  # noqa: B018  # raises if the object has been changed since
        propagate.slopes = _array(outer[0])
        _for_patterns([propagate.back, cross.back, move.back], len(cross.waves), move.shares)
        _gather((cross, move), 1.0)
        return cross.change, None, *move.gradients(1.0), None


class MovedProbes(torch.autograd.Function):
    """`hotpath.moved_probes`."""

    @staticmethod
    def forward(ctx: Any, probes: Tensor, shifts: Tensor) -> Tensor:
        ctx.move = move = _Move(probes, shifts, (probes.requires_grad, shifts.requires_grad))
        _for_patterns([move.there], len(shifts), move.shares)
        return torch.from_numpy(move.moved)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        move = ctx.move
        del ctx.move
        move.moved = _copy(outer[0])
        _for_patterns([move.back], len(move.moved), move.shares)
        _gather((move,), 1.0)
        return move.gradients(1.0)


class ExitWaves(torch.autograd.Function):
    """`hotpath.exit_waves`."""

    @staticmethod
    def forward(ctx: Any, object: Tensor, corners: Tensor, probes: Tensor, kernel: Tensor | None) -> Tensor:
        ctx.cross = cross = _Cross(object, corners, _copy(probes), kernel, object.requires_grad)
        ctx.save_for_backward(object)
        _for_patterns([cross.there], len(corners), cross.shares)
        return torch.from_numpy(cross.waves)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        cross = ctx.cross
        del ctx.cross
        ctx.saved_tensors  # noqa: B018  # raises if the object has been changed since
        cross.waves = _copy(outer[0])
        _for_patterns([cross.back], len(cross.waves), cross.shares)
        _gather((cross,), 1.0)
        return cross.change, None, torch.from_numpy(cross.probes), None


class FarFieldIntensity(torch.autograd.Function):
    """`hotpath.far_field_intensity`."""

    @staticmethod
    def forward(ctx: Any, waves: Tensor) -> Tensor:
        ctx.propagate = propagate = _Propagate(_copy(waves))
        _for_patterns([propagate.there], len(waves), threads.count())
        return torch.from_numpy(propagate.intensity)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor]:
        propagate = ctx.propagate
        del ctx.propagate
        propagate.slopes = _array(outer[0])
        _for_patterns([propagate.back], len(propagate.waves), threads.count())
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
    slope, values = _copy(model), np.empty(len(model))
    no_weights, no_background = np.empty(0, slope.dtype), np.empty((0, 0), slope.dtype)
    at_detector = no_weights, no_background, no_weights, no_background
    seen = _array(frames), np.arange(len(slope)), _mask(mask, slope), *at_detector

    def work(share: int, shares: int) -> None:
        passes.amplitude_loss(slope, seen, floor, *part(len(values), share, shares), values)

    in_shares(work)
    return model.new_tensor(values.sum()), torch.from_numpy(slope)


def _for_patterns(ways: Sequence[Callable[[int, int, int], None]], patterns: int, shares: int) -> None:
    """Takes all patterns these ways, one after the other."""

    def work(share: int, shares: int) -> None:
        for way in ways:
            way(share, *part(patterns, share, shares))

    in_shares(work, shares)


def _gather(steps: tuple[_Move | _Cross, ...], factor: float) -> None:
    """Adds up what patterns have in common, times a factor."""

    def work(share: int, shares: int) -> None:
        for step in steps:
            step.gather(factor, share)

    in_shares(work, steps[0].shares)


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
