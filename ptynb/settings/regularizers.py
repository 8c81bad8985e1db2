"""Regularizers: functions that are added to the loss, each with a weight."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.config import JsonDict

from ptynb.settings.base_models import SettingsModel
from ptynb.settings.field_docs import DOCUMENTED_TYPE
from ptynb.settings.plugin_entries import PluginName

LOSSES = ("amplitude", "poisson", "intensity")
LossName = Annotated[str, PluginName("losses", LOSSES)]
LOSS_TYPE: JsonDict = {DOCUMENTED_TYPE: '{"amplitude", "poisson", "intensity"} or the name of a plug-in'}


class Regularizer(SettingsModel):
    """Base class of the regularizers."""

    weight: float = Field(
        gt=0, le=1e12, allow_inf_nan=False, description="Weight relative to the loss, whose weight is 1"
    )


class DataTerm(Regularizer):
    """A second loss of the patterns."""

    kind: Literal["data"] = "data"
    loss: LossName = Field(title="Loss", description="Name of the loss", json_schema_extra=LOSS_TYPE)


class PACBED(Regularizer):
    """Difference of amplitudes between modelled and measured mean pattern (PACBED) of a batch."""

    kind: Literal["pacbed"] = "pacbed"


class Sparsity(Regularizer):
    """Mean of |phase|^power of the object; favours few strong features on an empty background."""

    kind: Literal["sparsity"] = "sparsity"
    power: float = Field(default=1.0, ge=1, le=2, description="Power of the phase; 1: sparse phases, 2: small phases")


class TotalVariation(Regularizer):
    """Mean length of the object's gradient; favours uniform areas with sharp edges."""

    kind: Literal["total_variation"] = "total_variation"


class Similarity(Regularizer):
    """Mean squared difference of the object modes from their mean; favours similar modes."""

    kind: Literal["similarity"] = "similarity"


Term = Annotated[
    DataTerm | PACBED | Sparsity | TotalVariation | Similarity,
    Field(discriminator="kind"),
]
