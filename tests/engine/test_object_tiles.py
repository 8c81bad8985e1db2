"""An object in tiles gives the result of the whole one: the table of cases on engines that each hold a part of it."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from ptynb.io.checkpoint_file import of_object
from ptynb.io.reading.checkpoint_object import Area
from ptynb.settings import WHOLE_PASSES, Settings
from ptynb.settings.constraints import GaussianBlur, SmoothTilts
from tests.cases import ALGORITHMS, CASES, MODES, THICK, a_scan, as_sgd
from tests.engine import checkpoint_work, work
from tests.engine.ranks import Ranks
from tests.engine.reference_model import difference

OTHER_WORLDS = pytest.mark.system("worlds")
DEFAULT = ("plain", "everything", "lsqml, everything")
UPDATES = 20
MOST = 1e-11
"""Largest relative difference in double precision; 2e-12 was measured for "two losses", 3e-13 for all others."""
IN_TILES = [
    *CASES,
    *(name for name, (_, settings, _) in ALGORITHMS.items() if settings.optimiser not in WHOLE_PASSES),
]


@pytest.mark.parametrize(
    ("case", "world"),
    [
        pytest.param(case, world, marks=() if world == 3 and case in DEFAULT else OTHER_WORLDS)
        for case, world in product(IN_TILES, (2, 3))
    ],
)
def test_an_object_in_tiles_is_the_whole_one(ranks: Ranks, case: str, world: int) -> None:
    if case in CASES:
        kind, settings, _ = CASES[case]
        settings = as_sgd(settings)
    else:
        kind, settings, _ = ALGORITHMS[case]
    scan, settings = a_scan(kind=kind), settings.replace(batch_sampling="cells", precision="double")
    alone = ranks.run(1, work.train, scan, settings, UPDATES)[0]
    answers = ranks.run(world, work.train, scan, settings.replace(object={"layout": "tiles"}), UPDATES)
    names = {name for name in alone if isinstance(alone[name], np.ndarray)}
    for rank, answer in enumerate(answers):
        for name in names - ({"object"} if rank else set()):
            assert difference(alone[name], answer[name]) < MOST, name
        assert answer["losses"] == pytest.approx(alone["losses"], rel=MOST)
        for own, others in zip(alone["changes"], answer["changes"], strict=True):
            assert others == pytest.approx(own, rel=1e-6)
        assert answer["r_factor"] == pytest.approx(alone["r_factor"], rel=MOST)


def composed(answers: list[dict[str, Any]], name: str) -> np.ndarray[Any, Any]:
    """The whole array of the object from those in the states of all ranks, each of which has its own pixels."""
    if not answers[0]["tile"].size:
        return np.array(answers[0][name])
    height, width = answers[0]["tile"][4:]
    parts = answers[0][name]
    whole = np.empty((*parts.shape[:2], height, width, *parts.shape[4:]), parts.dtype)
    for answer in answers:
        top, bottom, left, right = answer["tile"][:4]
        whole[:, :, top:bottom, left:right] = answer[name]
    return whole


@pytest.mark.parametrize("optimiser", ["adam", "lsqml"])
def test_a_checkpoint_resumes_on_any_number_of_engines_whole_or_in_tiles(
    ranks: Ranks, tmp_path: Path, optimiser: str
) -> None:
    momentum = 0.5 if optimiser == "lsqml" else 0.0
    whole = Settings(optimiser=optimiser, batch=8, precision="double", batch_sampling="cells", momentum=momentum)
    whole = whole.replace(positions={"learning_rate": 0.1, "momentum": momentum})
    tiles, path = whole.replace(object={"layout": "tiles"}), tmp_path / "state-00001.h5"
    before, updates = 7, 13  # both within an epoch of 5 updates
    alone = ranks.run(1, checkpoint_work.straight, a_scan(), whole, updates)
    for written_by, settings in ((1, whole), (3, tiles)):
        unbroken = ranks.run(written_by, checkpoint_work.straight, a_scan(), settings, updates, {before: path})
        names = [name for name in alone[0] if of_object(name) and alone[0][name].ndim > 3]
        assert len(names) > 1, "moments, too"
        for world, resumed in ((3, tiles), (2, tiles), (1, whole), (2, whole)):
            layout = resumed.object.layout
            answers = ranks.run(world, checkpoint_work.going_on, a_scan(), resumed, updates, path, (), None, layout)
            assert answers[0]["losses"] == pytest.approx(alone[0]["losses"], rel=1e-9)
            for name in names:
                assert difference(alone[0][name], composed(answers, name)) < 1e-9, (world, name)
            if (world, resumed) == (written_by, settings):
                for one, other in zip(unbroken, answers, strict=True):
                    assert [name for name in checkpoint_work.equal(one, other) if name != "moved"] == []


@pytest.mark.parametrize("written_by", [1, 3])
def test_an_engine_that_cannot_read_the_checkpoint_is_sent_its_tile(
    ranks: Ranks, tmp_path: Path, written_by: int
) -> None:
    whole = Settings(batch=8, precision="double", batch_sampling="cells")
    tiles, path = whole.replace(object={"layout": "tiles"}), tmp_path / "run" / "state-00001.h5"
    other = tmp_path / "of another run" / path.name
    settings = whole if written_by == 1 else tiles
    ranks.run(written_by, checkpoint_work.straight, a_scan(), settings, 7, {7: path, 3: other})
    read = ranks.run(3, checkpoint_work.going_on, a_scan(), tiles, 9, path, (), None, "tiles")
    for instead in (tmp_path / "nowhere" / path.name, other):
        sent = ranks.run(3, checkpoint_work.going_on, a_scan(), tiles, 9, path, (), None, "tiles", instead)
        for one, others in zip(read, sent, strict=True):
            assert [name for name in checkpoint_work.equal(one, others) if name != "moved"] == []


def test_rank_0_sends_each_engine_what_it_holds_and_no_more(ranks: Ranks, tmp_path: Path) -> None:
    path = tmp_path / "state-00001.h5"
    ranks.run(1, checkpoint_work.straight, a_scan(), Settings(batch=8), 5, {5: path})
    areas: list[Area | None] = [(0, 30, 0, 20), None, (7, 7, 0, 20)]
    answers = ranks.run(3, checkpoint_work.sent_parts, path, areas)
    whole = answers[1][1]
    assert len(whole) > 1
    assert [len(before) for before, _ in answers] == [len(whole), 0, 0]
    for area, (_, arrays) in zip(areas, answers, strict=True):
        assert arrays.keys() == whole.keys()
        top, bottom, left, right = area or (0, None, 0, None)
        for name, values in arrays.items():
            np.testing.assert_array_equal(values, whole[name][:, :, top:bottom, left:right], err_msg=name)


def test_a_slow_disk_of_one_engine_is_waited_for(ranks: Ranks, tmp_path: Path) -> None:
    settings = Settings(batch=8, batch_sampling="cells", object={"layout": "tiles"})
    path, group_waits = tmp_path / "state-00001.h5", 2.0
    ranks.run(3, checkpoint_work.straight, a_scan(), settings, 5, {5: path})
    ranks.run(3, checkpoint_work.going_on_slowly, a_scan(), settings, 6, path, group_waits + 1.5, timeout=group_waits)


@pytest.mark.parametrize("layout", ["whole", "tiles"])
def test_a_damaged_object_is_refused_by_all_engines(ranks: Ranks, tmp_path: Path, layout: str) -> None:
    settings = Settings(batch=8, batch_sampling="cells")
    kept = {updates: tmp_path / f"state-{updates:05d}.h5" for updates in (1, 2)}
    ranks.run(1, checkpoint_work.straight, a_scan(), settings, 2, kept)
    with h5py.File(kept[2]) as file:
        place = file["model/object.parts"].id.get_chunk_info(0).byte_offset + 100
    octets = bytearray(kept[2].read_bytes())
    octets[place] ^= 1
    kept[2].write_bytes(octets)
    for said in ranks.run(2, checkpoint_work.why_not_gone_on, a_scan(), settings, kept[2], layout):
        assert said.startswith("file.damaged")
        assert "state-00001.h5, the one before it" in said


def test_where_tiles_are_cut_does_not_matter(ranks: Ranks) -> None:
    settings = CASES["everything"][1].replace(batch_sampling="cells", object={"layout": "tiles"})
    scan = a_scan(kind=CASES["everything"][0])
    one, other = (ranks.run(3, work.train_in_moved_tiles, scan, settings, 10, shift)[0] for shift in (0, 7))
    assert one["owned"] != other["owned"]
    for name in ("object", "probe", "positions"):
        assert difference(one[name], other[name]) < 1e-5, name


def test_single_precision_has_no_seams(ranks: Ranks) -> None:
    """Near the edges of tiles, values differ from those of the whole object by rounding, as elsewhere."""
    settings = Settings(probe=MODES, batch=8, batch_sampling="cells")
    alone = ranks.run(1, work.train, a_scan(), settings, 250)[0]["object"]
    tiles = ranks.run(3, work.train_in_moved_tiles, a_scan(), settings.replace(object={"layout": "tiles"}), 250, 0)
    error = np.abs(tiles[0]["object"] - alone)
    assert error.max() < 1e-3 * np.abs(alone).max()
    seam, lit = np.zeros(error.shape, bool), error > 0
    for top, bottom, left, right in tiles[0]["owned"]:
        for row in {top, bottom} - {0, len(error)}:
            seam[row - 8 : row + 8, left:right] = True
        for column in {left, right} - {0, error.shape[1]}:
            seam[top:bottom, column - 8 : column + 8] = True
    strip, interior = (np.sqrt(np.mean(error[lit & where] ** 2)) for where in (seam, ~seam))
    assert strip < 1.5 * interior


def test_all_engines_end_where_one_tile_is_not_finite(ranks: Ranks) -> None:
    settings = Settings(batch=8, batch_sampling="cells", object={"layout": "tiles"})
    answers = ranks.run(3, work.infinite_in_one_tile, a_scan(), settings)
    assert len({*answers}) == 1
    assert "its last update is not finite" in answers[0]


def test_a_window_beyond_its_tile_ends_the_run(ranks: Ranks) -> None:
    settings = Settings(
        batch=8, batch_sampling="cells", object={"layout": "tiles", "padding": 4}, positions={"max_shift": 3}
    )
    for message in ranks.run(2, work.pushed_beyond_tile, a_scan(), settings):
        assert "window-left-tile" in message
        assert "have moved beyond the tiles of their engines, whose margin is 4 pixels" in message


def test_a_picture_of_what_is_not_there_is_an_error_of_who_asked(ranks: Ranks) -> None:
    settings = Settings(batch=8, batch_sampling="cells", object={"layout": "tiles"})
    error, applied, epochs = ranks.run(2, work.asked_for_what_is_not_there, a_scan(), settings)[0]
    assert "slice 3 of object mode 0, and the object has 1 slices" in error
    assert (applied, epochs) == (1, 1)


@pytest.mark.parametrize(
    "settings",
    [
        {"object": {"parametrization": "amplitude_phase", "modes": 2}},
        {"optimiser": "adamw"},
        {"slices": THICK, "tilt": {"per_position": True, "learning_rate": 0.1}, "constraints": (SmoothTilts(sigma=3),)},
        {"positions": {"search_trials": 2, "search_restarts": 1}, "object": {"parametrization": "amplitude_phase"}},
    ],
    ids=["polar modes", "adamw", "smooth tilts", "position search"],
)
def test_single_precision_keeps_engines_together(ranks: Ranks, settings: dict[str, Any]) -> None:
    """What rounds differently at other places of an array, or depends on absolute positions."""
    whole = Settings(**{"batch": 8, "batch_sampling": "cells", "precision": "single", **settings})
    alone = ranks.run(1, work.train, a_scan(), whole, 10)[0]
    for answer in ranks.run(3, work.train, a_scan(), whole.replace(object={"layout": "tiles"}), 10):
        assert answer["losses"] == pytest.approx(alone["losses"], rel=1e-4)


def test_own_components_see_positions_in_the_whole_object(ranks: Ranks) -> None:
    settings = Settings(batch=8, batch_sampling="cells", precision="double", object={"padding": 12})
    alone = ranks.run(1, work.magnified, a_scan(), settings, 10)[0]
    for rank, answer in enumerate(
        ranks.run(3, work.magnified, a_scan(), settings.replace(object={"layout": "tiles"}), 10)
    ):
        for name in ("object", "probe", "positions")[1 if rank else 0 :]:
            assert difference(alone[name], answer[name]) < 1e-9, name


def test_what_reaches_beyond_the_halo_is_not_begun_in_a_run(ranks: Ranks) -> None:
    settings = Settings(
        batch=8, batch_sampling="cells", object={"layout": "tiles"}, constraints=[GaussianBlur(sigma=1)]
    )
    wider = settings.replace(constraints=[GaussianBlur(sigma=5)])
    for answer in ranks.run(2, work.refused_live, a_scan(), settings, wider):
        assert "constraints that reach 30, need more of the object on each engine than there is (4 and 6)" in answer
