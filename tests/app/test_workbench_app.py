"""The workbench without a browser: its tabs, the tab Run with its fields and commands, film and diagnosis."""

from __future__ import annotations

import dataclasses
import gc
import re
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptynb as pt
from ptynb.app.session_state import SCAN
from ptynb.app.workbench_app import TABS, Workbench
from ptynb.data.patterns import ArrayFrames
from ptynb.data.scan import Scan
from ptynb.polling import wait_until
from ptynb.report.diagnosis_section import marked_place


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
    bench.run_tab.clusters.fields.enter("engines", "0")
    yield bench
    if bench.recon is not None:
        bench.recon.close()
    bench.close()


def done(bench: Workbench, command: Callable[[], None]) -> str:
    """Carry out a command, and return the message."""
    command()
    bench.actions.settle(60)
    return str(bench.message)


def reconstruct(bench: Workbench, epochs: int) -> pt.Reconstruction:
    bench.run_tab.epochs = epochs
    assert done(bench, bench.run_tab.new_run) == ""
    assert bench.recon is not None
    bench.recon.wait()
    return bench.recon


def test_pages_get_the_tab_in_front_first_and_the_others_when_they_ask(bench: Workbench) -> None:
    assert [title for title, view in bench.views.items() if view is not None] == ["Scan"]
    bench.receive_values({"tab": "Run"})
    assert [title for title, view in bench.views.items() if view is not None] == ["Scan", "Run"]
    bench.receive_command("show_all", {})
    assert (bench.views["Tune"], [*bench.views]) == (bench.tuning, [*TABS[:-1]])
    assert bench.lines == [*bench.code.splitlines()]


def test_a_scan_that_is_loaded_is_that_of_all_tabs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pt.save_scan(pt.simulate(patterns=25, window=32, seed=7), "some.h5")
    bench = pt.workbench()
    try:
        assert bench.facts == {"scan": "", "about": []}
        assert "There is no scan" in done(bench, bench.run_tab.new_run)
        bench.session.load("some.h5")
        assert bench.facts == {"scan": "simulated", "about": ["25 patterns of 32 × 32"]}
        assert bench.form.scan is bench.tuning.scan is bench.scan
        assert "scan = pt.load('some.h5')" in bench.lines
        look = bench.scan_tab.inspection
        assert look is not None
        look.settle()
        look.positions.exclude = "3, 7-9"
        look.positions.remove_excluded()
        look.settle()
        assert bench.facts["about"] == ["21 patterns of 32 × 32"]
        assert bench.scan_tab.inspection is look
        assert done(bench, bench.run_tab.save) != "", "the error of before is replaced"
    finally:
        bench.close()


def test_what_the_buttons_do_is_said_or_its_error_until_the_next_one(bench: Workbench) -> None:
    tab = bench.run_tab
    assert "There is no reconstruction; press New run first" in done(bench, tab.save)
    seen: list[tuple[str, bool]] = []
    bench.offers = {"one": "a run without a notebook"}
    tab.observe(lambda change: seen.append((change["new"], tab.view is not None)), "starting")
    recon = reconstruct(bench, 1)
    assert seen == [("starting the run …", False), ("", True)]
    assert (tab.result_path, bench.offers) == ("simulated.result.h5", {})
    for command, said in (
        (tab.save, "saved: simulated.result.h5"),
        (tab.report, "written: simulated.html"),
        (tab.add_to_comparison, "added to comparison: epoch 1"),
    ):
        assert (done(bench, command), tab.said) == ("", said)
    recon.start(1_000_000)
    assert wait_until(lambda: recon.state == "running", 30)
    assert "A run uses the engines" in done(bench, tab.new_run)
    assert "has not started engines" in done(bench, tab.stop_engines)
    recon.stop()


def test_stages_of_a_recommendation_are_entered_and_leave_those_of_the_user(bench: Workbench) -> None:
    stages, tab = (pt.Stage(epochs=2), pt.Stage(epochs=1, settings={"loss": "poisson"})), bench.run_tab
    tab.propose(stages)
    assert reconstruct(bench, 50).stages == stages
    tab.propose(())
    assert tab.stages == ""
    tab.stages = "- epoch: 3"
    tab.propose(())
    assert tab.stages == "- epoch: 3"
    assert "did you mean" in done(bench, tab.new_run)
    assert bench.recon is not None
    assert not bench.recon.closed


TRAPS = ("give energy=8.0", "3 x 4 over 2e-06", "Value error, Input should be")
"""Folders with names like what messages are made of."""


def test_where_checkpoints_are_kept_is_entered_and_refused_at_its_field(bench: Workbench, tmp_path: Path) -> None:
    tab = bench.run_tab
    fields = tab.checkpoints
    assert "newest 3 checkpoints, one every 60 s" in fields.usual
    for name, text in {"epochs": "0", "seconds": "soon", "max_to_keep": ""}.items():
        fields.enter(name, text)
    assert done(bench, tab.new_run) == ""
    assert (bench.recon, tab.page, fields.line) == (None, "Checkpointing", "")
    assert {name: "expected" in problem for name, problem in fields.problems.items()} == {
        "epochs": True, "seconds": True, "max_to_keep": True,
    }  # fmt: skip
    assert "One every [s]" in fields.problems["seconds"]
    for name, text in {"folder": "night", "epochs": "2", "seconds": "", "max_to_keep": "5"}.items():
        fields.enter(name, text)
    bench.actions.settle()
    given = "checkpointing=pt.Checkpointing(folder='night', epochs=2, seconds=None, max_to_keep=5)"
    assert (fields.problems, fields.line) == ({}, given)
    before = reconstruct(bench, 4)
    assert f"recon = pt.Reconstruction(scan, settings, {given})" in bench.lines
    assert wait_until(lambda: [*(tmp_path / "night").glob("state-*.h5")], 10)  # written beside the run
    assert done(bench, tab.new_run) == ""
    assert "already contains checkpoints" in fields.problems["folder"]
    assert (bench.recon, before.state) == (before, "ready")
    for trap in TRAPS:
        (tmp_path / trap).touch()
        fields.enter("folder", str(tmp_path / trap))
        bench.actions.settle()
        assert fields.problems == {"folder": f"{tmp_path / trap} is a file; enter a folder, which need not exist."}
    fields.enter("wanted", False)
    bench.actions.settle()
    assert ("folder" in fields.disabled, fields.problems, fields.line) == (True, {}, "checkpointing=None")


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


def test_while_engines_start_another_scan_is_loaded(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []

    def refuse(scan: pt.Scan, *_: Any, **more: Any) -> None:
        begun.append(scan)
        raise pt.ReconstructionError("No engine is left.", code="reconstruction.failed")

    monkeypatch.setattr("ptynb.cluster.cluster_start.Cluster", SlowEngines)
    monkeypatch.setattr("ptynb.app.session_state.Reconstruction", refuse)
    before = bench.scan
    bench.run_tab.clusters.fields.enter("engines", "1")
    bench.run_tab.new_run()
    assert SlowEngines.asked.wait(10)
    pt.save_scan(pt.simulate(patterns=25, window=32, seed=7), "some.h5")
    bench.actions.put(lambda: bench.session.load("some.h5"), lane=SCAN)
    assert wait_until(lambda: bench.scan is not before, 30)
    assert not begun, "engines are still starting"
    SlowEngines.released.set()
    bench.actions.settle()
    assert begun == [before], "the scan that was open when the run was asked for"
    assert "No engine is left" in bench.message
    held = threading.Event()
    bench.actions.put(lambda: (held.wait(30), setattr(bench.session, "scan", before)), lane=SCAN)  # type: ignore[arg-type]
    bench.run_tab.new_run()
    held.set()
    bench.actions.settle()
    assert begun == [before, before], "the scan that was being loaded when the run was asked for"


def test_checkpoints_are_followed_while_their_page_is_shown_and_compared_in_their_tab(bench: Workbench) -> None:
    recon = reconstruct(bench, 2)
    history = bench.run_tab.history
    assert history.resting
    bench.run_tab.view.page = "Checkpoints"
    assert not history.resting
    bench.run_tab.view.page = None
    assert history.resting
    recon.save_checkpoint()
    for _ in range(2):  # a second time each checkpoint is not added again
        history.open_comparison(recon.checkpoints[:1], True)
        bench.actions.settle()
    assert bench.tab == "Compare"
    assert [*bench.session.results] == ["epoch 2 (main)", "now, epoch 2", "now, epoch 2 (2)"]
    names: dict[str, Any] = {"recon": recon}
    told = [line for line in bench.lines if line.startswith(("import", "kept"))]
    exec("\n".join([*told, bench.lines[-1]]), names)
    assert [*names["view"].results] == ["epoch 2 (main)", "now, epoch 2 (2)"]
    names["view"].close()


def test_a_film_is_made_with_progress_and_can_be_cancelled(bench: Workbench) -> None:
    tab, seen = bench.run_tab, list[list[int]]()
    assert "There is no reconstruction" in done(bench, tab.make_film)
    reconstruct(bench, 2)
    message = done(bench, tab.make_film)
    assert "1 epoch; a film needs 2" in message or "no checkpoints" in message
    tab.film_of = "thumbnails"
    tab.observe(lambda change: seen.append(change["new"]), "film")
    assert (done(bench, tab.make_film), tab.said) == ("", "written: simulated.gif")
    assert (seen[0], seen[-2:]) == ([0, 1], [[4, 4], []])
    assert bench.lines[-1] == "pt.film(recon.result, 'simulated.gif')"
    tab.film_path = "other.gif"
    tab.observe(lambda _: tab.cancel_film(), "film")
    assert (done(bench, tab.make_film), tab.said) == ("", "The film was cancelled; no file was written.")
    assert not [*Path().glob("*other*")]


def faulty(scan: Scan) -> Scan:
    """The scan with a dead pixel and wrong positions."""
    patterns = np.array(scan.frames.read(0, len(scan)))
    patterns[:, 15, 18] = 0
    wrong = np.random.default_rng(0).normal(0, 0.7, scan.positions.shape)
    return dataclasses.replace(scan, frames=ArrayFrames.of(patterns), positions=scan.positions + wrong)


def diagnosed(bench: Workbench, trial: bool = False) -> list[dict[str, Any]]:
    """What is found by the page Diagnosis."""
    panel = bench.run_tab.diagnosis
    panel.diagnose(trial=trial)
    bench.actions.settle(120)
    return list(panel.findings)


def test_faults_of_a_run_are_shown_and_what_helps_is_applied_by_a_click(bench: Workbench) -> None:
    bench.session.scan = faulty(pt.simulate(patterns=49, window=32, seed=2))
    bench.use_settings(pt.Settings(optimiser="lsqml", momentum=0.5))
    bench.form.settle()
    recon = reconstruct(bench, 40)
    panel = bench.run_tab.diagnosis
    positions, pixels = plain = diagnosed(bench)
    assert "Epoch 40: 2 of" in panel.status
    found = pt.diagnose(recon)
    for one, finding in zip(plain, found, strict=True):
        assert (one["name"], one["explanation"], one["remedy"]) == (finding.name, finding.explanation, finding.remedy)
        assert f"{finding.value:.3g}, threshold {finding.threshold:.3g}" in one["strength"]
        assert one["can_apply"]
    assert bench.lines[-1] == "found = pt.diagnose(recon)"
    shown = [one["name"] for one in panel.viewer.frame["pictures"]]
    assert shown == [one.name for one in found if marked_place(recon.result, found, one) is not None]
    assert (panel.has_places, "bad pixels" in shown) == (True, True)
    # Trials are cancelled, and carried out.
    lines = bench.code
    panel.observe(lambda _: panel.cancel(), "progress")
    assert diagnosed(bench, trial=True) == plain
    assert ("cancelled" in panel.status, panel.progress, bench.code) == (True, [], lines)
    panel.unobserve_all("progress")
    assert ". It helps: after 30 epochs" in diagnosed(bench, trial=True)[0]["remedy"]
    assert (bench.lines[-1], recon.epoch) == ("found = pt.diagnose(recon, trial=True)", 40)
    # Remedies: of the run, and of the scan of the next one.
    for one in (positions, pixels):
        assert done(bench, lambda name=one["name"]: panel.apply(name)) == ""  # type: ignore[misc]
    assert recon.settings.positions.learning_rate == 0.5
    assert "press New run" in panel.applied
    assert bench.scan is not None
    assert bench.scan.mask is not None
    assert not bench.scan.mask[15, 18]
    assert done(bench, bench.run_tab.new_run) == ""
    assert bench.recon is not recon
    assert not bench.recon.scan.mask[15, 18]  # type: ignore[union-attr]


def test_a_run_is_diagnosed_while_it_goes_on_and_the_form_shows_the_remedy_of_the_next(bench: Workbench) -> None:
    recon = reconstruct(bench, 5)
    assert diagnosed(bench) == []
    panel = bench.run_tab.diagnosis
    assert re.search(r"None of \d+ known faults was found\. The run has 5 epochs\. Judged", panel.status)
    recon.start(1_000_000)
    diagnosed(bench)
    assert recon.state == "running"
    recon.stop()
    bench.use_settings(pt.Settings(optimiser="rpie"))
    bench.form.settle()
    recon.wait()
    reconstruct(bench, 8)
    slices = {"slices.count": 2, "slices.thickness": 1e-6}
    panel = bench.run_tab.diagnosis
    diagnosed(bench)
    finding = dataclasses.replace(panel.found.findings[0], name="slices", changes=slices, epochs=0, restart=True)
    panel.found = dataclasses.replace(panel.found, findings=(finding,))
    assert done(bench, lambda: panel.apply("slices")) == ""
    bench.form.settle()
    assert bench.settings.slices.count == bench.form.settings.slices.count == 2
    assert bench.lines[-1] == "settings = settings.with_values(found['slices'].changes)"


def test_a_reconstruction_that_there_is_already_is_put_on_the_bench(scan: Scan) -> None:
    settings = pt.Settings(batch=9)
    with pt.Reconstruction(scan, settings, checkpointing=None) as recon:
        recon.step()
        bench = pt.workbench(recon=recon)
        try:
            assert (bench.scan, bench.settings, bench.recon) == (scan, settings, recon)
            assert (bench.tab, bench.views["Run"]) == ("Run", bench.run_tab)
            assert done(bench, bench.run_tab.add_to_comparison) == ""
            assert [*bench.session.results] == ["epoch 1"]
            assert "recon.wait()" not in bench.lines
        finally:
            bench.close()


def test_settings_are_those_of_both_forms_and_quick_edits_come_to_rest(bench: Workbench) -> None:
    best = pt.Settings(probe=pt.Probe(learning_rate=0.003))
    bench.use_settings(best)
    forms = (bench.form, bench.tuning.form)
    for form in (*forms, *forms):
        form.settle()
    assert bench.settings == bench.form.settings == bench.tuning.form.settings == best
    assert bench.code.count("0.003") == 1
    for batch in (10, 11, 12, 13):
        bench.form.form.enter("batch", str(batch))
    for form in (*forms, *forms):
        form.settle()
    told = len(bench.lines)
    time.sleep(1.0)
    assert len(bench.lines) == told
    assert bench.settings.batch == bench.form.settings.batch == bench.tuning.form.settings.batch == 13


def test_a_closed_workbench_leaves_no_thread_and_the_run_goes_on(scan: Scan) -> None:
    before = set(threading.enumerate())
    bench = pt.workbench(scan)
    bench.run_tab.clusters.fields.enter("engines", "0")
    recon = reconstruct(bench, 1)
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
