"""What engines exchange: what windows touch, and yet one engine's answer; or means now and then, and equal then."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import ptynb as pt
from ptynb.optimize.active_tiles import TILE, Region, touched_tiles
from ptynb.settings import (
    OPR,
    Affine,
    Background,
    Object,
    PatternIntensities,
    Positions,
    Probe,
    ProbeOffset,
    Settings,
    Slices,
)
from ptynb.settings.regularizers import Similarity, Sparsity, TotalVariation
from tests.cases import MODES, sparse_scan
from tests.engine import gradient_sync_work as work
from tests.engine.ranks import Ranks

worlds = pytest.mark.parametrize("world", [3, pytest.param(2, marks=pytest.mark.system("worlds"))])
THICK = Slices(count=2, thickness=2e-4)


def difference(one: Any, other: Any) -> float:
    return float(np.linalg.norm(one - other) / (np.linalg.norm(one) + 1e-12))


def sgd(rate: float = 0.1, **choices: Any) -> Settings:
    choices = {"batch": 3, "object": Object(learning_rate=rate), "probe": Probe(modes=2, learning_rate=rate)} | choices
    return Settings(optimiser="sgd", precision="double", **choices)


class TestRegions:
    def test_holds_all_windows_and_no_tile_without_one(self) -> None:
        for seed in range(8):
            self.holds_all_windows_and_no_tile_without_one(seed)

    def holds_all_windows_and_no_tile_without_one(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        shape = (int(random.integers(40, 300)), int(random.integers(40, 300)))
        window = (int(random.integers(1, 40)), int(random.integers(1, 40)))
        corners = random.integers(0, np.array(shape) - window + 1, (int(random.integers(1, 9)), 2))
        lit = np.zeros(shape, dtype=int)
        for y, x in corners:
            lit[y : y + window[0], x : x + window[1]] = 1
        covered = np.zeros(shape, dtype=int)
        for top, bottom, left, right in Region(shape, touched_tiles(corners, window, shape)).rectangles:
            covered[top:bottom, left:right] += 1
        assert covered.max() == 1, f"seed {seed}: rectangles have to be disjoint"
        wanted = np.zeros(shape, dtype=int)
        for y in range(0, shape[0], TILE):
            for x in range(0, shape[1], TILE):
                wanted[y : y + TILE, x : x + TILE] = lit[y : y + TILE, x : x + TILE].any()
        np.testing.assert_array_equal(covered, wanted, f"seed {seed}")

    def test_a_margin_reaches_into_the_next_tile(self) -> None:
        corner = np.array([[TILE, 2 * TILE]])
        plain, more = (touched_tiles(corner, (TILE, TILE), (200, 200), margin) for margin in (0, 1))
        assert plain.sum() == 1
        assert more.sum() == 9

    def test_what_is_packed_comes_back_to_its_place(self) -> None:
        shapes = ((2, 3, 70, 101, 2), (2, 1, 101, 70), (1, 1, 20, 90, 2), (64, 96))
        for shape, by_index in product(shapes, (False, True)):
            self.what_is_packed_comes_back_to_its_place(shape, by_index)

    def what_is_packed_comes_back_to_its_place(self, shape: tuple[int, ...], by_index: bool) -> None:
        parts = 2 if len(shape) == 5 else 1
        plane = shape[-3:-1] if parts == 2 else shape[-2:]
        tiles = np.random.default_rng(0).random([-(-side // TILE) for side in plane]) > 0.5
        tiles[-1, -1], tiles[0, 0] = True, False
        region = Region((plane[0], plane[1]), tiles)
        inside = np.kron(tiles, np.ones((TILE, TILE)))[: plane[0], : plane[1]] > 0
        if parts == 2:
            inside = inside[..., None]
        values = torch.randn(shape, dtype=torch.float64)
        message = torch.full((region.numbers(values),), torch.nan, dtype=torch.float64)
        region.pack(values, parts, message, by_index)
        back = torch.zeros_like(values)
        region.unpack(2 * message, back, parts, by_index)
        np.testing.assert_array_equal(back.numpy(), np.where(inside, 2 * values.numpy(), 0), f"{shape}, {by_index}")


# name -> settings in which the windows of a batch leave most of the object untouched
TOUCHED: dict[str, Settings] = {
    "spread": sgd(),
    "random": sgd(batch_sampling="random"),
    "compact": sgd(batch_sampling="compact", batch=5),
    "terms": sgd(0.01, regularizers=(TotalVariation(weight=0.5), Sparsity(weight=0.2, power=1.5))),
    "polar": sgd(object=Object(learning_rate=0.1, parametrization="amplitude_phase")),
    "polar, term": sgd(
        object=Object(learning_rate=0.01, parametrization="amplitude_phase"),
        regularizers=(Sparsity(weight=0.5, power=1.5),),
    ),
    "pure phase": sgd(
        object=Object(learning_rate=0.1, parametrization="amplitude_phase", amplitude_learning_rate=0),
        regularizers=(TotalVariation(weight=0.1),),
    ),
    "slices": sgd(0.01, slices=THICK),
    "states": sgd(0.01, object=Object(learning_rate=0.01, modes=2), regularizers=(Similarity(weight=0.5),)),
    "positions": sgd(positions=Positions(learning_rate=5.0, momentum=0)),
    "affine and offset": sgd(affine=Affine(learning_rate=0.3), probe_offset=ProbeOffset(learning_rate=0.3)),
    "accumulated": sgd(gradient_accumulation=2),
    "rpie": Settings(optimiser="rpie", batch=3, probe=MODES, precision="double"),
    "adam": Settings(batch=3, probe=MODES, precision="double", regularizers=(TotalVariation(weight=0.1),)),
    "adam, positions": Settings(batch=3, precision="double", positions=Positions(learning_rate=1.0)),
    "adam, all": Settings(
        batch=3,
        precision="double",
        positions=Positions(learning_rate=0.3),
        affine=Affine(learning_rate=0.02),
        probe_offset=ProbeOffset(learning_rate=0.02),
    ),
}


@worlds
@pytest.mark.parametrize("case", TOUCHED)
def test_what_windows_touch_is_enough_for_one_engines_answer(ranks: Ranks, case: str, world: int) -> None:
    settings, updates = TOUCHED[case], 20
    start = ranks.run(1, work.trained, sparse_scan(), settings, 1)[0]
    alone = ranks.run(1, work.trained, sparse_scan(), settings, updates)[0]
    names = [name for name in alone if isinstance(alone[name], np.ndarray)]
    for name in ("object", "probe"):
        assert difference(start[name], alone[name]) > 1e-3, "the updates have to be large enough to tell"
    touched = ranks.run(world, work.trained, sparse_scan(), settings, updates)
    whole = ranks.run(world, work.trained, sparse_scan(), settings.replace(gradient_sync="dense"), updates)
    for answer in (*touched, *whole):
        for name in names:
            assert difference(alone[name], answer[name]) < 1e-9, name
        assert answer["losses"] == pytest.approx(alone["losses"], rel=1e-9)
    assert all(answer["region"] for answer in touched)
    assert not any(answer["region"] for answer in whole)
    assert touched[0]["sent"] < 0.75 * whole[0]["sent"]


@pytest.mark.parametrize("sync", ["sparse", "dense"])
def test_gradients_summed_after_backward_give_one_engines_answer(ranks: Ranks, sync: str) -> None:
    """As on GPUs, where `backward` is recorded."""
    for case in ("slices", "accumulated", "rpie", "adam, positions", "affine and offset"):
        settings = TOUCHED[case].replace(gradient_sync=sync)
        alone = ranks.run(1, work.trained, sparse_scan(), settings, 20)[0]
        wrapped = ranks.run(3, work.trained, sparse_scan(), settings, 20)[0]
        for answer in ranks.run(3, work.trained_apart, sparse_scan(), settings, 20):
            for name in (name for name in alone if isinstance(alone[name], np.ndarray)):
                assert difference(alone[name], answer[name]) < 1e-9, (case, name)
            assert answer["losses"] == pytest.approx(alone["losses"], rel=1e-9), case
            assert answer["sent"] <= 1.01 * wrapped["sent"], case


def test_positions_of_that_test_leave_their_pixels(ranks: Ranks) -> None:
    """Else a region from where windows once were would do."""
    first, last = (
        ranks.run(2, work.trained, sparse_scan(), TOUCHED["adam, positions"], updates)[0]["positions"]
        for updates in (1, 20)
    )
    assert np.abs(np.rint(last) - np.rint(first)).max() >= 1
    assert np.ptp(last) > TILE, "and there are tiles to leave"


def test_as_many_bytes_are_sent_as_windows_have_and_not_more(ranks: Ranks) -> None:
    """Every all-reduce is counted where it is asked for."""
    settings = Settings(batch=2, probe=MODES)
    answer = ranks.run(2, work.trained, sparse_scan(), settings, 12)[1]
    object, probe = answer["parameters"]
    assert object > 4 * probe
    [sent] = answer["last"]
    # 2 windows of 32 x 32 reach into at most 4 tiles each, 8 bytes a pixel.
    assert probe + 2 * 32 * 32 * 8 <= sent <= probe + 2 * 4 * TILE**2 * 8
    assert answer["counted"] == answer["sent"]
    whole = ranks.run(2, work.trained, sparse_scan(), settings.replace(gradient_sync="dense"), 12)[1]
    assert whole["last"] == [object + probe]
    assert whole["counted"] == whole["sent"] == 12 * (object + probe)


def test_a_large_objects_message_leaves_first_and_by_itself(ranks: Ranks) -> None:
    """Its gradient is there before the probe's, which waits for Fourier transforms."""
    scan = pt.simulate(patterns=30, window=128, modes=2, photons=1e5, step=60, seed=3)
    settings = Settings(slices=THICK, probe=MODES, batch=2, gradient_sync="dense")
    answer = ranks.run(2, work.trained, scan, settings, 4)[0]
    object, *others = answer["parameters"]
    assert object > 2**20
    assert answer["last"] == [object, sum(others)]


def test_windows_that_a_users_piece_moves_are_not_guessed(ranks: Ranks) -> None:
    assert ranks.run(2, work.nudged, sparse_scan(), Settings(batch=3)) == [False, False]


def test_what_saves_little_is_not_packed(ranks: Ranks) -> None:
    """An object of 0.3 MB goes whole, one of 4 MB does not."""
    large = pt.simulate(patterns=144, window=64, step=60, photons=1e5, seed=3)
    for scan, packed in ((sparse_scan(), False), (large, True)):
        for answer in ranks.run(2, work.as_it_is, scan, Settings(batch=3), 3):
            assert answer["region"] is packed
            assert (sum(answer["last"]) < sum(answer["parameters"])) is packed


@pytest.mark.parametrize("case", ["spread", "compact", "polar", "rpie", "positions", "adam, positions", "adam, all"])
def test_windows_that_the_host_does_not_know_give_one_engines_answer(ranks: Ranks, case: str) -> None:
    """As on GPUs, for which the host does not wait to learn positions that move."""
    settings, updates = TOUCHED[case], 20
    alone = ranks.run(1, work.trained, sparse_scan(), settings, updates)[0]
    for answer in ranks.run(2, work.trained_as_on_gpus, sparse_scan(), settings, updates):
        for name in (name for name in alone if isinstance(alone[name], np.ndarray)):
            assert difference(alone[name], answer[name]) < 1e-9, name
        assert answer["losses"] == pytest.approx(alone["losses"], rel=1e-9)
        assert answer["region"]


def test_averages_of_windows_that_the_host_does_not_know_are_the_same(ranks: Ranks) -> None:
    settings = TOUCHED["adam, all"].replace(sync_every=3)
    known = ranks.run(2, work.trained, sparse_scan(), settings, 20)
    unknown = ranks.run(2, work.trained_as_on_gpus, sparse_scan(), settings, 20)
    for plain, answer in zip(known, unknown, strict=True):
        for name in (name for name in plain if isinstance(plain[name], np.ndarray)):
            assert difference(plain[name], answer[name]) < 1e-9, name


def test_fifty_groups_come_and_go(ranks: Ranks) -> None:
    for _ in range(25):
        ranks.run(2, work.trained, sparse_scan(), Settings(batch=3), 3)
        ranks.run(2, work.trained, sparse_scan(), Settings(batch=3, sync_every=2), 3)


ALONE: dict[str, Settings] = {
    "adam": Settings(batch=5, probe=MODES),
    "nadam": Settings(batch=5, optimiser="nadam"),
    "rmsprop": Settings(batch=5, optimiser="rmsprop"),
    "momentum": sgd(0.02, momentum=0.8, batch=5),
    "rpie": Settings(optimiser="rpie", batch=5, probe=MODES),
    "polar": Settings(batch=5, object=Object(parametrization="amplitude_phase")),
    "term": Settings(batch=5, regularizers=(TotalVariation(weight=1.0),)),
    "constraint": Settings(batch=5, constraints=[{"kind": "gaussian_blur", "sigma": 0.5, "after": "update"}]),
    "compact": Settings(batch=5, batch_sampling="compact", gradient_accumulation=2),
    "rows": Settings(
        batch=5,
        probe=MODES,
        slices=THICK,
        positions=Positions(learning_rate=1.0),
        affine=Affine(learning_rate=0.1),
        opr=OPR(modes=1),
        pattern_intensities=PatternIntensities(learning_rate=0.01),
        background=Background(learning_rate=0.01),
        precision="double",
    ),
}


def equal(states: list[dict[str, Any]]) -> bool:
    return all(
        states[0].keys() == state.keys() and all(np.array_equal(states[0][name], state[name]) for name in state)
        for state in states
    )


@worlds
@pytest.mark.parametrize("case", ALONE)
def test_engines_are_equal_after_every_average_and_not_between(ranks: Ranks, case: str, world: int) -> None:
    """8 updates an epoch, averages after 3, 6 and the last: parameters and moments, to the bit."""
    settings = ALONE[case].replace(sync_every=3)
    answers = ranks.run(world, work.followed, sparse_scan(), settings, 16)
    for update in range(16):
        states = [answer[update] for answer in answers]
        assert equal(states) == (update % 8 in (2, 5, 7)), update


@pytest.mark.parametrize("case", ALONE)
def test_an_average_is_the_mean_over_patterns_and_each_engines_own_rows(ranks: Ranks, case: str) -> None:
    answers = ranks.run(3, work.met, sparse_scan(), ALONE[case].replace(sync_every=100), 4)
    total = sum(answer["seen"] for answer in answers)
    assert 4 * 4 <= total <= 4 * 5, "batches have 4 or 5 patterns"
    for name, after in answers[0]["after"].items():
        befores = [answer["before"][name] for answer in answers]
        if name.split("/")[0] in answers[0]["rows"] and after.ndim:
            for before, answer in zip(befores, answers, strict=True):
                np.testing.assert_allclose(after[answer["own"]], before[answer["own"]], rtol=1e-12, atol=0)
        else:
            mean = sum(answer["seen"] / total * before for before, answer in zip(befores, answers, strict=True))
            np.testing.assert_allclose(after, mean, rtol=1e-4, atol=1e-6 * np.abs(mean).max())


def test_one_step_of_plain_sgd_before_an_average_is_one_engines(ranks: Ranks) -> None:
    """All 37 patterns in one batch, in unequal parts: a mean that did not count patterns would be another."""
    settings = sgd(batch=37)
    alone = ranks.run(1, work.trained, sparse_scan(), settings, 6)[0]
    for answer in ranks.run(3, work.trained, sparse_scan(), settings.replace(sync_every=4), 6):
        for name in ("object", "probe"):
            assert difference(alone[name], answer[name]) < 1e-9


SLOW = {"learning_rate": 0.01}
"""Steps with which also batches of two patterns, and means of parameters that differ, lower the loss in each epoch."""


@pytest.mark.parametrize("case", ALONE)
def test_engines_without_patterns_do_not_keep_others_waiting(ranks: Ranks, case: str) -> None:
    settings = ALONE[case].replace(
        batch=2, batch_sampling="random", gradient_accumulation=1, sync_every=3, object=SLOW, probe=SLOW
    )
    answers = ranks.run(3, work.trained, sparse_scan(13), settings, 14)
    for answer in answers:
        assert np.isfinite(answer["losses"]).all()
        assert answer["losses"][1] < answer["losses"][0]
        np.testing.assert_array_equal(answer["object"], answers[0]["object"])


def test_of_the_object_only_what_was_touched_since_is_averaged(ranks: Ranks) -> None:
    settings = Settings(batch=2, sync_every=2)
    touched, whole = (
        ranks.run(2, work.trained, sparse_scan(), settings.replace(gradient_sync=exchange), 12)[0]
        for exchange in ("sparse", "dense")
    )
    assert difference(whole["object"], touched["object"]) < 1e-5
    assert touched["counted"] < 0.75 * whole["counted"]


@worlds
def test_with_averages_now_and_then_a_run_is_less_than_a_half_longer(ranks: Ranks, world: int) -> None:
    """After 20 epochs it is farther than averages at every update are after 13; in the first epochs hardly behind."""
    scan = pt.simulate(patterns=100, window=32, photons=1e5, step=4, seed=3)
    settings = Settings(batch=12, object=SLOW, probe=SLOW, schedule={"kind": "constant"})
    every, fourth = (
        ranks.run(world, work.trained, scan, settings.replace(sync_every=k), 9 * 20)[0]["losses"] for k in (1, 4)
    )
    assert every[-1] < 0.1 * every[0]
    assert every[-1] < fourth[-1] < every[12]
    assert fourth[2] < 1.25 * every[2]


@pytest.mark.parametrize("kind", ["pause", "stop"])
def test_who_stops_between_averages_stops_at_one(ranks: Ranks, kind: str) -> None:
    answers = ranks.run(3, work.interrupted, sparse_scan(), Settings(batch=2, sync_every=1000), kind, None)
    assert len({answer["update"] for answer in answers}) == 1
    assert 0 < answers[0]["update"] < 19
    assert equal([answer["state"] for answer in answers])
    for answer in answers:
        assert answer["failure"] is None
        assert answer["losses"] == answers[0]["losses"]
        assert len(answer["losses"]) == 2


@pytest.mark.parametrize("change", [{"probe": {"learning_rate": 0}}, {"sync_every": 1}, {"gradient_sync": "dense"}])
def test_settings_that_change_between_averages_leave_engines_equal(ranks: Ranks, change: dict[str, Any]) -> None:
    """A part that is frozen while engines differ in it would differ for ever; the epoch's checksum tells."""
    settings = Settings(batch=2, sync_every=1000)
    values = settings.replace(**change).model_dump(mode="json")
    for answer in ranks.run(2, work.interrupted, sparse_scan(), settings, "settings", values):
        assert answer["failure"] is None
        assert len(answer["losses"]) == 2
