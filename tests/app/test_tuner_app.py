"""Tuning in a notebook, with a real study in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ptynb as pt
from ptynb.app.tuner_app import Tuning, tuner
from ptynb.settings.ranges import Between
from ptynb.widgets.form import SettingsForm

SCAN = pt.simulate(patterns=36, window=32, seed=3)


@pytest.fixture
def tuning(tmp_path: Path) -> Iterator[Tuning]:
    made = tuner(SCAN, pt.Settings(batch=12))
    made.tuner.file.value = str(tmp_path / "study.journal")
    made.tuner.trials.value, made.tuner.epochs.value = 3, 2
    yield made
    if made.study is not None:
        made.study.stop()
    made.close()


def click(tuning: Tuning, name: str) -> None:
    button = tuning.tuner._buttons[name]
    assert not button.disabled
    button.click()
    tuning.tuner.settle()


def test_what_is_ticked_is_tuned_and_the_best_is_put_in_the_form(tuning: Tuning) -> None:
    lines: list[str] = []
    tuning.tell = lines.append
    tuning.form.tune("probe.learning_rate")
    tuning.form.set_range("probe.learning_rate", low="0.001", high="0.1")
    click(tuning, "Start")
    study = tuning.study
    assert study is not None
    study.wait()
    tuning.tuner.refresh()
    assert study.ranges == {"probe.learning_rate": Between(0.001, 0.1, True)}
    assert [trial.state for trial in study.trials] == ["complete"] * 3
    assert study.trials[0].values == {"probe.learning_rate": 0.1}
    assert tuning.tuner._table.value.count("data:image/png") == 3
    click(tuning, "Use")
    tuning.form.settle()
    assert tuning.form.settings == study.best_settings
    assert tuning.form.settings.batch == 12
    asked: dict[str, Any] = {"pt": pt, "scan": SCAN, "settings": pt.Settings(batch=12)}
    exec(next(line for line in lines if line.startswith("study = pt.tune(")), asked)
    asked["study"].wait()
    assert [trial.score for trial in asked["study"].trials] == [trial.score for trial in study.trials]


def test_with_nothing_ticked_the_rates_are_tuned(tuning: Tuning) -> None:
    click(tuning, "Start")
    assert tuning.study is not None
    assert {*tuning.study.ranges} == {"object.learning_rate", "probe.learning_rate"}


def test_a_scan_is_tuned_and_the_picked_one_is_used(tuning: Tuning) -> None:
    lines: list[str] = []
    tuning.tell = lines.append
    tuning.tuner.scan_ranges.value = "prepare.position_rotation: 0, 0.2"
    tuning.tuner.sampler.value = "grid"
    click(tuning, "Start")
    study = tuning.study
    assert study is not None
    study.wait()
    assert {*study.ranges} == {"prepare.position_rotation"}, "no learning rates beside values of the scan"
    assert study.done == 2
    turned = next(trial.number for trial in study.trials if trial.values["prepare.position_rotation"] == 0.2)
    tuning.tuner.refresh()
    tuning.tuner.pick.value = turned
    click(tuning, "Use")
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

    made = tuner(SCAN, pt.Settings(batch=12), scan_function=turned)
    lines: list[str] = []
    made.tell = lines.append
    try:
        made.tuner.file.value = str(tmp_path / "study.journal")
        made.tuner.trials.value = made.tuner.epochs.value = 1
        made.tuner.scan_ranges.value = "scan.angle: 0.2, 0.3"
        click(made, "Start")
        study = made.study
        assert study is not None
        study.wait()
        made.tuner.refresh()
        click(made, "Use")
        assert made.scan is SCAN
        assert made.picked_scan is not None
        angle = study.trials[0].values["scan.angle"]
        assert made.picked_scan.metadata_digest == turned(SCAN, angle=angle).metadata_digest
        assert lines[0].endswith(", scan_function=turned)")
        assert lines[1] == "picked_scan = study.best_scan"
    finally:
        made.close()


def test_what_a_study_refuses_is_shown(tuning: Tuning) -> None:
    Path(tuning.tuner.file.value).write_text("batch: 16\n")
    click(tuning, "Start")
    assert "is not the file of a study" in tuning.tuner._message.value
    assert tuning.study is None


def test_a_form_that_is_shown_elsewhere_stays_open() -> None:
    form = SettingsForm(pt.Settings(), ticks=True)
    made = tuner(SCAN, form=form, metrics={"R-factor": lambda result: result.r_factor})
    assert form not in made.children
    assert made.tuner.metric.options[-1][0] == "R-factor"
    made.close()
    assert not form.closed
    form.close()


def test_it_opens_without_a_scan_and_says_that_a_study_needs_one(tmp_path: Path) -> None:
    made = tuner(None, pt.Settings(batch=12))
    made.tuner.file.value = str(tmp_path / "study.journal")
    made.tuner.trials.value = made.tuner.epochs.value = 1
    click(made, "Start")
    assert "load a scan first" in made.tuner._message.value
    made.scan = SCAN
    assert made.form.scan is SCAN
    click(made, "Start")
    assert made.study is not None
    made.study.wait()
    made.close()
