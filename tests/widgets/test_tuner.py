"""Tuning in a notebook: with a study that only does as it is told, with real ones in this process, and in a browser."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import ptynb as pt
from ptynb.app.tuner_app import Tuning, tuner
from ptynb.data import images
from ptynb.data.trial_record import TunedTrial, best_of
from ptynb.polling import wait_until
from ptynb.settings.ranges import Between, Range
from ptynb.widgets import trial_table
from ptynb.widgets.form import SettingsForm
from ptynb.widgets.range_text import ranges_in
from tests.widgets.browser_model import BrowserModel, violations

SCAN = pt.simulate(patterns=36, window=32, seed=3)
RANGES: dict[str, Range] = {"probe.learning_rate": Between(1e-3, 1e-1, True), "batch": (8, 16, 32)}
PICTURE = images.picture(np.linspace(-1, 1, 64).reshape(8, 8), "phase")


def trial(number: int, state: Any = "complete", score: float | None = None, **other: Any) -> TunedTrial:
    values = {"probe.learning_rate": 10.0 ** -(1 + number % 3), "batch": (8, 16, 32)[number % 3]}
    return TunedTrial(number, values, state, score, (1.0,) * number, 1.5, (number % 2,), PICTURE, **other)


TRIALS = (
    trial(1, score=0.5),
    trial(2, score=0.02),
    trial(3, "pruned", reason="Hopeless after epoch 3: its loss of 1 is above most others'."),
    trial(4, "failed", reason="<b>The engine</b> of rank 1 has died.\nlog"),
    trial(5, "running"),
)


class Study:
    """A study that does what it is told and nothing else."""

    def __init__(self, scan: Any, settings: Any, ranges: Any, cluster: Any = None, **choices: Any) -> None:
        self.ranges = {
            name: Between(*one) if isinstance(one, tuple) and one[-1] is True else one for name, one in ranges.items()
        }
        self.choices, self.wanted = choices, choices["trials"]
        self.failure: Exception | None = None
        self.trials: tuple[TunedTrial, ...] = ()
        self.running, self.varies_scan, self.path = True, False, Path(choices["study"] or "/kept/new.journal")
        self.started: list[int | None] = []

    @property
    def done(self) -> int:
        return sum(trial.state != "running" for trial in self.trials)

    @property
    def best(self) -> TunedTrial | None:
        return best_of(self.trials)

    def settings_of(self, trial: int) -> pt.Settings:
        return pt.Settings(batch=self.trials[trial - 1].values["batch"])

    def scan_of(self, trial: int) -> Any:
        return f"scan of trial {trial}"

    def start(self, trials: int | None = None) -> None:
        self.started.append(trials)
        self.running = True

    def stop(self) -> None:
        self.running = False


class Desk:
    """A tuner of such studies, and what it did."""

    def __init__(self, **choices: Any) -> None:
        self.used, self.lines = list[Any](), list[str]()
        self.tuning: Any = tuner(SCAN, use=self.used.append, use_scan=self.used.append, **choices)
        self.tuning.tell = self.lines.append
        self.tuning.form.tune("probe.learning_rate")
        self.tuning.form.set_range("probe.learning_rate", low="0.001", high="0.1")
        self.lines.clear()

    def does(self, name: str, **given: Any) -> Any:
        self.tuning.receive_command(name, given)
        self.tuning.settle()
        return self.tuning.study


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr("ptynb.app.tuner_app.tune", Study)
    one = Desk(metrics={"roughness": _roughness, "mean": np.mean})
    yield one
    one.tuning.close()
    assert one.tuning.closed


def _roughness(result: object) -> float:
    return 0.0


def test_a_study_is_started_as_chosen_and_the_line_is_told(desk: Desk) -> None:
    desk.tuning.receive_values({"trials": 8, "epochs": 12, "metric": "frc", "file": " "})
    study = desk.does("start")
    assert study.ranges == {"probe.learning_rate": Between(0.001, 0.1, True)}
    assert study.choices == {
        "trials": 8, "epochs": 12, "metric": "frc", "study": None, "sampler": "tpe", "scan_function": None,
    }  # fmt: skip
    assert desk.tuning.state == {
        "state": "running", "done": 0, "wanted": 8, "unfinished": 0, "score": "", "file": "/kept/new.journal",
    }  # fmt: skip
    assert desk.lines == [
        "study = pt.tune(scan, settings, {'probe.learning_rate': pt.between(0.001, 0.1, log=True)}, "
        "trials=8, epochs=12, metric='frc', study='/kept/new.journal')"
    ]
    desk.does("start")  # before the browser has greyed it out
    assert "press Stop before" in desk.tuning.message
    desk.does("stop")
    desk.tuning.cluster, desk.tuning.file = "cluster", " /data/study.journal "
    again = desk.does("start")
    assert again is not study
    assert (desk.tuning.message, again.choices["study"]) == ("", "/data/study.journal")
    assert "True)}, cluster, trials=8" in desk.lines[-1]


def test_functions_are_metrics_told_as_a_line_can_name_them(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert desk.tuning.functions == ["roughness", "mean"]
    told = [("roughness", _roughness, "metrics['roughness']"), ("mean", np.mean, "np.mean")]
    for name, function, text in [*told, ("roughness", _roughness, "_roughness")]:
        if text == "_roughness":
            monkeypatch.setattr(_roughness, "__module__", "__main__")  # as in a notebook
        desk.tuning.metric = name
        assert desk.does("start").choices["metric"] is function
        assert f", metric={text}, " in desk.lines[-1]
        desk.does("stop")


def test_trials_are_shown_as_they_come(desk: Desk) -> None:
    study, tuning = desk.does("start"), desk.tuning
    study.trials, study.ranges = TRIALS, RANGES
    assert wait_until(lambda: len(tuning.rows) == 5, 10)
    assert [one["label"] for one in tuning.parameters] == ["Probe learning rate", "Batch"]
    assert tuning.rows["2"] == {
        "number": 2, "state": "complete", "reason": "", "score": 0.02, "text": "0.02",
        "values": ["0.001", "32 patterns"], "places": [0.0, 5 / 6], "epochs": 2,
        "time": "1.5 s", "engines": "0", "pictured": True,
    }  # fmt: skip
    assert tuning.rows["4"]["reason"] == "<b>The engine</b> of rank 1 has died."
    assert tuning.best == 2
    state = {name: tuning.state[name] for name in ("done", "wanted", "unfinished", "score")}
    assert state == {"done": 4, "wanted": 20, "unfinished": 1, "score": "0.02"}
    assert all(address.startswith("data:image/png;base64,") for address in tuning.pictures.values())
    pictures: list[Any] = []
    tuning.observe(pictures.append, "pictures")
    study.trials = (*TRIALS[:4], dataclasses.replace(TRIALS[4], losses=(1.0,) * 9))
    tuning.refresh()
    assert (tuning.rows["5"]["epochs"], pictures) == (9, []), "an epoch alone sends no pictures again"


def test_stop_continue_and_use(desk: Desk) -> None:
    study = desk.does("start")
    study.trials = TRIALS
    desk.does("stop")
    assert (study.running, desk.tuning.state["state"]) == (False, "ready")
    desk.does("resume")
    study.wanted, desk.tuning.trials = 4, 6
    desk.does("resume")
    assert study.started == [None, 6]
    desk.does("use")
    desk.does("use", trial=3)
    assert desk.used == [pt.Settings(batch=32), pt.Settings(batch=8)]
    assert desk.lines[1:] == [
        "study.stop()", "study.start()", "study.start(6)",
        "settings = study.best_settings", "settings = study.settings_of(3)",
    ]  # fmt: skip
    study.varies_scan = True
    desk.does("use")
    assert desk.used[2:] == ["scan of trial 2", pt.Settings(batch=32)]
    desk.does("use", trial=3)
    assert desk.lines[-2:] == ["scan = study.scan_of(3)", "settings = study.settings_of(3)"]


def test_values_of_the_scan_are_typed_and_the_sampler_is_chosen(desk: Desk) -> None:
    desk.tuning.scan_ranges = "load.rotation: -0.1 to 0.1\n\nload.distance: 0.5 to 2 log\nprepare.bin: 1, 2"
    words = "Scan rotation: -100 to 100 mrad\nDetector distance: 500 mm to 2 m log\nBin: 1, 2"
    assert ranges_in(words) == ranges_in(desk.tuning.scan_ranges)
    assert ranges_in("position rotation: -180 to 180 °")["prepare.position_rotation"].high == pytest.approx(np.pi)
    desk.tuning.sampler = "random"
    study = desk.does("start")
    given = {"load.rotation": Between(-0.1, 0.1), "load.distance": Between(0.5, 2, True), "prepare.bin": (1, 2)}
    assert study.ranges == {"probe.learning_rate": Between(0.001, 0.1, True), **given}
    assert study.choices["sampler"] == "random"
    assert desk.lines[0].endswith("study='/kept/new.journal', sampler='random')")
    desk.does("stop")
    for wrong, fact in (
        ("load.rotation", "'load.rotation' is not a range"),
        ("load.rotation: low to high", "'low to high'; expected two numbers"),
        ("load.rotation: 2 to 1", "is not a range"),
        ("prepare.bin: 1, 2\nprepare.bin: 4", "is not a range; expected a line for each name"),
    ):
        desk.tuning.scan_ranges = wrong
        desk.does("start")
        assert fact in desk.tuning.message
    assert len(desk.lines) == 2


def test_what_ends_a_study_is_shown(desk: Desk) -> None:
    study = Study(SCAN, None, RANGES, trials=3, study=None)
    study.failure, study.running = RuntimeError("No engines are left."), False
    desk.tuning.show(study)  # started elsewhere
    assert wait_until(lambda: desk.tuning.message == "No engines are left.", 10)
    assert desk.tuning.state["state"] == "failed"


def test_rows_have_labels_units_and_places_and_pictures_are_of_the_best_and_newest() -> None:
    values = {"slices.thickness": 2.5e-9, "optimiser": "lbfgs", "load.focus_to_sample": 0.01, "scan.drift_rate": 3.0}
    ranges: dict[str, Range] = {
        "slices.thickness": Between(2e-9, 3e-9), "optimiser": ("adam", "lbfgs"),
        "load.focus_to_sample": Between(1e-3, 1e-1, True), "scan.drift_rate": (3.0,),
    }  # fmt: skip
    one = trial_table.row(TunedTrial(1, values, "complete", 1.0), ranges)
    assert one["values"] == ["2.5 nm", "L-BFGS", "10 mm", "3"]
    assert one["places"] == pytest.approx([0.5, 0.75, 0.5, 0.5])
    axes = trial_table.parameters(ranges)
    assert [axis["label"] for axis in axes] == ["Slice distance", "Optimiser", "Focus to sample", "drift rate"]
    assert axes[0]["ends"] == [(0.0, "2 nm", "start"), (1.0, "3 nm", "end")]
    assert axes[1]["ends"] == [(0.25, "Adam", "middle"), (0.75, "L-BFGS", "middle")]
    many = [trial(number, score=float(number)) for number in range(1, 101)]
    assert {int(number) for number in trial_table.pictures(many)} == {*range(1, 41), *range(61, 101)}


def test_a_browser_shows_trials_and_one_is_used(desk: Desk, page: Page) -> None:
    model = BrowserModel(page, desk.tuning)
    expect(page.get_by_role("button", name="Start").locator("svg")).not_to_have_css("font-size", "10.5px")  # of plots
    page.get_by_label("Trials").fill("7")
    page.get_by_label("Trials").press("Tab")
    page.get_by_role("button", name="Start").press("Enter")
    model.collect()
    desk.tuning.settle()
    assert desk.tuning.study.choices["trials"] == 7
    desk.tuning.study.trials, desk.tuning.study.ranges = TRIALS, RANGES
    desk.tuning.refresh()
    model.collect()
    expect(page.locator(".ptynb-tuner table tr")).to_have_count(6)
    page.get_by_text("Settings and ranges (1 tuned)").click()
    for view in ("table", "pictures"):
        page.get_by_label("View").select_option(view)
        assert violations(page, name=f"tuner-{view}") == []
        page.get_by_text("Settings and ranges (1 tuned)").click()
    page.get_by_label("Pick").select_option("trial 3: pruned")
    page.get_by_role("button", name="Use").click()
    model.collect()
    desk.tuning.settle()
    assert desk.used == [pt.Settings(batch=8)]
    model.close()


# Real studies


@pytest.fixture
def tuning(tmp_path: Path) -> Iterator[Tuning]:
    made = tuner(SCAN, pt.Settings(batch=12))
    made.file, made.trials, made.epochs = str(tmp_path / "study.journal"), 3, 2
    yield made
    if made.study is not None:
        made.study.stop()
    made.close()


def done(tuning: Tuning, name: str, **given: Any) -> pt.Study:
    """The study once a command is carried out, and all trials are."""
    tuning.receive_command(name, given)
    tuning.settle()
    assert tuning.message == ""
    assert tuning.study is not None
    tuning.study.wait()
    tuning.refresh()
    return tuning.study


def test_what_is_ticked_is_tuned_and_the_best_is_put_in_the_form(tuning: Tuning) -> None:
    lines: list[str] = []
    tuning.tell = lines.append
    tuning.form.tune("probe.learning_rate")
    tuning.form.set_range("probe.learning_rate", low="0.001", high="0.1")
    study = done(tuning, "start")
    assert study.ranges == {"probe.learning_rate": Between(0.001, 0.1, True)}
    assert [one["state"] for one in tuning.rows.values()] == ["complete"] * 3
    assert study.trials[0].values == {"probe.learning_rate": 0.1}
    assert len(tuning.pictures) == 3
    done(tuning, "use")
    tuning.form.settle()
    assert tuning.form.settings == study.best_settings
    assert tuning.form.settings.batch == 12
    asked: dict[str, Any] = {"pt": pt, "scan": SCAN, "settings": pt.Settings(batch=12)}
    exec(next(line for line in lines if line.startswith("study = pt.tune(")), asked)
    asked["study"].wait()
    assert [trial.score for trial in asked["study"].trials] == [trial.score for trial in study.trials]


def test_with_nothing_ticked_the_rates_are_tuned(tuning: Tuning) -> None:
    tuning.trials = 1
    assert {*done(tuning, "start").ranges} == {"object.learning_rate", "probe.learning_rate"}


def test_a_scan_is_tuned_and_the_picked_one_is_used(tuning: Tuning) -> None:
    lines: list[str] = []
    tuning.tell = lines.append
    tuning.scan_ranges, tuning.sampler = "prepare.position_rotation: 0, 0.2", "grid"
    study = done(tuning, "start")
    assert {*study.ranges} == {"prepare.position_rotation"}, "no learning rates beside values of the scan"
    assert study.done == 2
    turned = next(one.number for one in study.trials if one.values["prepare.position_rotation"] == 0.2)
    done(tuning, "use", trial=turned)
    assert tuning.scan is not None
    assert tuning.scan.metadata_digest == pt.preparation.rotate_positions(SCAN, 0.2).metadata_digest
    asked: dict[str, Any] = {"pt": pt, "scan": SCAN, "settings": pt.Settings(batch=12)}
    exec("\n".join(line for line in lines if "study" in line), asked)
    assert asked["scan"].metadata_digest == tuning.scan.metadata_digest
    assert asked["settings"] == tuning.form.settings
    asked["study"].wait()


def test_a_function_makes_the_scans_and_is_not_applied_twice(tmp_path: Path) -> None:
    def turned(scan: pt.Scan, *, angle: float) -> pt.Scan:
        return pt.preparation.rotate_positions(scan, angle)

    made, lines = tuner(SCAN, pt.Settings(batch=12), scan_function=turned), list[str]()
    made.tell = lines.append
    made.file, made.trials, made.epochs = str(tmp_path / "study.journal"), 1, 1
    made.scan_ranges = "scan.angle: 0.2, 0.3"
    study = done(made, "start")
    done(made, "use")
    assert made.scan is SCAN
    assert made.picked_scan is not None
    angle = study.trials[0].values["scan.angle"]
    assert made.picked_scan.metadata_digest == turned(SCAN, angle=angle).metadata_digest
    assert lines[0].endswith(", scan_function=turned)")
    assert lines[1] == "picked_scan = study.best_scan"
    made.close()


def test_what_cannot_be_tuned_says_why(tuning: Tuning) -> None:
    Path(tuning.file).write_text("batch: 16\n")
    tuning.start()
    tuning.settle()
    assert "is not the file of a study" in tuning.message
    tuning.scan = None
    tuning.start()
    tuning.settle()
    assert "load a scan first" in tuning.message
    assert tuning.study is None
    tuning.scan = SCAN
    assert tuning.form.scan is SCAN


def test_a_form_that_is_shown_elsewhere_stays_open() -> None:
    form = SettingsForm(pt.Settings(), ticks=True)
    made = tuner(SCAN, form=form)
    assert (made.form, made.shown_form) == (form, None)
    made.close()
    assert not form.closed
    form.close()
