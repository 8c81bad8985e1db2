"""Recommended settings: the effects that are in simulated scans, and no others; the table of all is a benchmark."""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import yaml

import ptynb as pt
from ptynb.analysis.scan_survey import survey
from ptynb.cli.main import main
from ptynb.data.engine_records import PatternPair
from ptynb.data.patterns import ArrayFrames
from ptynb.data.scan import Scan
from ptynb.engine.loop import Loop
from ptynb.planning.memory import Room
from ptynb.preparation.pixel_mask import Judged
from ptynb.session import reconstruction as session
from ptynb.settings import PARTS
from ptynb.tuning.effects import effects_of
from ptynb.tuning.evidence import HeldOut, TrialFit, counts_per_unit, thinned
from ptynb.tuning.recommend import (
    BETTER_RATES,
    END_FACTOR,
    LEAST_PATTERNS,
    SETTLED,
    TO_THE_NOISE,
    _Engines,
    _Outcome,
    _Search,
    _with_rates,
)
from ptynb.tuning.trial_progress import TrialProgress
from tests.preparation.test_rotation_fit import electron_scan
from tests.raising import raises
from tests.tuning.recommend_scans import SCANS, base, displaced, error, strong


def chosen_parts(found: pt.Recommendation) -> set[str]:
    """Parts with a rate beside object and probe, and "modes" for several probe modes."""
    settings = found.settings
    others = set(PARTS) - {"object", "probe", "opr", "aberrations"}
    parts = {name for name in others if settings.part(name).learning_rate > 0}
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


def test_a_strong_object_that_converges_slowly_is_taken_for_no_effect() -> None:
    """After 8 epochs four probe modes fitted better, as they converge in fewer."""
    found = pt.recommend(strong(), device="cpu", epochs=20, seconds=3)
    assert not chosen_parts(found)
    assert any("to the noise" in note or "No effect" in note or "Not decided" in note for note in found.notes)


def test_trials_go_on_until_the_misfit_falls_no_more() -> None:
    """Each begins with the result of the one before, from which the control and all effects begin."""
    search = _Search(base(photons=1e5), _Engines(None, "cpu", TrialProgress(None, None)), 20, 60, print)
    scan = search._whole
    search._engines.held_out = HeldOut.of(scan, 1.0)
    slow = _with_rates({}, 0.01, 0.01)
    [first] = search._engines.run(thinned(scan, 1.0), [(pt.Settings(**slow), 8)], keep=True)
    before, control, gained = search._settled(slow, first, 8, "object and probe")
    misfits = [first.misfit, *(trial.misfit for trial in search._trials)]
    assert len(misfits) > 2
    assert misfits[-1] == control.misfit
    assert all(after < (1 - SETTLED) * one for one, after in itertools.pairwise(misfits[:-1]))
    assert gained == misfits[-2] - misfits[-1]
    assert gained <= SETTLED * misfits[-2] or control.misfit < TO_THE_NOISE
    assert not np.array_equal(before.object, control.scan.object)


@pytest.mark.parametrize("halved", [0.9 * BETTER_RATES, 1.1 * BETTER_RATES], ids=["better", "not clearly better"])
def test_batches_of_half_the_size_are_recommended_if_they_fit_better(
    halved: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = base()
    search = _Search(scan, _Engines(None, "cpu", TrialProgress(None, None)), 20, 60, print)
    tried = list[int]()

    def run(engines: _Engines, scan: Scan, jobs: Any, keep: bool) -> list[_Outcome]:
        tried.extend(settings.batch for settings, _ in jobs)
        return [
            _Outcome(1.0, 1.0, fit=cast(TrialFit, SimpleNamespace(misfit=halved if settings.batch == 7 else 1.0)))
            for settings, _ in jobs
        ]

    monkeypatch.setattr(_Engines, "run", run)
    chosen, _ = search._warm_up(scan, {"batch": 14}, 8)
    assert tried == [14, 14, 14, 14, 7]
    assert chosen["batch"] == (7 if halved < BETTER_RATES else 14)
    assert [choice.value for choice in search._choices] == (["7"] if halved < BETTER_RATES else [])
    tried.clear()
    search._warm_up(scan, {"batch": 1}, 8)
    assert tried == [1, 1, 1, 1]


def test_object_and_probe_alone_end_with_small_steps_where_amplitudes_are_compared() -> None:
    scan = base(photons=1e6)
    search = _Search(scan, _Engines(None, "cpu", TrialProgress(None, None)), 20, 60, print)
    search._mean_count, search._whole_counts, search._misfit = 200.0, True, 0.1
    effects = {effect.name: effect for effect in effects_of(scan)}
    positions = effects["wrong positions"], effects["wrong positions"].variants[0]
    usual = pt.Settings().schedule.end_factor
    assert search._recipe({}, []).settings.schedule.end_factor == END_FACTOR < usual
    assert search._recipe({}, [positions]).settings.schedule.end_factor == usual
    search._mean_count = 5.0
    assert search._recipe({}, []).settings.schedule.end_factor == usual


def test_a_run_whose_fit_is_at_the_level_of_the_noise_ends_with_the_likelihood_of_the_counts() -> None:
    """Of many counts that are whole numbers; of fewer the default loss is the likelihood from the beginning."""
    scan = base(photons=1e6)
    search = _Search(scan, _Engines(None, "cpu", TrialProgress(None, None)), 20, 60, print)
    search._mean_count, search._whole_counts, search._misfit = 200.0, True, 0.1
    effects = {effect.name: effect for effect in effects_of(scan)}
    positions = effects["wrong positions"], effects["wrong positions"].variants[0]

    def losses(*chosen: Any) -> list[tuple[int, str]]:
        return [(stage.epochs, stage.settings.get("loss", "")) for stage in search._recipe({}, [*chosen]).stages]

    assert losses() == [(14, ""), (6, "poisson")]
    assert losses(positions) == [(2, ""), (12, ""), (6, "poisson")]
    whole = pt.Recommendation("scan", search._recipe({}, [positions]), (), (), 1, 1.0)
    assert (whole.settings.loss, whole.settings.positions.start_epoch) == ("auto", 3)
    assert [(stage.epochs, stage.settings) for stage in whole.stages] == [(14, {}), (6, {"loss": "poisson"})]
    for name, value in (("_misfit", 0.5), ("_whole_counts", False), ("_mean_count", 5.0)):
        before = getattr(search, name)
        setattr(search, name, value)
        assert losses() == [(20, "")]
        assert pt.Recommendation("scan", search._recipe({}, []), (), (), 1, 1.0).stages == ()
        setattr(search, name, before)
    search._epochs = 60
    plain, after = errors(scan, pt.Recommendation("scan", search._recipe({}, []), (), (), 1, 1.0))
    assert after < 0.9 * plain


def test_counts_are_held_out_independently() -> None:
    scan = pt.simulate(patterns=40, window=32, photons=2e5, seed=3)
    counts = scan.frames.read(0, len(scan)).astype(float)
    kept, held = (thinned(scan, 1.0, held_out).frames for held_out in (False, True))
    np.testing.assert_array_equal(kept.read(0, 40) + held.read(0, 40), counts)
    taken = np.empty((3, 32, 32), np.float32)
    held.take(np.array([17, 3, 16]), taken)
    np.testing.assert_array_equal(taken, held.read(0, 40)[[17, 3, 16]])
    # Deviations of both parts from the expectation are uncorrelated, as those of Poisson counts are only.
    random = np.random.default_rng(0)
    flat = dataclasses.replace(scan, frames=ArrayFrames.of(random.poisson(50.0, counts.shape).astype(np.uint16)))
    parts = [thinned(flat, 1.0, held_out).frames.read(0, 40) for held_out in (False, True)]
    assert [part.mean(dtype=float) for part in parts] == pytest.approx([45, 5], abs=5 * np.sqrt(50 / counts.size))
    assert [part.var() for part in parts] == pytest.approx([45, 5], rel=0.03)
    assert abs(np.corrcoef(parts[0].ravel(), parts[1].ravel())[0, 1]) < 4 / np.sqrt(counts.size)


def test_held_out_counts_tell_what_is_there_from_what_follows_the_noise() -> None:
    """Against the known expectation: better models gain, parameters that fit noise lose."""
    random = np.random.default_rng(1)
    expectation = np.exp(random.normal(2, 1, (160, 32, 32)))
    scan = dataclasses.replace(
        pt.simulate(patterns=160, window=32, seed=3),
        frames=ArrayFrames.of(random.poisson(expectation).astype(np.uint16)),
    )
    held_out, kept = HeldOut.of(scan, 1.0), thinned(scan, 1.0).frames.read(0, 160)

    def fit(model: np.ndarray[Any, Any]) -> TrialFit:
        mask = np.ones((32, 32), bool)

        def pair(index: int) -> PatternPair:
            return PatternPair(index, 1, 0, kept[index], 0.9 * model[index], mask, (0.0, 0.0))

        return held_out.fit(SimpleNamespace(pattern=pair))  # type: ignore[arg-type]

    right = fit(expectation)
    wrong = fit(expectation * np.where(np.arange(160) % 2, 1.2, 0.8)[:, None, None])
    noisy = fit(np.where(random.uniform(size=expectation.shape) < 0.3, kept / 0.9, expectation))
    assert abs(right.misfit) < 0.06
    weights = 1 / (expectation + 1)
    of_wrong = (weights * (0.2 * expectation) ** 2).sum() / (weights * expectation).sum() * 0.9
    assert wrong.misfit == pytest.approx(of_wrong, abs=0.06)
    gain, error = held_out.gain(wrong, right)
    assert gain > 5 * error
    gain, error = held_out.gain(right, noisy)
    assert gain < -5 * error
    assert abs(noisy.misfit) < 0.06, "what a fit follows of the noise is not its misfit"


def test_values_that_are_scaled_are_counted_in_units_of_their_noise() -> None:
    scan = pt.simulate(patterns=60, window=32, photons=2e5, seed=3)
    assert counts_per_unit(scan, survey(scan)) == 1
    scaled = dataclasses.replace(scan, frames=ArrayFrames.of(0.37 * scan.frames.read(0, 60).astype(np.float32)))
    assert 0.3 / 0.37 < counts_per_unit(scaled, survey(scaled)) < 1.3 / 0.37


def test_shifts_that_are_one_linear_map_are_noted() -> None:
    """A wrong pixel size moves all positions from their centre; scattered shifts have no note."""
    scan = base()
    search = _Search(scan, _Engines(None, "cpu", TrialProgress(None, None)), 20, 60, print)
    search._compare_with_map(scan, displaced(scan, 1.5))
    assert search._notes == []
    search._compare_with_map(scan, dataclasses.replace(scan, positions=1.02 * scan.positions + 3))
    assert "scale 1.02, rotation 0.00°" in search._notes[0]


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
    assert any(f"{LEAST_PATTERNS} patterns of the middle of the scan" in note for note in found.notes)
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
    found = pt.recommend(SCANS["wrong positions"](), device="cpu", epochs=20, seconds=2)
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
    assert main([*line, "--output", str(run_file)]) == 73
    assert "exists" in capsys.readouterr().err


def test_pixels_that_the_fit_without_them_predicts_are_not_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dark pixels of the patterns, as a speckle of the beam has; a defect is masked."""
    scan, dead = SCANS["far field"](), np.zeros((64, 64), bool)
    mean = survey(scan).mean
    dead[np.unravel_index(np.argsort(mean.ravel())[-40::10], mean.shape)] = True
    nothing = np.zeros_like(dead)
    monkeypatch.setattr("ptynb.tuning.recommend.judged", lambda *_, **__: Judged(nothing, dead, nothing))
    steps = []
    for broken in (False, True):
        frames = scan.frames.read(0, len(scan)) * ~(dead & broken)
        found = pt.recommend(
            dataclasses.replace(scan, frames=ArrayFrames(frames, len(scan))), device="cpu", epochs=30, seconds=20
        )
        steps.append([step.function for step in found.recipe.prepare])
    assert steps == [[], ["mask_bad_pixels"]]


def test_pixels_that_are_not_finite_stay_masked() -> None:
    scan = SCANS["far field"]()
    frames = scan.frames.read(0, len(scan)).astype(np.float32)
    frames[3, 30, 30] = np.nan  # where the fit predicts the counts of all other patterns
    scan = dataclasses.replace(scan, frames=ArrayFrames(frames, len(scan)))
    found = pt.recommend(scan, device="cpu", epochs=20, seconds=10)
    assert [step.function for step in found.recipe.prepare] == ["mask_bad_pixels"]
    with pt.Reconstruction(scan, found.recipe, device="cpu", checkpointing=None) as recon:
        assert recon.step().number == 1
