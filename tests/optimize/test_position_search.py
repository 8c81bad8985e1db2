"""Trial shifts after an epoch: which are tried, which are kept, and that nothing else decides about them."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ptynb as pt
from ptynb.data.scan import Scan
from ptynb.distributed.group import Membership, join
from ptynb.engine.loop import Loop
from ptynb.optimize.position_search import search_positions
from ptynb.settings import Positions, Probe, Settings
from tests.parametrization import each
from tests.raising import raises

LONE = Membership(rank=0, world=1, store=None, backend="none", device="cpu", identity="test")
SEARCH = Positions(search_trials=6, search_radius=5, search_start_epoch=1, search_end_epoch=5)


def misplaced(patterns: int = 25, **changes: Any) -> tuple[Scan, np.ndarray[Any, Any]]:
    """A scan whose object and probe are the true ones, and some positions wrong by 3 pixels; which those are."""
    scan = pt.simulate(patterns=patterns, window=32, seed=3, step=4, photons=1e7, subpixel=False)
    assert scan.ground_truth is not None
    wrong = np.zeros(scan.positions.shape)
    wrong[::4, 0] = 3
    object = np.pad(scan.ground_truth.object, 8, constant_values=1)
    moved = dataclasses.replace(
        scan, positions=scan.positions + wrong + 8, probe=scan.ground_truth.probe, object=object, ground_truth=None
    )
    return dataclasses.replace(moved, **changes), wrong


def searched(scan: Scan, epochs: int, positions: Positions = SEARCH, **changes: Any) -> Loop:
    """The loop after so many searches, without updates of object and probe between them."""
    settings = Settings(probe=Probe(start_epoch=100), batch=5, positions=positions, precision="double", **changes)
    loop = Loop(scan, settings, join(LONE))
    for epoch in range(1, epochs + 1):
        loop.problem.epoch = epoch
        search_positions(loop.problem)
    return loop


def test_wrong_positions_move_to_where_the_model_fits_and_right_ones_stay() -> None:
    scan, wrong = misplaced()
    moves = searched(scan, 5, SEARCH.model_copy(update={"search_trials": 20})).model.components["positions"].moves
    left = np.hypot(*(moves.detach().numpy() + wrong).T)
    assert left.max() < 0.7
    right = np.hypot(*wrong.T) == 0
    assert np.median(left[right]) < 0.2


def test_the_misfit_of_no_pattern_grows() -> None:
    scan, _ = misplaced()
    loop = searched(scan, 0)

    def misfits() -> torch.Tensor:
        batch = loop.shard.batch(np.arange(len(scan)), len(scan))
        with torch.no_grad():
            return (loop.model.intensities(batch).sqrt() - batch.counts.sqrt()).square().sum((1, 2))

    before = misfits()
    loop.problem.epoch = 1
    search_positions(loop.problem)
    assert (misfits() <= before * (1 + 1e-12)).all()
    assert (misfits() < 0.9 * before).sum() >= 3


def test_trials_follow_from_seed_epoch_and_pattern_alone() -> None:
    """Shifts of a pattern are the same in portions of 5 patterns and of 2, and differ with the seed."""
    scan, _ = misplaced()
    moves = [
        searched(scan, 2, **changes).model.components["positions"].moves.detach()
        for changes in ({}, {"gradient_accumulation": 3}, {"seed": 1})
    ]
    torch.testing.assert_close(moves[1], moves[0], rtol=0, atol=1e-12)
    assert not torch.allclose(moves[2], moves[0])


def test_half_of_the_trials_shrink_to_a_pixel_and_none_leaves_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    scan, _ = misplaced()
    limited = SEARCH.model_copy(
        update={"search_trials": 60, "search_radius": 7.0, "max_shift": 7.0, "search_restarts": 0}
    )
    steps: dict[int, list[float]] = {}
    for epoch in (1, 5):
        loop = searched(scan, 0, limited)
        positions = loop.model.components["positions"]
        tried: list[torch.Tensor] = []
        intensities = loop.model.intensities

        def noting(batch: Any, tried: Any = tried, positions: Any = positions, real: Any = intensities) -> torch.Tensor:
            tried.append(positions.moves[batch.patterns].detach().clone())
            return real(batch)

        monkeypatch.setattr(loop.model, "intensities", noting)
        loop.problem.epoch = epoch
        search_positions(loop.problem)
        # The first of each portion is the present position.
        each_trial = [float(trial.abs().max()) for trial in tried[:61]]
        assert max(each_trial) <= 7
        steps[epoch] = each_trial
    assert steps[1][0] == 0
    assert min(max(steps[1][1::2]), max(steps[1][2::2])) > 6.3
    assert max(steps[5][1::2]) <= 1
    assert max(steps[5][2::2]) > 6.3


@each("epochs", [(1, 1, 5, True), (1, 2, 5, False), (3, 3, 3, True), (4, 2, 3, False)])
def test_shifts_are_tried_only_in_the_epochs_of_the_search(epochs: tuple[int, int, int, bool]) -> None:
    epoch, start, end, moves = epochs
    scan, _ = misplaced(9)
    loop = searched(scan, 0, SEARCH.model_copy(update={"search_start_epoch": start, "search_end_epoch": end}))
    loop.problem.epoch = epoch
    search_positions(loop.problem)
    positions = loop.model.components["positions"]
    assert (positions.active, bool(positions.moves.any())) == (moves, moves)


@each("restarts", [(0, []), (1, [3]), (2, [2, 4]), (9, [1, 2, 3, 4])])
def test_the_object_restarts_between_equal_parts_of_the_search(restarts: tuple[int, list[int]]) -> None:
    number, after = restarts
    scan, _ = misplaced(9)
    loop = searched(scan, 0, SEARCH.model_copy(update={"search_restarts": number}))
    initial = loop.model.object.values.detach().clone()
    found = []
    for epoch in range(1, 7):
        loop.model.object.set(initial + epoch)
        loop.problem.epoch = epoch
        search_positions(loop.problem)
        if torch.equal(loop.model.object.values, initial):
            found.append(epoch)
    assert found == after


def test_trials_shrink_again_after_a_restart() -> None:
    chosen = SEARCH.model_copy(update={"search_start_epoch": 2, "search_end_epoch": 7, "search_restarts": 1})
    assert [chosen.search_progress(epoch) for epoch in range(2, 8)] == [0, 0.5, 1, 0, 0.5, 1]


def test_a_run_that_was_interrupted_searches_as_one_that_was_not(tmp_path: Path) -> None:
    scan, _ = misplaced()
    settings = Settings(batch=5, positions=SEARCH)
    with pt.Reconstruction(scan, settings, device="cpu", checkpointing=None) as whole:
        [*whole.run(4)]
        expected = whole.result
    kept = pt.Checkpointing(folder=tmp_path, epochs=None, seconds=None)
    with pt.Reconstruction(scan, settings, device="cpu", checkpointing=kept) as first:
        first.run_until(2, run=(0, 4))
        first.wait()
        first.save_checkpoint()
    with pt.resume(tmp_path, scan, device="cpu") as second:
        [*second.run(2)]
        found = second.result
    np.testing.assert_array_equal(found.positions, expected.positions)
    np.testing.assert_array_equal(found.object, expected.object)
    assert np.abs(found.positions - found.parameters["positions/start"]).max() > 1


def test_the_object_has_room_for_the_search() -> None:
    assert Settings(positions=Positions(search_trials=4, max_shift=20, search_radius=12)).margin == 21
    assert Settings(positions=Positions(max_shift=20)).margin == 4


def test_settings_that_contradict_a_search() -> None:
    with raises("settings.unsupported-combination", "search_radius is 12", "max_shift is 8"):
        Settings(positions=Positions(search_trials=4, search_radius=12))
    with raises("settings.unsupported-combination", "'lbfgs'", "search_trials is 4"):
        Settings(optimiser="lbfgs", positions=Positions(search_trials=4))
    with raises("settings.wrong-order", "search_end_epoch is 3", "search_start_epoch 5"):
        Positions(search_start_epoch=5, search_end_epoch=3)


def test_lsqml_searches_too() -> None:
    scan, wrong = misplaced(16)
    settings = Settings(
        optimiser="lsqml", object={"learning_rate": 0.01}, probe=Probe(start_epoch=100), batch=8, positions=SEARCH
    )
    with pt.Reconstruction(scan, settings, device="cpu", checkpointing=None) as recon:
        [*recon.run(6)]
        moved = recon.result.positions - recon.result.parameters["positions/start"]
    assert math.sqrt(((moved + wrong) ** 2).sum(1).mean()) < 0.6 * math.sqrt((wrong**2).sum(1).mean())
