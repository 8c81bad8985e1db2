"""The field's other algorithms: rounding and empty engines do no harm, what fits stays, and so does what is frozen."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy import ndimage

import ptynb as pt
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.physics.components.component import Batch, ModelComponent
from ptynb.settings import Optimiser, Settings
from tests.cases import ALGORITHMS, a_scan
from tests.engine import work
from tests.engine.ranks import Ranks
from tests.engine.reference_model import (
    MODES,
    Plain,
    a_loop,
    after,
    difference,
    double,
    object_of,
    probe_of,
    simulated_by_the_model,
)
from tests.raising import raises

OTHER_WORLDS = pytest.mark.system("worlds")
FULL_BATCH: tuple[Optimiser, ...] = ("lbfgs", "dm", "raar")

WITHOUT_MORE_PARTS = [name for name in ALGORITHMS if "everything" not in name]
"""Those that object and probe are moved by, and nothing else."""


@OTHER_WORLDS
@pytest.mark.parametrize(("kind", "world"), [("far", 3), ("masked", 2)])
@pytest.mark.parametrize("case", WITHOUT_MORE_PARTS)
def test_in_single_precision_n_engines_give_one_engines_answer(ranks: Ranks, case: str, kind: str, world: int) -> None:
    """Rounding makes 1e-6 of all of them."""
    _, settings, updates = ALGORITHMS[case]
    most = 2e-5 if case == "lbfgs, term" else 1e-5
    scan = a_scan(kind=kind)
    alone = ranks.run(1, work.train, scan, settings, updates)[0]
    for answer in ranks.run(world, work.train, scan, settings, updates):
        for name in ("object", "probe", "positions"):
            assert difference(alone[name], answer[name]) < most, name
        for name in ("object", "probe"):
            assert difference(alone["start"][name], alone[name]) > 1e-2, "the updates have to be large enough to tell"
        assert answer["losses"] == pytest.approx(alone["losses"], rel=10 * most)
        assert answer["r_factor"] == pytest.approx(alone["r_factor"], rel=10 * most)


def a_scan_of_floats(window: tuple[int, int], seed: int) -> pt.Scan:
    """Noise-free float64 counts, a curved Gaussian probe, an object of phases, and no first guess."""
    random, (height, width) = np.random.default_rng(seed), window
    y, x = np.mgrid[:height, :width] - np.array([height // 2, width // 2])[:, None, None]
    probe = np.exp(-24 * ((y / height) ** 2 + (x / width) ** 2) + 0.02j * (y**2 + x**2))
    corners = 4 * np.stack(np.mgrid[:6, :6], -1).reshape(-1, 2) + random.integers(-1, 2, (36, 2))
    corners -= corners.min(0)
    object = np.exp(8j * ndimage.gaussian_filter(random.standard_normal(corners.max(0) + window), 2))
    waves = probe * np.stack([object[a : a + height, b : b + width] for a, b in corners])
    patterns = np.fft.fftshift(np.abs(np.fft.fft2(waves)) ** 2, axes=(1, 2))
    return pt.Scan.from_arrays(1e4 * patterns / patterns.mean(), corners)


@pytest.mark.parametrize(("window", "seed"), [pytest.param((31, 31), 0, marks=OTHER_WORLDS), ((32, 32), 3)])
@pytest.mark.parametrize("name", ["rpie", "lsqml", "lbfgs", "dm", "raar"])
def test_rounding_does_not_grow_in_single_precision(
    ranks: Ranks, name: Optimiser, window: tuple[int, int], seed: int
) -> None:
    """Ten epochs. Waves that are nearly 0 have the phase of their rounding, amplified where steps replace amplitudes
    (rPIE: by up to 1e5); and a line search saw the rounding of losses (L-BFGS: 9% of the loss).
    """
    scan, batch = a_scan_of_floats(window, seed), 16 if name in FULL_BATCH else 3
    settings, updates = Settings(optimiser=name, batch=batch), 10 if name in FULL_BATCH else 120
    alone = ranks.run(1, work.train, scan, settings, updates)[0]
    for answer in ranks.run(2, work.train, scan, settings, updates):
        for part in ("object", "probe"):
            assert difference(alone[part], answer[part]) < 1e-4, part
        assert answer["losses"] == pytest.approx(alone["losses"], rel=1e-4)


@pytest.mark.parametrize("case", WITHOUT_MORE_PARTS)
def test_engines_without_patterns_take_part(ranks: Ranks, case: str) -> None:
    """13 patterns, at random in batches of 2, on 3 engines: empty parts of batches, and one engine that holds none."""
    kind, settings, _ = ALGORITHMS[case]
    settings = settings.replace(batch=2, batch_sampling="random", precision="double")
    scan = a_scan(13, kind=kind)
    updates = 10 if settings.optimiser in FULL_BATCH else 14
    alone = ranks.run(1, work.train, scan, settings, updates)[0]
    answers = ranks.run(3, work.train, scan, settings, updates)
    held = [{index for part in answer["patterns"] for index in part} for answer in answers]
    assert settings.optimiser in FULL_BATCH or min(len(patterns) for patterns in held) == 0
    for answer in answers:
        for name in ("object", "probe"):
            assert difference(alone[name], answer[name]) < 1e-9, name


def test_all_engines_take_the_same_line_searches(ranks: Ranks) -> None:
    answers = ranks.run(3, work.passes, a_scan(), ALGORITHMS["lbfgs"][1], 15)
    assert sum(held for _, held in answers) == 37
    assert len({passes for passes, _ in answers}) == 1


@pytest.mark.parametrize("case", ["rpie", "lsqml", "lbfgs", "dm", "raar"])
def test_engines_that_drift_apart_between_updates_are_found_out(ranks: Ranks, case: str) -> None:
    """Not by waiting for each other for ever: one that need not evaluate again tells the others."""
    for answer in ranks.run(2, work.drift_between_updates, a_scan(), ALGORITHMS[case][1], 6, timeout=10.0):
        assert "hold different parameters" in answer


@pytest.mark.parametrize("name", FULL_BATCH)
def test_the_size_of_a_batch_is_only_memory_where_all_patterns_make_an_update(name: Optimiser) -> None:
    small, large = (
        after(a_scan(), Settings(optimiser=name, probe=MODES, batch=batch, precision="double"), 6) for batch in (5, 37)
    )
    assert small.updates == large.updates == 1
    assert difference(object_of(large), object_of(small)) < 1e-9
    assert small.epochs[-1].loss == pytest.approx(large.epochs[-1].loss, rel=1e-9)


def test_batches_of_one_pattern_with_full_regularisation_are_epie() -> None:
    """Maiden and Rodenburg, Ultramicroscopy 109, 1256 (2009), eqs. 5 and 6, in the order of the engine's epoch."""
    scan = a_scan(20)
    loop = a_loop(scan, double("rpie", rpie_alpha=1, batch=1))
    plain = Plain.of(loop, scan)
    for (j,) in loop.order.epoch(1).T:
        probe, window = plain.moved(plain.probe, j), plain.window(j).copy()
        missing = plain.fitting(probe * window, j) - probe * window
        plain.window(j)[...] += (probe.conj() * missing).sum(0) / (np.abs(probe) ** 2).sum(0).max()
        plain.probe += plain.moved(window.conj() * missing, j, -1) / (np.abs(window) ** 2).max()
    for _ in range(loop.updates):
        loop.step()
    assert loop.epoch == 1
    plain.agrees(loop, 1e-9)


@pytest.mark.parametrize("kind", ["far", "masked", "parallel"])
@pytest.mark.parametrize("name", ["lbfgs", "rpie", "lsqml", "dm", "raar"])
def test_an_object_and_a_probe_that_fit_stay_as_they_are(name: Optimiser, kind: str) -> None:
    """Between pixels too, where sums over patterns divided by the light alone would change the probe."""
    loop = a_loop(simulated_by_the_model(a_scan(12, kind=kind)), double(name, probe=MODES, batch=5))
    start = object_of(loop), probe_of(loop)
    assert not np.allclose(start[0], 1)
    while loop.epoch < 3:
        loop.step()
    assert difference(start[0], object_of(loop)) < 1e-10
    assert difference(start[1], probe_of(loop)) < 1e-10
    assert loop.epochs[-1].loss < 1e-20


@pytest.mark.parametrize("name", ["rpie", "lsqml", "lbfgs", "dm", "raar"])
@pytest.mark.parametrize("frozen", ["object", "probe"])
def test_a_rate_of_0_freezes_until_it_is_another(name: Optimiser, frozen: str) -> None:
    settings = Settings(optimiser=name, batch=8).replace(**{frozen: {"learning_rate": 0}})
    loop = after(a_scan(), settings, 3)
    start = a_loop(a_scan(), settings)
    parts = {"object": object_of, "probe": probe_of}
    other = "probe" if frozen == "object" else "object"
    np.testing.assert_array_equal(parts[frozen](start), parts[frozen](loop))
    assert difference(parts[other](start), parts[other](loop)) > 1e-2
    loop.change(settings.replace(**{frozen: {"learning_rate": 1}, other: {"learning_rate": 0}}))
    moved = parts[other](loop)
    while loop.epoch < 5:
        loop.step()
    assert difference(parts[frozen](start), parts[frozen](loop)) > 1e-2
    np.testing.assert_array_equal(moved, parts[other](loop))


class Brighter(ModelComponent):
    name = "brighter"

    def detect(self, intensity: torch.Tensor, batch: Batch) -> torch.Tensor:
        return 1.5 * intensity


@pytest.mark.parametrize("name", ["lsqml", "dm", "raar"])
def test_pieces_of_the_users_are_refused_where_they_are_not_known(name: Optimiser) -> None:
    with raises("component.unsupported-optimiser", f"'{name}'", "'brighter'"):
        Loop(a_scan(), Settings(optimiser=name), SingleGroup(torch.device("cpu")), [Brighter()])


@pytest.mark.parametrize("name", ["lsqml", "dm", "raar"])
def test_scans_with_a_probe_each_that_show_the_same_are_updated_as_one_of_them(name: Optimiser) -> None:
    """The second scan is the first, but for a phase of its probe: then so is the second probe, and all sums double."""
    scan = a_scan(12, kind="masked")
    assert scan.probe is not None
    turned = dataclasses.replace(scan, probe=scan.probe * np.exp(0.7j))
    both = pt.preparation.combine([scan, turned], share="object")
    settings = double(name, probe=MODES, batch=12)
    if name == "lsqml":
        settings = settings.replace(
            momentum=0.5,
            positions={"learning_rate": 0.5},
            pattern_intensities={"learning_rate": 0.5},
            background={"learning_rate": 0.5},
        )
    one, two = a_loop(scan, settings), a_loop(both, settings.replace(batch=24))
    start = object_of(one)
    for _ in range(4):
        one.step()
        two.step()
    np.testing.assert_allclose(object_of(two), object_of(one), atol=1e-9)
    assert difference(start, object_of(one)) > 0.05
    first, second = np.split(probe_of(two), 2)
    np.testing.assert_allclose(first, probe_of(one), atol=1e-8 * np.abs(first).max())
    np.testing.assert_allclose(second, np.exp(0.7j) * first, atol=1e-8 * np.abs(first).max())
    assert [epoch.loss for epoch in two.epochs] == pytest.approx([epoch.loss for epoch in one.epochs], rel=1e-9)
