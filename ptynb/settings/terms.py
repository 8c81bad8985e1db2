"""What else is minimised beside the main loss, each term with its weight."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ptynb.settings.base import SettingsModel

LossName = Literal["amplitude", "poisson", "intensity"]


class _Term(SettingsModel):
    weight: float = Field(
        gt=0, le=1e12, allow_inf_nan=False, description="Weight beside the main loss, whose weight is 1"
    )


class DataTerm(_Term):
    """A second loss of the patterns."""

    kind: Literal["data"] = "data"
    loss: LossName = Field(description="Which loss")


class MeanPattern(_Term):
    """Difference of amplitudes between the mean of the modelled and of the measured patterns of a batch."""

    kind: Literal["mean_pattern"] = "mean_pattern"


class Sparsity(_Term):
    """Mean of |phase|^power of the object: prefers few strong features on an empty ground."""

    kind: Literal["sparsity"] = "sparsity"
    power: float = Field(default=1.0, ge=1, le=2, description="Power of the phase: 1 for sparse, 2 for small")


class TotalVariation(_Term):
    """Mean length of the object's gradient: prefers even areas with sharp edges."""

    kind: Literal["total_variation"] = "total_variation"


class Similarity(_Term):
    """Mean squared difference of the object's states from their mean: prefers states that differ little."""

    kind: Literal["similarity"] = "similarity"


Term = Annotated[
    DataTerm | MeanPattern | Sparsity | TotalVariation | Similarity,
    Field(discriminator="kind"),
]
