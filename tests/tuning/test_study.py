"""Studies in this process, and on a real cluster of two engines."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import ptynb as pt
from ptynb.analysis import split_scan
from ptynb.data.scan import Scan
from ptynb.engine.loop import Loop
from ptynb.planning.memory import Room, Workload, memory_of, totals
from ptynb.session import reconstruction as session
from ptynb.tuning import trial as trial_module
from ptynb.tuning.study import Study
from ptynb.tuning.trial import Task
from ptynb.tuning.trial_score import frc_score
from ptynb.tuning.trial_storage import StudyFile
from tests.raising import raises

RANGES = {"probe.learning_rate": pt.between(1e-3, 1e-1, log=True), "batch": (8, 16)}
SETTINGS = pt.Settings()
EPOCHS = 3


@pytest.fixture(scope="module")
def small() -> Scan:
    return pt.simulate(patterns=36, window=32, seed=5)


def tune(scan: Scan, path: Path, **other: Any) -> Study:
    asked = {"settings": SETTINGS, "ranges": RANGES, "trials": 4, "epochs": EPOCHS, "pruner": "none"} | other
    return pt.tune(scan, study=path / "study.journal", **asked)


def alone(scan: Scan, study: Study, number: int) -> float:
    """The last loss of this trial's settings, reconstructed in this process."""
    values = study.trials[number - 1].values
    settings = study.settings.replace(probe={"learning_rate": values["probe.learning_rate"]}, batch=values["batch"])
    with pt.Reconstruction(scan, settings, checkpointing=None) as recon:
        return [*recon.run(study.epochs)][-1].loss


# In this process


def test_a_trial_that_makes_no_more_progress_is_complete(small: Scan, tmp_path: Path) -> None:
    settings = pt.Settings(stop=pt.Stop(patience=1, tolerance=0.99, min_epochs=3))
    study = tune(small, tmp_path, settings=settings, epochs=1000, trials=1)
    study.wait()
    assert [(trial.state, len(trial.losses)) for trial in study.trials] == [("complete", 3)]


def test_trials_are_reconstructions_with_values_in_the_ranges(small: Scan, tmp_path: Path) -> None:
    study = tune(small, tmp_path, settings=pt.Settings(probe={"learning_rate": 0.01}))
    came = [trial.number for trial in study]
    study.wait()
    trials = study.trials
    assert came == [trial.number for trial in trials] == [1, 2, 3, 4]
    assert trials[0].values == {"probe.learning_rate": 0.01, "batch": 16}  # the settings' own first
    for trial in trials:
        assert trial.state == "complete"
        assert trial.values["probe.learning_rate"] in RANGES["probe.learning_rate"]
        assert trial.values["batch"] in RANGES["batch"]
        assert trial.score == trial.losses[-1]
        assert len(trial.losses) == EPOCHS
        assert trial.seconds > 0
        assert trial.picture is not None
        assert trial.picture.image.startswith(b"\x89PNG")
    for number in (1, 4):
        assert study.trials[number - 1].score == alone(small, study, number)
    assert study.best is min(trials, key=lambda trial: trial.score or 0)
    assert study.best_settings.batch == study.best.values["batch"]
    assert study.best_settings.probe.learning_rate == study.best.values["probe.learning_rate"]
    assert not study.running
    assert f"{study.best.number} ★" in study._repr_html_()
    assert "idle, 4 of 4 trials" in repr(study)


def test_a_study_goes_on_from_its_file_as_if_nothing_had_been(small: Scan, tmp_path: Path) -> None:
    tune(small, tmp_path, trials=2).wait()
    study = tune(small, tmp_path, trials=4)
    study.wait()
    assert [trial.state for trial in study.trials] == ["complete"] * 4
    assert len({trial.values["probe.learning_rate"] for trial in study.trials}) == 4
    again = tune(small, tmp_path, trials=4)
    again.wait()
    for one, other in zip(study.trials, again.trials, strict=True):
        assert {**vars(one), "picture": None} == {**vars(other), "picture": None}
        assert vars(one.picture) == vars(other.picture)
    again.start(trials=1)
    again.wait()
    assert again.done == again.wanted == 5


def test_what_was_cut_off_by_the_kernels_end_is_tried_again(small: Scan, tmp_path: Path) -> None:
    study = tune(small, tmp_path, trials=1)
    study.wait()
    file = study._open_file()
    lost = file.ask().params
    file.close()
    path = tmp_path / "study.journal"
    with path.open("ab") as journal:
        journal.write(b'{"op_code": 5, "half a li')
    study = tune(small, tmp_path, trials=2)
    study.wait()
    assert [trial.state for trial in study.trials] == ["complete", "stopped", "complete"]
    assert study.trials[1].values == study.trials[2].values == lost
    assert "half a li" not in path.read_text()


def test_stop_ends_the_trials_under_way_and_start_tries_them_again(small: Scan, tmp_path: Path) -> None:
    study = tune(small, tmp_path, trials=2, epochs=2000)
    until(lambda: any(trial.losses for trial in study.trials))
    with raises("tuning.already-running", "call stop() or wait() first"):
        study.start()
    with pytest.raises(TimeoutError, match="running, 0 of 2"):
        study.wait(0.01)
    with raises("tuning.file-in-use", "study.journal", "or give another file"):
        tune(small, tmp_path, epochs=2000)
    tune(small, tmp_path / "another", trials=1, epochs=1).wait()
    study.stop()
    assert not study.running
    assert [trial.state for trial in study.trials] == ["stopped"]
    assert study.best is None
    with raises("tuning.no-complete-trial"):
        study.best_settings  # noqa: B018 - looking at it is the test
    study.start()
    until(lambda: len(study.trials) == 2)
    assert study.trials[1].values == study.trials[0].values
    study.stop()
    tune(small, tmp_path, trials=2, epochs=2000).stop()


def test_other_questions_are_refused_by_a_studys_file(small: Scan, tmp_path: Path) -> None:
    tune(small, tmp_path, trials=1).wait()
    for other, facts in [
        ({"ranges": {"probe.learning_rate": RANGES["probe.learning_rate"]}}, ("range of batch",)),
        ({"ranges": RANGES | {"batch": (8, 32)}}, ("range of batch", (8, 16), (8, 32))),
        ({"epochs": 5}, ("number of epochs is 3", "5")),
        ({"metric": "frc"}, ("metric is loss", "frc")),
        ({"settings": pt.Settings(seed=1)}, ("seed is 0", "1")),
    ]:
        with raises("tuning.different-study", *facts):
            tune(small, tmp_path, **other)
    tune(small, tmp_path, trials=1, settings=pt.Settings(batch=8)).wait()  # a value in the ranges may be another


def test_a_file_of_something_else_is_refused_and_left_alone(small: Scan, tmp_path: Path) -> None:
    path = tmp_path / "study.journal"
    for content in (b"batch: 16\n", b'{"a": 1}\n', b"\x89HDF\r\n\x1a\n"):
        path.write_bytes(content)
        with raises("file.unknown-format", path, "give a new file, or one written by tune()"):
            tune(small, tmp_path)
        assert path.read_bytes() == content
    with raises("file.not-writable", "/proc"):
        tune(small, Path("/proc"))


def test_a_damaged_file_is_refused_and_another_one_taken(small: Scan, tmp_path: Path) -> None:
    tune(small, tmp_path, trials=1).wait()
    path = tmp_path / "study.journal"
    lines = path.read_bytes().splitlines(keepends=True)
    for damaged in ([lines[0][:-20] + b"\n", *lines[1:]], [b'{"op_code": 99, "worker_id": "x"}\n', *lines]):
        path.write_bytes(b"".join(damaged))
        with raises("file.damaged", path, "give another file"):
            tune(small, tmp_path)
        assert path.read_bytes() == b"".join(damaged)
    tune(small, tmp_path / "another", trials=1).wait()


@pytest.mark.parametrize(
    ("wrong", "code", "fact"),
    [
        ({"trials": 0}, "argument.invalid-value", "trials is 0"),
        ({"epochs": 0}, "argument.invalid-value", "epochs is 0"),
        ({"metric": "psnr"}, "argument.invalid-value", "metric is 'psnr'"),
        ({"engines_per_trial": 2}, "tuning.too-many-engines", "engines_per_trial is 2"),
        ({"ranges": {"loss": ("amplitude", "poisson")}}, "argument.conflict", "loss"),
        ({"ranges": {"learning_rate": (1, 2)}}, "settings.unknown-name", "'learning_rate'"),
    ],
)
def test_invalid_arguments_leave_no_file(
    small: Scan, tmp_path: Path, wrong: dict[str, Any], code: str, fact: str
) -> None:
    with raises(code, fact):
        tune(small, tmp_path, **wrong)
    assert not [*tmp_path.iterdir()]


def test_the_score_is_that_of_the_users_function(small: Scan, tmp_path: Path) -> None:
    seen = []

    def roughness(result: pt.Result) -> float:
        seen.append(result)
        if len(seen) == 2:
            raise KeyError("nothing like it")
        return float("nan") if len(seen) == 3 else np.float32(len(result.epochs) / 6)

    study = tune(small, tmp_path, metric=roughness)
    study.wait()
    assert [trial.state for trial in study.trials] == ["complete", "failed", "failed", "complete"]
    assert [trial.score for trial in study.trials] == [0.5, None, None, 0.5]
    assert "nothing like it" in study.trials[1].reason
    assert "returned nan; expected a finite number" in study.trials[2].reason
    assert study.best is study.trials[0]


def test_the_frc_is_that_of_the_halves(small: Scan, tmp_path: Path) -> None:
    study = tune(small, tmp_path, metric="frc", trials=1, epochs=20, settings=pt.Settings(seed=3))
    study.wait()
    results = []
    for half, seed in zip(split_scan(small), (3, 4), strict=True):
        with pt.Reconstruction(half, pt.Settings(seed=seed), checkpointing=None) as recon:
            recon.start(20)
            recon.wait()
            results.append(recon.result)
    score = study.trials[0].score
    assert score == pytest.approx(frc_score(*results), abs=1e-6)
    cut, other = np.array([3, 1]), results[1]
    field = other.object[..., cut[0] :, cut[1] :]
    elsewhere = replace(other, object=field, positions=other.positions - cut, origin=tuple(other.origin + cut))
    assert score == pytest.approx(frc_score(results[0], elsewhere), abs=1e-6)
    assert score is not None
    assert 0 < score < 0.8
    assert frc_score(results[0], results[0]) == pytest.approx(0, abs=1e-6)
    assert len(study.trials[0].losses) == 20


def test_halves_that_share_too_little_for_an_frc_have_a_loss(tmp_path: Path) -> None:
    few = pt.simulate(patterns=9, window=16, step=3, seed=1)
    study = tune(few, tmp_path, metric="frc", trials=1, epochs=2)
    study.wait()
    (trial,) = study.trials
    assert trial.state == "failed"
    assert re.search(r"area of \d x \d pixels.*; use the metric 'loss'\.", trial.reason), trial.reason
    study = tune(few, tmp_path / "another", metric="loss", trials=1, epochs=2)
    study.wait()
    assert [trial.state for trial in study.trials] == ["complete"]


def test_a_diverging_trial_is_no_failure(small: Scan, tmp_path: Path) -> None:
    settings = pt.Settings(optimiser="sgd", momentum=0.95, object={"learning_rate": 10}, probe={"learning_rate": 10})
    study = tune(small, tmp_path, settings=settings, ranges={"batch": (4, 8)}, trials=1, epochs=10)
    study.wait()
    (trial,) = study.trials
    assert (trial.state, trial.score) == ("pruned", None)
    assert "learning rates" in trial.reason


def test_hopeless_trials_are_ended_early(small: Scan, tmp_path: Path) -> None:
    ranges = {"object.learning_rate": (0.01, 1e-6, 10.0)}
    settings = pt.Settings(object={"learning_rate": 0.01}, probe={"learning_rate": 0.01})
    study = tune(small, tmp_path, settings=settings, ranges=ranges, trials=14, epochs=10, pruner="auto", seed=1)
    study.wait()
    by_rate: dict[float, set[str]] = {}
    for trial in study.trials[5:]:
        by_rate.setdefault(trial.values["object.learning_rate"], set()).add(trial.state)
        if trial.state == "pruned":
            assert trial.score is None
            assert trial.reason.startswith("Hopeless after epoch")
            assert len(trial.losses) < 10
    assert "pruned" in by_rate[1e-6] | by_rate[10.0]
    assert by_rate[0.01] == {"complete"}
    assert study.best is not None
    assert study.best.values == {"object.learning_rate": 0.01}


def test_values_that_do_not_go_together_fail_their_trial_only(small: Scan, tmp_path: Path) -> None:
    study = tune(small, tmp_path, ranges={"slices.count": (1, 2)}, trials=5, seed=2)
    study.wait()
    states = {trial.values["slices.count"]: (trial.state, trial.reason) for trial in study.trials}
    assert states[1] == ("complete", "")
    assert states[2][0] == "failed"
    assert "slices.thickness" in states[2][1]


def test_a_study_whose_trials_all_fail_ends_with_their_reason(small: Scan, tmp_path: Path) -> None:
    def metric(result: pt.Result) -> float:
        raise RuntimeError("no reference was loaded")

    study = tune(small, tmp_path, metric=metric, trials=50, epochs=1)
    with raises("tuning.trials-failed", 5, "no reference was loaded"):
        study.wait()
    assert study.done == 5
    assert "failed, 5 of 50" in repr(study)


def test_a_study_of_few_trials_that_all_fail_tells_why(
    small: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of memory, and refused, as when trials of a study that ended with neither are asked for the best."""

    def step(loop: Loop) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    with monkeypatch.context() as patched:
        patched.setattr(Loop, "step", step)
        study = tune(small, tmp_path, trials=2)
        study.wait()
    for trial in study.trials:
        assert (trial.state, "Tried to allocate 2.00 GiB. Out of memory" in trial.reason) == ("failed", True)
    with raises("tuning.no-complete-trial", "Tried to allocate 2.00 GiB"):
        _ = study.best_settings
    monkeypatch.setattr(session, "room_for", lambda *arguments: Room(1.0))
    study.start(1)
    study.wait()
    with raises("tuning.no-complete-trial", "The memory does not suffice"):
        _ = study.best_scan


def test_a_full_disk_ends_the_study_and_is_told(small: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    study = tune(small, tmp_path, trials=1)
    study.wait()
    monkeypatch.setattr(StudyFile, "finish", full)
    study.start(3)
    with pytest.raises(OSError, match="No space left"):
        study.wait()
    assert not study.running


# On two engines


def until(condition: Any, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_trials_run_at_the_same_time_and_as_they_would_alone(
    small: Scan, cluster: pt.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(2, timeout=60)
    pids = set()
    follow = trial_module._TrialRun.follow

    def meeting(tried: Any, *arguments: Any) -> Any:
        if not pids or len(pids) < 2:
            pids.add(cluster.status()[tried.recon._client.engines._ranks[0]]["pid"])
            together.wait()  # until another trial is open too, on another engine
        return follow(tried, *arguments)

    monkeypatch.setattr(trial_module._TrialRun, "follow", meeting)
    study = tune(small, tmp_path, cluster=cluster)
    study.wait()
    assert len(pids) == 2
    assert {trial.ranks for trial in study.trials} == {(0,), (1,)}
    for trial in study.trials:
        assert trial.state == "complete"
        assert trial.score == pytest.approx(alone(small, study, trial.number), rel=1e-5)


def test_engines_in_groups_try_too_and_a_running_reconstruction_is_left_alone(
    small: Scan, cluster: pt.Cluster, tmp_path: Path
) -> None:
    with raises("tuning.too-many-engines", "engines_per_trial is 3", "2"):
        tune(small, tmp_path, cluster=cluster, engines_per_trial=3)
    with pt.Reconstruction(small, cluster=cluster, checkpointing=None) as recon:
        recon.start(3000)
        with raises("engine.busy", "stop() or close() that one first"):
            tune(small, tmp_path, cluster=cluster, engines_per_trial=2)
        until(lambda: recon.state == "running")
        recon.stop()
        study = tune(small, tmp_path, cluster=cluster, engines_per_trial=2, trials=2)
        study.wait()
        assert recon.closed
    assert [trial.ranks for trial in study.trials] == [(0, 1), (0, 1)]
    assert study.trials[1].score == pytest.approx(alone(small, study, 2), rel=1e-4)


def test_trials_at_the_same_time_share_the_memory_that_is_there(
    small: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster: Any = SimpleNamespace(plan=SimpleNamespace(on_gpu=False, engines_per_gpu=1), held_bytes=lambda: 0)
    study = Study(
        Task(small, pt.Settings(batch=8), cluster, "cpu", 3, "loss", ()),
        {"probe.learning_rate": (0.01, 0.02)},
        trials=3,
        engine_groups=[(0,), (1,), (2,)],
        path=tmp_path / "some.journal",
        seed=0,
        pruner="none",
    )
    one = totals(memory_of(small, Workload(study.settings, 1, True, keep=False), "host", False))["host"]
    monkeypatch.setattr("ptynb.tuning.study.room_for", lambda *_: Room(3.1 * one))
    study._check_room(cluster)
    monkeypatch.setattr("ptynb.tuning.study.room_for", lambda *_: Room(2.9 * one))
    with raises("tuning.too-little-memory", "3 trials"):
        study._check_room(cluster)


def test_reconstructions_on_different_engines_do_not_see_each_other(small: Scan, cluster: pt.Cluster) -> None:
    with (
        pt.Reconstruction(small, cluster=cluster, ranks=[1], checkpointing=None) as one,
        pt.Reconstruction(small, pt.Settings(seed=2), cluster, ranks=[0], checkpointing=None) as other,
    ):
        one.start(2000)
        other.start(2)
        other.wait()
        assert (one.closed, one.state, other.epoch) == (False, "running", 2)
        with pytest.raises(
            pt.ClusterError, match=r"Several reconstructions run: .*/.*; .*/.*Choose one: attach\("
        ) as told:
            pt.attach()
        name = str(told.value).split("attach('")[1].split("'")[0]
        assert name.startswith(cluster.name)
        joined = pt.attach(name)
        assert joined.scan.name == small.name
        assert joined._client.engines.world == 1
        del joined  # ends its thread
        one.stop()
    for wrong in ([2], [0, 0], []):
        with pytest.raises(pt.SettingsError, match="expected different ranks from 0 to 1"):
            pt.Reconstruction(small, cluster=cluster, ranks=wrong)
    with pytest.raises(pt.SettingsError, match="no cluster is given"):
        pt.Reconstruction(small, ranks=[0])
