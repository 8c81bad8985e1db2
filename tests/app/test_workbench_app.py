"""The workbench without a browser: what each tab does, and the lines of Python that do the same."""

from __future__ import annotations

import dataclasses
import gc
import html
import re
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptynb as pt
from ptynb.app.diagnosis_panel import DiagnosisPanel
from ptynb.app.session_state import Desk
from ptynb.app.workbench_app import TABS, Workbench
from ptynb.data.patterns import ArrayFrames
from ptynb.data.scan import Scan
from ptynb.polling import wait_until
from ptynb.report.diagnosis_section import marked_place
from ptynb.settings.load_options import LoadOptions
from ptynb.settings.schema import as_python
from ptynb.widgets import elements
from ptynb.widgets.elements import below
from ptynb.widgets.history import History
from tests.raising import raises


@pytest.fixture(scope="module")
def scan() -> Scan:
    return pt.simulate(patterns=36, window=32, seed=2)


@pytest.fixture(autouse=True)
def _own_recent_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))


@pytest.fixture
def bench(scan: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    monkeypatch.chdir(tmp_path)
    bench = pt.workbench(scan)
    yield bench
    if bench.recon is not None:
        bench.recon.close()
    bench.close()


def button(bench: Workbench, tab: str, text: str) -> elements.Button:
    place = bench._tabs.children[TABS.index(tab)]
    return next(one for one in below(place) if isinstance(one, elements.Button) and one.description == text)


def field(bench: Workbench, tab: str, text: str) -> Any:
    place = bench._tabs.children[TABS.index(tab)]
    return next(one for one in below(place) if getattr(one, "description", "") == text and hasattr(one, "value"))


def click(bench: Workbench, tab: str, text: str) -> None:
    button(bench, tab, text).click()
    bench._actions.settle()


def reconstruct(bench: Workbench, epochs: int) -> None:
    field(bench, "Run", "Engines").value = 0
    field(bench, "Run", "Epochs").value = epochs
    click(bench, "Run", "New run")
    assert bench.recon is not None
    bench.recon.wait()


def test_what_was_clicked_is_told_as_python_that_does_the_same(bench: Workbench, scan: Scan, tmp_path: Path) -> None:
    bench._form.settings = pt.Settings(batch=12, probe=pt.Probe(modes=2))
    bench._form.settle()
    reconstruct(bench, 3)
    click(bench, "Run", "Save result")
    click(bench, "Run", "Add to comparison")
    saved = pt.load_result(tmp_path / "simulated.result.h5")
    (tmp_path / "simulated.result.h5").unlink()
    lines = bench.code
    names: dict[str, Any] = {"scan": scan}
    exec(lines, names)
    names["recon"].close()
    again = pt.load_result(tmp_path / "simulated.result.h5")
    np.testing.assert_allclose(again.losses, saved.losses, rtol=1e-5)
    assert list(names["kept"]) == ["epoch 3"]


def test_stages_of_a_recommendation_are_entered_and_leave_those_of_the_user(bench: Workbench) -> None:
    stages = (pt.Stage(epochs=14), pt.Stage(epochs=6, settings={"loss": "poisson"}))
    tab = bench._run_tab
    tab.propose(stages)
    assert pt.Recipe.from_yaml(f"stages:\n{tab._stages.value}").stages == stages
    tab.propose(())
    assert tab._stages.value == ""
    tab._stages.value = "- epochs: 3"
    tab.propose(())
    assert tab._stages.value == "- epochs: 3"


def test_stages_are_entered_and_told_as_python(bench: Workbench, scan: Scan) -> None:
    field(bench, "Run", "Stages").value = "- epochs: 2\n  pattern_size: 16\n- epochs: 1\n  settings: {batch: 9}"
    reconstruct(bench, 50)
    assert bench.recon is not None
    assert (bench.recon.epoch, bench.recon.stage, bench.recon.settings.batch) == (3, 2, 9)
    names: dict[str, Any] = {"scan": scan}
    exec(bench.code, names)
    names["recon"].wait()
    assert names["recon"].stages == bench.recon.stages
    np.testing.assert_allclose(names["recon"].result.losses, bench.recon.result.losses, rtol=1e-5)
    names["recon"].close()
    field(bench, "Run", "Stages").value = "- epoch: 2"
    click(bench, "Run", "New run")
    assert "did you mean" in bench._message.value
    assert bench.recon.stage == 2  # the present one is kept
    assert not bench.recon.closed


def test_a_run_is_told_to_start_until_its_view_is_there(bench: Workbench) -> None:
    tab, seen = bench._run_tab, list[tuple[str, int]]()
    tab._starting.text.observe(lambda change: seen.append((change["new"], len(tab._run.children))), "value")
    reconstruct(bench, 1)
    assert seen == [('<span role="status">starting the run …</span>', 0), ("", 1)]


def test_where_checkpoints_are_kept_is_entered_refused_at_its_field_and_told_as_python(
    bench: Workbench, tmp_path: Path
) -> None:
    """Default, own folder and interval, none at all; a second run does not write among the files of the first."""
    place = bench._run_tab._checkpoints
    line = r"recon = pt\.Reconstruction\(scan, settings.*\)"

    def told() -> str:
        return next(one for one in reversed(bench.code.splitlines()) if re.fullmatch(line, one))

    def enter(**texts: str) -> None:
        for name, text in texts.items():
            place.fields[name].value = text
        bench._actions.settle()

    assert "default" in place.children[-1].value
    enter(epochs="0", seconds="soon", max_to_keep="")
    assert {name: "expected" in problem for name, problem in place.problems.items()} == {
        "epochs": True, "seconds": True, "max_to_keep": True,
    }  # fmt: skip
    assert "One every [s]" in place.problems["seconds"]
    click(bench, "Run", "New run")
    assert bench.recon is None
    assert bench._run_tab._bar.shown == "Checkpointing"
    enter(folder="night", epochs="2", seconds="", max_to_keep="5")
    assert place.problems == {}
    given = "checkpointing=pt.Checkpointing(folder='night', epochs=2, seconds=None, max_to_keep=5)"
    assert given.replace("'", "&#x27;") in place.children[-2].value
    reconstruct(bench, 4)
    assert told() == f"recon = pt.Reconstruction(scan, settings, {given})"
    assert bench.recon is not None
    before = bench.recon
    assert wait_until(lambda: [*(tmp_path / "night").glob("state-*.h5")], 10)  # written beside the run
    click(bench, "Run", "New run")
    assert "already contains checkpoints" in place.problems["folder"]
    assert bench.recon is before
    assert before.state == "ready"  # refused before the first run was closed
    (tmp_path / "file").write_text("")
    enter(folder="file")
    assert "is a file" in place.problems["folder"]
    place.wanted.value = False
    bench._actions.settle()
    assert place.fields["folder"].disabled
    reconstruct(bench, 1)
    assert told() == "recon = pt.Reconstruction(scan, settings, checkpointing=None)"
    with raises("checkpoint.disabled"):
        bench.recon.save_checkpoint()
    place.wanted.value = True
    enter(folder="", epochs="", seconds="60", max_to_keep="3")
    reconstruct(bench, 1)
    assert told() == "recon = pt.Reconstruction(scan, settings)"


def test_reports_are_written_by_a_button_and_by_the_lines_that_are_told(bench: Workbench, tmp_path: Path) -> None:
    reconstruct(bench, 2)
    click(bench, "Run", "Report")
    click(bench, "Run", "Add to comparison")
    bench._compare_tab.report()
    bench._actions.settle()
    names = ["simulated.html", "report.html"]
    lines = bench.code.splitlines()
    told = [
        "pt.report(recon, 'simulated.html')",
        "pt.report({name: kept[name] for name in ['epoch 2']}, 'report.html')",
    ]
    assert [line for line in lines if "pt.report(" in line] == told
    assert all("<h1>" in (tmp_path / name).read_text(encoding="utf-8") for name in names)


def test_errors_of_what_was_clicked_are_shown_and_nothing_stops(bench: Workbench) -> None:
    click(bench, "Run", "Save result")
    assert "There is no reconstruction; press New run first" in bench._message.value
    bench._scan_tab.name_file("nowhere.h5")
    bench._scan_tab.open()
    bench._actions.settle()
    assert "nowhere.h5" in bench._message.value
    bench._compare_tab.show()
    bench._actions.settle()
    assert "select 2 or more" in bench._message.value
    reconstruct(bench, 1)
    assert bench._message.value == ""
    click(bench, "Run", "Save result")
    assert "saved: " in bench._run_tab._saved.value


def test_a_file_is_opened_and_everything_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pt.save_scan(pt.simulate(patterns=25, window=32, seed=7), "some.h5")
    bench = pt.workbench()
    try:
        assert bench.scan is None
        click(bench, "Run", "New run")
        assert "There is no scan" in bench._message.value
        bench._scan_tab.name_file("some.h5")
        bench._scan_tab.open()
        bench._actions.settle()
        assert bench.scan is not None
        assert len(bench.scan) == 25
        assert "scan = pt.load('some.h5')" in bench.code
        assert "25 patterns" in bench._facts.value
        assert bench._form.scan is bench._tuning.scan is bench.scan
        look = bench._scan_tab.inspection
        assert look is not None
        look.settle()
        look.positions.exclude = "3, 7-9"
        look.positions.remove_excluded()
        look.settle()
        assert len(bench.scan) == 21
    finally:
        bench.close()


def until(condition: Any, seconds: float = 30.0) -> None:
    last = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < last
        time.sleep(0.01)


class SlowEngines:
    """A cluster whose engines wait in a queue until they are released."""

    asked, released = threading.Event(), threading.Event()
    plan = types.SimpleNamespace(engines=[types.SimpleNamespace(kind="CPU")])
    running = True

    def __init__(self, engines: int) -> None:
        self.asked.set()
        assert self.released.wait(60)

    def __len__(self) -> int:
        return 1


def test_while_engines_start_files_are_described_and_loaded_and_results_compared(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []

    def refuse(scan: pt.Scan, *_: Any, **more: Any) -> None:
        begun.append(scan)
        raise pt.ReconstructionError("No engine is left.", code="reconstruction.failed")

    monkeypatch.setattr("ptynb.cluster.cluster_start.Cluster", SlowEngines)
    monkeypatch.setattr("ptynb.app.run_tab.Reconstruction", refuse)
    before = bench.scan
    pt.save_scan(pt.simulate(patterns=25, window=32, seed=7), "some.h5")
    field(bench, "Run", "Engines").value = 1
    button(bench, "Run", "New run").click()
    assert SlowEngines.asked.wait(10)
    tab, started = bench._scan_tab, time.monotonic()
    bench._scan_tab.name_file("some.h5")
    until(lambda: "a scan of ptynb" in tab.title)
    assert time.monotonic() - started < 1
    bench._scan_tab.open()
    until(lambda: bench.scan is not before)
    bench._compare_tab.add("")
    until(lambda: "No file is named" in bench._message.value)
    assert not begun, "engines are still starting"
    SlowEngines.released.set()
    bench._actions.settle()
    assert begun == [before], "the scan that was open when the run was asked for"
    assert "No engine is left" in bench._message.value


TRAPS = [*(f"give {name}=8.0" for name in LoadOptions.model_fields), "3 x 4 over 2e-06", "Value error, Input should be"]
"""Folders with names like what messages are made of."""


def test_paths_in_messages_stay_as_they_are_and_fields_are_marked(bench: Workbench, tmp_path: Path) -> None:
    checkpoints = bench._run_tab._checkpoints
    for trap in TRAPS:
        folder = tmp_path / "data" / trap
        folder.mkdir(parents=True)
        (folder / "scan.npz").touch()
        checkpoints.fields["folder"].value = str(folder / "scan.npz")
        bench._actions.settle()
        assert {*checkpoints.problems} == {"folder"}
        assert str(folder / "scan.npz") in html.unescape(checkpoints.problems["folder"])
        bench._compare_tab.add(str(folder / "none.result.h5"))
        bench._actions.settle()
        assert str(folder / "none.result.h5") in html.unescape(bench._message.value)


def test_a_run_that_is_asked_for_while_a_file_is_loaded_is_of_that_scan(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, held = list[Any](), threading.Event()
    scan = pt.simulate(patterns=25, window=32, seed=7)
    monkeypatch.setattr("ptynb.app.scan_tab.load", lambda path, **options: (held.wait(30), scan)[1])
    monkeypatch.setattr("ptynb.app.run_tab.Reconstruction", lambda scan, *_, **more: begun.append(scan))
    field(bench, "Run", "Engines").value = 0
    bench._scan_tab.name_file("some.h5")
    bench._scan_tab.open()
    button(bench, "Run", "New run").click()
    held.set()
    bench._actions.settle()
    assert begun == [scan]


def test_checkpoints_are_followed_while_their_page_is_shown(bench: Workbench) -> None:
    reconstruct(bench, 1)
    view = bench._run_tab._run.children[0]
    history = next(one for one in below(view) if isinstance(one, History))
    assert history.resting
    view.page = "Checkpoints"
    assert not history.resting
    view.page = None
    assert history.resting


def test_two_results_are_compared(bench: Workbench) -> None:
    reconstruct(bench, 2)
    click(bench, "Run", "Add to comparison")
    assert bench.recon is not None
    bench.recon.start(2)
    bench.recon.wait()
    click(bench, "Run", "Add to comparison")
    assert list(bench._desk.results) == ["epoch 2", "epoch 4"]
    tab = bench._compare_tab
    assert tab.chosen == ["epoch 2", "epoch 4"]
    bench.recon.save_checkpoint()
    tab.add_branches()
    bench._actions.settle()
    assert tab.results[2:] == ["branch main"]
    tab.show()
    bench._actions.settle()
    shown = tab.comparison
    assert shown is not None
    shown.settle()
    assert list(shown.results) == ["epoch 2", "epoch 4", "branch main"]


def test_checkpoints_selected_in_the_history_are_compared_in_their_tab(bench: Workbench) -> None:
    reconstruct(bench, 2)
    recon = bench.recon
    assert recon is not None
    recon.save_checkpoint()
    recon.start(2)
    recon.wait()
    history = next(one for one in below(bench._run_tab._run.children[0]) if isinstance(one, History))
    history.refresh()
    for _ in range(2):  # a second time each checkpoint is not added again
        history.compare(["now", str(recon.checkpoints[0].path)])
        history.settle()
        bench._actions.settle()
    assert bench._tabs.selected_index == TABS.index("Compare")
    shown = bench._compare_tab.comparison
    assert shown is not None
    shown.settle()
    assert [*shown.results] == ["epoch 2 (main)", "now, epoch 4 (2)"]
    assert [*bench._desk.results] == ["epoch 2 (main)", "now, epoch 4", "now, epoch 4 (2)"]
    assert bench._compare_tab.chosen == [*shown.results]
    names: dict[str, Any] = {"recon": recon}
    told = [line for line in bench.code.splitlines() if line.startswith(("import", "kept"))]
    told.append([line for line in bench.code.splitlines() if line.startswith("view = ")][-1])
    exec("\n".join(told), names)
    assert [*names["view"].results] == [*shown.results]
    np.testing.assert_array_equal(names["kept"]["epoch 2 (main)"].object, shown.results["epoch 2 (main)"].object)
    names["view"].close()


def test_a_film_is_made_with_progress_and_can_be_cancelled(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = bench._run_tab._film
    make, cancel, shown = button(bench, "Run", "Film"), button(bench, "Run", "Cancel film"), panel._progress
    make.click()
    panel._actions.settle()
    assert "There is no reconstruction" in panel._status.value
    reconstruct(bench, 2)
    make.click()
    panel._actions.settle()
    assert "1 epoch; a film needs 2" in panel._status.value or "no checkpoints" in panel._status.value
    field(bench, "Run", "of").value = "thumbnails"
    seen: list[tuple[str | None, float]] = []
    shown.bar.observe(lambda change: seen.append((shown.layout.display, change["new"])), "value")
    make.click()
    panel._actions.settle()
    name = field(bench, "Run", "Result file").value.replace(".result.h5", ".gif")
    assert f"written: {name}" in panel._status.value
    assert seen[-1] == (None, 4)
    assert (shown.layout.display, make.disabled) == ("none", False)
    assert bench.code.splitlines()[-1] == f"pt.film(recon.result, {name!r})"
    Path(name).unlink()
    exec(bench.code.splitlines()[-1], {"pt": pt, "recon": bench.recon})
    assert Path(name).exists()
    field(bench, "Run", "Film file").value = "other.gif"
    shown.bar.unobserve_all()
    shown.bar.observe(lambda _: cancel.click(), "value")
    make.click()
    panel._actions.settle()
    assert "cancelled" in panel._status.value
    assert not [*Path().glob("*other*")]


def faulty(scan: Scan) -> Scan:
    """The scan with a dead pixel and wrong positions."""
    patterns = np.array(scan.frames.read(0, len(scan)))
    patterns[:, 15, 18] = 0
    wrong = np.random.default_rng(0).normal(0, 0.7, scan.positions.shape)
    return dataclasses.replace(scan, frames=ArrayFrames.of(patterns), positions=scan.positions + wrong)


def diagnosed(bench: Workbench, text: str = "Diagnose") -> list[str]:
    """Press a button of the page Diagnosis and return the texts of its findings."""
    panel = panel_of(bench)
    button(bench, "Run", text).click()
    panel._actions.settle(120)
    return [next(one.value for one in row.children if hasattr(one, "value")) for row in panel._findings.children]


def panel_of(bench: Workbench) -> DiagnosisPanel:
    return next(one for one in below(bench._tabs.children[TABS.index("Run")]) if isinstance(one, DiagnosisPanel))


def test_faults_of_a_run_are_shown_and_what_helps_is_applied_by_a_click(bench: Workbench) -> None:
    bench._take_scan(faulty(pt.simulate(patterns=49, window=32, seed=2)))
    bench._form.settings = pt.Settings(optimiser="lsqml", momentum=0.5)
    bench._form.settle()
    reconstruct(bench, 40)
    panel, recon = panel_of(bench), bench.recon
    assert recon is not None
    positions, pixels = diagnosed(bench)
    assert "Epoch 40: 2 of" in panel._status.value
    found = pt.diagnose(recon)
    for text, finding in zip((positions, pixels), found, strict=True):
        for part in (finding.name, f"{finding.value:.3g}, threshold {finding.threshold:.3g}", finding.remedy):
            assert html.escape(part) in text
    assert bench.code.splitlines()[-1] == "found = pt.diagnose(recon)"
    assert [one["name"] for one in panel._viewer.frame["pictures"]] == [
        one.name for one in found if marked_place(recon.result, found, one) is not None
    ]
    assert "bad pixels" in {one["name"] for one in panel._viewer.frame["pictures"]}
    # Trials are cancelled, and carried out.
    shown, lines = panel._progress, bench.code
    cancel = button(bench, "Run", "Cancel trials")
    shown.bar.observe(lambda _: cancel.click(), "value")
    assert diagnosed(bench, "Try remedies") == [positions, pixels]
    assert "cancelled" in panel._status.value
    assert (shown.layout.display, bench.code) == ("none", lines)
    shown.bar.unobserve_all()
    assert ". It helps: after 30 epochs" in diagnosed(bench, "Try remedies")[0]
    assert bench.code.splitlines()[-1] == "found = pt.diagnose(recon, trial=True)"
    assert recon.epoch == 40
    # Remedies: of the run, and of the scan of the next one.
    first, second = (row.children[0] for row in panel._findings.children)
    before = len(bench.code.splitlines())
    for apply in (first, second):
        apply.click()
        bench._actions.settle()
    assert recon.settings.positions.learning_rate == 0.5
    assert "press New run" in panel._applied.value
    assert bench.scan is not None
    assert bench.scan.mask is not None
    assert not bench.scan.mask[15, 18]
    names: dict[str, Any] = {"pt": pt, "recon": recon, "found": found}
    exec("\n".join(bench.code.splitlines()[before:]), names)
    np.testing.assert_array_equal(names["scan"].mask, bench.scan.mask)
    click(bench, "Run", "New run")
    assert bench.recon is not recon
    assert not bench.recon.scan.mask[15, 18]


def test_a_run_is_diagnosed_while_it_goes_on_and_without_faults_in_one_sentence(bench: Workbench) -> None:
    reconstruct(bench, 5)
    assert bench.recon is not None
    assert diagnosed(bench) == []
    assert re.search(
        r"None of \d+ known faults was found\. The run has 5 epochs\. Judged", panel_of(bench)._status.value
    )
    bench.recon.start(1_000_000)
    diagnosed(bench)
    assert bench.recon.state == "running"
    bench.recon.stop()
    bench.recon.wait()
    bench._form.settings = pt.Settings(optimiser="lsqml", momentum=0.5)
    bench._form.settle()
    reconstruct(bench, 80)
    assert diagnosed(bench) == []
    assert re.search(r">Epoch 80: None of \d+ known faults was found\.<", panel_of(bench)._status.value)


def test_more_epochs_and_settings_of_the_next_run_are_remedies(bench: Workbench) -> None:
    bench._form.settings = pt.Settings(optimiser="rpie")
    bench._form.settle()
    reconstruct(bench, 8)
    recon = bench.recon
    assert recon is not None
    [text] = diagnosed(bench)
    assert "not converged" in text
    panel_of(bench)._findings.children[0].children[0].click()
    bench._actions.settle()
    recon.wait()
    assert recon.epoch == 18
    assert bench.code.splitlines()[-1] == "recon.start(found['not converged'].epochs)"
    slices = {"slices.count": 2, "slices.thickness": 1e-6}
    found = pt.diagnose(recon)
    finding = dataclasses.replace(found.findings[0], name="too few slices", changes=slices, epochs=0, restart=True)
    panel_of(bench)._apply(finding)
    bench._form.settle()
    assert (bench.settings.slices.count, recon.settings.slices.count) == (2, 1)
    assert bench.code.splitlines()[-1] == "settings = settings.with_values(found['too few slices'].changes)"


def test_a_second_start_takes_the_new_settings_and_ends_the_first_run(bench: Workbench) -> None:
    reconstruct(bench, 1)
    first = bench.recon
    bench._form.settings = pt.Settings(batch=9)
    bench._form.settle()
    reconstruct(bench, 1)
    assert first is not None
    assert first.closed
    assert bench.recon is not None
    assert bench.recon.settings.batch == 9


def test_a_run_that_is_under_way_is_not_ended_by_another(bench: Workbench) -> None:
    reconstruct(bench, 1)
    recon = bench.recon
    assert recon is not None
    recon.start(100_000)
    click(bench, "Run", "New run")
    assert "A run uses the engines" in bench._message.value
    assert "press Stop before" in bench._message.value
    assert bench.recon is recon
    assert recon.state == "running"
    click(bench, "Run", "Stop engines")
    assert "has not started engines" in bench._message.value
    button(bench, "Run", "Stop").click()
    until = time.monotonic() + 60
    while recon.state == "running":
        assert time.monotonic() < until
        time.sleep(0.01)
    click(bench, "Run", "New run")
    assert bench._message.value == ""
    assert recon.closed
    assert bench.recon is not recon


def test_a_cluster_that_was_stopped_meanwhile_is_started_again_and_used(
    scan: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pt.Cluster(1, device="cpu") as cluster:
        bench = pt.workbench(scan, cluster=cluster)
        try:
            cluster.stop()
            field(bench, "Run", "Epochs").value = 1
            click(bench, "Run", "New run")
            told = "The cluster of this workbench was stopped; call its start() again."
            assert told in bench._message.value
            assert bench.recon is None
            cluster.start()
            click(bench, "Run", "New run")
            assert bench._message.value == ""
            assert bench.recon is not None
            bench.recon.wait()
            assert (bench.recon.epoch, bench.recon.cluster) == (1, cluster)
            bench.recon.close()
        finally:
            bench.close()


def test_a_reconstruction_that_there_is_already_is_put_on_the_bench(scan: Scan) -> None:
    settings = pt.Settings(batch=9)
    with pt.Reconstruction(scan, settings, checkpointing=None) as recon:
        recon.step()
        bench = pt.workbench(recon=recon)
        try:
            assert (bench.scan, bench.settings, bench.recon) == (scan, settings, recon)
            assert bench._tabs.selected_index == TABS.index("Run")
            click(bench, "Run", "Add to comparison")
            assert list(bench._desk.results) == ["epoch 1"]
        finally:
            bench.close()


def test_what_is_edited_in_quick_turns_comes_to_rest(bench: Workbench) -> None:
    for batch in (10, 11, 12, 13):
        bench._form.form.enter("batch", str(batch))
    for form in (bench._form, bench._tuning.form, bench._form, bench._tuning.form):
        form.settle()
    told = len(bench._desk.lines)
    time.sleep(1.0)
    assert len(bench._desk.lines) == told
    assert bench.settings.batch == bench._form.settings.batch == bench._tuning.form.settings.batch == 13


def test_the_best_of_a_study_becomes_the_settings(bench: Workbench) -> None:
    best = pt.Settings(probe=pt.Probe(learning_rate=0.003))
    bench._take_settings(best)
    bench._form.settle()
    assert bench.settings == best
    assert bench._form.settings == best
    assert bench._tuning.form.settings == best
    assert bench.code.count("0.003") == 1


def test_a_closed_workbench_leaves_no_thread_and_the_run_goes_on(scan: Scan) -> None:
    before = set(threading.enumerate())
    bench = pt.workbench(scan)
    reconstruct(bench, 1)
    recon = bench.recon
    assert recon is not None
    recon.start(1)
    bench.close()
    recon.wait()
    assert recon.epoch == 2
    recon.close()
    del recon, bench
    gc.collect()
    ours = [one for one in set(threading.enumerate()) - before if one.name.startswith("ptynb")]
    for thread in ours:
        thread.join(5)
    assert not [thread.name for thread in ours if thread.is_alive()]


def test_results_of_one_name_are_told_apart(scan: Scan) -> None:
    desk = Desk(scan, None, None)
    with pt.Reconstruction(scan, checkpointing=None) as recon:
        recon.step()
        desk.add_result("night", recon.result, "recon.result")
        desk.add_result("night", recon.result, "recon.result")
    assert list(desk.results) == ["night", "night (2)"]
    assert desk.lines[-3:] == ["kept = {}", "kept['night'] = recon.result", "kept['night (2)'] = recon.result"]


@pytest.mark.parametrize(
    "settings",
    [
        pt.Settings(),
        pt.Settings(batch=32, probe=pt.Probe(modes=3, learning_rate=0.02)),
        pt.Settings(optimiser="lsqml"),
        pt.Settings(regularizers=(pt.regularizers.TotalVariation(weight=0.1),)),
        pt.Settings(constraints=(pt.constraints.OrthogonalModes(), pt.constraints.RemovePhaseRamp())),
    ],
    ids=["defaults", "parts", "full steps", "one term", "constraints"],
)
def test_settings_as_python_make_the_same_settings(settings: pt.Settings) -> None:
    assert eval(as_python(settings), {"pt": pt}) == settings
