"""N engines give one engine's answer: worlds of 1, 2 and 3 real processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptynb as pt
from ptynb.scan import Scan
from tests.engine import work
from tests.engine.ranks import Ranks

LOSSES = ["amplitude", "poisson", "intensity"]


def a_scan(patterns: int = 37, window: int = 32, modes: int = 2, mask: bool = False) -> Scan:
    scan = pt.simulate(patterns=patterns, window=window, modes=modes, photons=1e5, step=4, seed=3)
    if not mask:
        return scan
    working = np.random.default_rng(0).random((window, window)) > 0.1
    counts = scan.frames.read(0, patterns)
    return Scan.from_arrays(counts, scan.positions, probe=scan.probe, mask=working)


# Plain gradient steps that change object and probe by some per cent in 20 updates, and do not diverge.
SGD_RATES = {"amplitude": 0.3, "poisson": 0.01, "intensity": 0.02}


def sgd(loss: str = "amplitude", batch: int = 8, rate: float | None = None) -> pt.Settings:
    rate = SGD_RATES[loss] if rate is None else rate
    return pt.Settings(
        loss=loss,
        optimiser="sgd",
        batch=batch,
        object=pt.Object(rate=rate),
        probe=pt.Probe(modes=2, rate=rate),
    )


def difference(one: dict[str, Any], other: dict[str, Any], name: str) -> float:
    return float(np.linalg.norm(one[name] - other[name]) / np.linalg.norm(one[name]))


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("mask", [False, True])
def test_20_updates_of_sgd_are_those_of_one_engine(ranks: Ranks, loss: str, world: int, mask: bool) -> None:
    scan, settings = a_scan(mask=mask), sgd(loss)
    start = ranks.run(1, work.initial, scan, settings)[0]
    alone = ranks.run(1, work.train, scan, settings, 20)[0]
    for answer in ranks.run(world, work.train, scan, settings, 20):
        for name in ("object", "probe"):
            assert difference(alone, answer, name) < 1e-5
            assert difference(start, alone, name) > 1e-3, "the updates have to be large enough to tell worlds apart"
        assert answer["r_factor"] == pytest.approx(alone["r_factor"], rel=1e-5)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("loss", LOSSES)
def test_50_updates_of_adam_have_the_loss_curve_of_one_engine(ranks: Ranks, loss: str, world: int) -> None:
    scan, settings = a_scan(), pt.Settings(loss=loss, batch=8, probe=pt.Probe(modes=2))
    alone = ranks.run(1, work.train, scan, settings, 50)[0]["losses"]
    assert len(alone) == 10
    assert alone[-1] < 0.9 * alone[0]
    for answer in ranks.run(world, work.train, scan, settings, 50):
        assert answer["losses"] == pytest.approx(alone, rel=1e-4)


@pytest.mark.parametrize("world", [2, 3])
def test_13_patterns_are_each_used_once_an_epoch_and_give_the_same_answer(ranks: Ranks, world: int) -> None:
    """Uneven parts, also empty ones: nobody pads, repeats, leaves out, or waits for ever."""
    scan, settings = a_scan(13), sgd(batch=world)
    epoch = -(-13 // world)
    alone = ranks.run(1, work.train, scan, settings, 2 * epoch)[0]
    answers = ranks.run(world, work.train, scan, settings, 2 * epoch)
    for first in (0, epoch):
        used = [index for answer in answers for part in answer["patterns"][first : first + epoch] for index in part]
        assert sorted(used) == list(range(13))
    assert any(part == [] for answer in answers for part in answer["patterns"]), "no part was empty"
    for answer in answers:
        assert difference(alone, answer, "object") < 1e-5


def test_ranks_draw_disjoint_patterns_whose_union_is_the_batch_of_one_engine(ranks: Ranks) -> None:
    scan, settings = a_scan(), sgd()
    alone = ranks.run(1, work.train, scan, settings, 10)[0]["patterns"]
    parts = [answer["patterns"] for answer in ranks.run(3, work.train, scan, settings, 10)]
    for update, batch in enumerate(alone):
        drawn = [index for part in parts for index in part[update]]
        assert len(drawn) == len(set(drawn))
        assert sorted(drawn) == sorted(batch)
    assert len({tuple(batch) for batch in alone}) == 10, "batches repeat"


def test_the_size_of_an_update_does_not_depend_on_the_number_of_engines(ranks: Ranks) -> None:
    """Sums over a rank's patterns with gradients averaged over ranks would make it smaller by their number."""
    scan, settings = a_scan(), sgd()
    start = ranks.run(1, work.initial, scan, settings)[0]
    alone = ranks.run(1, work.train, scan, settings, 1)[0]
    together = ranks.run(2, work.train, scan, settings, 1)[0]
    for name in ("object", "probe"):
        ratio = np.linalg.norm(together[name] - start[name]) / np.linalg.norm(alone[name] - start[name])
        assert ratio == pytest.approx(1, rel=1e-4)


def test_losses_are_those_of_all_engines_on_every_rank(ranks: Ranks) -> None:
    """The first half of the scan is ten times brighter and fits worse: each rank alone would see another loss."""
    plain = a_scan(modes=1)
    counts = plain.frames.read(0, len(plain)).copy()
    counts[: len(plain) // 2] *= 10
    counts[: len(plain) // 2, :, ::2] = 0
    scan = Scan.from_arrays(counts, plain.positions, probe=plain.probe)
    settings = pt.Settings(batch=8)
    alone = ranks.run(1, work.train, scan, settings, 15)[0]
    answers = ranks.run(3, work.train, scan, settings, 15)
    for answer in answers:
        assert answer["losses"] == answers[0]["losses"]
        assert answer["losses"] == pytest.approx(alone["losses"], rel=1e-4)
        assert answer["rates"] == alone["rates"]


def test_the_initial_state_is_the_same_everywhere_and_for_any_world(ranks: Ranks) -> None:
    scan, settings = a_scan(), sgd()
    alone = ranks.run(1, work.initial, scan, settings)[0]
    answers = ranks.run(3, work.initial, scan, settings)
    for answer in answers:
        for name in ("object", "probe"):
            np.testing.assert_array_equal(answer[name], answers[0][name])
            assert difference(alone, answer, name) < 1e-6


def test_no_complex_tensor_is_registered(ranks: Ranks) -> None:
    assert ranks.run(2, work.initial, a_scan(), sgd())[1]["complex"] == []


def test_gradients_of_the_group_are_the_sum_of_those_of_its_ranks(ranks: Ranks) -> None:
    answers = ranks.run(3, work.gradients, a_scan(), sgd())
    for index in range(2):
        total = np.sum([own[index] for _, own in answers], axis=0)
        imaginary = np.linalg.norm(total[..., 1])
        assert imaginary > 0.01 * np.linalg.norm(total)
        for group, _ in answers:
            np.testing.assert_allclose(group[index], total, atol=2e-6 * np.abs(total).max())


def test_engines_that_drift_apart_are_found_out(ranks: Ranks) -> None:
    for answer in ranks.run(2, work.drift, a_scan(), sgd(rate=0.01)):
        assert "hold different parameters" in answer


def test_a_group_whose_other_engine_is_missing_is_given_up(ranks: Ranks) -> None:
    [seconds] = ranks.run(2, work.lonely, timeout=2.0, present=1)
    assert 1.5 < seconds < 10


def test_two_engines_on_one_gpu_are_refused(ranks: Ranks) -> None:
    for answer in ranks.run(2, work.same_device):
        assert "the same GPU" in answer


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("batches", ["spread", "random", "compact"])
def test_a_batch_on_each_engine_is_one_engine_with_all_of_them(ranks: Ranks, world: int, batches: str) -> None:
    scan, settings = a_scan(), sgd(batch=4).replace(batches=batches)
    start = ranks.run(1, work.initial, scan, settings)[0]
    alone = ranks.run(1, work.train, scan, settings.replace(batch=4 * world), 10)[0]
    for answer in ranks.run(world, work.train, scan, settings.replace(batch_per="engine"), 10):
        for name in ("object", "probe"):
            assert difference(alone, answer, name) < 1e-5
            assert difference(start, alone, name) > 1e-3, "the updates have to be large enough to tell worlds apart"
