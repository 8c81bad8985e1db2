"""Recommended settings: the effects that are in simulated scans, and no others; the table of all is a benchmark."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import ptynb as pt
from ptynb.cli.main import main
from ptynb.data.scan import Scan
from ptynb.engine.loop import Loop
from ptynb.planning.memory import Room
from ptynb.session import reconstruction as session
from ptynb.settings import PARTS
from ptynb.tuning.effects import effects_of
from ptynb.tuning.recommend import LEAST_PATTERNS, _Engines
from ptynb.tuning.trial_progress import TrialProgress
from tests.preparation.test_rotation_fit import electron_scan
from tests.raising import raises
from tests.tuning.recommend_scans import SCANS, error


def chosen_parts(found: pt.Recommendation) -> set[str]:
    """Parts with a rate beside object and probe, and "modes" for several probe modes."""
    settings = found.settings
    parts = {name for name in PARTS if name not in ("object", "probe", "opr") and settings.part(name).learning_rate > 0}
    return parts | ({"modes"} if settings.probe.modes > 1 else set()) | ({"opr"} if settings.opr.modes else set())


def errors(scan: Scan, found: pt.Recommendation) -> tuple[float, float]:
    """Object errors with the defaults and with the recommendation, after the same number of epochs."""
    both = []
    for chosen in (pt.Settings(), found.recipe):
        with pt.Reconstruction(scan, chosen, device="cpu") as recon:
            recon.start(found.recipe.epochs)
            recon.wait(200)
            both.append(error(recon.result, scan))
    return both[0], both[1]


def test_positions_intensities_and_background_of_a_near_field_scan_are_found() -> None:
    scan = SCANS["near field, all"]()
    lines: list[str] = []
    found = pt.recommend(scan, device="cpu", epochs=60, report=lines.append)
    assert chosen_parts(found) == {"positions", "pattern_intensities", "background"}
    before, after = errors(scan, found)
    assert after < before / 3
    assert [stage.epochs for stage in found.recipe.stages] == [6, 54]
    assert found.recipe.stages[1].settings.keys() == {"positions", "pattern_intensities", "background"}
    assert any(line.startswith("Together with wrong positions") for line in lines)
    # A reason for every setting that differs from the defaults, and trials for every reason with a loss.
    assert {choice.name for choice in found.choices} > {"batch", "positions.learning_rate", "background.learning_rate"}
    assert all(choice.reason for choice in found.choices)
    assert sum(trial.chosen for trial in found.trials) == 4
    assert found.settings.positions.start_epoch == 7
    assert found.settings.positions.learning_rate == found.recipe.stages[1].settings["positions"]["learning_rate"]


def test_nothing_is_found_where_nothing_is_wrong_and_bad_pixels_are_masked() -> None:
    scan = SCANS["bad pixels"]()
    found = pt.recommend(scan, device="cpu", epochs=40)
    assert chosen_parts(found) == set()
    assert [step.function for step in found.recipe.prepare] == ["mask_bad_pixels"]
    before, after = errors(scan, found)
    assert after < before / 2


def test_a_transposed_and_rotated_detector_is_put_right_first() -> None:
    scan = electron_scan(30.05, transposed=True, counts=1e4, grid=(16, 18))
    found = pt.recommend(scan, device="cpu", epochs=10, seconds=0.1)
    assert [step.function for step in found.recipe.prepare][:2] == ["transpose", "rotate_positions"]
    assert abs(np.degrees(found.recipe.prepare[1].arguments["angle"])) == pytest.approx(30.05, abs=3)
    [reason, *_] = [choice.reason for choice in found.choices if choice.name == "prepare"]
    assert "fit only then" in reason
    assert not pt.preparation.estimate_rotation(pt.prepare(scan, found.recipe.prepare)).needed
    right = pt.recommend(electron_scan(counts=1e4, grid=(16, 18)), device="cpu", epochs=10, seconds=0.1)
    assert not right.recipe.prepare


def test_of_a_large_scan_the_middle_is_tried_if_time_is_short() -> None:
    scan = pt.simulate(patterns=400, window=32, photons=1e4, seed=1)
    found = pt.recommend(scan, device="cpu", seconds=0.5)
    assert found.patterns == LEAST_PATTERNS
    assert f"{LEAST_PATTERNS} patterns of the middle of the scan" in found.notes[0]
    assert found.recipe.epochs == 100


def test_the_likelihood_of_counts_is_used_where_there_are_few() -> None:
    scan = pt.simulate(patterns=64, window=32, photons=500, seed=1)
    found = pt.recommend(scan, device="cpu", seconds=2)
    assert (found.settings.loss, found.settings.optimiser) == ("poisson", "lbfgs")


def test_a_near_field_scan_has_neither_descan_nor_slices_and_one_without_geometry_no_slices() -> None:
    def names(scan: Scan) -> set[str]:
        return {effect.name for effect in effects_of(scan)}

    far, near = SCANS["far field"](), SCANS["near field"]()
    plain = pt.Scan.from_arrays(np.ones((4, 16, 16)), [[0, 0], [0, 3], [3, 0], [3, 3]])
    assert names(far) - names(near) == {"descan", "several slices"}
    assert names(far) - names(plain) == {"several slices"}


def test_a_trial_that_diverges_loses_against_all_others() -> None:
    rates = {"object": {"learning_rate": 10}, "probe": {"learning_rate": 10}}
    diverging = pt.Settings(optimiser="sgd", momentum=0.95, **rates)
    engines = _Engines(None, "cpu", TrialProgress(None, None))
    outcomes = engines.run(SCANS["far field"](), [(diverging, 10), (pt.Settings(), 1)])
    assert [(outcome.note, np.isfinite(outcome.loss)) for outcome in outcomes] == [("diverged", False), ("", True)]


def out_of_memory(loop: Loop) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def broken(loop: Loop) -> None:
    raise RuntimeError("the detector has three sides")


@pytest.mark.parametrize(
    ("step", "room", "code", "cause"),
    [
        (None, 1.0, "memory.insufficient", "The memory does not suffice: the engine needs"),
        (out_of_memory, None, "memory.insufficient", "Tried to allocate 2.00 GiB. Out of memory: use more engines"),
        (broken, None, "engine.failed", "RuntimeError: the detector has three sides"),
    ],
    ids=["refused", "out of memory", "broken"],
)
def test_the_error_of_a_first_trial_is_told(
    monkeypatch: pytest.MonkeyPatch, step: Any, room: float | None, code: str, cause: str
) -> None:
    if step is not None:
        monkeypatch.setattr(Loop, "step", step)
    if room is not None:
        monkeypatch.setattr(session, "room_for", lambda *arguments: Room(room))
    with raises(code, cause):
        pt.recommend(SCANS["far field"](), device="cpu", seconds=5)


def test_an_effect_for_which_memory_does_not_suffice_is_left_out_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are tried."""
    step = Loop.step

    def stepping(loop: Loop) -> None:
        out_of_memory(loop) if loop.settings.slices.count > 1 else step(loop)

    monkeypatch.setattr(Loop, "step", stepping)
    found = pt.recommend(SCANS["far field"](), device="cpu", epochs=20, seconds=2)
    notes = {trial.effect: trial.note for trial in found.trials if trial.note}
    assert notes.keys() == {"several slices"}
    assert "Tried to allocate 2.00 GiB" in notes["several slices"]


def test_an_engine_that_dies_in_a_trial_is_told() -> None:
    with pt.Cluster(2, device="cpu") as cluster:
        process = cluster.call(1, os.getpid)

        def kill(line: str) -> None:
            if line.startswith("Object and probe"):
                threading.Timer(0.5, os.kill, (process, signal.SIGKILL)).start()

        with raises("engine.lost", "A trial has failed", "rank 1") as caught:
            pt.recommend(pt.simulate(patterns=64, window=64, seed=1), cluster, seconds=10, report=kill)
    assert "recover()" not in str(caught.value), "there is nothing to recover"


def test_epochs_and_seconds_out_of_range_are_refused() -> None:
    scan = pt.simulate(patterns=9, window=16)
    with raises("argument.invalid-value", 3):
        pt.recommend(scan, device="cpu", epochs=3)
    with raises("argument.invalid-value", 0):
        pt.recommend(scan, device="cpu", seconds=0)


def test_the_command_writes_a_run_file_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Trials on two engines at once."""
    path = tmp_path / "scan.h5"
    pt.simulate(patterns=64, window=32, modes=3, photons=1e6, seed=1, path=path)
    run_file = tmp_path / "run.yaml"
    line = ["recommend", str(path), "--epochs", "10", "--seconds", "4", "--engines", "2", "--device", "cpu"]
    assert main([*line, "--output", str(run_file)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Recommended for simulated: 10 epochs")
    values = yaml.safe_load(run_file.read_text())
    assert values["settings"]["schedule"]["kind"] == "cosine"
    assert sum(stage["epochs"] for stage in values["stages"]) == 10
    assert main(["run", str(run_file), "--engines", "1", "--device", "cpu"]) == 0
    assert len(pt.load_result(tmp_path / "scan.result.h5").epochs) == 10
    assert main([*line, "--output", str(run_file)]) == 1
    assert "exists" in capsys.readouterr().err
