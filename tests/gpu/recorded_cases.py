"""Runs whose updates are recorded as graphs, and in which numbers that are part of a recorded update change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import ptynb as pt
from ptynb.data.admissions import Admission
from ptynb.data.patterns.in_memory import ArrayFrames
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.session.recorded_arrivals import with_recorded_arrivals
from tests.live_source import log_of

Change = Callable[[pt.Settings], pt.Settings]
S = pt.Settings
SMALL = {"batch": 8, "precision": "double"}
THIN = {"count": 2, "thickness": 2e-6}
CASES: dict[str, tuple[pt.Settings, dict[int, Change]]] = {
    "plain": (S(**SMALL), {}),
    "schedule": (S(**SMALL, schedule={"kind": "cosine", "epochs": 3, "end_factor": 0.1}), {}),
    "rates": (
        S(**SMALL),
        {
            1: lambda now: now.replace(object={"learning_rate": 0.05}),
            2: lambda now: now.replace(probe={"learning_rate": 0.0}),
        },
    ),
    "positions later": (S(**SMALL, positions={"learning_rate": 0.1, "start_epoch": 2}), {}),
    "detector": (
        S(
            **SMALL,
            positions={"learning_rate": 0.1},
            pattern_intensities={"learning_rate": 0.01},
            background={"learning_rate": 0.01},
        ),
        {},
    ),
    "opr": (S(**SMALL, opr={"modes": 2, "learning_rate": 0.1}), {}),
    "slices": (S(**SMALL, slices={"count": 3, "thickness": 2e-6, "learning_rate": 0.01}), {}),
    "sgd": (S(**SMALL, optimiser="sgd"), {1: lambda now: now.replace(object={"learning_rate": 0.001})}),
    "rpie": (S(**SMALL, optimiser="rpie"), {1: lambda now: now.replace(rpie_alpha=0.5)}),
    "poisson": (S(**SMALL, loss="poisson"), {}),
    "accumulated": (S(**SMALL, gradient_accumulation=3), {}),
    "regularizers": (
        S(**SMALL, regularizers=[{"kind": "total_variation", "weight": 0.1}]),
        {1: lambda now: now.replace(regularizers=[{"kind": "total_variation", "weight": 0.01}])},
    ),
    "lsqml": (
        S(**SMALL, optimiser="lsqml", momentum=0.5, schedule={"kind": "cosine", "epochs": 3, "end_factor": 0.1}),
        {1: lambda now: now.replace(object={"learning_rate": 0.5})},
    ),
    "lsqml, compact": (S(**SMALL, optimiser="lsqml", batch_sampling="compact", slices=THIN), {}),
    "lsqml, frozen": (S(**SMALL, optimiser="lsqml"), {1: lambda now: now.replace(probe={"learning_rate": 0.0})}),
    "lsqml, parts": (
        S(
            **SMALL,
            optimiser="lsqml",
            probe={"modes": 2},
            positions={"learning_rate": 0.5, "momentum": 0.5},
            opr={"modes": 2, "learning_rate": 0.1},
            pattern_intensities={"learning_rate": 0.3},
            background={"learning_rate": 0.3},
            schedule={"kind": "cosine", "epochs": 3, "end_factor": 0.1},
        ),
        {2: lambda now: now.replace(positions={"momentum": 0.1})},
    ),
    "constraints": (
        S(
            **SMALL,
            probe={"modes": 2},
            constraints=[
                {"kind": "orthogonal_modes", "after": "update"},
                {"kind": "gaussian_blur", "sigma": 1.0, "after": "update"},
            ],
        ),
        {},
    ),
}

LIVE = ("plain", "lsqml")
"""Those that are also run with patterns that come during the run."""


def run_epochs(
    settings: pt.Settings,
    changes: dict[int, Change],
    device: torch.device,
    resume_after: int = 9,
    engines: int = 1,
    live: bool = False,
) -> dict[str, Any]:
    """Return what three epochs end with: parameters, moments and losses, on the host.

    changes: epoch -> change of the settings before it. resume_after: epochs after which another loop continues from the
    state. engines: this is the first of so many, of which the others contribute nothing to sums. live: one pattern, for
    whose counts all are stored in another type, comes after the second epoch.
    """
    scan = pt.simulate(patterns=70, window=32, seed=0)
    group = SingleGroup(device)
    group.world = engines
    late: list[Admission] = []
    if live:
        counts = scan.counts(0, len(scan))
        counts[-1] *= 2**17 / counts.max()
        scan = dataclasses.replace(scan, frames=ArrayFrames.of(counts.astype(np.uint32)), ground_truth=None)
        record = log_of(scan, np.arange(len(scan)), first=len(scan) - 1, together=1, every=1)
        scan, late = with_recorded_arrivals(scan, record), [*record.all()]
    loop = Loop(scan, settings, group, first=late[0] if live else None)
    for epoch in range(3):
        if epoch in changes:
            loop.change(changes[epoch](loop.settings))
        if live and epoch == 2:
            # Without its end, at which all sums change.
            loop.admit(dataclasses.replace(late[1], ended=None))
        for _ in range(loop.updates):
            loop.step()
        if epoch + 1 == resume_after:
            loop.restore(loop.state(loop.loss_sums()))
    found = {name: tensor.numpy().copy() for name, tensor in (loop.arrays() | loop.parameters()).items()}
    loop.disconnect()
    return found | {"losses": np.array([epoch.loss for epoch in loop.epochs])}
