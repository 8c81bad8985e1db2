"""N engines give one engine's answer: one table of cases (tests/cases.py) on worlds of real processes.

By default on 3 engines, on 2 only where everything takes part; all worlds x all cases: `--system worlds`.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import ptynb as pt
from ptynb.data.commands import PauseRun, ResumeRun, StartRun
from ptynb.settings import Settings
from tests.cases import ALGORITHMS, CASES, a_scan, as_sgd
from tests.engine import work
from tests.engine.ranks import Ranks
from tests.engine.reference_model import difference

OTHER_WORLDS = pytest.mark.system("worlds")

SGD_RATES = {"amplitude": 0.3, "poisson": 0.01, "intensity": 0.02}


def sgd(loss: str = "amplitude", batch: int = 8, rate: float | None = None) -> Settings:
    rate = SGD_RATES[loss] if rate is None else rate
    return pt.Settings(
        loss=loss,
        optimiser="sgd",
        batch=batch,
        object=pt.Object(learning_rate=rate),
        probe=pt.Probe(modes=2, learning_rate=rate),
    )


@pytest.mark.parametrize(
    ("case", "world"),
    [
        pytest.param(case, world, marks=() if world == 3 or case == "everything" else OTHER_WORLDS)
        for world in (3, 2)
        for case in (*CASES, *ALGORITHMS)
    ],
)
def test_n_engines_give_one_engines_answer(ranks: Ranks, case: str, world: int) -> None:
    """In double precision, where only a fault of logic can make a difference.

    37 patterns: neither 2 nor 3 engines hold equal parts.
    """
    if case in CASES:
        kind, settings, moved = CASES[case]
        settings, updates, least, most = as_sgd(settings), 10, 1e-7, 1e-9
    else:
        kind, settings, updates = ALGORITHMS[case]
        settings, moved = settings.replace(precision="double"), {"object", "probe"}
        least, most = (1e-5, 1e-6) if "everything" in case else (1e-2, 1e-9)
    scan = a_scan(kind=kind)
    alone = ranks.run(1, work.train, scan, settings, updates)[0]
    start, names = alone["start"], {name for name in alone if isinstance(alone[name], np.ndarray)}
    assert moved - {"object", "probe", "positions"} <= {name.split("/")[0] for name in names}
    for part in moved:
        changed = {name: difference(start[name], alone[name]) for name in names if name.split("/")[0] == part}
        assert max(changed.values()) > least, f"{part} has to move: {changed}"
    for answer in ranks.run(world, work.train, scan, settings, updates):
        for name in names:
            assert difference(alone[name], answer[name]) < most, name
        assert answer["losses"] == pytest.approx(alone["losses"], rel=min(most, 1e-7))
        for own, others in zip(alone["changes"], answer["changes"], strict=True):
            assert others == pytest.approx(own, rel=max(1e3 * most, 1e-6))
        assert answer["r_factor"] == pytest.approx(alone["r_factor"], rel=most)


CURVES = ("tilt of each", "accumulated", "everything")


@pytest.mark.parametrize(
    ("case", "worlds"),
    [
        *(pytest.param(case, (3,)) for case in CURVES),
        *(pytest.param(case, (2,) if case in CURVES else (2, 3), marks=OTHER_WORLDS) for case in CASES),
    ],
    ids=str,
)
def test_50_updates_of_adam_have_the_loss_curve_of_one_engine(ranks: Ranks, case: str, worlds: tuple[int, ...]) -> None:
    kind, settings, _ = CASES[case]
    scan, settings = a_scan(kind=kind), settings.replace(batch=8, precision="double")
    alone = ranks.run(1, work.train, scan, settings, 50)[0]["losses"]
    assert len(alone) == 10
    assert alone[-1] < 0.95 * alone[0]
    for world in worlds:
        for answer in ranks.run(world, work.train, scan, settings, 50):
            assert answer["losses"] == pytest.approx(alone, rel=1e-8)


@pytest.mark.parametrize(
    ("loss", "kind", "world"),
    [
        pytest.param(loss, kind, world, marks=() if (loss, kind, world) == ("poisson", "masked", 3) else OTHER_WORLDS)
        for loss, kind, world in product(SGD_RATES, ("far", "masked"), (2, 3))
    ],
)
def test_in_single_precision_20_updates_are_those_of_one_engine(ranks: Ranks, loss: str, kind: str, world: int) -> None:
    scan, settings = a_scan(kind=kind), sgd(loss)
    alone = ranks.run(1, work.train, scan, settings, 20)[0]
    for answer in ranks.run(world, work.train, scan, settings, 20):
        for name in ("object", "probe"):
            assert difference(alone[name], answer[name]) < 1e-5
            assert difference(alone["start"][name], alone[name]) > 1e-3, "large enough to tell worlds apart"
        assert answer["r_factor"] == pytest.approx(alone["r_factor"], rel=1e-5)


@pytest.mark.parametrize(
    ("loss", "world"),
    [
        pytest.param(loss, world, marks=() if (loss, world) == ("amplitude", 3) else OTHER_WORLDS)
        for loss, world in product(SGD_RATES, (2, 3))
    ],
)
def test_in_single_precision_adam_has_the_loss_curve_of_one_engine(ranks: Ranks, loss: str, world: int) -> None:
    scan, settings = a_scan(), pt.Settings(loss=loss, batch=8, probe=pt.Probe(modes=2))
    alone = ranks.run(1, work.train, scan, settings, 50)[0]["losses"]
    assert len(alone) == 10
    assert alone[-1] < 0.9 * alone[0]
    for answer in ranks.run(world, work.train, scan, settings, 50):
        assert answer["losses"] == pytest.approx(alone, rel=1e-4)


@pytest.mark.parametrize("world", [pytest.param(2, marks=OTHER_WORLDS), 3])
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
        assert difference(alone["object"], answer["object"]) < 1e-5


def test_all_ranks_end_a_run_after_the_same_epoch_and_for_the_same_reason(ranks: Ranks) -> None:
    scan = a_scan()
    settings = pt.Settings(precision="double", stop=pt.Stop(patience=4, tolerance=0.1))
    script = [(0.0, StartRun(300)), (0.5, PauseRun()), (0.0, ResumeRun())]
    alone = ranks.run(1, work.command, scan, settings, script)[0]
    (stopped,) = [change for change in alone["status"].changes if change.name == "stopped"]
    assert 4 < stopped.epoch == alone["status"].epoch < 300
    for answer in ranks.run(3, work.command, scan, settings, script):
        assert answer["status"].changes == (stopped,)
        assert answer["status"].state == "closed"
        assert len(answer["losses"]) == stopped.epoch


def test_no_complex_tensor_is_registered(ranks: Ranks) -> None:
    assert ranks.run(2, work.initial, a_scan(), sgd())[1]["complex"] == []


def test_engines_that_drift_apart_are_found_out(ranks: Ranks) -> None:
    for answer in ranks.run(2, work.drift, a_scan(), sgd(rate=0.01)):
        assert "hold different parameters" in answer


def test_a_group_whose_other_engine_is_missing_is_given_up(ranks: Ranks) -> None:
    [seconds] = ranks.run(2, work.lonely, timeout=2.0, present=1)
    assert 1.5 < seconds < 10


def test_two_engines_on_one_gpu_are_refused(ranks: Ranks) -> None:
    for answer in ranks.run(2, work.same_device):
        assert "the same GPU" in answer


def test_a_group_knows_how_many_engines_share_a_gpu(ranks: Ranks) -> None:
    assert ranks.run(3, work.engines_on_its_gpu, 1) == [2, 1, 2]
    assert ranks.run(3, work.engines_on_its_gpu, 2) == [2, 2, 2], "others of the cluster, outside the group"
    assert ranks.run(1, work.engines_on_its_gpu, 2) == [2]


@pytest.mark.parametrize("world", [pytest.param(2, marks=OTHER_WORLDS), 3])
@pytest.mark.parametrize("batches", ["random", "compact"])
def test_a_batch_on_each_engine_is_one_engine_with_all_of_them(ranks: Ranks, world: int, batches: str) -> None:
    scan, settings = a_scan(), sgd(batch=4).replace(batch_sampling=batches)
    alone = ranks.run(1, work.train, scan, settings.replace(batch=4 * world), 10)[0]
    for answer in ranks.run(world, work.train, scan, settings.replace(batch_per="engine"), 10):
        for name in ("object", "probe"):
            assert difference(alone[name], answer[name]) < 1e-5
            assert difference(alone["start"][name], alone[name]) > 1e-3, (
                "the updates have to be large enough to tell worlds apart"
            )
