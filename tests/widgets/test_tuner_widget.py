"""The widget that shows a study: by a study that is none, and without a browser."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from ptynb.data import images
from ptynb.data.trial_record import TunedTrial, best_of
from ptynb.settings import Settings
from ptynb.settings.ranges import Between, Range
from ptynb.widgets import tuner_widget as tuner
from ptynb.widgets.range_text import ranges_in
from ptynb.widgets.trial_table import ROWS, score_plots, trials_table
from ptynb.widgets.tuner_widget import Tuner

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

    def __init__(self, ranges: Any, **choices: Any) -> None:
        self.ranges, self.choices, self.wanted = ranges, choices, choices["trials"]
        self.failure: Exception | None = None
        self.trials: tuple[TunedTrial, ...] = ()
        self.running, self.path = True, Path(choices["study"] or "/kept/new.journal")
        self.started: list[int | None] = []

    @property
    def done(self) -> int:
        return sum(trial.state != "running" for trial in self.trials)

    @property
    def best(self) -> TunedTrial | None:
        return best_of(self.trials)

    @property
    def best_settings(self) -> Settings:
        assert self.best is not None
        return Settings(batch=self.best.values["batch"])

    varies_scan = False

    def settings_of(self, trial: int) -> Settings:
        return Settings(batch=self.trials[trial - 1].values["batch"])

    def scan_of(self, trial: int) -> Any:
        return f"scan of trial {trial}"

    def start(self, trials: int | None = None) -> None:
        self.started.append(trials)
        self.running = True

    def stop(self) -> None:
        self.running = False


class Desk:
    """A tuner, and what it did."""

    def __init__(self, ranges: Any = RANGES, **choices: Any) -> None:
        self.ranges = ranges
        self.used: list[Any] = []
        self.lines: list[str] = []
        self.tuner = Tuner(Study, lambda: self.ranges, use=self.used.append, use_scan=self.used.append, **choices)
        self.tuner.tell = self.lines.append

    def click(self, name: str) -> None:
        button = self.tuner._buttons[name]
        assert not button.disabled, name
        button.click()
        self.tuner.settle()

    def open(self) -> set[str]:
        return {name for name, button in self.tuner._buttons.items() if not button.disabled}


@pytest.fixture
def desk() -> Iterator[Desk]:
    one = Desk(metrics={"roughness": _roughness})
    yield one
    one.tuner.close()


def _roughness(result: object) -> float:
    return 0.0


def test_start_makes_a_study_of_what_is_chosen_and_tells_the_line(desk: Desk) -> None:
    assert desk.open() == {"Start"}
    desk.tuner.trials.value, desk.tuner.epochs.value, desk.tuner.metric.value = 8, 12, "frc"
    assert "half of the scan" in desk.tuner._about.value
    desk.click("Start")
    study = desk.tuner.study
    assert study.ranges == RANGES
    assert study.choices == {"trials": 8, "epochs": 12, "metric": "frc", "study": None, "sampler": "tpe"}
    assert desk.open() == {"Stop"}
    assert "<code>/kept/new.journal</code>" in desk.tuner._summary.value
    assert desk.lines == [
        "study = pt.tune(scan, settings, {'probe.learning_rate': pt.between(0.001, 0.1, log=True), 'batch': "
        "(8, 16, 32)}, cluster, trials=8, epochs=12, metric='frc', study='/kept/new.journal')"
    ]


def test_the_file_of_an_earlier_study_is_gone_on_with(desk: Desk) -> None:
    desk.tuner.file.value = " /data/study.journal "
    desk.click("Start")
    assert desk.tuner.study.choices["study"] == "/data/study.journal"


def test_a_function_of_the_users_is_a_metric(desk: Desk) -> None:
    desk.tuner.metric.value = _roughness
    desk.tuner.cluster = ""
    desk.click("Start")
    assert desk.tuner.study.choices["metric"] is _roughness
    assert "}, trials=20, epochs=30, metric=metrics['roughness'], " in desk.lines[0]


def test_a_function_is_told_as_a_line_can_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tuner._python_name(lambda result: 0.0, "flat") == "metrics['flat']"
    assert tuner._python_name(np.mean, "mean") == "np.mean"  # type: ignore[arg-type]
    assert tuner._python_name(_roughness, "roughness") == "metrics['roughness']"
    monkeypatch.setattr(_roughness, "__module__", "__main__")  # as in a notebook
    assert tuner._python_name(_roughness, "roughness") == "_roughness"


def test_trials_are_shown_as_they_come_with_the_best_marked_in_words(desk: Desk) -> None:
    desk.click("Start")
    study = desk.tuner.study
    study.trials = TRIALS
    until(lambda: "★ 2 best" in desk.tuner._table.value)
    text = desk.tuner._table.value
    assert text.index("★ 2 best") < text.index("object phase of trial 1") < text.index("object phase of trial 5")
    assert text.count("data:image/png;base64,") == 5
    assert "&lt;b&gt;The engine&lt;/b&gt; of rank 1 has died." in text
    assert "<summary>failed</summary>" in text
    assert "<b>4</b> of 20 trials" in desk.tuner._summary.value
    assert "1 running" in desk.tuner._summary.value
    assert "best score <b>0.02</b> in trial 2" in desk.tuner._summary.value
    assert "score against Probe learning rate" in desk.tuner._plots.value
    desk.tuner._order.value = "newest first"
    until(lambda: desk.tuner._table.value.index("trial 5") < desk.tuner._table.value.index("trial 2"))
    before = desk.tuner._table.value
    study.trials = (*TRIALS[:4], dataclasses.replace(TRIALS[4], losses=(1.0,) * 9))
    desk.tuner.refresh()
    assert desk.tuner._table.value == before, "an epoch alone sends no pictures again"
    study.trials = (*TRIALS[:4], dataclasses.replace(TRIALS[4], state="complete", score=0.5))
    until(lambda: desk.tuner._table.value != before)


def test_stop_go_on_and_use_the_best(desk: Desk) -> None:
    desk.click("Start")
    desk.tuner.study.trials = TRIALS[:4]
    desk.click("Stop")
    assert not desk.tuner.study.running
    assert desk.open() == {"Start", "Continue", "Use"}
    desk.click("Continue")
    desk.click("Stop")
    desk.tuner.study.wanted, desk.tuner.trials.value = 4, 6
    desk.click("Continue")
    assert desk.tuner.study.started == [None, 6]
    desk.click("Use")
    assert desk.used == [Settings(batch=32)]
    assert desk.lines[1:] == [
        "study.stop()",
        "study.start()",
        "study.stop()",
        "study.start(6)",
        "settings = study.best_settings",
    ]


def test_a_trial_is_picked_by_its_picture(desk: Desk) -> None:
    desk.click("Start")
    study = desk.tuner.study
    study.trials = TRIALS
    study.running = False
    desk.tuner.refresh()
    desk.tuner._view.value = "pictures"
    until(lambda: "<figure" in desk.tuner._table.value)
    text = desk.tuner._table.value
    assert text.count("<figure") == text.count("data:image/png;base64,") == 5
    assert "<table" not in text
    assert text.index("★ trial 2 best: 0.02<br>Probe learning rate 0.001<br>Batch 32 patterns") < text.index(
        "trial 1: 0.5"
    )
    assert [label for label, _ in desk.tuner.pick.options][:3] == ["the best trial", "trial 1: 0.5", "trial 2: 0.02"]
    desk.tuner.pick.value = 3
    study.trials = (*TRIALS, trial(6, score=0.01))
    desk.tuner.refresh()
    assert desk.tuner.pick.value == 3, "what was picked stays picked"
    desk.click("Use")
    assert desk.used == [Settings(batch=8)]
    assert desk.lines[1:] == ["settings = study.settings_of(3)"]
    study.varies_scan = True
    desk.click("Use")
    assert desk.used[1:] == ["scan of trial 3", Settings(batch=8)]
    desk.tuner.pick.value = 0
    desk.click("Use")
    assert desk.used[3:] == ["scan of trial 6", Settings(batch=8)]
    assert desk.lines[-2:] == ["scan = study.best_scan", "settings = study.best_settings"]


def test_values_of_the_scan_are_typed_and_the_sampler_is_chosen(desk: Desk) -> None:
    desk.tuner.scan_ranges.value = "load.rotation: -0.1 to 0.1\n\nload.distance: 0.5 to 2 log\nprepare.bin: 1, 2"
    words = "Scan rotation: -100 to 100 mrad\nDetector distance: 500 mm to 2 m log\nBin: 1, 2"
    assert ranges_in(words) == ranges_in(desk.tuner.scan_ranges.value)
    assert ranges_in("position rotation: -180 to 180 °")["prepare.position_rotation"].high == pytest.approx(np.pi)
    desk.tuner.sampler.value = "random"
    desk.click("Start")
    given = {"load.rotation": Between(-0.1, 0.1), "load.distance": Between(0.5, 2, True), "prepare.bin": (1, 2)}
    assert desk.tuner.study.ranges == RANGES | given
    assert desk.tuner.study.choices["sampler"] == "random"
    assert desk.lines[0].endswith("study='/kept/new.journal', sampler='random')")
    desk.click("Stop")
    for wrong, fact in (
        ("load.rotation", "&#x27;load.rotation&#x27; is not a range"),
        ("load.rotation: low to high", "&#x27;low to high&#x27;; expected two numbers"),
        ("load.rotation: 2 to 1", "is not a range"),
        ("prepare.bin: 1, 2\nprepare.bin: 4", "is not a range; expected a line for each name"),
    ):
        desk.tuner.scan_ranges.value = wrong
        desk.click("Start")
        assert fact in desk.tuner._message.value
    assert len(desk.lines) == 2


def test_a_second_click_on_start_is_told_to_press_stop_first_and_that_helps(desk: Desk) -> None:
    desk.tuner._buttons["Start"].click()
    desk.tuner._buttons["Start"].click()  # before the browser has greyed it out
    desk.tuner.settle()
    first = desk.tuner.study
    assert "press Stop before" in desk.tuner._message.value
    assert len(desk.lines) == 1
    desk.click("Stop")
    desk.click("Start")
    assert desk.tuner._message.value == ""
    assert desk.tuner.study is not first
    assert not first.running


def test_what_goes_wrong_is_shown_and_ends_nothing(desk: Desk) -> None:
    def refuse() -> Any:
        raise ValueError("probe.learning_rate: the lowest value is not below the highest.")

    given, desk.tuner._ranges = desk.tuner._ranges, refuse
    desk.click("Start")
    assert "lowest value is not below" in desk.tuner._message.value
    assert 'role="alert"' in desk.tuner._message.value
    assert desk.lines == []
    desk.tuner._ranges = given
    desk.click("Start")
    assert desk.tuner._message.value == ""
    desk.tuner.study.failure = RuntimeError("No engines are left.")
    desk.tuner.study.running = False
    until(lambda: "No engines are left." in desk.tuner._message.value)
    assert ">failed</b>" in desk.tuner._summary.value


def test_a_study_that_was_started_elsewhere_can_be_shown(desk: Desk) -> None:
    study = Study(RANGES, trials=3, study=None)
    study.trials = TRIALS
    desk.tuner.show(study)
    until(lambda: "★ 2 best" in desk.tuner._table.value)


def test_without_a_use_there_is_no_such_button() -> None:
    tuner = Tuner(Study, lambda: RANGES)
    assert tuner._buttons["Use"].layout.display == "none"
    tuner.close()
    assert tuner.closed


def test_many_trials_are_cut_with_a_word() -> None:
    many = [trial(number, score=float(number)) for number in range(1, ROWS + 11)]
    text = trials_table(many, [*RANGES])
    assert text.count("<tr") == ROWS + 1
    assert "and 10 more" in text
    assert trials_table([], [*RANGES]) == ""
    assert score_plots([trial(1, "pruned")], RANGES) == ""


def test_plots_put_scores_where_their_parameters_are() -> None:
    trials = [
        TunedTrial(1, {"probe.learning_rate": 1e-3, "batch": 8}, "complete", 1.0),
        TunedTrial(2, {"probe.learning_rate": 1e-2, "batch": 16}, "complete", 10.0),
        TunedTrial(3, {"probe.learning_rate": 1e-1, "batch": 32}, "complete", 100.0),
        TunedTrial(4, {"probe.learning_rate": 1e-1, "batch": 32}, "pruned"),
    ]
    text = score_plots(trials, RANGES)
    plots = [ElementTree.fromstring(f"<svg{part.split('</svg>')[0]}</svg>") for part in text.split("<svg")[1:]]
    assert [plot.get("aria-label") for plot in plots] == ["score against Probe learning rate", "score against Batch"]
    for plot, places in zip(plots, ([0.5, 1], [0.5, 5 / 6]), strict=True):
        dots = [(float(dot.get("cx", 0)), float(dot.get("cy", 0))) for dot in plot.findall("circle")]
        assert [round((x - 62) / 166, 3) for x, _ in dots] == [round(place, 3) for place in places]
        assert dots[0][1] > dots[1][1]  # a larger score stands higher
        assert [dot.findtext("title") for dot in plot.findall("circle")] == ["trial 2: 10", "trial 3: 100"]
        assert [star.findtext("title") for star in plot.findall("polygon")] == ["trial 1: 1"]
        assert "trial 4: pruned" in [path.findtext("title") for path in plot.findall("path")]
    assert plots[0].findall("circle")[0].get("cx") == "145.0"  # 1e-2 in the middle of its decades


def test_values_have_labels_and_units() -> None:
    values = {"slices.thickness": 2.5e-9, "optimiser": "lbfgs", "load.focus_to_sample": 0.01, "scan.drift_rate": 3.0}
    text = trials_table([TunedTrial(1, values, "complete", 1.0)], [*values])
    for word in ("Slice distance", "2.5 nm", "Optimiser", "L-BFGS", "Focus to sample", "10 mm", "drift rate"):
        assert f">{word}<" in text, word
    assert "_" not in text.replace("object_phase", "")


def test_equal_scores_are_no_division_by_nothing() -> None:
    assert "circle" in score_plots([trial(1, score=0.5), trial(2, score=0.5)], RANGES)


def until(condition: Any, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
