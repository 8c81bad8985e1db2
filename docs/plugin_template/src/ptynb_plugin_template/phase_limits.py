"""A constraint: the phase of the object stays in an interval."""

from typing import Literal, Self

import torch
from pydantic import Field, model_validator

from ptynb.plugin_api import ConstraintPlugin, InvalidValueError, Model


class PhaseLimits(ConstraintPlugin):
    """Clip the phase of the object to an interval; amplitudes stay."""

    kind: Literal["phase_limits"] = "phase_limits"
    low: float = Field(default=-3.0, ge=-3.2, le=3.2, title="Smallest phase", description="Smallest phase [rad]")
    high: float = Field(default=3.0, ge=-3.2, le=3.2, title="Largest phase", description="Largest phase [rad]")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise InvalidValueError(
                f"low is {self.low:g} and high is {self.high:g}; exchange them",
                code="settings.wrong-order",
                fields=("low", "high"),
            )
        return self

    @property
    def reach(self) -> int:
        """Each pixel is changed by itself, so that the object can be in tiles."""
        return 0

    def impose(self, model: Model) -> None:
        """Change the object (object mode, slice, y, x)."""
        values = model.object.values
        model.object.set(torch.polar(values.abs(), values.angle().clamp(self.low, self.high)))
