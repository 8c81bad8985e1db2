"""Regularizers, which are added to the loss: functions of the object, and of the mean pattern.

Each is a mean over pixels, at least 0 and of order 1, so that its weight is relative to the normalised loss.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

import torch
from torch import Tensor

from ptynb.physics.components.builtin import ObjectPart
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


@singledispatch
def object_term(term: object, values: Tensor, own: ObjectPart) -> Tensor:
    """Return a term of the settings for the object (state, slice, y, x), complex; 0 for terms of other kinds."""
    return values.real.new_zeros(())


@object_term.register
def _(term: settings.Sparsity, values: Tensor, own: ObjectPart) -> Tensor:
    """Return ⟨|arg O|^p⟩."""
    return own.mean(values.angle().abs().pow(term.power))


@object_term.register
def _(term: settings.TotalVariation, values: Tensor, own: ObjectPart) -> Tensor:
    """Return ⟨√(|∂_y O|² + |∂_x O|²)⟩. Rudin, Osher and Fatemi, Physica D 60, 259 (1992)."""
    y = values[..., 1:, :-1] - values[..., :-1, :-1]
    x = values[..., :-1, 1:] - values[..., :-1, :-1]
    return own.mean((y.abs().square() + x.abs().square() + 1e-12).sqrt(), less=1)


@object_term.register
def _(term: settings.Similarity, values: Tensor, own: ObjectPart) -> Tensor:
    """Return ⟨|O_s - Ō|²⟩ with the mean Ō of the states."""
    return own.mean((values - values.mean(0, keepdim=True)).abs().square())


def object_terms(terms: Iterable[settings.Term], values: Tensor, own: ObjectPart | None = None) -> Tensor:
    """Return Σ weight x term for the object (state, slice, y, x), a scalar; own: of a tile, this engine's share."""
    part = ObjectPart.whole(values) if own is None else own
    return sum((term.weight * object_term(term, values, part) for term in terms), values.real.new_zeros(()))
