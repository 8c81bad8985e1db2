"""How gradients become updates: torch's optimisers with one rate for each part of the model."""

from __future__ import annotations

import torch

from ptynb.physics.model import FarField
from ptynb.settings import Settings

ADAM_EPSILON = 0.015
"""Gradients below this move a pixel less than a full step.

The loss of an update is in units of the mean count of a pixel, so this is a number
without unit. Plain Adam (1e-8) moves the pixels
that hardly see the beam as fast as those in its centre, and they fill with noise: problem of 484 patterns of
128 x 128, 40 epochs at rate 0.01: object error 0.0251 with 1e-8, 0.0237 with 0.016, 0.0338 with 0.16.
"""


def make_optimiser(model: FarField, settings: Settings) -> torch.optim.Optimizer:
    """The optimiser of these settings. A rate of 0 leaves its part exactly as it is, but its moments go on."""
    rates = rates_of(settings)
    groups = [
        {"params": [model.object_parts], "lr": rates["object"], "name": "object"},
        {"params": [model.probe_parts], "lr": rates["probe"], "name": "probe"},
    ]
    if settings.optimiser == "sgd":
        return torch.optim.SGD(groups)
    return torch.optim.Adam(groups, eps=ADAM_EPSILON, fused=True)


def rates_of(settings: Settings) -> dict[str, float]:
    """The rate of each part."""
    return {"object": settings.object.rate, "probe": settings.probe.rate}


def set_rates(optimiser: torch.optim.Optimizer, settings: Settings) -> None:
    """Takes over the rates of the settings from the next update on."""
    rates = rates_of(settings)
    for group in optimiser.param_groups:
        group["lr"] = rates[group["name"]]
