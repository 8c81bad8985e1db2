"""Regularizers, added to the loss of the patterns: functions of the object, and the mean pattern.

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
    """This engine's share of B Σ (√M̄ - √Ī)², with the means M̄ and Ī over the batch's B patterns on all engines.

    model, counts: (pattern, y, x) [counts]. Chen et al., Science 372, 826 (2021) call Ī the position-averaged pattern.
    The value counts each engine's patterns once; its gradient in `model` is that of the whole term.
    """
    sums = batch.total(torch.stack([model.detach().sum(0), counts.sum(0)]))
    mean_model, mean_counts = (sums / batch.global_batch_size).clamp(min=1e-12 * float(sums.mean()) + 1e-30)
    difference = mean_model.sqrt() - mean_counts.sqrt()
    if mask is not None:
        difference = difference * mask
    slope = difference / mean_model.sqrt()
    value = len(batch) * difference.square().sum()
    linear = (model * slope).sum()
    return linear - linear.detach() + value


@singledispatch
def object_term(term: object, values: Tensor) -> Tensor:
    """The value of a term of the settings for the object (state, slice, y, x), complex; 0 for other terms."""
    return values.real.new_zeros(())


@object_term.register
def _(term: settings.Sparsity, values: Tensor) -> Tensor:
    """⟨|arg O|^p⟩."""
    return values.angle().abs().pow(term.power).mean()


@object_term.register
def _(term: settings.TotalVariation, values: Tensor) -> Tensor:
    """⟨√(|∂_y O|² + |∂_x O|²)⟩. Rudin, Osher and Fatemi, Physica D 60, 259 (1992)."""
    y = values[..., 1:, :-1] - values[..., :-1, :-1]
    x = values[..., :-1, 1:] - values[..., :-1, :-1]
    return (y.abs().square() + x.abs().square() + 1e-12).sqrt().mean()


@object_term.register
def _(term: settings.Similarity, values: Tensor) -> Tensor:
    """⟨|O_s - Ō|²⟩ with the mean Ō of the states."""
    return (values - values.mean(0, keepdim=True)).abs().square().mean()


def object_terms(terms: Iterable[settings.Term], values: Tensor) -> Tensor:
    """Σ weight x term for the object (state, slice, y, x), a scalar."""
    return sum((term.weight * object_term(term, values) for term in terms), values.real.new_zeros(()))
