"""Memory of a GPU that is foreseen, against the peak of the same torch operations on a CPU.

What only a GPU takes is left out: CUDA, the work space of cuFFT, and memory of recorded updates.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import ptynb as pt
from ptynb.data.scan import Scan
from ptynb.distributed.group import SingleGroup
from ptynb.engine import initial_probe
from ptynb.engine.loop import Loop
from ptynb.optimize.lbfgs import HISTORY
from ptynb.physics import hotpath
from ptynb.planning.memory import Workload, memory_of
from tests.parametrization import each
from tests.planning.live_storages import LiveStorages
from tests.planning.peak import scan_of
from tests.preparation.test_tilted import GEOMETRY

CPU = torch.device("cpu")
THICK = {"count": 4, "thickness": 1e-5}
MODES = {"probe": {"modes": 3}}
LEARNED = {"learning_rate": 0.01}
BATCH = 16
ONLY_ON_GPU = {"CUDA", "patterns", "recorded updates", "work space of Fourier transforms"}

OF_WAVES: dict[str, dict[str, Any]] = {
    "Adam": {},
    "modes": MODES,
    "slices": {"slices": THICK},
    "slices, modes": {"slices": THICK, **MODES},
    "states, modes": {"object": {"modes": 2}, **MODES},
    "slices, states, modes": {"slices": THICK, "object": {"modes": 2}, **MODES},
    "positions": {"positions": {"learning_rate": 0.1}, **MODES},
    "thickness": {"slices": {**THICK, **LEARNED}, **MODES},
    "tilt of each pattern": {"slices": THICK, "tilt": {"per_position": True, **LEARNED}, **MODES},
    "intensities, background": {"pattern_intensities": LEARNED, "background": LEARNED},
    "detector": {"detector": {"psf_sigma": 1, "saturation": 100}, "pattern_intensities": LEARNED},
    "oversampling": {"detector": {"oversampling": 2}},
    "variations of the probe": {"opr": {"modes": 2}, **MODES},
    "descan": {"descan": {"start": "plane"}, **MODES},
    "fly scan": {"fly_scan": {"steps": 3}, **MODES},
    "Poisson": {"loss": "poisson"},
    "double precision": {"precision": "double"},
    "parts": {"gradient_accumulation": 4},
    "rPIE in parts": {"optimiser": "rpie", "gradient_accumulation": 4, **MODES},
    "LSQML": {"optimiser": "lsqml"},
    "LSQML, modes": {"optimiser": "lsqml", **MODES},
    "LSQML, slices": {"optimiser": "lsqml", "slices": THICK},
    "LSQML, positions": {"optimiser": "lsqml", "positions": {"learning_rate": 0.1}},
    "LSQML, background": {"optimiser": "lsqml", "pattern_intensities": LEARNED, "background": LEARNED},
    "DM": {"optimiser": "dm", **MODES},
    "RAAR": {"optimiser": "raar"},
}
OF_OBJECTS: dict[str, dict[str, Any]] = {
    "Adam": {},
    "slices": {"slices": THICK},
    "amplitude and phase": {"object": {"parametrization": "amplitude_phase"}},
    "SGD": {"optimiser": "sgd"},
    "RAdam": {"optimiser": "radam"},
    "rPIE": {"optimiser": "rpie"},
    "LSQML": {"optimiser": "lsqml"},
    "LSQML, momentum": {"optimiser": "lsqml", "momentum": 0.5},
    "DM": {"optimiser": "dm"},
}


@pytest.fixture(autouse=True)
def by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where each operation of an update is one call: nothing is compiled for the CPU."""
    monkeypatch.setattr(hotpath, "COMPILED", "none")


def ratio(scan: Scan, settings: pt.Settings, updates: int = 3) -> float:
    """What is foreseen, relative to the peak from the start to a result; patterns are in memory before."""
    with LiveStorages() as memory:
        loop = Loop(scan, settings, SingleGroup(CPU))
        for _ in range(updates):
            loop.step()
        loop.update = loop.updates - 1  # the last update of an epoch, and its end
        loop.step()
        loop.r_factor()
    loop.disconnect()
    asked = Workload(settings, 1, cluster=False, keep=False)
    items = [one for one in memory_of(scan, asked, "device", on_gpu=True) if one.where == "device"]
    foreseen = sum(one.bytes for one in items if one.name not in ONLY_ON_GPU)
    return foreseen / memory.peak


@each("name", OF_WAVES)
def test_waves_of_a_batch_are_foreseen(name: str) -> None:
    found = ratio(scan_of(2 * BATCH, 64, 1), pt.Settings(**{"batch": BATCH, **OF_WAVES[name]}))
    assert 1 <= found <= 1.25, f"{found:.3f}"


@each("name", OF_OBJECTS)
def test_copies_of_a_large_object_are_foreseen(name: str) -> None:
    found = ratio(scan_of(144, 16, 14), pt.Settings(**{"batch": 4, **OF_OBJECTS[name]}))
    assert 1 <= found <= 1.25, f"{found:.3f}"


def test_the_history_of_lbfgs_is_foreseen() -> None:
    """It is complete after so many steps of a scan in which each goes somewhere."""
    scan = pt.simulate(patterns=49, window=16, step=8, seed=1)
    found = ratio(scan, pt.Settings(batch=2, optimiser="lbfgs"), HISTORY + 4)
    assert 1 <= found <= 1.25, f"{found:.3f}"


def test_waves_at_a_tilted_detector_are_foreseen() -> None:
    scan = scan_of(2 * BATCH, 64, 1)
    tilted = Scan.from_arrays(scan.frames.read(0, len(scan)), scan.positions, geometry=GEOMETRY)
    for changes in ({}, MODES):
        found = ratio(tilted, pt.Settings(**{"batch": BATCH, **changes}))
        assert 1 <= found <= 1.25, f"{changes}: {found:.3f}"


def test_the_search_for_a_probe_is_foreseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it takes more than the run itself, of few patterns at once and with a small object; with DM, if need be."""
    monkeypatch.setattr(initial_probe, "NOT_NOISE", 0.0)
    monkeypatch.setattr(initial_probe, "MORE_EPOCHS", 1)
    scan, settings = dataclasses.replace(scan_of(128, 64, 1), probe=None), pt.Settings(batch=1)
    with LiveStorages() as memory:
        Loop(scan, settings, SingleGroup(CPU)).disconnect()
    asked = Workload(settings, 1, cluster=False, keep=False)
    items = [one for one in memory_of(scan, asked, "device", on_gpu=True) if one.where == "device"]
    foreseen = {one.name: one.bytes for one in items if one.name not in ONLY_ON_GPU}
    of_search = foreseen.pop("search for the probe")
    assert sum(foreseen.values()) < memory.peak
    # A batch of 16 patterns, with DM, takes more on a GPU than here.
    assert 1 <= (sum(foreseen.values()) + of_search) / memory.peak <= 1.6
