"""Imposing constraints of the settings on a model."""

from __future__ import annotations

from functools import singledispatch

from ptynb.physics.model import Model
from ptynb.settings.constraints import Constraint


@singledispatch
def impose(constraint: Constraint, model: Model) -> None:
    """Imposes a constraint on the model's parameters."""
    raise NotImplementedError(type(constraint))
