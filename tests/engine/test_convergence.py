"""Every optimiser gets from the usual start to the truth, as near as each can."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import ptynb as pt
from ptynb.data.scan import Scan
from ptynb.settings import Optimiser, Probe, Settings
from tests.cases import a_scan
from tests.engine.reference_model import after, difference, error_of, object_of, simulated_by_the_model


@pytest.fixture(scope="module")
def small() -> Scan:
    return pt.simulate(patterns=100, window=32)


# Optimiser -> (rates where they are not the default's, largest error after 60 epochs)
REACHED: dict[Optimiser, tuple[float | None, float]] = {
    "adam": (None, 0.03),
    "adamw": (None, 0.03),
    "nadam": (None, 0.03),
    "radam": (0.03, 0.05),
    "rmsprop": (None, 0.05),
    "sgd": (0.5, 0.12),
    "rpie": (None, 0.012),
    "lsqml": (None, 0.012),
    "lbfgs": (None, 0.012),
    "raar": (None, 0.02),
    # Noise keeps the difference map from coming to rest; how near it gets changes from epoch to epoch.
    "dm": (None, 0.1),
}


@pytest.mark.parametrize("name", REACHED)
def test_every_optimiser_gets_near_the_truth(name: Optimiser, small: Scan) -> None:
    rate, most = REACHED[name]
    settings = Settings(optimiser=name)
    if rate is not None:
        settings = settings.replace(
            object={"learning_rate": rate}, probe={"learning_rate": rate}, schedule={"kind": "constant"}
        )
    loop = after(small, settings, 60)
    assert error_of(loop, small) < most


@pytest.mark.parametrize("name", ["dm", "raar"])
def test_projections_converge_where_there_is_no_noise(name: Optimiser) -> None:
    scan = pt.simulate(patterns=100, window=32, noise=False)
    loop = after(scan, Settings(optimiser=name), 60)
    assert error_of(loop, scan) < 0.02


@pytest.mark.parametrize("kind", ["far", "parallel"])
@pytest.mark.parametrize("name", ["lbfgs", "rpie", "lsqml", "dm", "raar"])
def test_the_object_is_found_with_a_known_probe(name: Optimiser, kind: str) -> None:
    """In the near field slowly: a shadow knows little of the phase's coarse parts."""
    scan = simulated_by_the_model(a_scan(37, kind=kind))
    assert scan.object is not None
    flat_start = dataclasses.replace(scan, object=np.ones_like(scan.object))
    loop = after(flat_start, Settings(optimiser=name, probe=Probe(modes=2, learning_rate=0), batch=16), 40)
    assert loop.epochs[-1].loss < (0.15 if kind == "parallel" else 0.005) * loop.epochs[0].loss
    if kind == "parallel":
        return
    middle = (slice(16, -16), slice(16, -16))
    found, true = object_of(loop)[middle], scan.object[middle]
    found = found * np.vdot(found, true) / np.vdot(found, found)
    assert difference(true, found) < 0.1
