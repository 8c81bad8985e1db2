"""Regularizers, which are added to the loss: functions of the object, and of the mean pattern.

Each is a mean over pixels, at least 0 and of order 1, so that its weight is relative to the normalised loss.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

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


@singledispatch
def object_term(term: object, values: Tensor) -> Tensor:
    """Return a term of the settings for the object (state, slice, y, x), complex; 0 for terms of other kinds."""
    return values.real.new_zeros(())


@object_term.register
def _(term: settings.Sparsity, values: Tensor) -> Tensor:
    """Return ⟨|arg O|^p⟩."""
    return values.angle().abs().pow(term.power).mean()


@object_term.register
def _(term: settings.TotalVariation, values: Tensor) -> Tensor:
    """Return ⟨√(|∂_y O|² + |∂_x O|²)⟩. Rudin, Osher and Fatemi, Physica D 60, 259 (1992)."""
    y = values[..., 1:, :-1] - values[..., :-1, :-1]
    x = values[..., :-1, 1:] - values[..., :-1, :-1]
    return (y.abs().square() + x.abs().square() + 1e-12).sqrt().mean()


@object_term.register
def _(term: settings.Similarity, values: Tensor) -> Tensor:
    """Return ⟨|O_s - Ō|²⟩ with the mean Ō of the states."""
    return (values - values.mean(0, keepdim=True)).abs().square().mean()


def object_terms(terms: Iterable[settings.Term], values: Tensor) -> Tensor:
    """Return Σ weight x term for the object (state, slice, y, x), a scalar."""
    return sum((term.weight * object_term(term, values) for term in terms), values.real.new_zeros(()))
