"""Regularizers: what else is minimised beside the main loss, each with its weight."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ptynb.settings.validation import SettingsModel

LossName = Literal["amplitude", "poisson", "intensity"]


class Regularizer(SettingsModel):
    """What all of them have."""

    weight: float = Field(
        gt=0, le=1e12, allow_inf_nan=False, description="Weight beside the main loss, whose weight is 1"
    )


class DataTerm(Regularizer):
    """A second loss of the patterns."""

    kind: Literal["data"] = "data"
    loss: LossName = Field(description="Which loss")


class PACBED(Regularizer):
    """Difference of amplitudes of the position-averaged (PACBED) pattern of a batch, modelled and measured."""

    kind: Literal["pacbed"] = "pacbed"


class Sparsity(Regularizer):
    """Mean of |phase|^power of the object: prefers few strong features on an empty ground."""

    kind: Literal["sparsity"] = "sparsity"
    power: float = Field(default=1.0, ge=1, le=2, description="Power of the phase: 1 for sparse, 2 for small")


class TotalVariation(Regularizer):
    """Mean length of the object's gradient: prefers even areas with sharp edges."""

    kind: Literal["total_variation"] = "total_variation"


class Similarity(Regularizer):
    """Mean squared difference of the object's modes from their mean: prefers modes that differ little."""

    kind: Literal["similarity"] = "similarity"


Term = Annotated[
    DataTerm | PACBED | Sparsity | TotalVariation | Similarity,
    Field(discriminator="kind"),
]
