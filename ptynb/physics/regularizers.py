"""Regularizers, which are added to the loss: functions of the object, and of the mean pattern.

Each is a mean over pixels, at least 0 and of order 1, so that its weight is relative to the normalised loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import singledispatch
from typing import NamedTuple, Self

import torch
from torch import Tensor

from ptynb.physics.components.component import Batch
from ptynb.settings import regularizers as settings


def mean_pattern(model: Tensor, counts: Tensor, mask: Tensor | None, batch: Batch) -> Tensor:
    """Return this engine's share of B Σ (√M̄ - √Ī)², with the means M̄ and Ī over all B patterns of the batch.

    model, counts: (pattern, y, x) [counts]. Chen et al., Science 372, 826 (2021) call Ī the position-averaged pattern.
    The shares of all engines add up to the value of the term; the gradient with respect to `model` is that of the whole
    term.
    """
    sums = batch.total(torch.stack([model.detach().sum(0), counts.sum(0)]))
    least = (1e-12 * sums.mean().double() + 1e-30).to(sums.dtype)
    mean_model, mean_counts = (sums / batch.global_batch_size).clamp(min=least)
    difference = mean_model.sqrt() - mean_counts.sqrt()
    if mask is not None:
        difference = difference * mask
    slope = difference / mean_model.sqrt()
    value = len(batch) * difference.square().sum()
    linear = (model * slope).sum()
    return linear - linear.detach() + value


class OwnPart(NamedTuple):
    """The pixels of an object array that are an engine's own, of an object of which others have other tiles.

    shape: (y, x) of the whole object. origin: its pixel (y, x) that is the first of the array. total: collective call
    that sums a tensor over all engines.
    """

    rows: slice
    columns: slice
    shape: tuple[int, int]
    origin: tuple[int, int] = (0, 0)
    total: Callable[[Tensor], Tensor] = lambda tensor: tensor

    @classmethod
    def whole(cls, values: Tensor) -> Self:
        """Return that of an engine that has the whole object (…, y, x)."""
        height, width = values.shape[-2:]
        return cls(slice(0, height), slice(0, width), (height, width))

    def of(self, values: Tensor) -> Tensor:
        """Return the own pixels of an array (…, y, x)."""
        return values[..., self.rows, self.columns]

    def within(self, area: tuple[slice, slice]) -> tuple[slice, slice]:
        """Return slices (y, x) of the array for those own pixels that are in an area of the whole object."""
        sides = []
        for own, wanted, first in zip((self.rows, self.columns), area, self.origin, strict=True):
            start = max(own.start, wanted.start - first)
            sides.append(slice(start, max(start, min(own.stop, wanted.stop - first))))
        return sides[0], sides[1]

    def mean(self, values: Tensor, less: int = 0) -> Tensor:
        """Return this engine's share of the mean over the whole object, whose sides have `less` values fewer."""
        number = values[..., 0, 0].numel() * (self.shape[0] - less) * (self.shape[1] - less)
        return self.of(values).sum() / number


@singledispatch
def object_term(term: object, values: Tensor, own: OwnPart) -> Tensor:
    """Return a term of the settings for the object (state, slice, y, x), complex; 0 for terms of other kinds."""
    return values.real.new_zeros(())


@object_term.register
def _(term: settings.Sparsity, values: Tensor, own: OwnPart) -> Tensor:
    """Return ⟨|arg O|^p⟩."""
    return own.mean(values.angle().abs().pow(term.power))


@object_term.register
def _(term: settings.TotalVariation, values: Tensor, own: OwnPart) -> Tensor:
    """Return ⟨√(|∂_y O|² + |∂_x O|²)⟩. Rudin, Osher and Fatemi, Physica D 60, 259 (1992)."""
    y = values[..., 1:, :-1] - values[..., :-1, :-1]
    x = values[..., :-1, 1:] - values[..., :-1, :-1]
    return own.mean((y.abs().square() + x.abs().square() + 1e-12).sqrt(), less=1)


@object_term.register
def _(term: settings.Similarity, values: Tensor, own: OwnPart) -> Tensor:
    """Return ⟨|O_s - Ō|²⟩ with the mean Ō of the states."""
    return own.mean((values - values.mean(0, keepdim=True)).abs().square())


def object_terms(terms: Iterable[settings.Term], values: Tensor, own: OwnPart | None = None) -> Tensor:
    """Return Σ weight x term for the object (state, slice, y, x), a scalar; own: of a tile, this engine's share."""
    part = OwnPart.whole(values) if own is None else own
    return sum((term.weight * object_term(term, values, part) for term in terms), values.real.new_zeros(()))
