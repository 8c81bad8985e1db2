"""A recipe run by a session: prepared, in stages, resumed, changed by the user meanwhile, and repeated to the bit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptynb as pt
from ptynb.data.patterns import ArrayFrames
from ptynb.data.result import Result
from ptynb.data.scan import Scan
from ptynb.io.checkpoint_file import load_state
from ptynb.io.result_file import load_result
from tests.raising import raises

RECIPE = pt.Recipe(
    prepare=[{"flip": "y"}, {"crop": 32}],
    settings=pt.Settings(batch=8, seed=3, positions=pt.Positions(learning_rate=0.05)),
    stages=[
        pt.Stage(epochs=3, pattern_size=16, settings={"probe": {"learning_rate": 0}}, reason="the object alone"),
        pt.Stage(epochs=2, pattern_size=(16, 32), settings={"probe": {"learning_rate": 0.01}}),
        pt.Stage(epochs=2, settings={"probe": {"modes": 2}}),
        pt.Stage(epochs=1, settings={"object": {"learning_rate": 0.007}}),
        pt.Stage(epochs=2, settings={"optimiser": "rpie", "batch": 12}),
    ],
)
ENDS = [3, 5, 7, 8]
CHANGED = [
    (3, "stage"),
    (3, "pattern_size"),
    (3, "probe.learning_rate"),
    (5, "stage"),
    (5, "pattern_size"),
    (5, "probe.modes"),
    (7, "stage"),
    (7, "object.learning_rate"),
    (8, "stage"),
    (8, "object.learning_rate"),
    (8, "probe.learning_rate"),
    (8, "optimiser"),
    (8, "schedule.kind"),
    (8, "batch"),
]


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Scan:
    path = tmp_path_factory.mktemp("scan") / "scan.h5"
    pt.simulate(patterns=30, window=40, seed=5, path=path)
    return pt.load(path)


def run(recon: pt.Reconstruction, path: Path) -> Path:
    with recon:
        recon.start()
        recon.wait()
        return recon.save(path)


@pytest.fixture(scope="module")
def alone(scan: Scan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("alone") / "result.h5"
    return run(pt.Reconstruction(scan, RECIPE, device="cpu", checkpointing=None), path)


def same(one: Result, other: Result) -> bool:
    arrays = (np.array_equal(getattr(one, name), getattr(other, name)) for name in ("object", "probe", "positions"))
    return all(arrays) and np.array_equal(one.losses, other.losses)


def test_all_stages_run_and_the_result_has_them(alone: Path, scan: Scan) -> None:
    result = load_result(alone)
    assert len(result.epochs) == RECIPE.epochs == 10
    assert [(change.epoch, change.name) for change in result.changes] == CHANGED
    assert pt.Recipe(stages=result.stages).stages == RECIPE.stages
    assert result.stage == 4
    assert result.probe.shape == (2, 32, 32)
    assert pt.Settings(**result.settings) == RECIPE.stage_settings[-1]
    assert pt.Settings(**result.initial_settings) == RECIPE.stage_settings[0]
    assert result.scan.preparation == ({"flip": {"axes": "y"}}, {"crop": {"window": 32}})
    assert result.pixel_size == pytest.approx(np.array(scan.pixel_size) * 40 / 32)
    assert result.losses[-1] < 0.95 * result.losses[2]


def test_a_recipe_is_repeated_to_the_bit(alone: Path) -> None:
    repeat = pt.reproduce(alone, device="cpu")
    assert (repeat.equal, repeat.notes) == (True, ())
    assert repeat.second.changes == load_result(alone).changes
    assert repeat.second.stages == load_result(alone).stages


@pytest.mark.parametrize("at", [(3, 0), (4, 1)])
def test_a_run_that_is_resumed_in_a_stage_has_the_remaining_ones(
    scan: Scan, alone: Path, tmp_path: Path, at: tuple[int, int]
) -> None:
    checkpointing = pt.Checkpointing(folder=tmp_path / "kept", epochs=None, seconds=None)
    with pt.Reconstruction(scan, RECIPE, device="cpu", checkpointing=checkpointing) as recon:
        recon.run_until(*at)
        recon.wait()
        kept = recon.save_checkpoint()
    state = load_state(kept)
    assert state.stage == sum(end < at[0] or (end == at[0] and at[1] > 0) for end in ENDS)
    recon = pt.resume(kept, device="cpu")
    assert recon.stages == RECIPE.stages
    assert recon.scan.preparation == load_result(alone).scan.preparation
    assert same(load_result(run(recon, tmp_path / "result.h5")), load_result(alone))


def test_what_the_user_changes_in_a_stage_stays_and_is_repeated(scan: Scan, tmp_path: Path) -> None:
    kept = pt.Checkpointing(folder=tmp_path / "kept")
    with pt.Reconstruction(scan, RECIPE, device="cpu", checkpointing=kept) as recon:
        recon.run_until(2, 1)
        recon.wait()
        assert recon.stage == 1
        recon.settings = recon.settings.replace(positions={"learning_rate": 0.1}, probe={"learning_rate": 0.02})
        recon.run_until(4, 2)
        recon.wait()
        assert recon.stage == 2
        assert (recon.settings.positions.learning_rate, recon.settings.probe.learning_rate) == (0.1, 0.01)
        recon.reconfigure(recon.settings.replace(probe={"modes": 3}))
        assert recon.snapshot().probe.shape == (3, 16, 32)
        recon.start()
        recon.wait()
        assert (recon.epoch, recon.stage, recon.settings.probe.modes) == (10, 5, 2)
        with raises("argument.missing", "10 epochs"):
            recon.start()
        recon.start(1)
        recon.wait()
        path = recon.save(tmp_path / "result.h5")
    repeat = pt.reproduce(path, device="cpu")
    assert (repeat.equal, repeat.notes) == (True, ())
    assert [change.name for change in repeat.second.changes] == [change.name for change in load_result(path).changes]


def test_restoring_an_earlier_stage_goes_on_from_there(scan: Scan, alone: Path, tmp_path: Path) -> None:
    kept = pt.Checkpointing(folder=tmp_path / "kept", epochs=1, max_to_keep=20)
    with pt.Reconstruction(scan, RECIPE, device="cpu", checkpointing=kept) as recon:
        list(recon.run(6))
        assert recon.stage == 3
        recon.restore(next(one for one in recon.checkpoints if (one.epoch, one.update) == (4, 0)))
        assert (recon.stage, recon.settings) == (2, RECIPE.stage_settings[1])
        recon.start()
        recon.wait()
        assert same(recon.result, load_result(alone))


def test_engines_begin_stages_together(scan: Scan, cluster: pt.Cluster, tmp_path: Path, alone: Path) -> None:
    path = run(pt.Reconstruction(scan, RECIPE, cluster, checkpointing=None), tmp_path / "result.h5")
    on_two, on_one = load_result(path), load_result(alone)
    assert [(change.epoch, change.name) for change in on_two.changes] == CHANGED
    np.testing.assert_allclose(on_two.losses, on_one.losses, rtol=2e-3)
    assert np.linalg.norm(on_two.object - on_one.object) < 0.02 * np.linalg.norm(on_one.object)
    assert pt.reproduce(path, cluster=cluster).equal
    in_memory = dataclasses.replace(scan, frames=ArrayFrames.of(scan.counts(0, len(scan))), loaded=None)
    other = run(pt.Reconstruction(in_memory, RECIPE, cluster, checkpointing=None), tmp_path / "memory.h5")
    assert same(load_result(other), on_two)


def test_stages_that_cannot_run_are_refused_before_they_begin(scan: Scan) -> None:
    def opened(**stage: Any) -> None:
        recipe = pt.Recipe(settings=pt.Settings(batch=8), stages=[{"epochs": 1}, {"epochs": 1, **stage}])
        pt.Reconstruction(scan, recipe, device="cpu", extensions=extensions)

    extensions: list[Any] = []
    with raises("argument.invalid-value", "64 x 64", "40 x 40"):
        opened(pattern_size=64)
    with raises("scan.no-geometry", "slices.count is 2"):
        bare = dataclasses.replace(scan, geometry=None)
        recipe = pt.Recipe(stages=[{"epochs": 1, "settings": {"slices": {"count": 2, "thickness": 1e-6}}}])
        pt.Reconstruction(bare, recipe, device="cpu")
    with raises("scan.no-geometry", "aberrations.order is 1"):
        pt.Reconstruction(
            bare, pt.Settings(aberrations=pt.Aberrations(order=1), probe=pt.Probe(learning_rate=0)), device="cpu"
        )

    class Own(pt.ModelComponent):
        name = "own"

    extensions.append(Own())
    with raises("settings.unsupported-combination", "Own", "pattern_size"):
        opened(pattern_size=16)


def test_a_recipe_without_stages_prepares_and_sets(scan: Scan) -> None:
    recipe = pt.Recipe(prepare=["transpose"], settings=pt.Settings(batch=9))
    with pt.Reconstruction(scan, recipe, device="cpu", checkpointing=None) as recon:
        assert recon.scan.preparation == ({"transpose": {}},)
        assert (recon.settings, recon.stage, recon.stages) == (recipe.settings, 0, ())
        assert len(list(recon.run(2))) == 2
        assert recon.result.stages == ()


def test_only_the_last_stage_ends_before_its_last_epoch(scan: Scan) -> None:
    """By a rule that each epoch fulfils."""
    stop = pt.Stop(patience=1, tolerance=0.99)
    recipe = pt.Recipe(
        settings=pt.Settings(stop=stop),
        stages=[pt.Stage(epochs=4), pt.Stage(epochs=9, settings={"probe": {"learning_rate": 0.02}})],
    )
    with pt.Reconstruction(scan, recipe, device="cpu", checkpointing=None) as recon:
        recon.start()
        recon.wait()
        assert recon.stage == len(recipe.stages)
        assert len(recon.epochs) == 4 + 2
        assert recon.stopped
