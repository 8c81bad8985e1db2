"""Problems whose answer on a device must be the CPU's: all parts of the model, optimisers and constraints.

Double precision, and few updates: what differs by more than rounding is a fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from ptynb.data.scan import Scan
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.settings import STREAMABLE, WHOLE_PASSES, Settings
from ptynb.settings.constraints import AmplitudeLimits, AnyConstraint, OrthogonalModes, PositivePhase
from tests.cases import ALGORITHMS, CASES, MODES, a_scan, as_sgd, everything_by

UPDATES = 7
"""More than the five of an epoch of these scans, so that what happens at its end is included."""
PASSES = 2
"""The same for optimisers with one update an epoch."""
TOLERANCE = 1e-7
"""Largest relative difference in double precision; between two orders of summation 1e-10 was measured."""

BY_OPTIMISERS = ("adam", "lsqml", "dm", "raar", "lbfgs", "rpie")
NEEDS_EVERYTHING = ("depth_blur", "missing_wedge", "recenter_depth", "smooth_tilts", "remove_phase_ramp")
"""Constraints of slices or tilts, which the case "everything" has."""
ARGUMENTS: dict[str, dict[str, float]] = {
    "probe_support": {"radius": 0.3},
    "probe_aperture": {"radius": 0.3},
    "gaussian_blur": {"sigma": 1.0},
    "depth_blur": {"sigma": 0.7},
    "low_pass": {"cutoff": 0.7, "edge": 0.1},
    "dct_threshold": {"keep_fraction": 0.5},
    "amplitude_phase_coupling": {"ratio": 0.1},
    "denoise": {"amount": 0.1},
    "remove_grid_artifacts": {"period_y": 4.0, "period_x": 4.0},
    "smooth_tilts": {"sigma": 3.0},
}
"""Arguments of the constraints that have some without a default."""


@dataclass(frozen=True)
class Problem:
    """A scan with settings, and the number of updates after which a device is compared with the CPU."""

    name: str
    scan: Scan
    settings: Settings
    updates: int


def problems() -> Iterator[Problem]:
    """Yield all problems: each case by gradient steps, each optimiser, each constraint."""
    yield from case_problems()
    yield from optimiser_problems()
    yield from constraint_problems()
    yield from streamed_problems()


def case_problems() -> Iterator[Problem]:
    """Yield every case of tests/cases.py, by plain gradient steps."""
    for name, (kind, settings, _) in CASES.items():
        yield Problem(f"case {name}", a_scan(kind=kind), as_sgd(settings), UPDATES)


def optimiser_problems() -> Iterator[Problem]:
    """Yield every optimiser, in far and near field, and with all that it can move."""
    for optimiser in BY_OPTIMISERS:
        for kind in ("far", "near"):
            settings = Settings(optimiser=optimiser, probe=MODES)  # type: ignore[arg-type]
            yield _in_double(f"plain {optimiser}, {kind} field", kind, settings)
    yield _in_double("adam, everything", CASES["everything"][0], everything_by("adam"))
    for name, (kind, settings, _) in ALGORITHMS.items():
        yield _in_double(name, kind, settings)


def constraint_problems() -> Iterator[Problem]:
    """Yield every constraint, imposed after each update."""
    for constraint in get_args(get_args(AnyConstraint)[0]):
        name = constraint.model_fields["kind"].default
        kind, settings, _ = CASES["everything" if name in NEEDS_EVERYTHING else "positions"]
        imposed = constraint(after="update", **ARGUMENTS.get(name, {}))
        yield _in_double(f"constraint {name}", kind, settings.replace(constraints=[imposed]))


def streamed_problems() -> Iterator[Problem]:
    """Yield an object that is streamed, by each optimiser, with constraints of the object and of the probe."""
    constraints = [AmplitudeLimits(high=1.1), PositivePhase(), OrthogonalModes(after="update")]
    for optimiser in STREAMABLE:
        settings = Settings(
            optimiser=optimiser,  # type: ignore[arg-type]
            probe=MODES,
            object={"layout": "streamed"},
            batch_sampling="bands",
            batch_bands=3,
            momentum=0.5 if optimiser == "lsqml" else 0.0,
            positions={"learning_rate": 0.1},
            constraints=constraints,
        )
        yield _in_double(f"streamed, {optimiser}", "far", settings)


def _in_double(name: str, kind: str, settings: Settings) -> Problem:
    updates = PASSES if settings.optimiser in WHOLE_PASSES else UPDATES
    return Problem(name, a_scan(kind=kind), settings.replace(batch=8, precision="double"), updates)


def run(problem: Problem, device: str | torch.device) -> Loop:
    """Return the loop on a device after the updates of a problem; `disconnect` it at the end."""
    loop = Loop(problem.scan, problem.settings, SingleGroup(torch.device(device)))
    for _ in range(problem.updates):
        loop.step()
    return loop


def record(loop: Loop) -> dict[str, NDArray[Any]]:
    """Return object, probe, all parameters, the losses of the epochs and the R-factor of a loop, on the host."""
    found = {name: values.numpy() for name, values in (loop.arrays() | loop.parameters()).items()}
    found["losses"] = np.array([epoch.loss for epoch in loop.epochs])
    found["R-factor"] = np.array(loop.r_factor()[0])
    return found


def difference(expected: dict[str, NDArray[Any]], found: dict[str, NDArray[Any]]) -> tuple[float, str]:
    """Return the largest relative difference between two records, and the name of what differs so."""
    return max((relative_difference(expected[name], found[name]), name) for name in expected)


def relative_difference(expected: NDArray[Any], found: NDArray[Any]) -> float:
    """Return the norm of the difference of two arrays, relative to that of the first."""
    return float(np.linalg.norm(expected - found) / (np.linalg.norm(expected) + 1e-12))
