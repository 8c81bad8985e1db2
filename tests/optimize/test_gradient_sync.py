"""What engines exchange: what windows touch, and yet one engine's answer."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import ptynb as pt
from ptynb.optimize.covered_region import BLOCK, Region, touched_blocks
from ptynb.settings import (
    Affine,
    Object,
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
from tests.engine.reference_model import difference

worlds = pytest.mark.parametrize("world", [3, pytest.param(2, marks=pytest.mark.system("worlds"))])
THICK = Slices(count=2, thickness=2e-4)


def sgd(rate: float = 0.1, **choices: Any) -> Settings:
    choices = {"batch": 3, "object": Object(learning_rate=rate), "probe": Probe(modes=2, learning_rate=rate)} | choices
    return Settings(optimiser="sgd", precision="double", **choices)


class TestRegions:
    def test_holds_all_windows_and_no_block_without_one(self) -> None:
        for seed in range(8):
            self.holds_all_windows_and_no_block_without_one(seed)

    def holds_all_windows_and_no_block_without_one(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        shape = (int(random.integers(40, 300)), int(random.integers(40, 300)))
        window = (int(random.integers(1, 40)), int(random.integers(1, 40)))
        corners = random.integers(0, np.array(shape) - window + 1, (int(random.integers(1, 9)), 2))
        lit = np.zeros(shape, dtype=int)
        for y, x in corners:
            lit[y : y + window[0], x : x + window[1]] = 1
        covered = np.zeros(shape, dtype=int)
        for top, bottom, left, right in Region(shape, touched_blocks(corners, window, shape)).rectangles:
            covered[top:bottom, left:right] += 1
        assert covered.max() == 1, f"seed {seed}: rectangles have to be disjoint"
        wanted = np.zeros(shape, dtype=int)
        for y in range(0, shape[0], BLOCK):
            for x in range(0, shape[1], BLOCK):
                wanted[y : y + BLOCK, x : x + BLOCK] = lit[y : y + BLOCK, x : x + BLOCK].any()
        np.testing.assert_array_equal(covered, wanted, f"seed {seed}")

    def test_a_margin_reaches_into_the_next_block(self) -> None:
        corner = np.array([[BLOCK, 2 * BLOCK]])
        plain, more = (touched_blocks(corner, (BLOCK, BLOCK), (200, 200), margin) for margin in (0, 1))
        assert plain.sum() == 1
        assert more.sum() == 9

    def test_what_is_packed_comes_back_to_its_place(self) -> None:
        shapes = ((2, 3, 70, 101, 2), (2, 1, 101, 70), (1, 1, 20, 90, 2), (64, 96), (33, 32))
        for shape, by_index in product(shapes, (False, True)):
            self.what_is_packed_comes_back_to_its_place(shape, by_index)

    def what_is_packed_comes_back_to_its_place(self, shape: tuple[int, ...], by_index: bool) -> None:
        parts = 2 if len(shape) == 5 else 1
        plane = shape[-3:-1] if parts == 2 else shape[-2:]
        blocks = np.random.default_rng(0).random([-(-side // BLOCK) for side in plane]) > 0.5
        blocks[0, 0], blocks[-1, -1] = False, True
        region = Region((plane[0], plane[1]), blocks)
        inside = np.kron(blocks, np.ones((BLOCK, BLOCK)))[: plane[0], : plane[1]] > 0
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
    for answer in ranks.run(world, work.trained, sparse_scan(), settings, updates):
        for name in names:
            assert difference(alone[name], answer[name]) < 1e-9, name
        assert answer["losses"] == pytest.approx(alone["losses"], rel=1e-9)
        assert answer["region"]
        assert answer["sent"] < 0.75 * updates * sum(answer["parameters"])


@pytest.mark.parametrize("sync", ["sparse", "dense"])
def test_gradients_summed_after_backward_give_one_engines_answer(ranks: Ranks, sync: str) -> None:
    """As on GPUs, where `backward` is recorded."""
    for case in ("slices", "accumulated", "rpie", "adam, positions", "affine and offset"):
        settings = TOUCHED[case].replace(gradient_sync=sync)
        alone = ranks.run(1, work.trained, sparse_scan(), settings, 20)[0]
        wrapped = ranks.run(3, work.trained, sparse_scan(), settings, 20)
        for answer in (*wrapped, *ranks.run(3, work.trained_apart, sparse_scan(), settings, 20)):
            for name in (name for name in alone if isinstance(alone[name], np.ndarray)):
                assert difference(alone[name], answer[name]) < 1e-9, (case, name)
            assert answer["losses"] == pytest.approx(alone["losses"], rel=1e-9), case
            assert answer["sent"] <= 1.01 * wrapped[0]["sent"], case
            assert answer["region"] is (sync == "sparse"), case


def test_positions_of_that_test_leave_their_pixels(ranks: Ranks) -> None:
    """Else a region from where windows once were would do."""
    first, last = (
        ranks.run(2, work.trained, sparse_scan(), TOUCHED["adam, positions"], updates)[0]["positions"]
        for updates in (1, 20)
    )
    assert np.abs(np.rint(last) - np.rint(first)).max() >= 1
    assert np.ptp(last) > BLOCK, "and there are blocks to leave"


def test_as_many_bytes_are_sent_as_windows_have_and_not_more(ranks: Ranks) -> None:
    """Every all-reduce is counted where it is asked for."""
    settings = Settings(batch=2, probe=MODES)
    answer = ranks.run(2, work.trained, sparse_scan(), settings, 12)[1]
    object, probe = answer["parameters"]
    assert object > 4 * probe
    [sent] = answer["last"]
    # 2 windows of 32 x 32 reach into at most 4 blocks each, 8 bytes a pixel.
    assert probe + 2 * 32 * 32 * 8 <= sent <= probe + 2 * 4 * BLOCK**2 * 8
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


def test_groups_come_and_go(ranks: Ranks) -> None:
    for _ in range(20):
        ranks.run(2, work.trained, sparse_scan(), Settings(batch=3), 3)
